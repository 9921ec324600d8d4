"""A lie among daemons ends the session at all of them, and who lied is kept as evidence."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import DaemonError
from fedmq.party.consent.audit_log import AuditLog
from fedmq.privacy.plan import Exchange, Reply
from fedmq.protocol.training.passive_growth import PassiveGrowth
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

TREE = 1


@pytest.fixture
def telco_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one tree it answers sums larger than those of all rows."""
    honest = PassiveGrowth._reply

    def reply(self: PassiveGrowth, number: int, step: Exchange | Reply, run: Any) -> None:
        if self.terms.party == "telco" and self.tree == TREE and isinstance(step, Reply):
            made_up = [{"left": np.full_like(piece["left"], 1 << 60)} for piece in step.pieces]
            step = Reply(step.node, made_up)
        honest(self, number, step, run)

    monkeypatch.setattr(PassiveGrowth, "_reply", reply)


@pytest.mark.usefixtures("telco_lies")
async def test_the_session_ends_at_every_party_and_the_evidence_is_kept(
    federation: DaemonsInMemory,
) -> None:
    with pytest.raises(
        DaemonError, match="telco: tree 1, node 1: no rows of the node have these sums"
    ) as ended:
        await federation.train("m", 3)
    assert ended.value.exit_code == 10

    log = AuditLog(federation.folder / "bank" / "state")

    async def kept() -> list[dict[str, Any]]:
        return [entry for entry in log.entries() if entry["event"] == "inconsistent"]

    [entry] = await federation.until(kept)
    assert (entry["peer"], entry["model"]) == ("telco", "m")
    assert entry["what"] == "tree 1, node 1: no rows of the node have these sums"
    place = {"tree": TREE, "node": 1}
    assert place.items() <= entry["evidence"].items()
    assert entry["evidence"]["g above"] == entry["evidence"]["candidates"] > 0

    async def ended_everywhere() -> bool:
        stored = [
            await daemon.parts.context.session_store.find(entry["session"])
            for daemon in federation.daemons.values()
        ]
        return all(session and session.state == "failed" for session in stored)

    await federation.until(ended_everywhere)
    for party in PARTIES:
        stored = await federation.daemons[party].parts.context.session_store.find(entry["session"])
        assert stored is not None
        assert "telco: tree 1, node 1" in stored.reason
    assert not any(federation.models().values())


@pytest.mark.usefixtures("telco_lies")
async def test_no_attempt_follows_and_the_next_training_is_another_session(
    federation: DaemonsInMemory,
) -> None:
    with pytest.raises(DaemonError, match="telco: tree 1"):
        await federation.train("m", 3)
    await federation.stop("bank")
    await federation.start("bank")
    assert not await federation.daemons["bank"].parts.context.session_store.running()
    assert (await federation.train("shorter", 1))["trees"] == 1  # no lie in the first tree
