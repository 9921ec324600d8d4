"""The gradients that a passive party received under Paillier, as python-paillier's numbers."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from gmpy2 import mpz
from numpy.typing import NDArray
from phe import EncryptedNumber, PaillierPrivateKey

from fedmq.errors import ConfigError, DataError
from fedmq.leakage.view import SessionView, TreeView
from fedmq.messages.array import unpack_payload
from fedmq.party.sessions.observe import Recording
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.homomorphic.arithmetic.ciphertext_bytes import from_wire
from fedmq.privacy.homomorphic.arithmetic.paillier import PublicKey

__all__ = ["EncryptedGradients", "encrypted_gradients"]


@dataclass(frozen=True, slots=True, eq=False)
class EncryptedGradients:
    """What one ``tree`` disclosed: ``rows`` uint32 (n,), and as many ``numbers`` of phe.

    A number encrypts ``g * 2**h_bits + h``, with g and h in the tree's fixed point.
    """

    tree: int
    rows: NDArray[np.uint32]
    numbers: tuple[EncryptedNumber, ...]
    h_bits: int
    slot_bits: int = 0
    shared: int = 1
    """Rows in a number, each in a slot of ``slot_bits``; more than one with `gradient_bits`."""

    def decrypted(self, key: PaillierPrivateKey) -> NDArray[np.int64]:
        """g and h of each row in fixed point, decrypted by phe: int64 (n, 2).

        Raises:
            ConfigError: the numbers are under another key.
        """
        if any(number.public_key != key.public_key for number in self.numbers):
            raise ConfigError("key: the gradients are encrypted under another one")
        plaintexts = [key.decrypt(number) for number in self.numbers]
        if self.shared > 1:
            plaintexts = [value for packed in plaintexts for value in self._slots(packed)][
                : len(self.rows)
            ]
        pairs = [(value >> self.h_bits, value % (1 << self.h_bits)) for value in plaintexts]
        return np.array(pairs, dtype=np.int64).reshape(-1, 2)

    def _slots(self, packed: int) -> list[int]:
        """The rows of one plaintext: balanced digits, the lowest first."""
        half = 1 << (self.slot_bits - 1)
        lifted = packed + sum(half << place * self.slot_bits for place in range(self.shared))
        mask = (1 << self.slot_bits) - 1
        return [(lifted >> place * self.slot_bits & mask) - half for place in range(self.shared)]


def encrypted_gradients(recording: Recording | str | Path) -> list[EncryptedGradients]:
    """The broadcasts of a training under engine ``paillier``, one for each tree that had one.

    ``recording``: of one party, or its file, as for ``fedmq.audit``.

    Raises:
        DataError: it holds no training, or one under another engine, or of vector leaves.
    """
    if not isinstance(recording, Recording):
        recording = Recording.read(Path(recording))
    view = SessionView(recording)
    if view.terms.engine != Paillier.name:
        raise DataError(
            f"the recording of {view.party} holds a training under {view.terms.engine}; only "
            f"{Paillier.name} sends what phe can read"
        )
    if view.terms.outputs > 1:
        raise DataError(
            f"the recording of {view.party} holds a training of vector leaves, whose numbers have "
            f"the g and h of {view.terms.outputs} outputs; one g and h a row can be read"
        )
    public = unpack_payload(view.terms.public)
    n, noise = (mpz.from_bytes(public[name].tobytes(), "little") for name in ("n", "noise"))
    key = PublicKey(n, noise, int(public["noise_bits"]))
    return [
        _of_tree(number, tree, key)
        for number, tree in sorted(view.trees.items())
        if tree.broadcasts
    ]


def _of_tree(number: int, tree: TreeView, key: PublicKey) -> EncryptedGradients:
    ciphertexts = np.concatenate([piece["ciphertexts"] for piece in tree.broadcasts])
    return EncryptedGradients(
        number,
        np.concatenate(tree.carried),
        tuple(key.to_phe_numbers(from_wire(ciphertexts, key.modulus))),
        int(tree.broadcasts[0]["h"]),
        int(tree.broadcasts[0]["slot"]),
        int(tree.broadcasts[0].get("rows", 1)),
    )
