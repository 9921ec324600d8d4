"""Whatever strikes, every training ends by itself, with the model of an undisturbed one."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.chaos.federation import ChaosFederation
from tests.chaos.storm import PLAIN, EngineOfTraining, Storm
from tests.chaos.work import KINDS, LIMITS, Work, turns

FAULTS = int(os.environ.get("FEDMQ_CHAOS_FAULTS", "5"))
SEED = int(os.environ.get("FEDMQ_CHAOS_SEED", "0"))

LATTICE: EngineOfTraining = ("lattice", {})
PAILLIER: EngineOfTraining = ("paillier", {})
HIDDEN_SUMS: EngineOfTraining = ("lattice", {"sums": "hidden"})


def weathered(
    federation: ChaosFederation, engines: Sequence[EngineOfTraining], faults: int, seed: int
) -> Storm:
    """Storm over trainings that must all equal a calm one."""
    federation.start()
    storm = Storm(federation, seed, engines)
    storm.calm()
    storm.rage(faults)
    storm.settle()
    assert all(federation.equal(model, "calm") for model in storm.models)
    for party in federation.daemons:
        # Nothing that a party sent was ever taken for something foreign.
        assert federation.ask(party, "status")["dead_letters"] == 0, federation.dead_letters(party)
    print(f"{sum(storm.struck.values())} faults, {len(storm.models)} models: {dict(storm.struck)}")
    return storm


@pytest.mark.long
@pytest.mark.timeout(max(120, 30 * FAULTS))
def test_every_training_ends_with_the_model_of_a_calm_one(federation: ChaosFederation) -> None:
    # Both engines are exact: a model is the same whichever it came by.
    storm = weathered(federation, (PLAIN, LATTICE), FAULTS, SEED)

    assert sum(storm.struck.values()) == FAULTS


@pytest.mark.skipif(FAULTS < 100, reason="the long form: make chaos")
@pytest.mark.timeout(3600)
def test_encrypted_trainings_too(federation: ChaosFederation) -> None:
    # Most faults strike the first training of the storm, which is the second engine's.
    weathered(federation, (PAILLIER, HIDDEN_SUMS, LATTICE), FAULTS // 5, SEED + 1)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_sessions_of_every_kind_end_as_in_calm(federation: ChaosFederation) -> None:
    for daemon in federation.daemons.values():
        daemon.file.write_text(daemon.file.read_text().replace("[policy]\n", f"[policy]{LIMITS}"))
    federation.start()
    storm = Storm(federation, SEED)
    work = Work(storm)
    work.calm_round(PLAIN)

    def one_of_each() -> None:
        for kind, engine in itertools.islice(turns((LATTICE, PLAIN)), len(KINDS)):
            work.session(kind, engine)

    with ThreadPoolExecutor(1) as pool:
        stormy = pool.submit(one_of_each)
        while not stormy.done():
            with work.calm:
                storm.strike()
        stormy.result()

    assert work.done == dict.fromkeys(KINDS, 1)
    assert storm.struck


def test_every_kind_of_session_and_every_engine_has_its_turn_early_and_all_pairs_later() -> None:
    engines = [(str(number), {}) for number in range(5)]
    order = list(itertools.islice(turns(engines), len(KINDS) * len(engines)))

    assert {engine for _, (engine, _) in order[:5]} == set("01234")
    assert {kind for kind, _ in order[: len(KINDS)]} == set(KINDS)
    assert len({(kind, engine) for kind, (engine, _) in order}) == len(order)
