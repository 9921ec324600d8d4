"""How do 128 transfers become any number? By columns of bits, one of each base transfer.

Ishai, Kilian, Nissim and Petrank, "Extending Oblivious Transfers Efficiently" (CRYPTO 2003), with
the check of `consistency` against a receiver that cheats. For each transfer the receiver gets a row
t of 128 bits, the sender a row q = t ⊕ choice · s, where s is the sender's secret: its choices in
the base transfers, in which the roles are turned round.

The rows are also labels of a garbled circuit, whose difference is s. Its lowest bit must be 1.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.bit_matrix import transposed
from fedmq.privacy.oblivious_transfer.consistency import HASH_BYTES, LinearHash
from fedmq.privacy.oblivious_transfer.tweaks import Tweaks
from fedmq.privacy.random_stream import Stream

__all__ = ["Extended", "ExtensionReceiver", "ExtensionSender", "draw_choices"]

_COLOUR = 7  # the column whose bits are the rows' lowest ones


def draw_choices(seed: bytes) -> NDArray[np.bool_]:
    """The sender's secret: bool (128,), with a lowest bit of 1."""
    drawn = np.frombuffer(Stream(seed, "fedmq extension secret").read(TRANSFERS // 8), np.uint8)
    choices = np.unpackbits(drawn).astype(np.bool_)
    choices[_COLOUR] = True
    return choices


@dataclass(frozen=True, slots=True, eq=False)
class Extended:
    """What the receiver sends for an extension.

    ``columns`` uint8 (128, width): choices, masked. ``choice_hash`` uint8 (16,) and
    ``column_hashes`` uint8 (128, 16) show that the choices are the same in all of them.
    """

    columns: NDArray[np.uint8]
    choice_hash: NDArray[np.uint8]
    column_hashes: NDArray[np.uint8]

    def check(self, count: int) -> None:
        """Raises `MessageError` unless these are of ``count`` transfers."""
        for name, array, shape in (
            ("columns", self.columns, (TRANSFERS, _width(count))),
            ("hash of choices", self.choice_hash, (HASH_BYTES,)),
            ("hashes of columns", self.column_hashes, (TRANSFERS, HASH_BYTES)),
        ):
            if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != shape:
                raise MessageError(f"an extension of transfers whose {name} are not uint8 {shape}")


@dataclass(frozen=True, eq=False)
class ExtensionReceiver:
    """Who chooses. ``pairs`` uint8 (128, 2, 32): both seeds of each base transfer."""

    pairs: NDArray[np.uint8] = field(repr=False)

    def extend(
        self, choices: NDArray[np.bool_], tweaks: Tweaks
    ) -> tuple[Extended, NDArray[np.uint64]]:
        """What is sent, and a row for each of ``choices``, bool (n,): uint64 (n, 2).

        ``tweaks`` of n numbers, which are spent: other choices under them would be bare.
        """
        count = len(choices)
        purpose = _purpose(tweaks, count)
        packed = np.concatenate([np.packbits(choices), self._padding(purpose)])
        kept = _columns(self.pairs[:, 0], purpose, len(packed))
        sent = _columns(self.pairs[:, 1], purpose, len(packed))
        sent ^= kept
        sent ^= packed
        compressed = LinearHash(sent, purpose)
        [choice_hash], column_hashes = compressed(packed[np.newaxis]), compressed(kept)
        return Extended(sent, choice_hash, column_hashes), _rows(kept, count)

    def _padding(self, purpose: str) -> NDArray[np.uint8]:
        """Choices of nothing, by which hashes say nothing of the others.

        The same whenever this is computed; the sender does not know half of the seeds.
        """
        secret = hashlib.sha256(np.ascontiguousarray(self.pairs).data).digest()
        padding = Stream(secret, f"fedmq extension padding {purpose}").read(HASH_BYTES)
        return np.frombuffer(padding, np.uint8)


@dataclass(frozen=True, eq=False)
class ExtensionSender:
    """Who does not learn what was chosen.

    ``choices`` bool (128,) as `draw_choices` has them; ``seeds`` uint8 (128, 32): those of the
    choices.
    """

    choices: NDArray[np.bool_] = field(repr=False)
    seeds: NDArray[np.uint8] = field(repr=False)

    def __post_init__(self) -> None:
        if not self.choices[_COLOUR]:
            raise ValueError("the lowest bit of an extension's secret must be 1")

    @property
    def secret(self) -> NDArray[np.uint64]:
        """s: uint64 (2,)."""
        return np.packbits(self.choices).view("<u8")

    def extend(self, sent: Extended, count: int, tweaks: Tweaks) -> NDArray[np.uint64]:
        """A row for each of ``count`` transfers: uint64 (count, 2).

        Raises:
            MessageError: ``sent`` is malformed, or the choices differ between columns.
        """
        sent.check(count)
        purpose = _purpose(tweaks, count)
        columns = _columns(self.seeds, purpose, sent.columns.shape[1])
        columns[self.choices] ^= sent.columns[self.choices]
        wanted = sent.column_hashes.copy()
        wanted[self.choices] ^= sent.choice_hash
        if not np.array_equal(LinearHash(sent.columns, purpose)(columns), wanted):
            raise MessageError("an extension of transfers with other choices in other columns")
        return _rows(columns, count)


def _purpose(tweaks: Tweaks, count: int) -> str:
    """Of a stream that no other extension of the session reads."""
    start = tweaks.start
    tweaks.spend(count)
    return f"{start} {count}"


def _width(count: int) -> int:
    return -(-count // 8) + HASH_BYTES


def _columns(seeds: NDArray[np.uint8], purpose: str, width: int) -> NDArray[np.uint8]:
    """``width`` bytes of each seed: uint8 (128, width)."""
    label = f"fedmq extension {purpose}"
    streams = (Stream(seed.tobytes(), label).read(width) for seed in seeds)
    return np.stack([np.frombuffer(stream, np.uint8) for stream in streams])


def _rows(columns: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:
    choices = columns[:, : -(-count // 8)]
    return transposed(choices)[:count].view("<u8").reshape(count, 2)
