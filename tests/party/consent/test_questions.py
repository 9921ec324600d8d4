"""What a party's policy says of each question about a model, and what is recorded of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import Refused
from fedmq.messages.model_request import (
    ANSWERS,
    ModelCardOffer,
    ModelColumns,
    ModelDelete,
    ModelGroups,
    ModelQuestion,
    ModelSplits,
)
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.services.model_request import QUESTIONS
from tests.party.consent.test_policy_consent import HEADER, consent

TERMS = {"model": "credit", "column": "gender", "people": 40}
ALLOWS: dict[type[ModelQuestion], tuple[str, Any, str]] = {
    ModelCardOffer: ("sign_cards", True, "sign_cards = true in"),
    ModelDelete: ("delete_models", True, "delete_models = true in"),
    ModelColumns: ("column_names", "shared", 'column_names = "shared" in'),
    ModelGroups: ("groups", ["gender"], "groups of"),
    ModelSplits: ("joint_models", "ask", 'joint_models = "ask" in'),
}
questions = pytest.mark.parametrize("body", ALLOWS)


async def asked(state: Path, body: type[ModelQuestion], **policy: Any) -> list[dict[str, Any]]:
    """The audit log, once a party with this policy is asked."""
    question = QUESTIONS[body]
    agreed = {entry: TERMS[field] for entry, field in question.agreed.items()}
    party = consent(state, **policy)
    await party.question(HEADER, question.policy, question.does, TERMS, agreed)
    return list(AuditLog(state).entries())


def test_every_question_has_its_answer() -> None:
    assert QUESTIONS.keys() == ANSWERS.keys() == ALLOWS.keys()


@questions
async def test_its_key_of_the_policy_allows_it(body: type[ModelQuestion], tmp_path: Path) -> None:
    key, value, _ = ALLOWS[body]
    first, second = await asked(tmp_path, body, **{key: value})
    assert (first["event"], second["event"]) == ("asked", "agreed")
    for entry, field in QUESTIONS[body].agreed.items():
        assert second[entry] == TERMS[field]


@questions
async def test_another_key_does_not(body: type[ModelQuestion], tmp_path: Path) -> None:
    others = {key: value for other, (key, value, _) in ALLOWS.items() if other is not body}
    remedy = ALLOWS[body][2]
    with pytest.raises(Refused, match=rf"; {remedy} its \[policy\] would allow it$"):
        await asked(tmp_path, body, **others)
    assert [entry["event"] for entry in AuditLog(tmp_path).entries()] == ["asked"]


async def test_groups_of_another_column_are_not_added_up(tmp_path: Path) -> None:
    with pytest.raises(Refused, match="telco does not add up by groups of"):
        await asked(tmp_path, ModelGroups, groups=["town"])


@questions
async def test_no_other_peer_is_answered(body: type[ModelQuestion], tmp_path: Path) -> None:
    key, value, _ = ALLOWS[body]
    with pytest.raises(Refused, match="telco does not join sessions of bank"):
        await asked(tmp_path, body, **{key: value, "peers": ["retail"]})
