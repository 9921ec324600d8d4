"""Random numbers have the distributions that security and exactness count on."""

from __future__ import annotations

import numpy as np

from fedmq.privacy.lattice.ring import draw_errors, draw_secret, draw_ternary
from fedmq.privacy.random_stream import Stream, fresh_seed

SEED = b"s" * 32


def test_a_stream_is_made_of_its_seed_and_purpose() -> None:
    assert Stream(SEED, "one").read(64) == Stream(SEED, "one").read(64)
    others = [Stream(SEED, "two"), Stream(b"t" * 32, "one")]
    assert Stream(SEED, "one").read(64) not in [other.read(64) for other in others]


def test_a_stream_goes_on_where_it_was() -> None:
    stream = Stream(SEED, "one")
    assert stream.read(24) + stream.read(40) == Stream(SEED, "one").read(64)


def test_fresh_seeds_differ() -> None:
    assert len({fresh_seed() for _ in range(100)}) == 100


def test_ternary_numbers_are_uniform() -> None:
    counts = np.bincount(draw_ternary(Stream(SEED, "ternary"), 90_000) + 1)
    assert (np.abs(counts - 30_000) < 5 * np.sqrt(20_000)).all()


def test_errors_are_centred_binomial() -> None:
    errors = draw_errors(Stream(SEED, "errors"), 200_000)
    assert np.abs(errors).max() <= 21
    assert abs(errors.mean()) < 5 * 3.24 / np.sqrt(200_000)
    assert abs(errors.std() - np.sqrt(10.5)) < 0.03


def test_secrets_keep_their_bound() -> None:
    for seed in range(200):
        secret = draw_secret(seed.to_bytes(32, "little"), 16, 12)
        assert np.count_nonzero(secret) <= 12
        assert set(secret.tolist()) <= {-1, 0, 1}
