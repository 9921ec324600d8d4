"""How do 128 transfers become any number? By columns of bits, four of each group of seeds.

Roy, "SoftSpokenOT: Quieter OT Extension from Small-Field Silent VOLE in the Minicrypt Model"
(CRYPTO 2022), with k = 4: four bytes a transfer, and its check against a receiver that cheats
(`LinearHash`). For each transfer the receiver gets a row t of 128 bits, the sender a row
q = t ⊕ choice · s, where s is the sender's secret: in each of 32 groups, the place of the seed that
it does not know (`seeds`). The receiver sends of each group the sum of all 16 seeds' streams ⊕ its
choices; a column of t is the sum of the streams of eight. The rows are also labels of a garbled
circuit, whose difference is s. Its lowest bit must be 1.

In the order of the file: tweaks, which no two hashes of a session share, the hash, the
transposition of bits, the check, the extension, and pools of transfers of random choices, made
ahead of what is chosen.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice

import numpy as np
from cryptography.hazmat.primitives.ciphers import AEADEncryptionContext, Cipher, algorithms, modes
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from numpy.typing import NDArray

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.base_transfers import TRANSFERS
from fedmq.privacy.oblivious_transfer.machine_columns import is_translated, rows_of
from fedmq.privacy.oblivious_transfer.seeds import (
    BLOCK_BYTES,
    BLOCK_WORDS,
    GROUP_BITS,
    GROUPS,
    PROOF_BYTES,
    GrowSeeds,
    OneWay,
    PunctureSeeds,
    check_proof,
    expanded,
    proof_of,
)
from fedmq.privacy.random_stream import Stream

__all__ = [
    "BLOCK_BYTES",
    "BLOCK_WORDS",
    "HASH_BYTES",
    "Extended",
    "ExtensionReceiver",
    "ExtensionSender",
    "LinearHash",
    "Permutation",
    "PoolReceiver",
    "PoolSender",
    "Tweaks",
    "draw_choices",
    "hashed",
    "hashed_at",
    "hashed_over",
    "transposed",
    "turned_bytes",
]


class Tweaks:
    """The unused numbers from ``start`` up to, not including, ``stop``.

    A session begins with all of them. Both parties take equal counts in the same order, so tweaks
    need not travel. After a crash a session begins anew with a new secret.
    """

    def __init__(self, start: int = 0, stop: int = 2**64) -> None:
        self._next = start
        self._stop = stop

    @property
    def start(self) -> int:
        """The first unused number."""
        return self._next

    @property
    def left(self) -> int:
        """The count of unused numbers."""
        return self._stop - self._next

    def take(self, count: int) -> Tweaks:
        """Remove and return the next ``count`` numbers."""
        self._check(count)
        self._next += count
        return Tweaks(self._next - count, self._next)

    def spend(self, count: int) -> NDArray[np.uint64]:
        """Use up all numbers, ``count`` of them: uint64 (count,)."""
        self._check(count)
        if count != self.left:
            raise ValueError(f"{count} of {self.left} tweaks are used: take so many first")
        numbers = np.arange(count, dtype=np.uint64) + np.uint64(self._next)
        self._next += count
        return numbers

    def _check(self, count: int) -> None:
        if count > self.left:
            raise ValueError(f"{count} tweaks are needed where {self.left} are left")


# Which hash stays random although its inputs differ by one secret? TMMO over AES.
#
# H(x, t) = P(P(x) ⊕ t) ⊕ P(x), where P is AES-128 under a public key of the session: circular and
# tweakable correlation robust if AES is ideal (Guo, Katz, Wang and Yu, "Efficient and Secure
# Multiparty Computation from Fixed-Key Block Ciphers", IEEE S&P 2020, section 7.4). A separate key
# for each session keeps bounds good for many sessions (Guo, Katz, Wang, Weng and Yu, CRYPTO 2020).


_ROOM = BLOCK_BYTES - 1  # the library needs this space behind its output


class _Encryptor(threading.local):
    """AES under ``key``; one for each thread, as the library refuses a second one that enters."""

    def __init__(self, key: bytes) -> None:
        self.of_thread = Cipher(algorithms.AES(key), modes.ECB()).encryptor()


class Permutation:
    """P: AES-128 under a key made of the session's ``public_seed``, on blocks of 16 bytes.

    Halves of several parties share one, also where threads compute them at the same time.
    """

    def __init__(self, public_seed: bytes) -> None:
        self.public_seed = public_seed
        seeded = hashlib.sha256(b"fedmq fixed permutation\0" + public_seed)
        self.key = seeded.digest()[:BLOCK_BYTES]
        """AES's, which anybody may know."""
        self._cipher = _Encryptor(self.key)

    def __reduce__(self) -> tuple[Callable[[bytes], Permutation], tuple[bytes]]:
        return _permutation, (self.public_seed,)  # a cipher cannot be pickled

    @staticmethod
    def space(words: int) -> NDArray[np.uint64]:
        """An array into which `into` can write ``words`` words; it may write behind them."""
        return np.empty(words + BLOCK_WORDS, np.uint64)

    def into(self, blocks: NDArray[np.uint64], space: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """P of contiguous ``blocks`` in the first words of ``space``, in the blocks' shape."""
        end = blocks.nbytes + _ROOM
        self._cipher.of_thread.update_into(
            blocks.reshape(-1).view(np.uint8).data, space.view(np.uint8)[:end].data
        )
        return space[: blocks.size].reshape(blocks.shape)

    def __call__(self, blocks: NDArray[np.uint64]) -> NDArray[np.uint64]:
        """P of contiguous ``blocks``."""
        return self.into(blocks, self.space(blocks.size))


@lru_cache(maxsize=64)
def _permutation(public_seed: bytes) -> Permutation:
    """The same for all that travel: a level's halves come to a process dozens of times."""
    return Permutation(public_seed)


def hashed(
    permutation: Permutation, blocks: NDArray[np.uint64], numbers: NDArray[np.uint64], count: int
) -> NDArray[np.uint64]:
    """``count`` hashes of each block: uint64 (n, count, 2) of blocks (n, 2).

    ``numbers`` uint64 (n,) as `Tweaks.spend` gave them. The tweak is the number beside the place.
    """
    return hashed_over(permutation, blocks, numbers, np.arange(count, dtype=np.uint64))


def hashed_over(
    permutation: Permutation,
    blocks: NDArray[np.uint64],
    numbers: NDArray[np.uint64],
    places: NDArray[np.uint64],
) -> NDArray[np.uint64]:
    """Of the hashes of each block that `hashed` makes those at ``places``: (n, places, 2)."""
    permuted = permutation(np.ascontiguousarray(blocks))
    tweaked = np.empty((len(blocks), len(places), BLOCK_WORDS), np.uint64)
    tweaked[..., 0] = permuted[:, np.newaxis, 0] ^ places
    tweaked[..., 1] = (permuted[:, 1] ^ numbers)[:, np.newaxis]
    result = permutation(tweaked)
    result ^= permuted[:, np.newaxis]
    return result


def hashed_at(
    permutation: Permutation,
    blocks: NDArray[np.uint64],
    numbers: NDArray[np.uint64],
    places: NDArray[np.int64],
) -> NDArray[np.uint64]:
    """Of the hashes of each block that `hashed` makes the one at its place: uint64 (n, 2)."""
    permuted = permutation(np.ascontiguousarray(blocks))
    tweaked = permuted.copy()
    tweaked[:, 0] ^= places.view(np.uint64)
    tweaked[:, 1] ^= numbers
    result = permutation(tweaked)
    result ^= permuted
    return result


def transposed(columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Bits (128 columns, 8 rows a byte) as rows of 128 bits: uint8 (rows, 16).

    In blocks of eight by eight bits, each a number of 64 bits (Warren, Hacker's Delight, 7-3).
    """
    if len(columns) == TRANSFERS and is_translated():
        return rows_of(columns)
    groups, width = len(columns) // 8, columns.shape[1]
    blocks = np.empty((width, groups, 8), np.uint8)
    for column in range(8):  # one after the other: strided copies of all take twice as long
        # The highest byte of a little-endian number comes last: columns are turned, and so are rows
        blocks[:, :, 7 - column] = columns[column::8].T
    bits = blocks.view("<u8")
    for shift, mask in ((7, 0x00AA00AA00AA00AA), (14, 0x0000CCCC0000CCCC), (28, 0xF0F0F0F0)):
        swapped = bits >> np.uint64(shift)
        swapped ^= bits
        swapped &= np.uint64(mask)
        bits ^= swapped
        swapped <<= np.uint64(shift)
        bits ^= swapped
    by_row = bits.view(np.uint8).reshape(width, groups, 8)[..., ::-1].transpose(0, 2, 1)
    return np.ascontiguousarray(by_row).reshape(8 * width, groups)


# Did the receiver of an extension make the same choices in all columns?
#
# The check of Keller, Orsini and Scholl (CRYPTO 2015, ePrint 2015/546 as mended in 2022), column by
# column as Roy has it (SoftSpokenOT, CRYPTO 2022, section 5). Both sides compress columns by a
# linear hash whose key is drawn once the columns are fixed: here from the columns themselves, so
# that no message more is needed (Fiat and Shamir). The hash is GHASH, the polynomial over GF(2^128)
# in AES-GCM: two columns that differ collide with chance (blocks + 1) / 2^128.
#
# A receiver that cheats in a column is caught unless it guesses that bit of the sender's secret.
# A sender that detects cheating ends the session, and never uses the secret again.


HASH_BYTES = 16

_NONCE = bytes(12)  # a key is used for one extension only, and nothing is encrypted


class LinearHash:
    """GHASH of columns of ``width`` bytes: the hash of a XOR is the XOR of hashes.

    The key is SHA-256 of ``purpose`` and of all columns that the receiver sent, uint8 (columns,
    width).
    """

    def __init__(self, sent: NDArray[np.uint8], purpose: str) -> None:
        digest = hashlib.sha256(f"fedmq consistency {purpose} {sent.shape}\0".encode())
        digest.update(np.ascontiguousarray(sent).data)
        self.key = digest.digest()[:HASH_BYTES]
        self._gcm = AESGCM(self.key)
        # A tag is linear in the data except for a constant: the tag of zeros.
        self.constant = self._tag(np.zeros(sent.shape[1], np.uint8))

    def __call__(self, columns: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Hashes of contiguous ``columns`` (n, width): uint8 (n, 16)."""
        return np.stack([self._tag(column) for column in columns]) ^ self.constant

    def begun(self, columns: int) -> _BegunHash:
        """The hash of so many columns that come in parts."""
        return _BegunHash(self, columns)

    def _tag(self, column: NDArray[np.uint8]) -> NDArray[np.uint8]:
        return np.frombuffer(self._gcm.encrypt(_NONCE, b"", column.data), np.uint8)


_SHORT = 2**13
"""Bytes of a column that are hashed at once: its own context takes longer to make."""


class _BegunHash:
    """`LinearHash` of columns of which some parts were added."""

    def __init__(self, whole: LinearHash, columns: int) -> None:
        self._whole = whole
        self._kept = np.empty((columns, 0), np.uint8)
        """What was added, as long as it is short."""
        self._tags: Sequence[AEADEncryptionContext] = ()

    def add(self, part: NDArray[np.uint8]) -> None:
        """Add the next bytes of each column: uint8 (columns, bytes)."""
        if not self._tags:
            self._kept = part = np.concatenate((self._kept, part), axis=1)
            if part.shape[1] <= _SHORT:
                return
            self._tags = [
                Cipher(algorithms.AES(self._whole.key), modes.GCM(_NONCE)).encryptor() for _ in part
            ]
        for tag, column in zip(self._tags, part, strict=True):
            tag.authenticate_additional_data(column.data)

    def found(self) -> NDArray[np.uint8]:
        """The hashes: uint8 (columns, 16)."""
        if not self._tags:
            return self._whole(self._kept)
        for tag in self._tags:
            tag.finalize()
        tags = np.frombuffer(b"".join(tag.tag for tag in self._tags), np.uint8)
        return tags.reshape(-1, HASH_BYTES) ^ self._whole.constant


_COLOUR = 7  # the column whose bits are the rows' lowest ones


def draw_choices(seed: bytes) -> NDArray[np.bool_]:
    """The sender's secret: bool (128,), with a lowest bit of 1."""
    drawn = np.frombuffer(Stream(seed, "fedmq extension secret").read(TRANSFERS // 8), np.uint8)
    choices = np.unpackbits(drawn).astype(np.bool_)
    choices[_COLOUR] = True
    return choices


@dataclass(frozen=True, slots=True, eq=False)
class Extended:
    """The receiver's message for an extension.

    ``sums`` uint8 (128, 2, 16) and ``proof`` uint8 (32, 2, 32) are those of its seeds, the same in
    all extensions of a session. ``columns`` uint8 (32, width): choices, masked, once for each group
    of seeds. ``choice_hash`` uint8 (16,) and ``column_hashes`` uint8 (128, 16) show that the
    choices are the same in all of them.
    """

    sums: NDArray[np.uint8]
    proof: NDArray[np.uint8]
    columns: NDArray[np.uint8]
    choice_hash: NDArray[np.uint8]
    column_hashes: NDArray[np.uint8]

    @property
    def tree(self) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
        """What says of which seeds it is: the sums, and their proof."""
        return self.sums, self.proof

    @staticmethod
    def shapes(count: int) -> dict[str, tuple[int, ...]]:
        """The shape of each array of an extension of ``count`` transfers, in their order."""
        return {
            "sums": (TRANSFERS, 2, BLOCK_BYTES),
            "proof": (GROUPS, 2, PROOF_BYTES // (2 * GROUPS)),
            "columns": (GROUPS, -(-count // 8) + HASH_BYTES),
            "choice_hash": (HASH_BYTES,),
            "column_hashes": (TRANSFERS, HASH_BYTES),
        }

    def check(self, count: int) -> None:
        """Raise `MessageError` unless the message is about ``count`` transfers."""
        for name, shape in self.shapes(count).items():
            array = getattr(self, name)
            if not isinstance(array, np.ndarray) or array.dtype != np.uint8 or array.shape != shape:
                what = name.replace("_", " ")
                raise MessageError(f"an extension of transfers whose {what} are not uint8 {shape}")


class ExtensionReceiver:
    """The choosing party. ``pairs`` uint8 (128, 2, 32): both seeds of each base transfer."""

    def __init__(self, pairs: NDArray[np.uint8]) -> None:
        self._secret = hashlib.sha256(np.ascontiguousarray(pairs).data).digest()
        self._seeds, self._sums = GrowSeeds(pairs, self._secret).run()
        self._proof = proof_of(self._seeds)

    def extend(
        self, choices: NDArray[np.bool_], tweaks: Tweaks
    ) -> tuple[Extended, NDArray[np.uint64]]:
        """The message, and a row for each of ``choices``, bool (n,): uint64 (n, 2).

        Spends the n ``tweaks``: other choices under them would lie open.
        """
        count = len(choices)
        purpose = _purpose(tweaks, count)
        packed = np.concatenate([np.packbits(choices), self._padding(purpose)])
        kept, sent = _columns(self._seeds, self._sums, purpose, len(packed))
        sent ^= packed
        compressed = LinearHash(sent, purpose)
        hashing = compressed.begun(TRANSFERS)
        for block in kept:
            hashing.add(block)
        [choice_hash], column_hashes = compressed(packed[np.newaxis]), hashing.found()
        message = Extended(self._sums, self._proof, sent, choice_hash, column_hashes)
        return message, _rows(kept, count)

    def _padding(self, purpose: str) -> NDArray[np.uint8]:
        """Dummy choices, so that the hashes disclose nothing of the real ones.

        They are deterministic; the sender does not know half of the base transfers' seeds.
        """
        padding = Stream(self._secret, f"fedmq extension padding {purpose}").read(HASH_BYTES)
        return np.frombuffer(padding, np.uint8)


class ExtensionSender:
    """The party that never learns the choices.

    ``choices`` bool (128,), as `draw_choices` has them, are its secret. ``seeds`` uint8 (128, 32):
    those of its base transfers, in which it chose the opposite.
    """

    def __init__(self, choices: NDArray[np.bool_], seeds: NDArray[np.uint8]) -> None:
        if not choices[_COLOUR]:
            raise ValueError("the lowest bit of an extension's secret must be 1")
        self._choices = choices
        self._seeds = seeds

    @property
    def secret(self) -> NDArray[np.uint64]:
        """s: uint64 (2,)."""
        return np.packbits(self._choices).view("<u8")

    def extend(self, sent: Extended, count: int, tweaks: Tweaks) -> NDArray[np.uint64]:
        """A row for each of ``count`` transfers: uint64 (count, 2).

        Raises:
            MessageError: ``sent`` is malformed, its seeds are not of one tree, or the choices
                differ between columns.
        """
        return _in_one(self.blocks(sent, count, tweaks))

    def blocks(self, sent: Extended, count: int, tweaks: Tweaks) -> Rows:
        """The same rows in blocks, of which each may end by itself; raises as `extend`."""
        sent.check(count)
        purpose = _purpose(tweaks, count)
        seeds = _punctured(*(part.tobytes() for part in (self._seeds, ~self._choices, *sent.tree)))
        hashing = LinearHash(sent.columns, purpose).begun(TRANSFERS)
        expanding, width = _expanding(sent.sums, purpose), sent.columns.shape[1]
        rows = [
            np.empty((max(0, min(_BLOCK_ROWS, count - 8 * start)), BLOCK_BYTES), np.uint8)
            for start in range(0, width, _BLOCK_BYTES)
        ]
        # A part is a row for good before the next one: all columns would take as much once more.
        for part, columns, _ in expanded(seeds, expanding, width):
            for column in np.flatnonzero(self._choices).tolist():
                columns[column] ^= sent.columns[column // GROUP_BITS, part]
            hashing.add(columns)
            block, start = divmod(part.start, _BLOCK_BYTES)
            _put_rows(rows[block], columns, start)
        wanted = sent.column_hashes.copy()
        wanted[self._choices] ^= sent.choice_hash
        if not np.array_equal(hashing.found(), wanted):
            raise MessageError("an extension of transfers with other choices in other columns")
        return [block.view("<u8") for block in rows]


@lru_cache(maxsize=16)
def _punctured(seeds: bytes, choices: bytes, sums: bytes, proof: bytes) -> NDArray[np.uint8]:
    """The sender's seeds, checked: once in each process, for a session's extensions share them.

    Raises:
        MessageError: they are not of one tree.
    """
    chosen = np.frombuffer(choices, np.bool_)
    of_pairs = np.frombuffer(seeds, np.uint8).reshape(TRANSFERS, -1)
    shapes = Extended.shapes(0)
    sent = np.frombuffer(sums, np.uint8).reshape(shapes["sums"])
    found = PunctureSeeds(sent, of_pairs, chosen).run()
    check_proof(found, chosen, np.frombuffer(proof, np.uint8).reshape(shapes["proof"]))
    found.flags.writeable = False
    return found


def _purpose(tweaks: Tweaks, count: int) -> str:
    """The purpose of a stream that no other extension of the session reads."""
    start = tweaks.start
    tweaks.spend(count)
    return f"{start} {count}"


def _columns(
    seeds: NDArray[np.uint8], sums: NDArray[np.uint8], purpose: str, width: int
) -> tuple[list[NDArray[np.uint8]], NDArray[np.uint8]]:
    """``width`` bytes of each column, in blocks, and of each group's total.

    uint8 (128, bytes of a block), and (32, width).
    """
    blocks = [
        np.empty((TRANSFERS, min(_BLOCK_BYTES, width - start)), np.uint8)
        for start in range(0, width, _BLOCK_BYTES)
    ]
    totals = np.empty((GROUPS, width), np.uint8)
    for part, of_bits, of_group in expanded(seeds, _expanding(sums, purpose), width):
        block, start = divmod(part.start, _BLOCK_BYTES)
        blocks[block][:, start : start + of_bits.shape[1]] = of_bits
        totals[:, part] = of_group
    return blocks, totals


def _expanding(sums: NDArray[np.uint8], purpose: str) -> OneWay:
    """What expands seeds: its public key is made of the ``sums`` that the receiver sends.

    No other session has these.
    """
    return OneWay(f"fedmq extension {purpose}\0".encode() + sums.tobytes())


_BLOCK_BYTES = 2**18
"""Bytes of a column in a block, which then has 32 MiB: such memory is no longer this process's once
it is freed. A multiple of what is expanded, or turned, at once."""

_BLOCK_ROWS = 8 * _BLOCK_BYTES

_TURNED_AT_ONCE = 2**13  # bytes of a column: a megabyte of all

Rows = list[NDArray[np.uint64]]
"""Rows of transfers, uint64 (n, 2), in blocks."""


def _in_one(blocks: Rows) -> NDArray[np.uint64]:
    return blocks[0] if len(blocks) == 1 else np.concatenate(blocks)


def _rows(kept: list[NDArray[np.uint8]], count: int) -> NDArray[np.uint64]:
    """The rows of columns that were ``kept`` in blocks, each of which ends once it is turned."""
    rows = np.empty((count, BLOCK_BYTES), np.uint8)
    kept.reverse()
    first = 0
    while kept:
        block = kept.pop()
        for start in range(0, block.shape[1], _TURNED_AT_ONCE):
            _put_rows(rows, block[:, start : start + _TURNED_AT_ONCE], first + start)
        first += block.shape[1]
    return rows.view("<u8")


def _put_rows(rows: NDArray[np.uint8], columns: NDArray[np.uint8], start: int) -> None:
    """Write the rows of ``columns`` of bytes, from byte ``start`` on, those of padding left out."""
    here = rows[8 * start : 8 * (start + columns.shape[1])]
    here[:] = transposed(np.ascontiguousarray(columns))[: len(here)]


# How are transfers made ahead of what is chosen? With random choices, of which some are turned.
#
# Beaver, "Precomputing Oblivious Transfer" (CRYPTO 1995). A transfer of a random choice becomes
# that of a real one by a bit: whether they differ. So one extension serves a whole level, and
# numbers may leave before the choice among them is known (`correlated`).


class PoolReceiver:
    """The choosing party's rows of ``count`` transfers; ``message`` is for the other party."""

    def __init__(self, receiver: ExtensionReceiver, count: int, tweaks: Tweaks) -> None:
        drawn = np.frombuffer(secrets.token_bytes(-(-count // 8)), np.uint8)
        self._choices = np.unpackbits(drawn, count=count).astype(np.bool_)
        self.message, self._rows = receiver.extend(self._choices, tweaks)

    def choose(self, choices: NDArray[np.bool_]) -> tuple[NDArray[np.uint8], NDArray[np.uint64]]:
        """Which of the next transfers are turned, for the other party, and their rows.

        uint8 (bytes,), and uint64 (n, 2) of ``choices`` (n,).
        """
        drawn, rows = self.drawn(len(choices))
        return np.packbits(choices ^ drawn), rows

    def drawn(self, count: int) -> tuple[NDArray[np.bool_], NDArray[np.uint64]]:
        """The random choices of the next ``count`` transfers, bool (n,), and their rows (n, 2)."""
        if count > len(self._rows):
            raise ValueError(f"{count} transfers of a pool of {len(self._rows)}")
        choices, self._choices = self._choices[:count], self._choices[count:]
        rows, self._rows = self._rows[:count], self._rows[count:]
        return choices, rows


class PoolSender:
    """The rows of the party that never learns the choices.

    Raises `MessageError` as `ExtensionSender.extend` does.
    """

    def __init__(
        self, sender: ExtensionSender, message: Extended, count: int, tweaks: Tweaks
    ) -> None:
        self._blocks = deque(sender.blocks(message, count, tweaks))
        self._left = count
        self._secret = sender.secret

    def take(self, turned: NDArray[np.uint8], count: int) -> NDArray[np.uint64]:
        """The rows of the next ``count`` transfers: uint64 (count, 2)."""
        bits = np.unpackbits(turned, count=count).astype(np.bool_)
        return self.drawn(count) ^ np.where(bits[:, np.newaxis], self._secret, np.uint64(0))

    def drawn(self, count: int) -> NDArray[np.uint64]:
        """The same of transfers whose random choices stay; a block ends with its last row."""
        if count > self._left:
            raise MessageError(f"{count} transfers of a pool of {self._left}")
        self._left -= count
        found: Rows = []
        while not found or count:
            block = self._blocks.popleft()
            if len(block) > count or not self._blocks:
                self._blocks.appendleft(block[count:])
            found.append(block[:count])
            count -= len(found[-1])
        return _in_one(found)

    def drop_used(self) -> None:
        """Free the memory of the rows that were drawn."""
        self._blocks = deque([self._blocks[0].copy(), *islice(self._blocks, 1, None)])


def turned_bytes(count: int) -> int:
    """Bytes that say which of ``count`` transfers are turned."""
    return -(-count // 8)
