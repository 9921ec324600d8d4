"""Sums by group of another party's column: what comes back, and what passes by on the way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import DataError, Refused
from fedmq.messages.array import Array, pack_payload
from fedmq.messages.envelope import Envelope
from fedmq.messages.model_request import ModelGroupPiece, ModelGroups, ModelGroupSums
from fedmq.privacy.homomorphic.group_sums import add_by_group, decrypt_group_sums, encrypt_people
from fedmq.privacy.homomorphic.paillier import PrivateKey, generate
from fedmq.protocol.model_request.active import ActiveModelRequest
from fedmq.protocol.model_request.passive import GroupPieces, PassiveModelRequest
from fedmq.protocol.session_records import PeopleAnswered, hashed_ids
from tests.protocol.inspection import Bits, Numbers, Texts, leaks
from tests.simulator import Link, Simulation

PEOPLE = 40
IDS = tuple(f"p{row}" for row in range(PEOPLE))
RANDOM = np.random.default_rng(2)
ONES, SELECTED = RANDOM.random((2, PEOPLE)) < 0.4
SCORE = RANDOM.random(PEOPLE)
GROUP_OF = np.arange(PEOPLE) % 2


@dataclass(frozen=True, eq=False)
class Added:
    label: ClassVar[str] = "Added"
    key: PrivateKey
    ciphertexts: NDArray[np.uint8]

    def run(self) -> Any:
        sums = add_by_group(self.key.public, self.ciphertexts, GROUP_OF)
        counts = np.bincount(GROUP_OF).astype(np.uint32)
        return ("f", "m"), counts, sums, PeopleAnswered("telco", "question", hashed_ids(IDS))


@dataclass(frozen=True)
class Failing:
    label: ClassVar[str] = "Failing"
    error: Exception

    def run(self) -> Any:
        raise self.error


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate(512)


def asked(
    key: PrivateKey,
    computation: Computation | None = None,
    refusal: str = "",
    link: Link | None = None,
    tap: Callable[[Envelope], None] = lambda _: None,
) -> Simulation:
    ciphertexts = encrypt_people(key, ONES, SELECTED, SCORE)
    n = np.frombuffer(int(key.public.n).to_bytes(64, "little"), np.uint8)
    question = ModelGroups(
        model="credit", column="gender", people=PEOPLE, public=pack_payload({"n": n})
    )
    pieces = [
        ModelGroupPiece(
            start=start,
            ids=IDS[start : start + 16],
            ciphertexts=Array.of(ciphertexts[start : start + 16]),
        )
        for start in range(0, PEOPLE, 16)
    ]

    def addition(ids: tuple[str, ...], ciphertexts: NDArray[np.uint8]) -> Computation:
        assert ids == IDS
        return computation or Added(key, ciphertexts)

    answer = Refused(refusal) if refusal else GroupPieces(PEOPLE, addition)
    machines = {
        "bank": ActiveModelRequest("telco", question, pieces),
        "telco": PassiveModelRequest("bank", answer),
    }
    simulation = Simulation(machines, link=link, tap=tap)
    simulation.run()
    return simulation


def test_sums_come_back_whatever_befalls_the_messages(key: PrivateKey) -> None:
    simulation = asked(key, link=Link(drop=0.2, repeat=0.2, delay=1.0))
    body = simulation.results["bank"]
    assert isinstance(body, ModelGroupSums)
    assert (body.groups, body.counts.numpy().tolist()) == (("f", "m"), [20, 20])
    first, second = decrypt_group_sums(key, body.ciphertexts.numpy(), PEOPLE)
    assert first.ones == ONES[::2].sum()
    assert second.selected_ones == (ONES & SELECTED)[1::2].sum()


@pytest.mark.parametrize(
    ("computation", "refusal", "words"),
    [
        (None, "telco does not add up", "telco does not add up"),
        (Failing(Refused("telco answers 5 questions")), "", "telco answers 5 questions"),
        (Failing(DataError("/home/telco/data.csv: no gender")), "", "the party's log"),
    ],
    ids=["policy", "limit", "data"],
)
def test_a_refusal_says_why_and_quotes_no_file(
    key: PrivateKey, computation: Computation | None, refusal: str, words: str
) -> None:
    simulation = asked(key, computation, refusal)
    assert simulation.results == {}
    assert words in str(simulation.errors["bank"])
    assert "/home" not in str(simulation.errors["bank"])


def test_nobody_reads_a_label_a_score_or_who_is_in_which_group(key: PrivateKey) -> None:
    heard: list[Envelope] = []
    asked(key, tap=heard.append)
    rows = np.arange(PEOPLE)
    secrets = [
        Numbers("score", ["bank"], SCORE),
        Numbers("fixed score", ["bank"], np.rint(SCORE * 2**16).astype(np.int64)),
        Bits("label", ["bank"], rows, ONES),
        Bits("selected", ["bank"], rows, SELECTED),
        Bits("group", ["telco"], rows, GROUP_OF.astype(np.bool_)),
        Texts("group names", ["telco", "bank"], ["f", "m"]),
    ]
    assert leaks(heard, secrets) == set()
    assert len(heard) >= 5
