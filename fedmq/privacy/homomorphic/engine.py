"""Gradients travel encrypted; passive parties add ciphertexts that they cannot read.

SecureBoost's own way (arXiv 1901.08755, Algorithms 1 and 2), for any additively homomorphic
scheme. g and h of a row are packed into one ciphertext, and several sums into one before they
return (as in SecureBoost+, arXiv 2110.10927). Sums are re-randomised, so that the key's owner
cannot tell from their noise which rows were added.

A half imports its arithmetic when it is made, since reading options needs none.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeGuard, get_args

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.computation import Computation, computation
from fedmq.errors import ConfigError, Refused
from fedmq.privacy.engine import ActiveHalf, Engine, Leakage, PassiveHalf, SumsShown, Traits
from fedmq.privacy.homomorphic import HIDDEN_VERSION, MOST_KEY_BITS, SAFE_KEY_BITS
from fedmq.privacy.plan import Values
from fedmq.privacy.random_stream import SEED_BYTES

if TYPE_CHECKING:
    from fedmq.privacy.homomorphic.scheme import PrivateKey, PublicKey

__all__ = ["AdditiveEngine", "Scheme"]


@dataclass(frozen=True)
class Scheme:
    """The source of an engine's keys.

    ``generate(bits, short_noise=...)`` makes a key whose public number has ``bits`` bits;
    ``check_public(n, noise_base, noise_bits, smallest_bits, owner)`` raises Refused for a malformed
    or short one. If the scheme ``needs_one``, plaintexts are added by a ciphertext of 1, and the
    check takes it as ``one``.
    """

    generate: Callable[..., PrivateKey]
    check_public: Callable[..., PublicKey]
    needs_one: bool = False


@computation("_MakeKey")
def _make_key(scheme: Scheme, bits: int, short_noise: bool) -> PrivateKey:
    return scheme.generate(bits, short_noise=short_noise)


@dataclass(frozen=True)
class AdditiveEngine(Engine):
    """``key_bits``: length of the public number; below 2048 only with ``allow_weak_keys``.

    The other options switch off what makes the engine fast; the model is the same with each.

    - ``short_noise``: noise of a short order, from tables of powers (active party).
    - ``noise_ahead``: noise for the next tree is made while the others work on this one (active).
    - ``pack_sums``: several sums in a ciphertext that returns (both: a passive party refuses less).
    - ``joint_sums``: features are summed together where that takes fewer products.
    - ``skip_fullest``: the fullest bin, such as zero or missing, is the total less the others.
    - ``subtract_siblings``: the larger of two siblings is their parent less the smaller.
    - ``sum_early``: the root is summed while the gradients come in.
    - ``share_ciphertexts``: with ``gradient_bits``, several rows in a ciphertext where that takes
      less time (active party; Paillier).
    - ``vectors``: eight ciphertexts at once are added or decrypted, if the processor can (both).

    ``sums``: whether the active party sees the sums, or learns only which candidates win
    (`fedmq.privacy.hidden_sums`). A passive party set to ``hidden`` refuses to show sums.
    ``covert``: where they are hidden, the copies of circuits of which the active party checks all
    but one (`fedmq.privacy.hidden_sums.copies`).
    """

    key_bits: int = SAFE_KEY_BITS
    allow_weak_keys: bool = False
    short_noise: bool = True
    noise_ahead: bool = True
    pack_sums: bool = True
    joint_sums: bool = True
    skip_fullest: bool = True
    subtract_siblings: bool = True
    sum_early: bool = True
    share_ciphertexts: bool = True
    vectors: bool = True
    sums: SumsShown = "shown"
    covert: int = 1

    traits = Traits(exact=True, takes_vectors=True, replays=True)
    leakage = Leakage(
        active="the sums of g and h of every split candidate of a passive party, in random order",
        passive="who stands in which node, down to the last level but one; no g, h or sum",
    )
    leak_of_sums = (
        "the active party follows candidates by their sums, solves all sums together, and reads "
        "on which side of each cut 24,033 people stand from 50 trees, 96.1 % right, where "
        "guessing reaches 73.2 %"
    )

    def __post_init__(self) -> None:
        if self.key_bits < SAFE_KEY_BITS and not self.allow_weak_keys:
            raise ConfigError(
                f"key_bits = {self.key_bits}: below {SAFE_KEY_BITS} nothing is kept secret for "
                "long; set allow_weak_keys = true for a trial"
            )
        if self.key_bits > MOST_KEY_BITS:
            raise ConfigError(f"key_bits = {self.key_bits}: {MOST_KEY_BITS} is the most")
        if self.sums not in get_args(SumsShown):
            raise ConfigError(f"sums = {self.sums!r}: use {', '.join(get_args(SumsShown))}")
        self._check_copies()

    @staticmethod
    @abstractmethod
    def scheme() -> Scheme:
        """The source of keys."""

    def key_bits_of(self, public: Values) -> int | None:
        n = public.get("n")
        return _number(n).bit_length() if _is_number(n) else None

    def announced(self, public: Values) -> Mapping[str, str | int | float]:
        return super().announced({"covert": public.get("covert")})  # beside a key of named bits

    def make_key(self) -> Computation:
        """The computation that makes the session's key."""
        return _make_key.bind(self.scheme(), self.key_bits, self.short_noise)

    def active(self, parallelism: int) -> ActiveHalf:
        from fedmq.privacy.hidden_sums.active import HiddenActive
        from fedmq.privacy.homomorphic.active import AdditiveActive, AdditiveActiveShares

        half = (AdditiveActiveShares if self.hides_sums else AdditiveActive)(
            self.make_key(),
            parallelism,
            pack_sums=self.pack_sums,
            noise_ahead=self.noise_ahead,
            share_ciphertexts=self.share_ciphertexts,
            vectors=self.vectors,
        )
        if isinstance(half, AdditiveActiveShares):
            return HiddenActive(half, self.covert)
        return half

    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        from fedmq.privacy.hidden_sums.passive import HiddenPassive
        from fedmq.privacy.homomorphic.passive import AdditivePassive, AdditivePassiveShares

        scheme = self.scheme()
        n, noise, noise_bits = (public.get(name) for name in ("n", "noise", "noise_bits"))
        one, seed = public.get("one"), public.get("seed")
        keys = {"n", "noise", "noise_bits"}
        if self.hides_sums:
            if public.get("version") != HIDDEN_VERSION:
                raise Refused(
                    f"engine {self.name!r}: the active party hides sums by another version of "
                    "fedmq: use the same in all parties"
                )
            keys |= {"seed", "version", "circuits", "back"}
            keys |= {"one"} if scheme.needs_one else set()
            keys |= {"covert"} & set(public)
        if (
            set(public) != keys
            or not _is_number(n)
            or not _is_number(noise)
            or not isinstance(noise_bits, int)
            or ("one" in keys and not _is_number(one))
        ):
            raise Refused(f"the active party's {self.name} key is malformed")
        key = scheme.check_public(
            _number(n),
            _number(noise),
            noise_bits,
            0 if self.allow_weak_keys else SAFE_KEY_BITS,
            "the active party",
            **({"one": _number(one)} if _is_number(one) else {}),
        )
        settings = {
            "pack_sums": self.pack_sums,
            "joint_sums": self.joint_sums,
            "skip_fullest": self.skip_fullest,
            "subtract_siblings": self.subtract_siblings,
            "sum_early": self.sum_early,
            "vectors": self.vectors,
        }
        if not self.hides_sums:
            return AdditivePassive(key, bins, parallelism, **settings)
        if not _is_number(seed) or seed.shape != (SEED_BYTES,):
            raise Refused("the active party's seed is malformed")
        shares = AdditivePassiveShares(seed.tobytes(), key, bins, parallelism, **settings)
        return HiddenPassive.of(self.name, shares, public)


def _is_number(value: object) -> TypeGuard[NDArray[np.uint8]]:
    return isinstance(value, np.ndarray) and value.dtype == np.uint8


def _number(value: NDArray[np.uint8]) -> int:
    return int.from_bytes(value.tobytes(), "little")
