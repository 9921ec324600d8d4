"""Whole daemons in one process, over a broker in memory: what comes between two steps is chosen."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.party import assembly
from fedmq.party.compute.pool import ThreadPool
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.daemon import Daemon
from fedmq.party.identity import private_keys
from fedmq.party.identity.party_files import PartyFiles
from fedmq.party.identity.private_keys import KeyRing
from fedmq.party.operations.control import send_request
from fedmq.transport.link import Lane, OnState
from fedmq.transport.memory import MemoryBroker, MemoryLink
from fedmq.transport.sealing.keys import PrivateKeys

__all__ = ["PARTIES", "DaemonsInMemory"]

PARTIES = ("bank", "telco", "retail")

Hold = Callable[[str, str, str], Awaitable[bool]]
"""Given sender, recipient and message: waits as long as it likes; whether the message is lost."""


async def _deliver(_: str, __: str, ___: str) -> bool:
    return False


class DaemonsInMemory:
    """Three parties, which run for as long as ``async with`` lasts.

    ``hold`` sees every message before it leaves; ``keys`` seal and sign.
    """

    def __init__(
        self,
        folder: Path,
        patch: pytest.MonkeyPatch,
        settings: str = "",
        keys: Mapping[str, PrivateKeys] | None = None,
        engines: Sequence[str] = ("plain",),
    ) -> None:
        self.folder = folder
        self.hold: Hold = _deliver
        self.daemons: dict[str, Daemon] = {}
        self._running: dict[str, asyncio.Task[None]] = {}
        broker = MemoryBroker()
        held = self

        class Link(MemoryLink):
            def __init__(
                self, _: Any, __: str, party: str, *, on_state: OnState, **___: Any
            ) -> None:
                super().__init__(broker, party, on_state=on_state)

            async def publish(
                self, recipient: str, lane: Lane, body: bytes, *, message_id: str
            ) -> None:
                if not await held.hold(self.party, recipient, body.decode("latin-1")):
                    await super().publish(recipient, lane, body, message_id=message_id)

        patch.setattr(assembly, "RabbitMQLink", Link)
        patch.setattr(assembly, "ProcessPool", lambda *_, **__: ThreadPool())
        names = json.dumps(PARTIES[1:])
        (folder / "federation.toml").write_text(
            f'name = "demo"\nactive = "bank"\npassive = {names}\n'
            + "".join(
                f'{"" if number else "[keys]" + chr(10)}{party} = "{own.public}"\n'
                for number, (party, own) in enumerate((keys or {}).items())
            )
        )
        for party in PARTIES:
            broker.declare(party)
            (folder / party).mkdir()
            if keys is not None:
                private_keys.write(folder / party / "keys.json", KeyRing(party, keys[party]))
            self.write_table(party)
            label = 'label = "label"\n' if party == "bank" else ""
            (folder / party / "party.toml").write_text(
                f'party = "{party}"\nfederation = "../federation.toml"\n'
                'broker = "amqp://nobody:secret@127.0.0.1:1/"\n'
                f'[data]\npath = "data.csv"\nid = "id"\n{label}'
                f"[policy]\nengines = {json.dumps(engines)}\n"
                f"allow_unsealed = true\nsmallest_alignment = 1\n{settings}"
            )

    def write_table(self, party: str, seed: int = 1) -> None:
        """Forty people, two columns; at the bank a label."""
        random = np.random.default_rng([seed, PARTIES.index(party)])
        columns = ["id", *(["label"] if party == "bank" else []), "x0", "x1"]
        lines = [",".join(columns)]
        for row in range(40):
            label = [str(random.integers(2))] if party == "bank" else []
            lines.append(",".join([f"p{row:02}", *label, *map(str, random.normal(size=2))]))
        (self.folder / party / "data.csv").write_text("\n".join(lines) + "\n")

    async def start(self, *parties: str) -> None:
        """Start these, or all, and return when they are ready."""
        for party in parties or PARTIES:
            made = Daemon(PartyFiles.read(self.folder / party / "party.toml"))
            ready = asyncio.Event()
            running = asyncio.create_task(made.run(ready.set))
            waiting = asyncio.create_task(ready.wait())
            await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
            if running.done():
                running.result()
            self.daemons[party], self._running[party] = made, running

    async def stop(self, *parties: str) -> None:
        """Stop these, or all, as SIGTERM would."""
        for party in parties or tuple(self.daemons):
            self.daemons.pop(party).stop()
            await self._running.pop(party)

    async def __aenter__(self) -> Self:
        """Start all; they stop at the end."""
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    async def ask(self, party: str, do: str, /, **request: Any) -> Any:
        """What the daemon of ``party`` answers to its owner."""
        state = self.folder / party / "state"
        *_, last = [event async for event in send_request(state, {"do": do, **request})]
        return last["result"]

    async def train(self, model: str, trees: int, engine: str = "plain", **options: Any) -> Any:
        """What the bank's daemon answers at the end of a training."""
        params = TrainParams(num_boost_round=trees, max_depth=2, max_bin=8)
        job = TrainingJob(model=model, engine=engine, engine_options=options, params=params)
        return await self.ask("bank", "train", job=job.model_dump(mode="json"))

    async def until(self, seen: Callable[[], Awaitable[Any]]) -> Any:
        """The first answer of ``seen`` that is not empty."""
        for _ in range(1000):
            if found := await seen():
                return found
            await asyncio.sleep(0.02)
        raise AssertionError("it was never seen")

    async def waiting(self, party: str) -> dict[str, Any]:
        """The request that waits for the owner of ``party``, once there is one."""

        async def first() -> Any:
            found = await self.ask(party, "inbox")
            return next((request for request in found if request["state"] == "waiting"), None)

        request: dict[str, Any] = await self.until(first)
        return request

    async def withdrawn(self, party: str) -> None:
        """Wait until the last request at ``party`` is withdrawn."""

        async def last() -> bool:
            return bool((await self.ask(party, "inbox"))[-1]["state"] == "withdrawn")

        await self.until(last)

    async def session(self, party: str = "bank") -> str:
        """The session that runs at ``party``."""

        async def running() -> str:
            sessions = (await self.ask(party, "status"))["sessions"]
            return next((session["session"] for session in sessions if session["done"]), "")

        found: str = await self.until(running)
        return found

    def models(self) -> dict[str, list[str]]:
        """The models whose share each party keeps."""
        folders = {party: self.folder / party / "state" / "models" for party in PARTIES}
        return {
            party: sorted(path.stem for path in folder.glob("*.json"))
            for party, folder in folders.items()
        }
