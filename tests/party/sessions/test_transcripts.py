"""What is signed while daemons train, and what each keeps of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from fedmq.errors import FedmqError
from fedmq.messages import training
from fedmq.party.identity import private_keys
from fedmq.party.identity.private_keys import KeyRing, Passphrase
from fedmq.party.identity.sealer import EndToEnd
from fedmq.party.store.transcripts import COMMITMENT, MESSAGE, STATEMENT, records_of
from fedmq.protocol.session_records import Statement
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory
from tests.party.slow_token import SlowToken, keys_on

KEYS = {party: PrivateKeys.generate() for party in PARTIES}
TREES = 3


@pytest.fixture
async def federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[DaemonsInMemory]:
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=KEYS) as daemons:
        yield daemons


def kept(federation: DaemonsInMemory, party: str, kind: str) -> list[list[Any]]:
    files = sorted((federation.folder / party / "state" / "transcripts").rglob("*.*"))
    return [record for file in files for record in records_of(file) if record[0] == kind]


async def test_the_active_party_keeps_what_each_party_signed_about_each_tree(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("m", TREES)
    signed = [
        (Statement.from_bytes(data), sign)
        for _, _, data, sign in kept(federation, "bank", STATEMENT)
    ]
    for party in PARTIES[1:]:
        own = [(statement, sign) for statement, sign in signed if statement.passive == party]
        assert [statement.tree for statement, _ in own] == list(range(TREES))
        for statement, signature in own:
            assert KEYS[party].public.verifies(statement.to_bytes(), signature)
            assert not KEYS["bank"].public.verifies(statement.to_bytes(), signature)
        [[_, _, commitment]] = kept(federation, party, COMMITMENT)
        assert {statement.commitment for statement, _ in own} == {commitment["root"]}


async def test_a_party_keeps_what_it_was_asked_and_hashes_of_its_sums(
    federation: DaemonsInMemory,
) -> None:
    await federation.train("m", TREES)
    messages = kept(federation, "telco", MESSAGE)
    for incoming in (True, False):
        sequences = sorted(record[3] for record in messages if record[2] == incoming)
        assert sequences == list(range(1, len(sequences) + 1))
    replies = [record for record in messages if record[4] == training.HistogramReply.kind]
    assert replies
    assert all(len(record[6]) == 32 and len(record[5]) < 80 for record in replies)


async def test_who_signs_other_messages_than_it_sent_ends_the_session(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = EndToEnd.sign

    def sign(self: EndToEnd, data: bytes) -> bytes:
        return honest(self, data + b"!" if self.party == "telco" else data)

    monkeypatch.setattr(EndToEnd, "sign", sign)
    with pytest.raises(FedmqError, match="telco: tree 0: it signs messages that were not sent"):
        await federation.train("m", TREES)
    assert not [data for _, _, data, _ in kept(federation, "bank", STATEMENT) if b"telco" in data]


async def test_an_active_party_that_does_not_sign_what_it_heard_is_not_answered_again(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    honest = EndToEnd.sign

    def sign(self: EndToEnd, data: bytes) -> bytes:
        return b"" if self.party == "bank" else honest(self, data)

    monkeypatch.setattr(EndToEnd, "sign", sign)
    with pytest.raises(
        FedmqError, match="the sender has not signed the messages of the previous tree"
    ):
        await federation.train("m", TREES)


def on_tokens(patch: pytest.MonkeyPatch, **tokens: SlowToken) -> None:
    """The keys of these parties lie on ``tokens``."""
    read = private_keys.read

    def slow(path: Path, party: str, passphrase: Passphrase) -> KeyRing:
        ring = read(path, party, passphrase)
        return KeyRing(party, keys_on(tokens[party], ring.current)) if party in tokens else ring

    patch.setattr(private_keys, "read", slow)


async def test_slow_tokens_sign_every_tree_and_the_loop_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bank, telco = SlowToken(0.02), SlowToken(0.02)
    on_tokens(monkeypatch, bank=bank, telco=telco)
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=KEYS) as federation:
        await federation.train("m", TREES)
    signed = [
        (Statement.from_bytes(data), signature)
        for _, _, data, signature in kept(federation, "bank", STATEMENT)
    ]
    by_telco = [(said, signature) for said, signature in signed if said.passive == "telco"]
    assert [said.tree for said, _ in by_telco] == list(range(TREES))
    assert all(KEYS["telco"].public.verifies(said.to_bytes(), sign) for said, sign in by_telco)
    assert telco.done.count("sign") == TREES
    assert bank.done.count("sign") == TREES * len(PARTIES[1:])
    assert bank.waited + telco.waited == []


async def test_a_passive_party_whose_token_does_not_sign_ends_the_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_tokens(monkeypatch, telco=SlowToken(0.02, refusals=1))
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=KEYS) as federation:
        with pytest.raises(FedmqError, match=r"telco gave up: .* its log says why") as raised:
            await federation.train("m", TREES)
    assert "token" not in str(raised.value)  # it is the other party's


async def test_an_active_party_whose_token_does_not_sign_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on_tokens(monkeypatch, bank=SlowToken(0.02, refusals=1))
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=KEYS) as federation:
        with pytest.raises(FedmqError, match="the token is busy"):
            await federation.train("m", TREES)


async def test_the_end_of_a_training_is_signed_when_the_token_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model is there already: what the token refused is asked of it again."""
    bank = SlowToken(0.02, refusals=1)
    on_tokens(monkeypatch, bank=bank)
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=KEYS) as federation:
        await federation.train("m", 1)
        for _ in range(1000):
            if bank.done.count("sign") == len(PARTIES[1:]):
                break
            await asyncio.sleep(0.02)
    assert bank.done.count("sign") == len(PARTIES[1:])
    assert bank.waited == []


async def test_a_party_whose_policy_keeps_no_transcript_commits_to_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch, "transcript_bytes = 0\n", KEYS)
    await federation.start()
    assert (await federation.train("m", 1))["trees"] == 1
    for party in PARTIES:
        assert not (tmp_path / party / "state" / "transcripts").exists()
    await federation.stop()


async def test_a_training_whose_required_transcript_does_not_fit_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = 'transcript_bytes = 1500\ntranscripts = "required"\n'
    federation = DaemonsInMemory(tmp_path, monkeypatch, policy, KEYS)
    await federation.start()
    with pytest.raises(FedmqError, match="the policy requires a transcript"):
        await federation.train("m", 12)
    await federation.stop()


async def test_trees_with_the_highest_lots_give_way_where_room_is_short(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    federation = DaemonsInMemory(tmp_path, monkeypatch, "transcript_bytes = 17000\n", KEYS)
    await federation.start()
    await federation.train("m", 12)
    await federation.stop()
    lots: dict[bool, list[int]] = {True: [], False: []}
    for record in kept(federation, "telco", MESSAGE):
        if record[4] == training.GradientBroadcast.kind:
            lots[bool(record[6])].append(record[1])
    folder = next((tmp_path / "telco" / "state" / "transcripts").iterdir())
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 17000
    whole = [int(path.stem.split("-")[2]) for path in folder.glob("*.tree")]
    thin = [int(path.stem.split("-")[2]) for path in folder.glob("*.thin")]
    assert len(whole) + len(thin) == 12
    assert whole
    assert thin
    assert max(whole) < min(thin)
    assert len(lots[True]) == len(thin)
