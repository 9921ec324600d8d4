"""Where only hidden sums are asked for, the engine that takes the least time is chosen."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.party.configuration.job import TrainingJob
from fedmq.privacy.registry import cheapest_to_hide_sums

SHALLOW = TrainParams(max_depth=3)


@pytest.mark.parametrize(
    ("rows", "columns", "candidates", "trees", "engine"),
    [
        (20_000, 10, 78, 25, "lattice"),  # Credit 2
        (120_000, 5, 160, 25, "lattice"),
        (10_000, 500, 15_500, 25, "ou"),  # whose hints are 2 GB
        (1_000, 200, 6_000, 1, "ou"),  # whose hints pay in no tree
        (1_000, 200, 6_000, 100, "lattice"),
    ],
)
def test_a_lattice_hides_few_candidates_and_ou_many(
    rows: int, columns: int, candidates: int, trees: int, engine: str
) -> None:
    assert cheapest_to_hide_sums(rows, columns, candidates, trees, SHALLOW) == engine


def test_ou_is_chosen_the_rather_the_deeper_trees_of_many_rows_are() -> None:
    rows, columns, candidates = 1_000_000, 5, 155
    chosen = [
        cheapest_to_hide_sums(rows, columns, candidates, 25, TrainParams(max_depth=depth))
        for depth in (3, 9)
    ]
    assert chosen == ["lattice", "ou"]


def test_a_simulation_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def choose(*sizes: Any) -> str:
        asked.append(sizes[:-1])
        return "lattice"

    monkeypatch.setattr("fedmq.simulation.simulate.cheapest_to_hide_sums", choose)
    random = np.random.default_rng(0)
    table = random.normal(size=(60, 3)).round(1)
    model = fedmq.simulate(
        active=table[:, :1],
        label=(table.sum(axis=1) > 0).astype(int),
        passive={"telco": table[:, 1:]},
        params={"num_boost_round": 1, "max_depth": 2, "max_bin": 4, "xgboost_arithmetic": OLDEST},
        workers=1,
    )
    assert asked == [(60, 2, 8, 1)]
    kinds = {kind for sent in model.traffic.values() for kind in sent}
    assert {"circuit piece", "query piece"} <= kinds  # a lattice's queries


@pytest.mark.parametrize(
    ("job", "engine", "sums"),
    [
        ({"engine_options": {"sums": "hidden"}}, "lattice", "hidden"),
        ({"engine_options": {"sums": "hidden"}, "engine": "ou"}, "ou", "hidden"),
        ({"engine_options": {"sums": "shown"}}, "paillier", "shown"),
        ({"engine": "paillier"}, "paillier", None),
        ({}, "lattice", "hidden"),
    ],
    ids=str,
)
def test_a_job_without_an_engine_hides_sums(
    job: dict[str, Any], engine: str, sums: str | None
) -> None:
    read = TrainingJob.model_validate(job)
    assert (read.engine, read.engine_options.get("sums")) == (engine, sums)
    again = TrainingJob.model_validate(read.model_dump(mode="json"))
    assert again == read
