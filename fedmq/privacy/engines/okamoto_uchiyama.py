"""Gradients under the scheme of Okamoto and Uchiyama: half the bytes, a third of the time.

For honest-but-curious parties only: whoever learns the decryption of a chosen ciphertext, even
just whether it was well-formed, can factor the key.
"""

from __future__ import annotations

from fedmq.privacy.homomorphic import okamoto_uchiyama as ou
from fedmq.privacy.homomorphic.engine import AdditiveEngine, Scheme

__all__ = ["OkamotoUchiyama"]


class OkamotoUchiyama(AdditiveEngine):
    """Okamoto and Uchiyama (EUROCRYPT 1998), n = p²q."""

    name = "ou"
    scheme = Scheme(ou.generate, ou.check_public)
