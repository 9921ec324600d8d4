"""Can a passive party learn labels by fitting whatever it hears about each row to labels it knows?

The attack knows nothing of any engine: it takes every number that came for a row as a feature, and
half of the labels, and lets XGBoost find out what they have to do with each other.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

import fedmq
from fedmq.boosting.metrics import auc
from fedmq.messages.array import Array, Bitmap
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.lattice import query

ROWS = 20_000
MOST_FEATURES = 400


def heard_by_telco(folder: Path, engine: str, **options: Any) -> tuple[Recording, NDArray[Any]]:
    """What telco saw of a training, and the labels."""
    random = np.random.default_rng(0)
    X = random.normal(size=(ROWS, 4)).round(1)
    label = (X.sum(axis=1) + random.normal(size=ROWS) > 0).astype(np.float32)
    fedmq.simulate(
        active=X[:, :1],
        label=label,
        passive={"telco": X[:, 1:]},
        params=fedmq.TrainParams(num_boost_round=2, max_depth=3, max_bin=8),
        engine=engine,
        engine_options=options,
        record=folder,
    )
    return Recording.read(folder / "telco.recording"), label


def columns(recording: Recording) -> Iterator[NDArray[Any]]:
    """Every vector that came with a number, or a bit, for each row; limbs as they came.

    What came in pieces is joined. In a query the numbers of rows come first.
    """
    pieces: dict[Any, list[NDArray[Any]]] = {}
    for envelope in recording.envelopes:
        if envelope.header.sender == recording.party:
            continue
        body = envelope.body
        about = (envelope.header.kind, getattr(body, "tree", None), getattr(body, "node", None))
        parts = {**dict(body), **getattr(body, "payload", {})}
        for name, part in parts.items():
            if isinstance(part, Array | Bitmap):
                vectors = np.atleast_2d(part.numpy())
                if envelope.header.kind == "directions query":
                    vectors = np.unpackbits(vectors, axis=1)
                elif envelope.header.kind == "gradient broadcast":
                    vectors = vectors.reshape(len(part.numpy()), -1).T
                pieces.setdefault((*about, name, len(vectors)), []).append(vectors)
    joined = [np.concatenate(parts, axis=1) for parts in pieces.values()]
    for vectors in sorted(joined, key=len):
        if vectors.shape[1] >= ROWS:
            yield from vectors[:, :ROWS]


def read_labels(recording: Recording, label: NDArray[Any]) -> float:
    """The AUC of the attack over the labels that it does not know."""
    features = np.column_stack(list(columns(recording))[:MOST_FEATURES]).astype(np.float32)
    known = np.random.default_rng(1).random(ROWS) < 0.5
    params = {"objective": "binary:logistic", "max_depth": 3, "eta": 0.1, "nthread": 1}
    model = xgboost.train(params, xgboost.DMatrix(features[known], label[known]), 10)
    scores = model.predict(xgboost.DMatrix(features[~known]))
    return auc(label[~known], scores)


@pytest.mark.parametrize("directions", ["oblivious", "all"])
def test_what_comes_on_a_lattice_has_nothing_to_do_with_labels(
    tmp_path: Path, directions: str
) -> None:
    recording, label = heard_by_telco(tmp_path, "lattice", directions=directions)
    assert read_labels(recording, label) == pytest.approx(0.5, abs=0.02)


def test_the_attack_reads_labels_from_gradients(tmp_path: Path) -> None:
    assert read_labels(*heard_by_telco(tmp_path, "plain")) > 0.95


def test_the_attack_reads_labels_from_queries_under_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def nothing(_: bytes, degree: int, __: int) -> NDArray[np.int8]:
        return np.zeros(degree, np.int8)

    monkeypatch.setattr(query, "draw_secret", nothing)
    monkeypatch.setattr("fedmq.privacy.lattice.query.draw_secret", nothing)
    assert read_labels(*heard_by_telco(tmp_path, "lattice")) > 0.95
