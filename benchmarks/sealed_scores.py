"""How hard is it to read a sealed score, how often is one in doubt, and what does one take?

::

    python -m benchmarks.sealed_scores [DATA]

The bits are those of `benchmarks.lattice_security`, by the same estimate. Bytes are those of a
question and of its answer, for a row of so many leaves; processor seconds are of this machine. With
DATA, the folder of both credit tables, it says how many leaves scores of so many trees of depth 4
tell.
"""

from __future__ import annotations

import sys
import time
from math import log2
from pathlib import Path

import numpy as np

from benchmarks.credit import LABELS, Credit
from benchmarks.lattice_security import cheapest_attack
from fedmq import TrainParams, simulate
from fedmq.leakage.sealed_scores import leaves_from_scores
from fedmq.privacy.random_stream import fresh_seed
from fedmq.privacy.sealed_scores.ciphertexts import (
    AnswerQuery,
    MakeKey,
    farthest,
    open_answer,
    read_plaintexts,
    sealed,
)
from fedmq.privacy.sealed_scores.modulus import from_slots
from fedmq.privacy.sealed_scores.packing import Packing
from fedmq.privacy.sealed_scores.parameters import (
    BLOCKS,
    DEGREE,
    MODULUS_BITS,
    PRIME,
    SENT_BITS,
)

__all__ = ["main"]

_QUESTIONS = 20


def main() -> None:
    attack = cheapest_attack(DEGREE, MODULUS_BITS)
    print(
        f"N = {DEGREE}, log q = {MODULUS_BITS}: {attack.bits:.0f} bits, "
        f"{attack.quantum_bits:.0f} against quantum computers "
        f"(block size {attack.block} in dimension {attack.dimension})"
    )
    doubt = log2(2 * farthest() * PRIME) - SENT_BITS
    print(
        f"in doubt: 2^{doubt + log2(BLOCKS):.1f} of the last party's ciphertexts, "
        f"2^{doubt + log2(DEGREE):.1f} of other parties'"
    )
    print(f"a label holder that lies: {log2(PRIME):.0f} bits a score and class, at most")
    for leaves in (64, 640, 3200):
        _one(Packing((leaves,)))
    for folder in sys.argv[1:]:
        for name in LABELS:
            _told(Credit.read(Path(folder), name))


def _told(credit: Credit) -> None:
    model = simulate(
        active=credit.active,
        label=credit.label.astype(np.int64),
        passive={"passive": credit.passive},
        params=TrainParams(num_boost_round=50, max_depth=4, max_bin=32),
        engine="plain",
    )
    splits = {party: share.lookup_table for party, share in model.passive_shares.items()}
    tables = {"passive": credit.passive}
    for finding in leaves_from_scores(model.share, credit.active, tables, splits):
        print(
            f"{credit.name}: {finding.attack}, {finding.where}: {finding.value:.3f}, "
            f"guessing {finding.chance:.3f}"
        )


def _one(packing: Packing) -> None:
    secret, rows = fresh_seed(), packing.rows
    key = MakeKey(fresh_seed(), secret).run()
    weights = np.ones((rows, packing.slots), np.int64)
    allowed = weights > 0
    spent: dict[str, float] = {}
    started = time.process_time()

    def lap(name: str) -> None:
        nonlocal started
        spent[name] = spent.get(name, 0) + (time.process_time() - started) / _QUESTIONS
        started = time.process_time()

    for _ in range(_QUESTIONS):
        plaintexts = from_slots(packing.laid_out(weights))
        for after in (fresh_seed(), None):
            seeds = [(fresh_seed(), fresh_seed()) for _ in plaintexts]
            query = sealed(plaintexts, secret, seeds)
            lap("encrypts")
            answers = AnswerQuery(query, key, packing, allowed, fresh_seed(), after=after).answers()
            lap("answers")
            if after is not None:
                read_plaintexts(answers, secret)
        sums = open_answer(answers, secret, packing, rows)
        lap("reads")
        assert (sums == packing.slots).all()
    asked = sum(part.words.nbytes + len(part.seed) for part in query)
    told = sum(part.masks.nbytes + part.numbers.nbytes for part in answers)
    spent["encrypts"] /= 2
    spent["answers"] /= 2
    words = ", ".join(f"{name} {1000 * seconds:.1f} ms" for name, seconds in spent.items())
    print(
        f"{packing.slots:,} leaves: {rows} rows a question; a row takes "
        f"{asked / rows:,.0f} bytes there and {told / rows:,.0f} back; of a question {words}"
    )


if __name__ == "__main__":
    main()
