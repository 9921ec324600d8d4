"""Messages of attempts that do not run here: who hears what, and what goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq import __version__
from fedmq.errors import Replayed
from fedmq.messages.body import Abort, SessionUnknown
from fedmq.messages.training import TrainingOpen, TreeStarted
from fedmq.party.identity.sealer import Clear
from tests.messages.bodies import example
from tests.party.sessions.recovery import SESSION, RestartedParty, Trainings, until


async def test_a_recorded_opening_is_refused_and_its_sender_learns_to_begin_anew(
    tmp_path: Path,
) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        opening = telco.envelope(example(TrainingOpen))
        assert await telco.opened_sessions.record_opening(opening.header)
        with pytest.raises(Replayed, match="bank opened session s1 here before"):
            await telco.unexpected_messages.take(opening)
        assert isinstance(await telco.reply(), SessionUnknown)


async def test_whoever_speaks_of_an_attempt_that_was_lost_learns_so(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(SESSION)
        assert await telco.unexpected_messages.take(telco.envelope(example(TreeStarted))) is None
        assert isinstance(await telco.reply(), SessionUnknown)
        assert await telco.state() == ("running", "")


async def test_a_session_that_the_active_party_gives_up_has_failed_here_too(
    tmp_path: Path,
) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(SESSION)
        await telco.unexpected_messages.take(telco.envelope(Abort(reason="enough")))
        assert await telco.state() == ("failed", "bank gave up: enough")
        assert await telco.resumption.idle() == []


async def test_who_gives_up_by_a_numbered_message_is_answered_so_that_it_stops_resending_it(
    tmp_path: Path,
) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(SESSION)
        given_up = telco.envelope(Abort(reason="enough"), sequence=7)
        for _ in range(2):  # the first answer may be lost
            await telco.unexpected_messages.take(given_up)
            assert isinstance(await telco.reply(), SessionUnknown)
        assert await telco.state() == ("failed", "bank gave up: enough")
    async with RestartedParty(tmp_path, "bank", Trainings()) as bank:
        await bank.unexpected_messages.take(bank.envelope(Abort(reason="enough"), sequence=7))
        assert isinstance(await bank.reply(), SessionUnknown)


async def test_the_owner_is_no_longer_asked_about_a_session_that_was_given_up_after_a_restart(
    tmp_path: Path,
) -> None:
    """Alignments are not stored, but the question to the owner is."""
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.unexpected_messages.take(telco.envelope(Abort(reason="enough")))
        assert telco.withdrawn == ["s1"]


async def test_a_failed_session_is_refused_with_its_reason(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(SESSION)
        await telco.store.end(SESSION.id, "failed", "telco cancelled the session")
        await telco.unexpected_messages.take(telco.envelope(example(TrainingOpen), attempt=2))
        assert await telco.reply() == Abort(reason="telco cancelled the session")


async def test_the_restart_of_another_party_makes_the_active_one_open_a_new_attempt(
    tmp_path: Path,
) -> None:
    trainings = Trainings()
    async with RestartedParty(tmp_path, "bank", trainings) as bank:
        await bank.store.begin(SESSION)
        await bank.unexpected_messages.take(bank.envelope(SessionUnknown()))
        await until(lambda: trainings.resumed == ["s1"])


async def test_a_session_that_nobody_knows_is_refused(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "bank", Trainings()) as bank:
        await bank.unexpected_messages.take(bank.envelope(SessionUnknown()))
        assert await bank.reply() == Abort(
            reason="bank has no such session: if it began there, the state of bank is old, as if "
            "put back from a backup"
        )


async def test_an_opening_that_cannot_be_read_is_refused_with_both_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Clear, "releases", {"bank": "9.9.9"})
    async with RestartedParty(tmp_path, "telco") as telco:
        opening = telco.envelope(example(TrainingOpen), sequence=1).header
        await telco.unexpected_messages.refuse_unreadable(opening)
        assert await telco.reply() == Abort(
            reason="telco cannot read the message 'training open'; telco runs fedmq "
            f"{__version__}, bank fedmq 9.9.9: bring both to the same release"
        )


@pytest.mark.parametrize("sequence", [0, 2])
async def test_no_later_message_that_cannot_be_read_is_answered(
    tmp_path: Path, sequence: int
) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        later = telco.envelope(example(TreeStarted), sequence=sequence).header
        await telco.unexpected_messages.refuse_unreadable(later)
        assert telco.heard.empty()


async def test_a_known_session_waits_for_a_release_that_reads_its_messages(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "telco") as telco:
        await telco.store.begin(SESSION)
        opening = telco.envelope(example(TrainingOpen), attempt=2, sequence=1).header
        await telco.unexpected_messages.refuse_unreadable(opening)
        assert telco.heard.empty()
        assert await telco.state() == ("running", "")


async def test_the_active_party_answers_nothing_that_it_cannot_read(tmp_path: Path) -> None:
    async with RestartedParty(tmp_path, "bank", Trainings()) as bank:
        refusal = bank.envelope(Abort(reason="enough"), sequence=1).header
        await bank.unexpected_messages.refuse_unreadable(refusal)
        assert bank.heard.empty()
