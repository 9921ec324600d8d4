"""Gradients under the scheme of Okamoto and Uchiyama: half the bytes, a third of the time.

For honest-but-curious parties only: the decryption of a chosen ciphertext, even just whether it was
well-formed, reveals the key's factors.
"""

from __future__ import annotations

from fedmq.privacy.homomorphic.engine import AdditiveEngine, Scheme

__all__ = ["OkamotoUchiyama"]


class OkamotoUchiyama(AdditiveEngine):
    """Okamoto and Uchiyama (EUROCRYPT 1998), n = p²q."""

    name = "ou"

    @staticmethod
    def scheme() -> Scheme:
        from fedmq.privacy.homomorphic.okamoto_uchiyama import check_public, generate

        return Scheme(generate, check_public, needs_one=True)
