"""The engine of the papers: gradients under Paillier's scheme."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Self

from fedmq.computation import Computation, Given
from fedmq.errors import ConfigError
from fedmq.privacy.engine import NOT_AN_OPTION
from fedmq.privacy.homomorphic.engine import AdditiveEngine, Scheme

__all__ = ["Paillier"]


@dataclass(frozen=True)
class Paillier(AdditiveEngine):
    """Paillier (EUROCRYPT 1999) with the short noise of Ma, Han and Lei (ACSAC 2021).

    ``key``: set by :meth:`with_key`; without it each session makes a fresh key.
    """

    key: Any = field(default=None, repr=False, metadata=NOT_AN_OPTION)

    name = "paillier"

    @staticmethod
    def scheme() -> Scheme:
        from fedmq.privacy.homomorphic.paillier import check_public, generate

        return Scheme(generate, check_public)

    def with_key(self, key: Any) -> Self:
        from phe import PaillierPrivateKey

        from fedmq.privacy.homomorphic.paillier import PrivateKey

        if not isinstance(key, PaillierPrivateKey):
            raise ConfigError(
                f"key: a PaillierPrivateKey of python-paillier (phe) is needed, not a "
                f"{type(key).__name__}"
            )
        own = PrivateKey.from_phe(key)
        return replace(self, key_bits=own.public.n.bit_length(), key=own)

    def make_key(self) -> Computation:
        return super().make_key() if self.key is None else Given(self.key)
