"""An active party aligns again and again, to learn who is a customer of somebody else."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import FedmqError, Refused
from fedmq.messages.alignment import AlignmentOpen
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.policy_consent import DAY, DailyQuota, PolicyConsent
from fedmq.protocol.alignment.passive import PassiveAlignment
from tests.party.sealed_parties import envelope
from tests.protocol.alignment.alignments import Own, machines
from tests.simulator import Simulation

TELCO = [f"+4917{number:07d}" for number in range(500)]
STRANGERS = [f"x{number}" for number in range(500)]
OPENING = AlignmentOpen(name="customers", parties=("bank", "telco"), normalise=("trim",))
HEADER = envelope().header


def errors(owners: dict[str, list[str]], fewest: int, **bounds: Any) -> dict[str, FedmqError]:
    """What each party reads when telco wants at least ``fewest`` common ids."""
    parties = machines({party: Own(ids) for party, ids in owners.items()}, fewest={"telco": fewest})
    telco = parties["telco"]
    assert isinstance(telco, PassiveAlignment)
    for name, value in bounds.items():
        setattr(telco, name, value)
    simulation = Simulation(parties)
    simulation.run()
    return simulation.errors


@pytest.mark.parametrize("probe", [TELCO[42], "a stranger"])
def test_a_list_of_one_id_is_not_blinded(probe: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from fedmq.protocol.alignment import blinded_lists

    def blind(*_: object) -> None:
        raise AssertionError("the list was blinded")

    monkeypatch.setattr(blinded_lists.blind, "bind", blind)
    found = errors({"bank": [probe], "telco": TELCO}, fewest=100)
    assert isinstance(found["telco"], Refused)
    assert str(found["telco"]) == "bank's list holds 1 ids; telco aligns with 100 to 268435456"
    assert "telco aligns with lists of 100 to 268435456 ids" in str(found["bank"])


def test_a_list_that_tries_all_numbers_is_not_blinded() -> None:
    found = errors({"bank": TELCO + STRANGERS, "telco": TELCO}, fewest=100, _longest=999)
    assert str(found["telco"]) == "bank's list holds 1000 ids; telco aligns with 100 to 999"


def test_a_third_partys_short_list_is_refused_as_well() -> None:
    found = errors({"bank": TELCO, "telco": TELCO, "retail": TELCO[:5]}, fewest=100)
    assert "retail's list holds 5 ids" in str(found["telco"])


def test_below_the_limit_nobody_reads_how_many_ids_are_common() -> None:
    texts = {
        tuple(sorted((party, str(error)) for party, error in found.items()))
        for common in (0, 1, 7, 99)
        if (found := errors({"bank": TELCO[:common] + STRANGERS, "telco": TELCO}, fewest=100))
    }
    assert len(texts) == 1
    assert dict(texts.pop())["bank"] == (
        "the parties have fewer ids in common than the 100 that telco wants; "
        "do all write ids alike (data.normalise)?"
    )


async def test_alignments_are_counted_by_the_day_and_over_a_restart(tmp_path: Path) -> None:
    policy = PolicySection(most_alignments_per_day=3)
    consent = PolicyConsent("telco", policy, AuditLog(tmp_path))
    await consent.alignment(HEADER, OPENING)
    await consent.alignment(HEADER, OPENING)

    consent = PolicyConsent("telco", policy, AuditLog(tmp_path))
    await consent.alignment(HEADER, OPENING)
    with pytest.raises(Refused, match="3 alignments a day at most"):
        await consent.alignment(HEADER, OPENING)


async def test_two_that_open_together_after_a_restart_count_what_was_before_once(
    tmp_path: Path,
) -> None:
    policy = PolicySection(most_alignments_per_day=3)
    await PolicyConsent("telco", policy, AuditLog(tmp_path)).alignment(HEADER, OPENING)

    consent = PolicyConsent("telco", policy, AuditLog(tmp_path))
    await asyncio.gather(*(consent.alignment(HEADER, OPENING) for _ in range(2)))
    with pytest.raises(Refused, match="3 alignments a day at most"):
        await consent.alignment(HEADER, OPENING)


def test_a_day_later_there_is_another_alignment() -> None:
    now = 0.0
    quota = DailyQuota(1, "alignments", lambda: now)
    quota.take()
    with pytest.raises(Refused):
        quota.take()
    now = DAY
    quota.take()
