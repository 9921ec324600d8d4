"""Daemons that train, and the auditor who is shown their transcripts afterwards."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.accountability.verification import Verdict, verify
from fedmq.party.configuration.federation import Federation
from fedmq.transport.sealing.keys import PrivateKeys
from tests.party.daemons_in_memory import PARTIES, DaemonsInMemory

__all__ = ["KEYS", "OPTIONS", "AuditedDaemons"]

KEYS = {party: PrivateKeys.generate() for party in PARTIES}
OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "paillier": {"key_bits": 256, "allow_weak_keys": True},
    "ou": {"key_bits": 384, "allow_weak_keys": True},
    "lattice": {},
    "smm1": {},
    "smm2": {"r": 4, "r_used": 2, "l1": 1, "l2": 1},
    "ldp": {},
}
"""Of engines, with keys that are short enough for a test."""


class AuditedDaemons(DaemonsInMemory):
    """Daemons with keys, whose tables lack some values."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, settings: str = "") -> None:
        settings = f"allow_weak_keys = true\nallow_leaky_engines = true\n{settings}"
        super().__init__(folder, patch, settings, KEYS, tuple(OPTIONS))

    def write_table(self, party: str, seed: int = 1) -> None:
        super().write_table(party, seed)
        path = self.folder / party / "data.csv"
        with path.open(newline="") as file:
            head, *lines = csv.reader(file)
        for line in lines[3::7]:
            line[-1] = ""
        with path.open("w", newline="") as file:
            csv.writer(file).writerows([head, *lines])

    async def trained(self, trees: int, engine: str = "plain") -> None:
        """Train a model, and stop."""
        await self.start()
        await self.train("m", trees, engine, **OPTIONS[engine])
        await self.stop()

    @property
    def sessions(self) -> list[str]:
        """The sessions of which the active party keeps what was signed."""
        return [path.name for path in (self.folder / "bank" / "state" / "transcripts").iterdir()]

    def shown(self, party: str) -> TranscriptFile:
        """What ``party`` hands to the auditor about its only session."""
        [session] = self.sessions
        path = self.folder / f"{party}.transcript"
        export(self.folder / party / "state", party, session, path)
        return TranscriptFile.read(path)

    def verified(self, party: str = "telco", signed: bool = True) -> Verdict:
        """The auditor's verdict about ``party``, with what the active party holds if ``signed``."""
        federation = Federation.read(self.folder / "federation.toml")
        held = self.shown("bank") if signed else None
        return verify(self.shown(party), federation, held)
