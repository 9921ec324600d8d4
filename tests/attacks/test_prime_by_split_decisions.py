"""A passive party asks for Okamoto-Uchiyama's prime, each question chosen by the answers before.

Plaintexts ``m (c - p)`` wrap; which of two candidates wins, or whether one is a candidate at all,
says on which side of c the prime lies. Each answer halves what is left, and the upper half of the
bits factors the key (Boneh, Durfee, Howgrave-Graham, CRYPTO 1999).
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

import numpy as np
import pytest
from gmpy2 import invert, mpz, powmod

from fedmq.boosting.gradients import FixedPoint
from fedmq.boosting.params import TrainParams
from fedmq.errors import MessageError
from fedmq.privacy.engine import SplitOffer
from fedmq.privacy.homomorphic import okamoto_uchiyama
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.protocol.training.offers import ScoreAnswer, ScoreCandidates

ROWS = 32_768
KEY_BITS = 1024
SHIFTS = 64
PARAMS = TrainParams()
SCALE = FixedPoint.covering(np.array([0.5, 0.25]), ROWS)


@dataclass
class LabelHolder:
    """Decrypts, checks and scores with its own code; with ``checks`` off as it once did."""

    checks: bool
    key: okamoto_uchiyama.PrivateKey = field(
        default_factory=lambda: okamoto_uchiyama.generate(KEY_BITS)
    )

    def __post_init__(self) -> None:
        bound = ROWS << SCALE.value_bits
        self.layout = SlotLayout.for_sums(bound, bound, self.key.public.plaintext_bits)
        most = SCALE.encode(np.array([[0.08 * ROWS, 0.15 * ROWS]], np.float32))[0]
        least = SCALE.encode(np.array([[-0.0789 * ROWS, 0.0]], np.float32))[0]
        self.bounds = np.stack((least, most))
        self.total = self.bounds.sum(axis=0)

    def decided(self, ciphertexts: list[mpz]) -> int | None:
        """The first candidate that it names; None where the session ends."""
        count = len(ciphertexts) * self.layout.capacity
        try:
            g, h = self.layout.unpack(self.key.decrypt(ciphertexts), count)
        except MessageError:
            return None
        score = ScoreCandidates(np.stack((g, h), axis=1), self.total, SCALE, PARAMS)
        best = ScoreAnswer(score, self.bounds if self.checks else None).best()
        return int(best.candidates[0]) if isinstance(best, SplitOffer) else None


@dataclass
class Attacker:
    """Knows the public key and an encryption of a number; ``low`` to ``high`` holds the prime.

    The first bits are a present: one key in a few would be guessed right.
    """

    holder: LabelHolder

    def __post_init__(self) -> None:
        layout, public = self.holder.layout, self.holder.key.public
        self.n = public.n
        [self.one] = self.holder.key.encrypt([1])
        self.room = mpz(1) << (layout.slot_bits * layout.capacity - 1)
        prime = self.holder.key.prime.p
        self.low = prime - prime % self.room
        self.high = self.low + self.room

    def hidden(self, number: mpz) -> mpz:
        base = self.one if number >= 0 else invert(self.one, self.n)
        return powmod(base, abs(number), self.n)

    @property
    def known(self) -> int:
        """Bits of what is left of the prime."""
        return int(self.high - self.low).bit_length()

    def asks(self) -> bool:
        """One question: |m x + D| against |m x - D| for x = c - p; whether it was answered."""
        layout = self.holder.layout
        top, w = layout.slot_bits * (layout.capacity - 1), layout.h_bits
        wide = self.high - self.low
        m = max(mpz(1), self.room // 2 // wide)
        unit = mpz(1) << top
        apart = ((self.room // 2 - (unit << (w + 2))) >> (top + w)) << (top + w)
        c = (self.low + self.high) // 2 + secrets.randbelow(int(wide // 64)) - wide // 128
        middle = self.hidden(m * c)
        sides = [middle * self.hidden(apart) % self.n, middle * self.hidden(-apart) % self.n]
        step, shifted, asked = self.hidden((unit << w) // SHIFTS), mpz(1), []
        for _ in range(SHIFTS):  # of h, so that one of them is small and a candidate
            asked += [side * shifted % self.n for side in sides]
            shifted = shifted * step % self.n
        named = self.holder.decided(self.holder.key.public.rerandomise(asked))
        if named is None:
            return False
        which, slot = divmod(named, layout.capacity)
        if slot == layout.capacity - 1:
            margin = wide // 20
            if which % 2 == 0:
                self.high = c + margin
            else:
                self.low = c - margin
        return True


def test_without_the_checks_each_answer_tells_about_a_bit() -> None:
    attacker = Attacker(LabelHolder(checks=False))
    before, answered = attacker.known, 0
    while attacker.known > before - 12 and answered < 40:
        assert attacker.asks()
        answered += 1
    assert attacker.known <= before - 12
    assert attacker.low <= attacker.holder.key.prime.p <= attacker.high


@pytest.mark.parametrize("trial", range(4))
def test_the_first_question_ends_the_session_and_the_key(trial: int) -> None:
    attacker = Attacker(LabelHolder(checks=True))
    before = attacker.known
    assert not attacker.asks(), trial
    assert attacker.known == before


def test_a_number_that_passes_unwrapped_says_nothing_of_any_prime() -> None:
    holder = LabelHolder(checks=True)
    layout, prime_bits = holder.layout, holder.key.prime.p.bit_length()
    least, most = (
        sum(
            ((int(g) << layout.h_bits) + int(h)) << slot * layout.slot_bits
            for slot in range(layout.capacity)
        )
        for g, h in holder.bounds
    )
    smallest_prime = 1 << (prime_bits - 1)
    assert -smallest_prime // 2 < least < most < smallest_prime // 2


def test_of_one_sum_alone_everything_above_it_must_vanish() -> None:
    attacker = Attacker(LabelHolder(checks=True))
    holder = attacker.holder
    wrapped = [attacker.hidden(attacker.room * 5 + 12345)]
    with pytest.raises(MessageError):
        holder.layout.unpack(holder.key.decrypt(wrapped), 1)
