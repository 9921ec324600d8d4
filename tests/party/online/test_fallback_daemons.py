"""Fallback models by three daemons on a broker: from one command to a score without a party."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.party.online.serving_federation import TOKEN, ServingFederation, fedmq
from tests.rabbitmq_node import RabbitNode

UNKNOWN = 100
ROWS = 1_200
RATE = 0.2
TOLERANCE = 0.1  # of a hundred people


@pytest.mark.long
def test_people_of_whom_a_party_says_nothing_get_calibrated_scores_without_it(
    tmp_path: Path, node: RabbitNode
) -> None:
    """Telco knows nothing of the first hundred, who default seldom, as the bank's column says."""
    random = np.random.default_rng(7)
    table = random.normal(size=(ROWS, 6)).astype(np.float32)
    risk = np.where(table[:, 0] > 0, 0.75, RATE)
    table[:UNKNOWN, 0] = -np.abs(table[:UNKNOWN, 0])
    risk[:UNKNOWN] = RATE
    label = (random.random(ROWS) < np.where(table[:, 2] > 1.2, 0.95, risk)).astype(np.int64)
    made = ServingFederation(
        tmp_path / "demo",
        table,
        label,
        [],
        online='unknown = "fallback"\ndeadline = 8.0\naway = 1.0\n',
        unknown_at_telco=UNKNOWN,
        node=node,
    )
    bank = made.folder / "bank" / "party.toml"
    (made.folder / "bank" / "align.toml").write_text('party = "party.toml"\nname = "people"\n')
    (made.folder / "bank" / "train.toml").write_text(
        'party = "party.toml"\nmodel = "credit"\nengine = "plain"\nalignment = "people"\n'
        "evaluation = 0.3\nfallback = true\n"
        "[params]\nnum_boost_round = 8\nmax_depth = 2\nmax_bin = 16\neta = 0.5\n"
    )
    ids = made.ids[:UNKNOWN]
    try:
        made.start()
        fedmq("align", made.folder / "bank" / "align.toml")
        trained = fedmq("train", made.folder / "bank" / "train.toml", "--json")
        fallbacks = json.loads(trained.stdout)["fallbacks"]
        assert [of["model"] for of in fallbacks] == [
            "credit-without-telco",
            "credit-without-retail",
            "credit-alone",
        ]
        assert all(of["worth"]["metric"] == "eval-logloss" for of in fallbacks)
        made.activate("credit")
        found = asked(made, ids)
        scores = np.array([row["score"] for row in found["scores"]])
        assert scores.mean() == pytest.approx(label[:UNKNOWN].mean(), abs=TOLERANCE)
        assert {row["fallback"] for row in found["scores"]} == {"credit-without-telco"}
        assert found["degraded"] == {"telco": 1.0} and found["model"] == "credit"
        one = json.loads(fedmq("score", bank, ids[0], "--json").stdout)
        assert one["scores"][0]["score"] == pytest.approx(float(scores[0]))
        assert "without telco" in fedmq("score", bank, ids[0]).stdout

        (tmp_path / "ids.csv").write_text("\n".join(["id", *ids]) + "\n")
        fedmq("predict", bank, tmp_path / "ids.csv", "-o", tmp_path / "scores.csv")
        with (tmp_path / "scores.csv").open(newline="") as file:
            rows = list(csv.DictReader(file))
        assert [float(row["score"]) for row in rows] == pytest.approx(scores.tolist())
        reason = "unknown at telco; scored by credit-without-telco"
        assert {row["reason"] for row in rows} == {reason}

        made.kill("telco")
        rest = asked(made, made.ids[UNKNOWN : UNKNOWN + 5])
        assert {row["fallback"] for row in rest["scores"]} == {"credit-without-telco"}
        made.start("telco")
    finally:
        made.stop()


def asked(made: ServingFederation, ids: list[str]) -> dict[str, object]:
    answer = httpx.post(
        f"{made.url}/v1/models/production/predict",
        json={"ids": ids},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=20,
    )
    assert answer.status_code == 200, answer.text
    found: dict[str, object] = answer.json()
    return found
