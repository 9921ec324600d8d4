"""How does a party let steps of information values be read? It garbles what the other evaluates."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import ScreenedColumn
from fedmq.errors import ProtocolError
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.privacy.hidden_screen.blocks import (
    Block,
    GarblingSeeds,
    blocks_of,
    choose_transfers,
    chosen_seeds,
    garble_block,
)
from fedmq.privacy.hidden_screen.label import BinShares, add_shared_label
from fedmq.privacy.oblivious_transfer.extension import Permutation
from fedmq.privacy.plan import LARGEST_PIECE_BYTES, Compute, Plan, single
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.machine import Machine, Part, on_message
from fedmq.protocol.screen.states import ALL_GARBLED, GARBLED

__all__ = ["PassiveSteps"]

_COLUMNS_TOGETHER = 4
"""Columns of one computation, so that all processes of the pool count."""


class PassiveSteps(Part):
    """Of a screen whose sums are hidden: masked sums, then circuits of one block after the other.

    Fewer steps than ``least`` are told as none. ``finish`` is called when all blocks are garbled.
    """

    def __init__(self, machine: Machine, least: int, finish: Callable[[], None]) -> None:
        super().__init__(machine)
        [self._peer] = machine.peers
        self._least = least
        self._finish = finish
        self._seeds = GarblingSeeds(fresh_seed())
        self._public = fresh_seed()
        self._transfers: NDArray[np.uint8]
        self._counts: list[NDArray[np.int64]]
        self._shares: list[BinShares]
        self._blocks: list[Block]
        self._chosen: NDArray[np.uint8] | None = None
        """The seeds of transfers, once the active party has answered."""
        self._garbles = False

    def masked(
        self, public: bytes, labels: NDArray[np.uint8], columns: Sequence[ScreenedColumn]
    ) -> Plan[list[NDArray[np.uint8]]]:
        """The masked sums of ``columns``, by encrypted ``labels``; the shares stay here."""
        bins = [column.bin_of for column in columns]
        self._transfers, *found = yield Compute(
            [
                choose_transfers.bind(self._seeds),
                *(
                    add_shared_label.bind(
                        public, labels, bins[first : first + _COLUMNS_TOGETHER], fresh_seed()
                    )
                    for first in range(0, len(bins), _COLUMNS_TOGETHER)
                ),
            ]
        )
        self._counts = [column.counts for column in columns]
        self._shares = [shares for _, part in found for shares in part]
        held = [len(shares.ones) for shares in self._shares]
        self._blocks = blocks_of(held, len(bins[0]), self._least)
        return [sums for part, _ in found for sums in part]

    def begin(self) -> None:
        """Begin transfers; columns with masked sums follow."""
        body = screen.ScreenTransfers(chosen=Array.of(self._transfers), seed=self._public)
        self._send(self._peer, body)

    @on_message(screen.ScreenChoices)
    def _on_choices(self, _: str, body: screen.ScreenChoices) -> None:
        if self._garbles or body.block != self._blocks[0].number:
            raise ProtocolError("choices of a block that are not due")
        if body.choices.dtype != "|u1" or len(body.choices.shape) != 1:
            raise ProtocolError("choices are bytes")
        self._garbles = True
        tables = self._garbled(body.offer.numpy(), body.choices.numpy())
        self._run(GARBLED, tables, self._send_tables)

    def _garbled(
        self, offer: NDArray[np.uint8], choices: NDArray[np.uint8]
    ) -> Plan[NDArray[np.uint8]]:
        if self._chosen is None:
            [self._chosen] = yield Compute([chosen_seeds.bind(offer, self._seeds)])
        block = self._blocks[0]
        garbles = garble_block.bind(
            block,
            choices,
            self._seeds,
            self._chosen,
            Permutation(self._public),
            self._shares[block.columns],
            np.concatenate(self._counts[block.columns]),
        )
        tables: NDArray[np.uint8] = yield from single(garbles)
        return tables

    def _send_tables(self, tables: NDArray[np.uint8]) -> None:
        number = self._blocks.pop(0).number
        for start in range(0, len(tables), LARGEST_PIECE_BYTES):
            piece = Array.of(tables[start : start + LARGEST_PIECE_BYTES])
            self._send(self._peer, screen.ScreenTables(block=number, start=start, tables=piece))
        self._garbles = False
        if not self._blocks:
            self._move(ALL_GARBLED)
            self._finish()
