"""A receiver of extensions that chooses otherwise for one group, and hides it as far as it can."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionReceiver,
    LinearHash,
    Tweaks,
    _columns,
)
from fedmq.privacy.oblivious_transfer.seeds import GROUP_BITS


class CheatingReceiver(ExtensionReceiver):
    """It turns the first choice of the group of ``column`` in one extension.

    That is number ``extension``, from 0 on. It guesses that no bit of that group is set in the
    sender's secret: hashes are as if it were honest.
    """

    def __init__(self, pairs: NDArray[np.uint8], extension: int, column: int) -> None:
        super().__init__(pairs)
        self.extension = extension
        self.column = column
        self.sent: list[int] = []
        """How many choices each extension had until now."""

    def extend(
        self, choices: NDArray[np.bool_], tweaks: Tweaks
    ) -> tuple[Extended, NDArray[np.uint64]]:
        purpose = f"{tweaks.start} {len(choices)}"
        message, rows = super().extend(choices, tweaks)
        self.sent.append(len(choices))
        if len(self.sent) - 1 != self.extension:
            return message, rows
        width = message.columns.shape[1]
        kept, totals = _columns(self._seeds, self._sums, purpose, width)
        packed = (message.columns ^ totals)[:1]
        columns = message.columns.copy()
        columns[self.column // GROUP_BITS, 0] ^= 0x80
        compressed = LinearHash(columns, purpose)
        return replace(
            message,
            columns=columns,
            choice_hash=compressed(packed)[0],
            column_hashes=compressed(np.hstack(kept)),
        ), rows
