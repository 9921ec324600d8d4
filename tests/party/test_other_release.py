"""Daemons of different releases: what one sends, another may not know."""

from __future__ import annotations

from pathlib import Path

import pytest

from fedmq import __version__
from fedmq.errors import FedmqError, Unreadable
from fedmq.messages.body import Body
from fedmq.messages.codec import read_body
from fedmq.messages.envelope import Header
from fedmq.messages.training import TrainingOpen
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory


async def test_a_training_whose_opening_a_party_cannot_read_ends_with_both_releases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_by_an_older_telco(header: Header, data: bytes) -> Body:
        if (header.recipient, header.kind) == ("telco", TrainingOpen.kind):
            raise Unreadable(header, "TrainingOpen: newer_field: Extra inputs are not permitted")
        return read_body(header, data)

    monkeypatch.setattr("fedmq.party.identity.sealer.read_body", read_by_an_older_telco)
    keys = {party: PrivateKeys.generate() for party in PARTIES}
    async with DaemonsInMemory(tmp_path, monkeypatch, keys=keys) as federation:
        with pytest.raises(
            FedmqError,
            match=f"telco gave up: telco cannot read the message 'training open'; telco runs fedmq "
            f"{__version__}, bank fedmq {__version__}: bring both to the same release",
        ):
            await federation.train("m", 1)
        assert federation.models() == {party: [] for party in PARTIES}
