"""From where do the seeds of masks come, and when is a sealed question multiplied?

A question takes milliseconds of arithmetic. Where many wait it is repeated before it is answered:
then it is computed once, and the newest answers are kept for a while.

A party has one secret for as long as it runs, and from it a seed for each party that comes after
it. The next party asks for its seed when a mask names one that it does not have: at its first
question, and after a restart of either.
"""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import RowsUnavailable
from fedmq.messages.body import Body
from fedmq.messages.envelope import Header
from fedmq.messages.online import OnlineMaskAsk, OnlineMasks, OnlineProducts, OnlineSealed
from fedmq.protocol.online.sealed_passive import MaskSeeds, SealedShare, name_of_seed

__all__ = ["SealedAnswers"]

_ANSWERS_KEPT = 32  # of 80 kB each in the common case, and of 1 MB at most

_ASK_SECONDS = 0.2
"""A seed that is not there by then is asked for again with the repeated question."""


class SealedAnswers:
    """Answers sealed questions; ``send`` takes (recipient, body, session, seconds of its use)."""

    def __init__(self, send: Callable[[str, Body, str, float], None]) -> None:
        self._send = send
        self._secret = secrets.token_bytes(32)
        self._seeds: dict[tuple[str, str], bytes] = {}
        """By the party before this one, and the model."""
        self._awaited: dict[tuple[str, str], asyncio.Future[None]] = {}
        self._under_way: set[tuple[str, int, int]] = set()
        """By session, batch and number."""
        self._answered: OrderedDict[tuple[str, int, int], OnlineProducts] = OrderedDict()
        # One thread: several would wait for each other at the interpreter's lock.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="fedmq-sealed")

    async def products(
        self,
        header: Header,
        asked: OnlineSealed,
        share: SealedShare,
        values: NDArray[np.float32],
        unknown: NDArray[np.bool_],
    ) -> OnlineProducts | None:
        """The answer to ``asked`` about rows with these ``values`` (ids, features).

        None if the same question is being answered, or the party before has not sent the seed of
        its masks: then it is for the caller to ask again.

        Raises:
            ProtocolError: the question does not fit the share.
            RowsUnavailable: the party before has been started again since it answered.
        """
        question = header.session, asked.batch, asked.hop
        if question in self._under_way:
            return None
        if (answered := self._answered.get(question)) is not None:
            return answered
        self._under_way.add(question)
        try:
            name = share.check(asked)
            before = await self._seed(header, asked, share, name) if name else None
            if name and before is None:
                return None
            after = self._seed_for(share.following, asked.model) if share.following else None
            seeds = MaskSeeds(self._derived("session", header.session), before, after)
            compute = partial(share.products, asked, values, unknown, seeds)
            if share.is_brief(asked):
                answer = compute()
            else:
                answer = await asyncio.get_running_loop().run_in_executor(self._executor, compute)
            self._answered[question] = answer
            if len(self._answered) > _ANSWERS_KEPT:
                self._answered.popitem(last=False)
            return answer
        finally:
            self._under_way.discard(question)

    def given(self, asked: OnlineMaskAsk, sender: str, share: SealedShare) -> OnlineMasks | None:
        """The seed for ``sender``; None if another party comes next."""
        if share.following != sender:
            return None
        return OnlineMasks(model=asked.model, seed=self._seed_for(sender, asked.model))

    def take(self, sender: str, body: OnlineMasks) -> None:
        """Keep the seed of ``sender``, if it was asked for it."""
        awaited = self._awaited.pop((sender, body.model), None)
        if awaited is not None:
            self._seeds[sender, body.model] = body.seed
            awaited.set_result(None)

    def close(self) -> None:
        """Compute no more."""
        self._executor.shutdown(wait=False, cancel_futures=True)

    def _seed_for(self, party: str, model: str) -> bytes:
        return self._derived("masks", party, model)

    def _derived(self, *names: str) -> bytes:
        """32 secret bytes by names without spaces."""
        named = " ".join(names).encode()
        return hashlib.blake2b(named, digest_size=32, key=self._secret).digest()

    async def _seed(
        self, header: Header, asked: OnlineSealed, share: SealedShare, name: str
    ) -> bytes | None:
        key = share.previous, asked.model
        held = self._seeds.get(key)
        if held is not None and name_of_seed(held) == name:
            return held
        if key not in self._awaited:
            self._awaited[key] = asyncio.get_running_loop().create_future()
        awaited = self._awaited[key]
        ask = OnlineMaskAsk(model=asked.model)
        self._send(share.previous, ask, header.session, asked.budget)
        await asyncio.wait({awaited}, timeout=min(asked.budget, _ASK_SECONDS))
        if not awaited.done():
            return None
        held = self._seeds[key]
        if name_of_seed(held) != name:
            raise RowsUnavailable(f"{share.previous} no longer has the seed of this answer's masks")
        return held
