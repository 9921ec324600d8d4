"""Python on a page runs, from top to bottom, over small tables with the names that pages use.

A page's ``...`` stands for the parties' tables. Where no key is given, the engine is the one
without encryption, which computes the same model. Examples, which are files, run in
tests/test_examples.py; what asks a daemon runs in test_commands.py and in tests/workbench.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xgboost

import fedmq
from fedmq.simulation import comparison
from fedmq.simulation.simulate import simulate
from tests.documentation.fences import DOCS, ROOT, pages_with, to_run

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]

ELSEWHERE = {
    DOCS / "reference" / "examples.md",
    DOCS / "how-to" / "serve-scores.md",
    DOCS / "how-to" / "drive-daemons.md",
    DOCS / "how-to" / "mlflow.md",
}
PAGES = [page for page in pages_with("python") if page not in ELSEWHERE]
ROWS = 60


def tables() -> dict[str, Any]:
    """What the pages call their tables, labels and rows, made up."""
    draw = np.random.default_rng(0)
    bank, telco, retail = (draw.normal(size=(ROWS, 3)).astype(np.float32) for _ in range(3))
    label = (bank[:, 0] + telco[:, 1] + draw.normal(size=ROWS) > 0).astype(np.float32)
    columns = ("calls", "data", "visits", "income", "age", "late_payments")
    frame = pd.DataFrame(draw.normal(size=(ROWS, len(columns))), columns=columns)
    return {
        "bank": bank,
        "telco": telco,
        "retail": retail,
        "insurer": bank,
        "label": label,
        "y": label,
        "default": label,
        "claims": draw.poisson(1, ROWS),
        "policies": np.ones(ROWS),
        "exposure": draw.uniform(0.1, 1, ROWS),
        "held_out": range(0, ROWS, 5),
        "rows_of_last_year": range(0, ROWS, 5),
        "rows_of_this_year": range(1, ROWS, 5),
        "frame": frame,
        "later_frame": frame,
        "later_label": label,
    }


def quickly(
    *, engine: str = "plain", sums: str = "shown", key: Any = None, **options: Any
) -> fedmq.SimulatedModel:
    """``fedmq.simulate`` with few trees, and in the clear, unless the page says otherwise.

    Sums that a page hides are in the clear as well: the model is the same.
    """
    assert sums in ("hidden", "shown")
    options.setdefault("params", {"num_boost_round": 7, "max_depth": 2})
    engine = "plain" if engine == "paillier" and key is None else engine
    return simulate(engine=engine, key=key, **options)


def names(found: Mapping[str, Any]) -> dict[str, Any]:
    """``found``, the modules that pages suppose, and models that were trained before."""
    everybody = {
        "active": found["bank"],
        "label": found["label"],
        "passive": {"telco": found["telco"], "retail": found["retail"]},
    }
    earlier = fedmq.simulate(**everybody, params={"num_boost_round": 2})
    of_two = {**everybody, "passive": {"telco": found["telco"]}}
    return {
        **found,
        "fedmq": fedmq,
        "np": np,
        "xgboost": xgboost,
        "everybody": everybody,
        "winter": earlier,
        "model": fedmq.simulate(**of_two, params={"num_boost_round": 2}),
    }


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_the_python_of_a_page_runs(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for module in (fedmq, comparison):
        monkeypatch.setattr(module, "simulate", quickly)
    known = names(tables())
    for fence in to_run("python", page):
        text = re.sub(r"(?<=[(,]) *(\n *)?\.\.\.(?=[,)])", r"\1**everybody", fence.text)
        exec(compile(text, str(fence), "exec"), known)  # noqa: S102
