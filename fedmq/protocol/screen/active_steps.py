"""How does the active party read steps of information values? It evaluates what another garbles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Computation
from fedmq.errors import ProtocolError
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.privacy.garbling.half_gates import Labels
from fedmq.privacy.hidden_screen.blocks import (
    Block,
    blocks_of,
    choose_block,
    evaluate_block,
    offer_transfers,
)
from fedmq.privacy.hidden_screen.label import BinShares, encrypt_shared_label, read_shares
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.oblivious_transfer.extension import Permutation
from fedmq.privacy.plan import Plan, single
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.screen.states import ALL_EVALUATED, CHOSEN, EVALUATED

__all__ = ["ActiveSteps"]

_COLUMNS_TOGETHER = 8
"""Columns of one computation, so that all processes of the pool decrypt."""


class ActiveSteps(Part):
    """Of a screen whose sums are hidden: from encrypted labels to steps, int64 (columns,).

    ``label`` bool (rows,), under ``key``; fewer steps than ``least`` are told as none. ``finish``
    takes the steps of all columns.
    """

    def __init__(
        self,
        machine: Machine,
        label: NDArray[np.bool_],
        key: ColumnKey,
        least: int,
        finish: Callable[[NDArray[np.int64]], None],
    ) -> None:
        super().__init__(machine)
        [self._peer] = machine.peers
        self._label = label
        self._key = key
        self._least = least
        self._finish = finish
        self._began: screen.ScreenTransfers | None = None
        self._offer: NDArray[np.uint8]
        self._pairs: NDArray[np.uint8]
        self._shares: list[BinShares]
        self._blocks: list[Block]
        self._labels: Labels | None = None
        """Those of the block whose tables are due."""
        self._tables: list[NDArray[np.uint8]] = []
        self._steps: list[NDArray[np.int64]] = []

    def encrypted(self) -> Computation:
        """What encrypts the label: uint8 (numbers, 12)."""
        return encrypt_shared_label.bind(self._key, self._label)

    @on_message(screen.ScreenTransfers)
    def _on_transfers(self, _: str, body: screen.ScreenTransfers) -> None:
        if self._began is not None:
            raise ProtocolError("transfers begin a second time")
        self._began = body

    def decrypted(self, columns: Sequence[NDArray[np.uint8]]) -> list[Computation]:
        """What answers the transfers, and reads the shares of ``columns``, uint8 (bins, bytes)."""
        if self._began is None:
            raise ProtocolError("columns came before transfers")
        wanted: list[Computation] = [offer_transfers.bind(self._began.chosen.numpy(), fresh_seed())]
        for first in range(0, len(columns), _COLUMNS_TOGETHER):
            part = columns[first : first + _COLUMNS_TOGETHER]
            wanted.append(read_shares.bind(self._key, part, len(self._label)))
        return wanted

    def begin(self, found: Sequence[Any]) -> None:
        """Begin with the first block, by what was ``decrypted``."""
        (self._offer, self._pairs), *parts = found
        self._shares = [shares for part in parts for shares in part]
        bins = [len(shares.ones) for shares in self._shares]
        self._blocks = blocks_of(bins, len(self._label), self._least)
        self._choose()

    def _choose(self) -> None:
        if not self._blocks:
            self._move(ALL_EVALUATED)
            self._finish(np.concatenate([np.empty(0, np.int64), *self._steps]))
            return
        block = self._blocks[0]
        ones = int(self._label.sum())
        people = ones, len(self._label) - ones
        chosen = choose_block.bind(block, self._pairs, self._shares[block.columns], people)
        self._run(CHOSEN, single(chosen), self._send_choices)

    def _send_choices(self, chosen: tuple[NDArray[np.uint8], Labels]) -> None:
        sent, self._labels = chosen
        number = self._blocks[0].number
        offer = self._offer if number == 0 else np.empty((0, 0), np.uint8)
        body = screen.ScreenChoices(block=number, offer=Array.of(offer), choices=Array.of(sent))
        self._send(self._peer, body)

    @on_message(screen.ScreenTables)
    def _on_tables(self, _: str, body: screen.ScreenTables) -> None:
        if self._labels is None or body.block != self._blocks[0].number:
            raise ProtocolError("tables of a block that are not due")
        tables, arrived = body.tables, sum(map(len, self._tables))
        whole = self._blocks[0].sent_bytes
        if tables.dtype != "|u1" or len(tables.shape) != 1 or not tables.shape[0]:
            raise ProtocolError("tables are bytes")
        if body.start != arrived or arrived + tables.shape[0] > whole:
            raise ProtocolError(f"tables begin at {body.start}, not at {arrived} of {whole}")
        self._tables.append(tables.numpy())
        if arrived + tables.shape[0] == whole:
            self._run(EVALUATED, self._evaluated(self._labels), self._with_steps)
            self._labels = None

    def _evaluated(self, labels: Labels) -> Plan[NDArray[np.int64]]:
        assert self._began is not None
        sent = np.concatenate(self._tables)
        self._tables.clear()
        permutation = Permutation(self._began.seed)
        evaluates = evaluate_block.bind(self._blocks[0], labels, sent, permutation)
        steps: NDArray[np.int64] = yield from single(evaluates)
        return steps

    def _with_steps(self, steps: NDArray[np.int64]) -> None:
        self._steps.append(steps)
        del self._blocks[0]
        self._choose()
