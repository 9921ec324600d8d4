"""A party sends more than was agreed at the opening, and fills the other's memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from gmpy2 import mpz, powmod

from fedmq.errors import Inconsistent, Refused
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import EngineSetup, HistogramReply, SessionAccept
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.ldp import Ldp
from fedmq.privacy.engines.smm1 import Smm1
from fedmq.privacy.engines.smm2 import Smm2
from fedmq.privacy.homomorphic import scheme as noise
from fedmq.privacy.homomorphic.scheme import SeededBytes
from fedmq.protocol.training.passive import PassiveTraining
from tests.protocol.federation import ACTIVE, OU, PAILLIER, PLAIN, ran, small

ENGINES = [PLAIN, PAILLIER, OU, Lattice(), Ldp(), Smm1(), Smm2()]
PADDING = Array.of(np.zeros(700_000, np.uint8))


def lied(engine: Engine, rewrite: Callable[[Body], Body]) -> Inconsistent:
    federation = small(counts=(0, 2)).having(engine=engine)

    def lying(envelope: Envelope) -> Body:
        return rewrite(envelope.body) if envelope.header.sender == "telco" else envelope.body

    error = federation.train(rewrite=lying).errors[ACTIVE]
    assert isinstance(error, Inconsistent), error
    assert error.party == "telco"
    return error


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_a_reply_longer_than_its_candidates_take_ends_the_session(engine: Engine) -> None:
    def rewrite(body: Body) -> Body:
        if isinstance(body, HistogramReply):
            return body.model_copy(update={"pieces": 2**20 - 1})
        return body

    assert "a reply of 1048575 pieces; 1 hold all its candidates" in str(lied(engine, rewrite))


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_so_does_a_piece_that_is_filled_up_with_something_else(engine: Engine) -> None:
    def rewrite(body: Body) -> Body:
        if isinstance(body, HistogramReply):
            return body.model_copy(update={"payload": {**body.payload, "more": PADDING}})
        return body

    error = lied(engine, rewrite)
    assert "bytes or more; all its candidates take" in str(error)
    assert int(error.evidence["most"]) < 200_000 < 700_000 < int(error.evidence["bytes"])


@pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)
def test_a_setup_that_no_candidates_need_is_refused_when_it_is_announced(engine: Engine) -> None:
    def rewrite(body: Body) -> Body:
        if isinstance(body, SessionAccept):
            return body.model_copy(update={"setup_pieces": 2**20 - 1})
        return body

    assert "a setup of 1048575 pieces" in str(lied(engine, rewrite))


def test_a_hint_that_is_filled_up_ends_the_session() -> None:
    def rewrite(body: Body) -> Body:
        if isinstance(body, EngineSetup):
            return body.model_copy(update={"payload": {**body.payload, "more": PADDING}})
        return body

    assert "bytes or more; its candidates take" in str(lied(Lattice(), rewrite))


def test_more_candidates_than_the_active_partys_hint_may_have_are_refused() -> None:
    def rewrite(body: Body) -> Body:
        if isinstance(body, SessionAccept):
            return body.model_copy(update={"candidates": 2**20})
        return body

    assert "is longer than hint_bytes = 1,000,000,000" in str(lied(Lattice(), rewrite))


@pytest.mark.parametrize("engine", [PLAIN, PAILLIER, OU, Ldp()], ids=lambda engine: engine.name)
def test_a_passive_party_refuses_trees_whose_sums_would_fill_its_memory(engine: Engine) -> None:
    federation = small(counts=(0, 2)).having(engine=engine)
    machines = federation.having(max_depth=16).training()
    telco = machines["telco"]
    assert isinstance(telco, PassiveTraining)
    telco._most_sums_bytes = 10_000
    error = ran(machines).errors["telco"]
    assert isinstance(error, Refused)
    assert "takes 1e-05 GB for the sums of a tree at most (most_sums_bytes)" in str(error)


@pytest.mark.long
def test_noise_of_a_very_long_key_is_made_without_a_table() -> None:
    modulus, base = (mpz(1) << 32_768) - 1, mpz(3)
    before = noise._table.cache_info().currsize
    random = SeededBytes(bytes(32))
    drawn = SeededBytes(bytes(32)).draw(b"noise", 0, noise.exponent_bytes(32_768))
    exponent = mpz.from_bytes(drawn, "little")
    made = noise.public_noise(base, modulus, 32_768, 1, random)
    assert made == [powmod(base, exponent, modulus)]
    assert noise._table.cache_info().currsize == before


def test_noise_of_usual_keys_comes_from_tables_that_fit() -> None:
    for key_bits, noise_bits in ((2048, 448), (4096, 4096), (16_384, 1024)):
        places = (noise_bits + 64) // 8
        assert places * 256 * 2 * key_bits // 8 <= noise._MOST_TABLE
