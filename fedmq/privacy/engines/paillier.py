"""The engine of the papers: gradients under Paillier's scheme."""

from __future__ import annotations

from fedmq.privacy.homomorphic.arithmetic import paillier
from fedmq.privacy.homomorphic.engine import AdditiveEngine, Scheme

__all__ = ["Paillier"]


class Paillier(AdditiveEngine):
    """Paillier (EUROCRYPT 1999) with the short noise of Ma, Han and Lei (ACSAC 2021)."""

    name = "paillier"
    scheme = Scheme(paillier.generate, paillier.check_public)
