"""A receiver of extensions that chooses otherwise in one column, and hides it as far as it can."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.privacy.oblivious_transfer.extension import (
    Extended,
    ExtensionReceiver,
    LinearHash,
    Tweaks,
    _columns,
)


@dataclass(frozen=True, eq=False)
class CheatingReceiver(ExtensionReceiver):
    """It turns the first choice in ``column`` of its extension number ``extension``, from 0 on."""

    extension: int
    column: int
    sent: list[int] = field(default_factory=list)
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
        kept, others = (_columns(self.pairs[:, seed], purpose, width) for seed in (0, 1))
        packed = (message.columns ^ kept ^ others)[:1]
        columns = message.columns.copy()
        columns[self.column, 0] ^= 0x80
        compressed = LinearHash(columns, purpose)
        return Extended(columns, compressed(packed)[0], compressed(kept)), rows
