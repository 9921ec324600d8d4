"""Envelopes between parties with pinned keys, and what becomes of those that are not theirs."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import threading
import time
from pathlib import Path

import pytest

from fedmq import __version__
from fedmq.errors import ConfigError, LinkError, MessageError, Replayed, Stale, Untrusted
from fedmq.messages.codec import Parts, decode, encode, frame, read_header, unframe
from fedmq.messages.envelope import Envelope
from fedmq.messages.online import OnlineRows
from fedmq.party.configuration.federation import pin
from fedmq.party.configuration.party import PartyFile
from fedmq.party.identity import private_keys as private_keys
from fedmq.party.identity.handshakes import _OFFERED
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.identity.sealer import _HANDSHAKE_SECONDS, Clear, EndToEnd, sealer_of
from fedmq.party.store.journal import OpenedSessions
from fedmq.transport.sealing.connection import Seal
from fedmq.transport.sealing.keys import PrivateKeys
from tests.messages.bodies import example
from tests.party.sealed_parties import connect, envelope, sealers, shake_hands
from tests.virtual_clock import in_virtual_time

_KEPT = 8 * 24 * 3600


def test_an_envelope_arrives_as_it_was_sent() -> None:
    both = connect(sealers(["bank", "telco"]))
    for sequence in range(3):
        sent = envelope(sequence=sequence)
        assert both["telco"].open(both["bank"].seal(sent)) == sent
        back = envelope("telco", "bank", sequence=sequence)
        assert both["bank"].open(both["telco"].seal(back)) == back


def test_a_message_without_a_seal_is_refused() -> None:
    with pytest.raises(Untrusted, match="is not sealed"):
        sealers(["bank", "telco"])["telco"].open(encode(envelope()))


def test_a_party_without_keys_says_that_it_cannot_read() -> None:
    with pytest.raises(MessageError, match="has no keys to open it"):
        decode(connect(sealers(["bank", "telco"]))["bank"].seal(envelope()))


def test_a_message_for_another_party_is_refused() -> None:
    three = connect(sealers(["bank", "telco", "retail"]))
    with pytest.raises(MessageError, match="is for telco"):
        three["retail"].open(three["bank"].seal(envelope()))


def test_a_resent_message_is_taken_and_a_recorded_one_is_not() -> None:
    both = connect(sealers(["bank", "telco"]))
    recorded = both["bank"].seal(envelope())
    both["telco"].open(recorded)
    both["telco"].open(both["bank"].seal(envelope()))
    with pytest.raises(Replayed):
        both["telco"].open(recorded)


def test_nothing_is_sealed_before_keys_are_agreed_on() -> None:
    with pytest.raises(LinkError, match="no keys are agreed on with telco yet"):
        sealers(["bank", "telco"])["bank"].seal(envelope())


@pytest.mark.parametrize("restarted", ["bank", "telco"])
def test_whoever_restarts_the_two_agree_anew_and_no_recording_is_opened(restarted: str) -> None:
    rings = {name: KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")}
    pinned = {name: (ring.current.public,) for name, ring in rings.items()}
    both = connect({name: EndToEnd(ring, pinned) for name, ring in rings.items()})
    recorded = both["bank"].seal(envelope())
    both["telco"].open(recorded)

    both[restarted] = EndToEnd(rings[restarted], pinned)
    sent: list[bytes] = []
    bank, telco = both["bank"], both["telco"]
    for sealer in (bank, telco):
        sealer.connect_by(lambda _, data: sent.append(data))
    if restarted == "telco":
        with pytest.raises(Stale, match="they agree on new ones"):
            telco.open(bank.seal(envelope(sequence=2)))
        with pytest.raises(Stale):
            telco.open(recorded)
        assert len(sent) == 1  # the offer that heals it, and no other for the second message
        bank.open(sent.pop())
        telco.open(sent.pop())
        bank.open(sent.pop())
    else:
        shake_hands(bank, telco)
        with pytest.raises(Replayed):
            telco.open(recorded)
    again = envelope(sequence=3)
    assert telco.open(bank.seal(again)) == again
    assert bank.open(telco.seal(envelope("telco", "bank"))) == envelope("telco", "bank")


def test_a_recorded_offer_and_answer_do_not_displace_what_is_agreed_on() -> None:
    both = sealers(["bank", "telco"])
    bank, telco = both["bank"], both["telco"]
    recorded: list[bytes] = [bank.offer("demo", "telco")]
    telco.connect_by(lambda _, data: recorded.append(data))
    telco.open(recorded[0])
    bank.open(recorded[1])
    shake_hands(bank, telco)
    with pytest.raises(Replayed):
        telco.open(recorded[0])
    with pytest.raises(Untrusted, match="does not expect"):
        bank.open(recorded[1])
    assert telco.open(bank.seal(envelope())) == envelope()


@pytest.mark.parametrize("step", [7200, -7200, 400 * 24 * 3600, -400 * 24 * 3600])
def test_a_clock_that_is_set_and_set_back_changes_nothing(
    step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    both = connect(sealers(["bank", "telco"]))
    true = time.time
    for offset in (0, step, 0):
        monkeypatch.setattr("time.time", lambda offset=offset: true() + offset)
        for sent in (envelope(), question(1)):
            assert both["telco"].open(both["bank"].seal(sent)) == sent
    monkeypatch.setattr("time.time", lambda: true() + step)
    shake_hands(both["telco"], both["bank"])
    assert both["telco"].open(both["bank"].seal(envelope())) == envelope()


async def test_keys_of_yesterday_are_renewed_in_the_background() -> None:
    now = 0.0
    both = connect(sealers(["bank", "telco"], clock=lambda: now))
    bank, telco = both["bank"], both["telco"]
    before = seal_of(bank)
    now = 25 * 3600.0
    offered = asyncio.Event()
    sent: list[bytes] = []

    def post(_: str, data: bytes) -> None:
        sent.append(data)
        offered.set()

    bank.connect_by(post)
    await bank.ready(envelope().header, 0)  # nobody waits
    assert seal_of(bank) == before
    await asyncio.wait_for(offered.wait(), 5)
    telco.connect_by(lambda _, data: sent.append(data))
    telco.open(sent[0])
    bank.open(sent[1])
    assert seal_of(bank) != before
    await bank.close()


def seal_of(sealer: EndToEnd) -> bytes:
    """The id of the connection under which a party seals."""
    seal = unframe(sealer.seal(envelope())).seal
    assert seal is not None
    return Seal.from_bytes(seal).connection


async def test_who_waits_for_keys_learns_why_there_are_none() -> None:
    rings = {name: KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")}
    bank = EndToEnd(rings["bank"], {name: (ring.current.public,) for name, ring in rings.items()})
    strangers = {
        "bank": (PrivateKeys.generate().public,),
        "telco": (rings["telco"].current.public,),
    }
    telco = EndToEnd(rings["telco"], strangers)
    telco.connect_by(lambda _, data: bank.open(data))

    def post(_: str, data: bytes) -> None:
        with pytest.raises(Untrusted, match="not pinned here"):
            telco.open(data)

    bank.connect_by(post)
    with pytest.raises(LinkError, match=r"telco has not pinned the key that bank has; compare"):
        await bank.ready(envelope().header, 0.1)
    assert "fedmq keys trust" in bank.refusals["telco"]
    assert "not pinned here" in telco.refusals["bank"]
    await bank.close()


async def test_who_waits_for_keys_goes_on_as_soon_as_they_are_there() -> None:
    both = sealers(["bank", "telco"])
    waiting = asyncio.create_task(both["bank"].ready(envelope().header))
    await asyncio.sleep(0)
    shake_hands(both["telco"], both["bank"])
    both["bank"].open(both["telco"].seal(envelope("telco", "bank")))
    await asyncio.wait_for(waiting, 5)
    await both["bank"].close()


def test_who_comes_back_finds_no_more_offers_than_are_still_expected() -> None:
    async def times() -> list[float]:
        clock, offered = asyncio.get_running_loop().time, list[float]()
        bank = sealers(["bank", "telco"])["bank"]
        bank.connect_by(lambda _, __: offered.append(clock()))
        bank.greet("demo")
        await asyncio.sleep(100)
        await bank.close()
        return offered

    offered = in_virtual_time(times())
    assert len(offered) > 50
    for back in offered:
        waiting = [time for time in offered if back - _HANDSHAKE_SECONDS < time <= back]
        assert len(waiting) <= _OFFERED


@pytest.mark.parametrize(
    ("back", "within"), [("bank", 0.001), ("telco", 0.001), ("no link that noticed", 2.0)]
)
def test_two_parties_agree_on_keys_as_soon_as_the_link_of_either_is_back(
    back: str, within: float
) -> None:
    """Bank is restarted while nothing arrives: its offers become rare, and telco knows nothing."""

    async def scenario() -> None:
        rings = {name: KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")}
        pinned = {name: (ring.current.public,) for name, ring in rings.items()}
        both = {name: EndToEnd(ring, pinned) for name, ring in rings.items()}
        network_is_out = False

        def post(recipient: str, data: bytes) -> None:
            if not network_is_out:
                asyncio.get_running_loop().call_soon(take, recipient, data)

        def take(recipient: str, data: bytes) -> None:
            with contextlib.suppress(Stale):
                both[recipient].open(data)

        for sealer in both.values():
            sealer.connect_by(post)
            sealer.greet("demo")
        await asyncio.sleep(1)
        assert both["telco"].open(both["bank"].seal(envelope())) == envelope()

        network_is_out = True
        await both["bank"].close()
        both["bank"] = EndToEnd(rings["bank"], pinned)
        both["bank"].connect_by(post)
        both["bank"].greet("demo")
        await asyncio.sleep(100)
        network_is_out = False
        if back in both:
            both[back].reconnected()
        await asyncio.sleep(within)
        assert both["telco"].open(both["bank"].seal(envelope())) == envelope()
        for sealer in both.values():
            await sealer.close()

    in_virtual_time(scenario())


def test_a_party_of_an_older_version_is_refused_in_a_line_and_refuses_in_one() -> None:
    both = connect(sealers(["bank", "telco"]))
    parts = unframe(encode(envelope()))
    with pytest.raises(Untrusted, match="bring all parties to the same fedmq version"):
        both["telco"].open(frame(Parts(parts.header, parts.body, bytes(136))))
    offer = unframe(both["bank"].offer("demo", "telco"))
    with pytest.raises(MessageError, match="version 3 arrived, but this party speaks 2: bring all"):
        read_header(offer.header)


def question(number: int) -> Envelope:
    body = example(OnlineRows)
    sent = envelope(sequence=0)
    return Envelope(
        sent.header.model_copy(update={"kind": body.kind, "id": f"question {number}"}), body
    )


def test_keys_change_without_a_refused_message() -> None:
    telco = KeyRing("telco", PrivateKeys.generate())
    bank = KeyRing("bank", PrivateKeys.generate())
    first = bank.current.public

    def says(ring: KeyRing, trusted: list[object], number: int) -> None:
        """Both ways, with what telco trusts of bank."""
        pins = {"bank": tuple(trusted), "telco": (telco.current.public,)}
        here, there = EndToEnd(ring, pins), EndToEnd(telco, pins)  # type: ignore[arg-type]
        shake_hands(here, there)
        there.open(here.seal(envelope(sequence=number)))
        here.open(there.seal(envelope("telco", "bank", sequence=number)))

    says(bank, [first], 1)
    prepared = bank.prepared()
    assert prepared.next is not None
    second = prepared.next.public
    says(prepared, [first], 2)
    says(prepared, [first, second], 3)
    advanced = prepared.advanced()
    says(advanced, [first, second], 4)
    says(advanced, [second], 5)
    with pytest.raises(Untrusted, match="not pinned"):
        says(advanced, [first], 6)
    with pytest.raises(ConfigError, match="no next key"):
        advanced.advanced()


def test_a_running_session_keeps_its_keys_when_others_are_taken_up() -> None:
    rings = [KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")]
    old = {ring.party: (ring.current.public,) for ring in rings}
    bank, telco = (EndToEnd(ring, old) for ring in rings)
    shake_hands(bank, telco)
    telco.open(bank.seal(envelope()))

    stolen = KeyRing("bank", PrivateKeys.generate())
    new = {**old, "bank": (stolen.current.public,)}
    recorded = bank.seal(envelope(session="s2"))
    offered = EndToEnd(rings[0], old).offer("demo", "telco")
    telco.reload(EndToEnd(rings[1], new))

    sent = envelope(sequence=2)
    assert telco.open(bank.seal(sent)) == sent
    for unpinned in (recorded, offered):
        with pytest.raises(Untrusted, match="not pinned"):
            telco.open(unpinned)
    with pytest.raises(LinkError):
        telco.seal(envelope("telco", "bank"))
    bank.reload(EndToEnd(stolen, new))
    sent = envelope(sequence=3)
    assert telco.open(bank.seal(sent)) == sent
    shake_hands(bank, telco)
    fresh = envelope(session="s3")
    assert telco.open(bank.seal(fresh)) == fresh


def test_nothing_more_is_sealed_to_a_key_that_is_forgotten() -> None:
    rings = [KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")]
    old = {ring.party: (ring.current.public,) for ring in rings}
    bank = EndToEnd(rings[0], old)
    shake_hands(bank, EndToEnd(rings[1], old))
    bank.seal(envelope())

    renewed = KeyRing("telco", PrivateKeys.generate())
    new = {**old, "telco": (renewed.current.public,)}
    bank.reload(EndToEnd(rings[0], new))

    sent = envelope(sequence=2)
    with pytest.raises(LinkError, match="no keys are agreed on"):
        bank.seal(sent)
    telco = EndToEnd(renewed, new)
    shake_hands(bank, telco)
    assert telco.open(bank.seal(sent)) == sent


def test_whether_messages_are_sealed_at_all_is_decided_at_the_start() -> None:
    sealed = sealers(["bank", "telco"])["bank"]
    with pytest.raises(ConfigError, match="restart it to seal"):
        Clear().reload(sealed)
    with pytest.raises(ConfigError, match="no keys any more"):
        sealed.reload(Clear())
    Clear().reload(Clear())


class TestFiles:
    """The private keys on disk, and the public ones in the federation's file."""

    @pytest.fixture
    def party(self, tmp_path: Path) -> Path:
        (tmp_path / "federation.toml").write_text(
            '# ours\nname = "demo"\nactive = "bank"\npassive = ["telco"]\n'
        )
        (tmp_path / "party.toml").write_text(
            'party = "bank"\nfederation = "federation.toml"\nbroker = "amqp://bank:x@localhost/"\n'
            '[data]\npath = "data.csv"\nid = "id"\nlabel = "y"\n'
        )
        return tmp_path / "party.toml"

    def pinned(self, party: Path, *rings: KeyRing) -> None:
        for ring in rings:
            pin(party.with_name("federation.toml"), ring.party, [ring.current.public])

    @pytest.fixture
    def rings(self, party: Path) -> list[KeyRing]:
        rings = [KeyRing(name, PrivateKeys.generate()) for name in ("bank", "telco")]
        private_keys.write(party.with_name("keys.json"), rings[0])
        return rings

    def test_pinned_keys_seal(self, party: Path, rings: list[KeyRing]) -> None:
        self.pinned(party, *rings)
        assert sealer_of(*PartyFile.read(party)).sealed
        assert party.with_name("federation.toml").read_text().startswith("# ours\n")

    def test_without_keys_a_daemon_does_not_start(self, party: Path) -> None:
        with pytest.raises(ConfigError, match="it pins no keys of the parties"):
            sealer_of(*PartyFile.read(party))

    def test_unless_its_policy_allows_it(self, party: Path) -> None:
        with party.open("a") as file:
            file.write("[policy]\nallow_unsealed = true\n")
        assert isinstance(sealer_of(*PartyFile.read(party)), Clear)

    def test_a_party_whose_keys_are_missing_is_named(
        self, party: Path, rings: list[KeyRing]
    ) -> None:
        self.pinned(party, rings[0])
        with pytest.raises(ConfigError, match=r"keys\.telco: this party has no keys here"):
            PartyFile.read(party)

    def test_other_keys_than_the_pinned_ones_are_refused_at_once(
        self, party: Path, rings: list[KeyRing]
    ) -> None:
        self.pinned(party, KeyRing("bank", PrivateKeys.generate()), rings[1])
        with pytest.raises(ConfigError, match="the other parties would refuse every message"):
            sealer_of(*PartyFile.read(party))

    def test_keys_and_policy_change_in_place_and_the_rest_is_named(
        self, party: Path, rings: list[KeyRing]
    ) -> None:
        self.pinned(party, *rings)
        files = PartyFiles.read(party)
        self.pinned(party, KeyRing("telco", PrivateKeys.generate()))
        text = party.read_text()
        party.write_text(f"wait_for_broker = true\n{text}[policy]\nmost_trees = 7\n")

        newer = files.read_again()
        assert files.needs_restart(newer) == ["wait_for_broker"]
        now = files.reloaded(newer)
        assert now.config.policy.most_trees == 7
        assert not now.config.wait_for_broker
        assert now.sealer is files.sealer

        federation = party.with_name("federation.toml")
        federation.write_text(federation.read_text().replace('"demo"', '"other"'))
        assert "federation" in files.needs_restart(files.read_again())

    def test_private_keys_are_for_their_owner_alone(
        self, party: Path, rings: list[KeyRing]
    ) -> None:
        path = party.with_name("keys.json")
        assert path.stat().st_mode & 0o777 == 0o600
        path.chmod(0o640)
        with pytest.raises(ConfigError, match="chmod 600"):
            private_keys.read(path, "bank")

    def test_a_passphrase_locks_the_keys(self, party: Path) -> None:
        ring = KeyRing("bank", PrivateKeys.generate()).prepared()
        path = party.with_name("keys.json")
        private_keys.write(path, ring, "open sesame")
        text = path.read_bytes()
        assert private_keys.is_locked(path)
        opened = private_keys.read(path, "bank", lambda: "open sesame")
        assert [pair.to_bytes() for pair in opened.all] == [pair.to_bytes() for pair in ring.all]
        assert ring.current.to_bytes() not in text
        with pytest.raises(ConfigError, match="the passphrase does not open"):
            private_keys.read(path, "bank", lambda: "open barley")
        with pytest.raises(ConfigError, match="FEDMQ_KEYS_PASSPHRASE"):
            private_keys.read(path, "bank")

    @pytest.mark.parametrize("content", ["", "[]", "{}", '{"format": "fedmq keys 1"}', "\x00"])
    def test_a_damaged_file_is_a_line(self, tmp_path: Path, content: str) -> None:
        path = tmp_path / "keys.json"
        path.write_text(content)
        path.chmod(0o600)
        with pytest.raises(ConfigError, match="no file of private keys"):
            private_keys.read(path, "bank")

    def test_another_partys_keys_are_refused(self, tmp_path: Path) -> None:
        private_keys.write(tmp_path / "keys.json", KeyRing("telco", PrivateKeys.generate()))
        with pytest.raises(ConfigError, match="the keys of telco, not of bank"):
            private_keys.read(tmp_path / "keys.json", "bank")


