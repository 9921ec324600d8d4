"""The dossier of a simulated model: all columns by name, nothing of signatures or serving."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import fedmq


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("recordings")


def test_it_has_columns_evaluation_and_audits_and_no_sections_of_daemons(folder: Path) -> None:
    random = np.random.default_rng(0)
    own, theirs = random.normal(size=(300, 2)), random.normal(size=(300, 2))
    label = (own[:, 0] + theirs[:, 0] > 0).astype(np.float32)
    model = fedmq.simulate(
        active=own,
        label=label,
        passive={"telco": theirs},
        params=fedmq.TrainParams(num_boost_round=2, max_depth=2, max_bin=8),
        evaluation=np.arange(300) % 3 == 0,
        engine="plain",
        record=folder,
    )
    bare = model.dossier()
    titles = [section.title for section in bare.sections]
    assert "Who has agreed" not in titles and "How it is watched" not in titles
    assert not any("fedmq models" in line or "PARTY" in line for line in bare.missing)
    report = model.evaluate(active=own, label=label, passive={"telco": theirs}, samples=0)
    audit = fedmq.audit(folder / "telco.recording", label=label)
    full = model.dossier("a trial", report=report, audits=[audit], label=["default"])
    by_title = {section.title: section for section in full.sections}
    first = by_title["What the model is for"]
    assert first.facts["learns"] == "default" and first.facts["purpose"] == "a trial"
    gains = {row[:2] for row in by_title["What it looks at"].tables[0].rows}
    assert ("telco", model.columns["telco"][0]) in gains
    assert by_title["How it was made"].facts["columns of telco"].startswith("2: ")
    assert by_title["How good it is"].charts[0].name == "ROC"
    attacks = by_title["What the training showed to whom"].tables[0].rows
    assert "gradients told" in {row[0] for row in attacks}
    assert len(full.missing) < len(bare.missing)
    full.write(folder / "dossier.html")
    assert (folder / "dossier.html").read_text().count("<svg") == len(report.charts)
