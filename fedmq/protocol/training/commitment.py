"""What does a passive party commit to when it accepts a training?

The root of a hash tree (RFC 6962, section 2.1: leaves are hashed with the prefix 0, pairs with 1)
over its secret, its settings, the cuts of each column and all rows as bins. Each leaf begins with a
salt of 16 bytes: without the secret, nobody can try out what stands in one.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import msgpack

from fedmq.boosting.binning import BinMatrix
from fedmq.privacy.engine import Engine
from fedmq.privacy.plan import Plan, single
from fedmq.protocol.records import AnswerSettings, Commitment
from fedmq.protocol.training.tables import PassiveTable

__all__ = ["CommitTable", "committed", "noise_secret", "tree_hash"]

_ROWS = 256  # of a leaf
_SALT_BYTES = 16
_SECRET_BYTES = 16


def noise_secret(secret: int) -> bytes:
    """What the noise of all answers follows from: 32 bytes."""
    return hmac.digest(_bytes(secret), b"fedmq noise", "sha256")


def committed(
    engine: Engine,
    table: PassiveTable,
    bins: BinMatrix,
    secret: int,
    smallest_node: int,
    smallest_cell: int,
) -> Plan[Commitment]:
    """Commit to ``table``, binned as ``bins``."""
    settings = AnswerSettings(
        engine=engine.name,
        options={name: getattr(engine, name) for name in engine.options()},
        smallest_node=smallest_node,
        smallest_cell=smallest_cell,
        signs={feature: 1 if sign > 0 else -1 for feature, sign in table.signs.items()},
        column_groups={name: list(columns) for name, columns in table.column_groups.items()},
        category_columns={
            name: list(features) for name, features in table.category_columns.items()
        },
    )
    root = yield from single(CommitTable(bins, table.features, secret, settings))
    return Commitment(
        table.values, table.features, table.alignment, table.digest, secret, settings, root
    )


@dataclass(frozen=True, slots=True, eq=False)
class CommitTable:
    """The root over ``secret``, ``settings``, the columns ``features`` and their ``bins``."""

    label: ClassVar[str] = "CommitTable"
    bins: BinMatrix
    features: tuple[str, ...]
    secret: int
    settings: AnswerSettings

    def run(self) -> bytes:
        secret = _bytes(self.secret)
        key = hmac.digest(secret, b"fedmq salts", "sha256")
        return tree_hash(
            [
                hmac.digest(key, number.to_bytes(8, "big"), "sha256")[:_SALT_BYTES] + content
                for number, content in enumerate(self._contents(secret))
            ]
        )

    def _contents(self, secret: bytes) -> Iterator[bytes]:
        yield secret
        yield self.settings.packed()
        cuts = self.bins.cuts
        for feature, thresholds, has_missing in zip(
            self.features, cuts.thresholds, cuts.has_missing.tolist(), strict=True
        ):
            yield msgpack.packb([feature, thresholds.astype("<f4").tobytes(), has_missing])
        for start in range(0, self.bins.n_rows, _ROWS):
            yield self.bins.codes[start : start + _ROWS].astype("<u2").tobytes()


def tree_hash(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash of RFC 6962 over ``leaves``: SHA-256, 32 bytes."""
    return _root([hashlib.sha256(b"\0" + leaf).digest() for leaf in leaves])


def _root(hashes: Sequence[bytes]) -> bytes:
    if len(hashes) == 1:
        return hashes[0]
    if not hashes:
        return hashlib.sha256(b"").digest()
    # The largest power of two below the number of leaves.
    half = 1 << (len(hashes) - 1).bit_length() - 1
    return hashlib.sha256(b"\1" + _root(hashes[:half]) + _root(hashes[half:])).digest()


def _bytes(secret: int) -> bytes:
    return secret.to_bytes(_SECRET_BYTES, "big")
