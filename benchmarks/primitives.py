"""Microseconds of each primitive of the encrypting engines on one core, beside python-paillier's.

::

    python -m benchmarks.primitives [--bits 2048] [--rows 4000] [--features 10] [--bins 32]
                                    [--repeat 5] [--json]

Every number is the best of ``--repeat`` rounds, all in one run, in time of the processor. What
python-paillier has no operation for is left empty.
"""

from __future__ import annotations

import argparse
import json
import operator
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass

import numpy as np
from gmpy2 import mpz
from phe import PaillierPrivateKey, generate_paillier_keypair

from fedmq.privacy.homomorphic import histogram as sums
from fedmq.privacy.homomorphic import okamoto_uchiyama as ou
from fedmq.privacy.homomorphic import paillier
from fedmq.privacy.homomorphic import residues as wire
from fedmq.privacy.homomorphic.packing import SlotLayout
from fedmq.privacy.homomorphic.scheme import PrivateKey

# Fixed point of gradients and hessians, as logistic loss has them: |g| <= 1, 0 <= h <= 1/4.
FRACTION_BITS = 32

# Operations of python-paillier are slow: so many are enough.
PHE_COUNT = 20


@dataclass(frozen=True)
class Workload:
    """Rows to encrypt, and the histogram to sum them into."""

    rows: int
    features: int
    bins: int
    repeat: int

    def fastest(self, action: Callable[[], object], count: int) -> float:
        """Microseconds per item of an action over ``count`` items, best of all rounds."""
        rounds = []
        for _ in range(self.repeat):
            start = time.process_time()
            action()
            rounds.append(time.process_time() - start)
        return 1e6 * min(rounds) / count


def measure(generate: Callable[[int], PrivateKey], bits: int, work: Workload) -> dict[str, float]:
    """Microseconds of each primitive under a fresh key."""
    random = np.random.default_rng(0)
    key = generate(bits)
    public, modulus = key.public, key.public.modulus

    bound = work.rows << FRACTION_BITS
    layout = SlotLayout.for_sums(bound, bound >> 2, public.plaintext_bits)
    g = random.integers(-(1 << FRACTION_BITS), 1 << FRACTION_BITS, work.rows)
    h = random.integers(0, 1 << (FRACTION_BITS - 2), work.rows)
    plaintexts = layout.join(g, h)

    codes = work.bins + 1
    matrix = random.integers(0, codes, (work.rows, work.features)).astype(np.uint8)
    slots = np.zeros(work.rows, dtype=np.int8)
    runs = [np.arange(f * codes, (f + 1) * codes - 1) for f in range(work.features)]

    start = time.process_time()
    key.encrypt(plaintexts[:1])
    first = time.process_time() - start
    ciphertexts = key.encrypt(plaintexts)

    def sum_bins(columns: slice) -> sums.Sums:
        return sums.sum_bins(
            ciphertexts, matrix[:, columns], slots, nodes=1, codes=codes, modulus=modulus
        )

    cells = sum_bins(slice(None))
    candidates: list[mpz] = sums.cumulate(cells, runs, modulus).tolist()
    packed = public.rerandomise(layout.pack(candidates, modulus))
    sent = wire.to_wire(ciphertexts, modulus)

    def packed_sums() -> None:
        layout.unpack(key.decrypt(layout.pack(candidates, modulus)), len(candidates))

    fastest = work.fastest
    return {
        "generate a key": fastest(lambda: generate(bits), 1),
        "encrypt the first row (tables)": 1e6 * first,
        "encrypt": fastest(lambda: key.encrypt(plaintexts), work.rows),
        "add, one feature": fastest(lambda: sum_bins(slice(1)), work.rows),
        "add, all features jointly": fastest(lambda: sum_bins(slice(None)), matrix.size),
        "merge": fastest(lambda: sums.merge([cells, cells], modulus), cells.size),
        "subtract": fastest(lambda: sums.subtract(cells, cells, modulus), cells.size),
        "cumulate": fastest(lambda: sums.cumulate(cells, runs, modulus), len(candidates)),
        "pack, a sum": fastest(lambda: layout.pack(candidates, modulus), len(candidates)),
        "re-randomise": fastest(lambda: public.rerandomise(packed), len(packed)),
        "decrypt": fastest(lambda: key.decrypt(packed), len(packed)),
        "pack, decrypt and unpack, a sum": fastest(packed_sums, len(candidates)),
        "slots of a ciphertext (count)": float(layout.capacity),
        "write to the wire": fastest(lambda: wire.to_wire(ciphertexts, modulus), work.rows),
        "read from the wire": fastest(lambda: wire.from_wire(sent, modulus), work.rows),
    }


def check_against(private: PaillierPrivateKey) -> None:
    """Exit unless python-paillier and fedmq decrypt what either encrypts."""
    key = paillier.PrivateKey.from_phe(private)
    values = [0, 1, -987_654_321]
    ours = [private.decrypt(number) for number in key.public.to_phe_numbers(key.encrypt(values))]
    theirs = key.decrypt(
        key.public.from_phe_numbers([private.public_key.encrypt(value) for value in values])
    )
    if not ours == theirs == values:
        raise SystemExit("python-paillier and fedmq decrypt differently: no times are comparable")


def measure_phe(bits: int, work: Workload) -> dict[str, float]:
    """The same of python-paillier, where it has it; it is also the reference for ours."""
    public, private = generate_paillier_keypair(n_length=bits)
    check_against(private)
    numbers = [public.encrypt(value) for value in range(PHE_COUNT)]

    def apply(action: Callable[[object], object], items: Iterable[object]) -> float:
        return work.fastest(lambda: [action(item) for item in items], PHE_COUNT)

    return {
        "encrypt": apply(public.encrypt, range(PHE_COUNT)),
        "add, one feature": apply(lambda number: operator.add(number, numbers[0]), numbers),
        "subtract": apply(lambda number: operator.sub(number, numbers[0]), numbers),
        "re-randomise": apply(operator.methodcaller("obfuscate"), numbers),
        "decrypt": apply(private.decrypt, numbers),
    }


def table(columns: dict[str, dict[str, float]]) -> str:
    """Columns of microseconds as text, one primitive a row."""
    text = [f"{'µs':<34}" + "".join(f"{name:>14}" for name in columns)]
    for primitive in columns["paillier"]:
        values = [column.get(primitive) for column in columns.values()]
        cells = ["" if value is None else f"{value:,.2f}" for value in values]
        text.append(f"{primitive:<34}" + "".join(f"{cell:>14}" for cell in cells))
    return "\n".join(text)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--bits", type=int, default=2048, help="length of the keys (2048)")
    parser.add_argument("--rows", type=int, default=4000, help="rows to encrypt and sum (4000)")
    parser.add_argument("--features", type=int, default=10, help="features to sum over (10)")
    parser.add_argument("--bins", type=int, default=32, help="bins of a feature (32)")
    parser.add_argument("--repeat", type=int, default=5, help="rounds to take the best of (5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    work = Workload(options.rows, options.features, options.bins, options.repeat)
    columns = {
        "paillier": measure(paillier.generate, options.bits, work),
        "ou": measure(ou.generate, options.bits, work),
        "phe": measure_phe(options.bits, work),
    }
    if options.json:
        print(json.dumps({"workload": asdict(work), "bits": options.bits, "µs": columns}, indent=2))
    else:
        print(table(columns))


if __name__ == "__main__":
    main()
