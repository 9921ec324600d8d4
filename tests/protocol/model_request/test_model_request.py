"""One party is asked about a model, and does it or refuses, whatever befalls the messages."""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import Refused
from fedmq.messages.array import Array
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelCardSigned,
    ModelColumnNames,
    ModelColumns,
    ModelDelete,
    ModelDeleted,
)
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import PassiveModelRequest
from tests.simulator import Link, Simulation

CARD = ModelCardOffer(model="credit", card="{}")
DELETE = ModelDelete(model="credit")
COLUMNS = ModelColumns(model="credit")
NAMES = ModelColumnNames(
    columns=RecordColumns(column=Array.of(np.zeros(2, np.uint32)), texts=("age",))
)


def run(
    question: ModelCardOffer | ModelDelete | ModelColumns,
    answer: ModelCardSigned | ModelDeleted | ModelColumnNames | Refused,
    seed: int = 0,
    link: Link | None = None,
) -> Simulation:
    machines = {
        "bank": ActiveModelRequest("telco", question),
        "telco": PassiveModelRequest("bank", answer),
    }
    simulation = Simulation(machines, seed=seed, link=link)
    simulation.run()
    return simulation


@pytest.mark.parametrize(
    ("question", "answer"),
    [(CARD, ModelCardSigned(endorsement="{}")), (DELETE, ModelDeleted()), (COLUMNS, NAMES)],
    ids=["card", "delete", "names"],
)
@pytest.mark.parametrize("seed", range(3))
def test_the_answer_arrives(question: Body, answer: Body, seed: int) -> None:
    simulation = run(question, answer, seed, Link(drop=0.2, repeat=0.2, delay=1.0))  # type: ignore[arg-type]  # parametrised
    assert simulation.results == {"bank": answer, "telco": answer}


def test_a_refusal_says_why() -> None:
    simulation = run(DELETE, Refused("telco does not delete its share when others ask"))
    assert simulation.results == {}
    assert isinstance(simulation.errors["bank"], Refused)
    assert "telco does not delete its share" in str(simulation.errors["bank"])


def test_an_answer_to_another_question_is_no_answer() -> None:
    simulation = run(CARD, ModelDeleted())
    assert "bank" not in simulation.results
    assert "telco" not in simulation.errors or "bank" in simulation.errors
    assert simulation.errors["bank"]
