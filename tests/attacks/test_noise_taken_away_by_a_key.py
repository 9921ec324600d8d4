"""With hidden sums, a key's noise has order 2, and each person's ciphertext carries a prime.

Ciphertexts hold more than plaintexts: numbers that decrypt to nothing. A passive party covers them
by powers of the noise's base, which comes with the key. Where these are 1 and -1, what a sum holds
beside its mask is the product of the primes of those who go left. All sums stay right.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gmpy2 import invert, mpz, powmod

from fedmq.boosting.binning import histograms
from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Given
from fedmq.privacy.homomorphic import active
from fedmq.privacy.homomorphic.engine import AdditiveEngine
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.privacy.homomorphic.scheme import Crt, Prime
from tests.privacy.homomorphic.test_hidden_sums import OU, PAILLIER, SharingPair
from tests.privacy.test_engine_contract import expected, gradients, table

ROWS = 40
PRIMES = (2, 3, 5, 7, 11, 13, 17, 19, 23, 29)
"""Of as many people."""


class Paillier:
    """Primes stand modulo the key's first prime, as n-th powers."""

    engine = replace(PAILLIER, pack_sums=False)

    def __init__(self, engine: AdditiveEngine) -> None:
        key = engine.make_key().run()
        # The key takes noise of any order, as keys of other software do.
        self.key = replace(
            key, first=Prime.whole(key.first.p), second=Prime.whole(key.second.p), tabled_noise=True
        )
        self.base = Crt(key.first.p**2, key.second.p**2).join(mpz(1), mpz(-1))

    def marked(self, ciphertext: mpz, number: int) -> mpz:
        n = self.key.public.n
        return ciphertext * powmod(number, n, n * n) % (n * n)

    def product(self, answer: mpz) -> mpz:
        p = self.key.first.p
        return powmod(answer, invert(self.key.public.n, p - 1), p)


class OkamotoUchiyama:
    """Primes stand modulo q, which holds nothing of a plaintext."""

    engine = replace(OU, pack_sums=False)

    def __init__(self, engine: AdditiveEngine) -> None:
        self.key = engine.make_key().run()
        self.moduli = Crt(self.key.prime.p**2, self.key.q)
        self.base = self.moduli.join(mpz(1), mpz(-1))

    def marked(self, ciphertext: mpz, number: int) -> mpz:
        return self.moduli.join(ciphertext % self.key.prime.p**2, mpz(number))

    def product(self, answer: mpz) -> mpz:
        found = answer % self.key.q
        return min(found, self.key.q - found)


@pytest.fixture(params=[Paillier, OkamotoUchiyama])
def owner(request: pytest.FixtureRequest) -> Paillier | OkamotoUchiyama:
    return request.param(request.param.engine)


def read(
    owner: Paillier | OkamotoUchiyama, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray]:
    """Whether each person's prime is in each answer, and whether the person goes left."""
    answers: list[mpz] = []
    encrypt, encrypt_one, decrypt = active._encrypt, active._encrypt_one, active._decrypt
    modulus = owner.key.public.modulus

    def marked(*arguments: Any) -> Given:
        numbers = from_wire(encrypt.bind(*arguments).run(), modulus)
        every = [*PRIMES, *[1] * (len(numbers) - len(PRIMES))]
        pairs = zip(numbers, every, strict=True)
        return Given(to_wire([owner.marked(*pair) for pair in pairs], modulus))

    def kept(key: Any, layout: Any, packed: np.ndarray, *rest: Any) -> Any:
        answers.extend(from_wire(packed, modulus))
        return decrypt.bind(key, layout, packed, *rest)

    monkeypatch.setattr(AdditiveEngine, "make_key", lambda _: Given(owner.key))
    monkeypatch.setattr(active, "_encrypt", SimpleNamespace(bind=marked))
    monkeypatch.setattr(
        active,
        "_encrypt_one",
        SimpleNamespace(bind=lambda key: Given(owner.marked(encrypt_one.bind(key).run(), 1))),
    )
    monkeypatch.setattr(active, "_decrypt", SimpleNamespace(bind=kept))
    bins, held, rows = table(ROWS, 3, seed=1), gradients(ROWS, 2), np.arange(ROWS, dtype=np.int32)
    candidates = CandidateTable.of(bins.cuts)
    pair = SharingPair(owner.engine, bins, parallelism=1)
    pair.start_tree(held)
    pair.ask_level({1: rows}, candidates, {1: np.arange(len(candidates))})
    np.testing.assert_array_equal(pair.sums(1), expected(bins, held, rows, candidates))
    found = [[owner.product(answer) % prime == 0 for prime in PRIMES] for answer in answers]
    people = [
        candidates.left_sums(histograms(bins, np.ones((ROWS, 2), np.int64), [rows[[person]]]))[0]
        for person in range(len(PRIMES))
    ]
    return np.array(found), np.stack([left[:, 0] == 1 for left in people], axis=1)


def test_who_goes_left_is_not_read_beside_masks_under_honest_noise(
    owner: Paillier | OkamotoUchiyama, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, left = read(owner, monkeypatch)
    assert 0.2 < left.mean() < 0.8
    assert not (found == left).all(axis=1).mean() > 0.1


def test_who_goes_left_is_read_beside_masks_where_noise_has_order_2(
    owner: Paillier | OkamotoUchiyama, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What remains: `ou` and `paillier` are for parties that keep the protocol."""
    owner.key = replace(owner.key, noise_base=owner.base)
    found, left = read(owner, monkeypatch)
    np.testing.assert_array_equal(found, left)
