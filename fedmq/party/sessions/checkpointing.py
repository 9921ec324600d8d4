"""Who writes down how far a session is, before the other parties hear of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Protocol

from fedmq.party.store.database import until_taken
from fedmq.party.store.journal import AnsweredSumsStore, SessionStore, StoredSession
from fedmq.party.store.transcripts import TranscriptWriter, forget_older
from fedmq.protocol.events import AgreeToSums, AnswerSums, SaveMessage
from fedmq.protocol.records import Checkpoint, Commitment, SignedStatement

__all__ = [
    "NULL_CHECKPOINTER",
    "Checkpointer",
    "HostingCheckpointer",
    "NullCheckpointer",
    "StoreCheckpointer",
]


class Checkpointer(Protocol):
    """Writes down one attempt at a session. Each call returns once it is on disk."""

    durable: ClassVar[bool]
    """Whether a new attempt can go on where this one stands."""

    async def begin(self) -> None:
        """The attempt begins."""

    async def agree(self, sums: AgreeToSums) -> None:
        """The training is about to be accepted."""

    async def answer(self, sums: AnswerSums) -> None:
        """Sums are about to be answered."""

    async def save(self, step: Checkpoint) -> None:
        """A tree is finished."""

    async def commit(self, commitment: Commitment) -> None:
        """This party commits to its table."""

    async def attest(self, signed: SignedStatement) -> None:
        """A peer has signed what it said."""

    def note(self, message: SaveMessage) -> None:
        """A message was taken or is sent; it is on disk when ``save`` returns."""

    async def finish(self, result: Any) -> None:
        """The session has reached its end."""

    async def fail(self, reason: str, own_reason: str) -> None:
        """The session has ended without a result.

        ``reason`` is for the other parties to read, ``own_reason`` for the owner alone.
        """


class NullCheckpointer:
    """Keeps nothing."""

    durable: ClassVar[bool] = False

    async def begin(self) -> None: ...

    async def agree(self, sums: AgreeToSums) -> None: ...

    async def answer(self, sums: AnswerSums) -> None: ...

    async def save(self, step: Checkpoint) -> None: ...

    async def commit(self, commitment: Commitment) -> None: ...

    async def attest(self, signed: SignedStatement) -> None: ...

    def note(self, message: SaveMessage) -> None: ...

    async def finish(self, result: Any) -> None: ...

    async def fail(self, reason: str, own_reason: str) -> None: ...


NULL_CHECKPOINTER: Checkpointer = NullCheckpointer()
"""Keeps nothing: for sessions that their owner asks for again after a crash."""


class HostingCheckpointer(NullCheckpointer):
    """Gives the loaded model to ``serve`` when the session has finished."""

    def __init__(self, serve: Callable[[Any], Awaitable[None]]) -> None:
        self._serve = serve

    async def finish(self, result: Any) -> None:
        await self._serve(result)


class StoreCheckpointer:
    """Keeps one attempt in ``store``; ``on_result`` stores the result itself.

    ``on_agreed`` records what a training is foretold to tell.
    What was said goes to ``transcript``, where there is one.
    """

    durable: ClassVar[bool] = True

    def __init__(
        self,
        store: SessionStore,
        session: StoredSession,
        on_result: Callable[[Any], None],
        on_agreed: Callable[[AgreeToSums], Awaitable[None]] | None = None,
        transcript: TranscriptWriter | None = None,
    ) -> None:
        self._store = store
        self._answered = AnsweredSumsStore(store.database)
        self._session = session
        self._on_result = on_result
        self._on_agreed = on_agreed
        self._transcript = transcript
        self._most_sums = math.inf
        """Per row, once it is agreed."""

    async def begin(self) -> None:
        await self._store.begin(self._session)

    async def agree(self, sums: AgreeToSums) -> None:
        self._most_sums = sums.most
        await self._answered.reserve(self._session.id, sums.row_set, sums.reserved, sums.most)
        if self._on_agreed is not None:
            await self._on_agreed(sums)

    async def answer(self, sums: AnswerSums) -> None:
        session = self._session
        await self._answered.keep(
            session.id, session.attempt, sums.tree, sums.sums, sums.row_set, self._most_sums
        )

    async def save(self, step: Checkpoint) -> None:
        if self._transcript is not None:
            await self._transcript.flush()
        await self._store.save(self._session.id, step)

    async def commit(self, commitment: Commitment) -> None:
        if self._transcript is not None:
            await self._transcript.commit(commitment)

    async def attest(self, signed: SignedStatement) -> None:
        if self._transcript is not None:
            await self._transcript.attest(signed)

    def note(self, message: SaveMessage) -> None:
        if self._transcript is not None:
            self._transcript.note(message)

    async def finish(self, result: Any) -> None:
        if self._transcript is not None:
            await self._transcript.close()
        await until_taken(lambda: asyncio.to_thread(self._on_result, result))
        await self._store.end(self._session.id, "finished")
        await self._forget_transcripts()

    async def fail(self, reason: str, own_reason: str) -> None:
        await self._store.end(self._session.id, "failed", reason, own_reason)
        if self._transcript is not None:
            await self._transcript.close()
        await self._forget_transcripts()

    async def _forget_transcripts(self) -> None:
        if self._transcript is not None:
            running = await self._store.running()
            await forget_older(self._transcript.state, {session.id for session in running})