class TestOpenings:
    """A session opens once, whatever happens to the daemon in between."""

    async def test_a_recorded_opening_opens_nothing_after_a_restart(self, tmp_path: Path) -> None:
        header = envelope().header
        assert await OpenedSessions(tmp_path).record_opening(header)
        again = OpenedSessions(tmp_path)
        assert not await again.record_opening(header)
        assert await again.record_opening(header.model_copy(update={"attempt": 2}))

    async def test_of_openings_that_come_at_once_one_is_the_first(self, tmp_path: Path) -> None:
        header, opened_sessions = envelope().header, OpenedSessions(tmp_path)
        first = await asyncio.gather(*[opened_sessions.record_opening(header) for _ in range(9)])
        assert sorted(first) == [False] * 8 + [True]

    async def test_the_event_loop_turns_while_an_opening_is_recorded(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        turned, seen = threading.Event(), []
        monkeypatch.setattr("os.fsync", lambda _: seen.append(turned.wait(5)))
        recording = asyncio.create_task(OpenedSessions(tmp_path).record_opening(envelope().header))
        await asyncio.sleep(0)
        turned.set()
        assert await recording
        assert seen and all(seen)

    async def test_openings_are_forgotten_when_nobody_sends_them_again(
        self, tmp_path: Path
    ) -> None:
        now = 0.0
        opened_sessions = OpenedSessions(tmp_path, lambda: now)
        for session in ("a", "b", "c"):
            assert await opened_sessions.record_opening(envelope(session=session).header)
        now += _KEPT + 3600
        assert await opened_sessions.record_opening(envelope(session="d").header)
        assert len((tmp_path / "openings.jsonl").read_text().splitlines()) == 1

    async def test_a_line_cut_short_is_no_opening(self, tmp_path: Path) -> None:
        await OpenedSessions(tmp_path).record_opening(envelope().header)
        with (tmp_path / "openings.jsonl").open("a") as file:
            file.write('["bank", "s2", 1, 17')
        opened_sessions = OpenedSessions(tmp_path)
        assert await opened_sessions.record_opening(envelope(session="s2").header)
        assert not await OpenedSessions(tmp_path).record_opening(envelope(session="s2").header)
        assert not await OpenedSessions(tmp_path).record_opening(envelope().header)

    async def test_a_line_cut_short_by_a_full_disk_swallows_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        opened_sessions = OpenedSessions(tmp_path)
        assert await opened_sessions.record_opening(envelope(session="s1").header)

        def full(descriptor: int) -> None:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - 9)
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as disk, pytest.raises(ConfigError, match="No space left"):
            disk.setattr("os.fsync", full)
            await opened_sessions.record_opening(envelope(session="s2").header)
        assert await opened_sessions.record_opening(envelope(session="s3").header)
        again = OpenedSessions(tmp_path)
        first = [
            await again.record_opening(envelope(session=session).header)
            for session in ("s1", "s2", "s3")
        ]
        assert first == [False, True, False]

    async def test_an_opening_is_kept_for_days_after_its_last_repetition(
        self, tmp_path: Path
    ) -> None:
        now = 0.0
        opened_sessions = OpenedSessions(tmp_path, lambda: now)
        header = envelope().header
        assert await opened_sessions.record_opening(header)
        now = _KEPT / 2  # sent once more
        assert not await opened_sessions.record_opening(header)
        now += _KEPT - 3600
        assert not await OpenedSessions(tmp_path, lambda: now).record_opening(header)


def test_parties_tell_each_other_their_release_with_their_keys() -> None:
    both = sealers(["bank", "telco"])
    assert both["bank"].releases == {}
    connect(both)
    for party, other in (("bank", "telco"), ("telco", "bank")):
        assert both[party].releases == {other: __version__}


def test_a_party_of_a_release_that_says_none_is_known_as_that(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("fedmq.party.identity.sealer._SAYS", "")
    both = connect(sealers(["bank", "telco"]))
    assert both["bank"].releases == {"telco": ""}
