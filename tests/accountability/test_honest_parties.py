"""The transcripts of honest trainings are proved, whatever happened on the way."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, DataError, Inconsistent
from fedmq.messages import training
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.transcripts import session_folder
from fedmq.privacy.engines.plain import Plain
from tests.accountability.audited import OPTIONS, AuditedDaemons
from tests.how_often import seldom_several


@pytest.mark.parametrize("engine", OPTIONS)
async def test_every_answer_of_an_honest_training_is_proved(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(3, engine)
    for party in ("telco", "retail"):
        verdict = daemons.verified(party)
        assert (verdict.engine, verdict.rows, verdict.columns) == (engine, 40, ("x0", "x1"))
        assert (verdict.attempts, verdict.trees, verdict.signed) == (1, 3, 3)
        assert verdict.thin_trees == 0
        assert verdict.answers > 6
        assert daemons.verified(party, signed=False).signed == 3  # by what the bank signed


async def test_limits_of_its_policy_are_part_of_what_a_party_commits_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch, "smallest_cell = 3\nsmallest_node = 12\n")
    await daemons.trained(3)
    assert daemons.verified().trees == 3
    shown = daemons.shown("telco")
    for attempt in shown.attempts.values():
        assert attempt.commitment is not None
        assert attempt.commitment.settings.smallest_cell == 3


@pytest.mark.long
async def test_attempts_after_crashes_are_proved_one_after_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    asking = asyncio.create_task(daemons.train("m", 60))
    for party in ("telco", "bank", "retail"):
        await daemons.session("retail" if party == "bank" else "bank")
        await asyncio.sleep(0.3)
        if party == "bank":
            asking.cancel()
        await daemons.stop(party)
        await daemons.start(party)
    await daemons.until(lambda: _is_trained(daemons))
    await daemons.stop()
    verdict = daemons.verified()
    assert verdict.attempts > 1
    assert verdict.trees >= 60
    # A crash may come after a tree is saved, and before its signature has left.
    assert verdict.signed > 60 - verdict.attempts
    again = daemons.verified("retail")
    assert again.signed > 60 - again.attempts


async def _is_trained(daemons: AuditedDaemons) -> bool:
    return all(models == ["m"] for models in daemons.models().values())


async def test_of_a_large_training_the_trees_of_the_lowest_lots_are_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch, "transcript_bytes = 17000\n")
    await daemons.trained(12)
    verdict = daemons.verified()
    assert 0 < verdict.thin_trees < verdict.trees == verdict.signed == 12


@pytest.mark.parametrize(
    ("engine", "room"), [*seldom_several(("lattice", 900_000)), ("smm1", 50_000)]
)
async def test_queries_are_left_out_by_lot_as_gradients_are(
    engine: str, room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch, f"transcript_bytes = {room}\n")
    await daemons.trained(6, engine)
    verdict = daemons.verified()
    assert 0 < verdict.thin_trees < verdict.trees == verdict.signed == 6


async def test_a_training_that_continues_a_model_is_proved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.start()
    await daemons.train("first", 1)
    [first] = daemons.sessions
    params = TrainParams(num_boost_round=2, max_depth=2, max_bin=8)
    job = TrainingJob(model="second", engine="plain", params=params, continue_from="first")
    await daemons.ask("bank", "train", job=job.model_dump(mode="json"))
    await daemons.stop()
    [second] = set(daemons.sessions) - {first}
    monkeypatch.setattr(AuditedDaemons, "sessions", [second])
    verdict = daemons.verified()
    assert (verdict.trees, verdict.signed) == (2, 2)


async def test_hints_and_sums_are_kept_as_hashes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(1, "lattice")
    answers = daemons.shown("telco").attempts[1].answers
    kept = {type(answer.body) for answer in answers if answer.digest}
    assert kept == {training.EngineSetup, training.HistogramReply}


async def test_what_nobody_can_replay_is_not_exported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    monkeypatch.setattr(Plain, "traits", replace(Plain.traits, replays=False))
    await daemons.trained(1)
    with pytest.raises(ConfigError, match="engine 'plain', whose answers cannot be replayed"):
        daemons.shown("telco")


async def test_who_shows_less_than_it_signed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(3)
    [session] = daemons.sessions
    [tree] = session_folder(tmp_path / "telco" / "state", session).glob("1-1-*.tree")
    content = tree.read_bytes()
    tree.write_bytes(content[:-40])
    with pytest.raises(Inconsistent, match="tree 1: it does not show the messages, or the table"):
        daemons.verified()
    tree.unlink()
    with pytest.raises(Inconsistent, match="tree 1: it does not show the messages, or the table"):
        daemons.verified()
    assert daemons.verified("retail").signed == 3


async def test_another_table_than_the_one_committed_to_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(2)
    shown = daemons.shown("telco")
    commitment = shown.attempts[1].commitment
    assert commitment is not None
    commitment.values[5, 0] += 10
    monkeypatch.setattr(daemons, "shown", {"telco": shown, "bank": daemons.shown("bank")}.get)
    with pytest.raises(Inconsistent, match="attempt 1: it shows another table, secret or policy"):
        daemons.verified()


async def test_a_statement_that_the_party_has_not_signed_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    daemons = AuditedDaemons(tmp_path, monkeypatch)
    await daemons.trained(1)
    statements = daemons.shown("bank").statements
    forged = [type(signed)(signed.statement, bytes(64)) for signed in statements]
    held = daemons.shown("bank")
    held.statements[:] = forged
    monkeypatch.setattr(daemons, "shown", {"telco": daemons.shown("telco"), "bank": held}.get)
    with pytest.raises(DataError, match="of the federation file; if keys changed since"):
        daemons.verified()
