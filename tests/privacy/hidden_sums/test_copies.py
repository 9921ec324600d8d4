"""A party that garbles another circuit than its seeds give is caught, unless in the real copy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fedmq.errors import Inconsistent, MessageError
from fedmq.privacy.hidden_sums import copies as module
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.plan import Compute, Plan, Reply
from tests.how_often import seldom
from tests.privacy.hidden_sums.copied_level import CopiedLevels
from tests.privacy.hidden_sums.driven import size
from tests.privacy.hidden_sums.level_pair import LevelPair
from tests.privacy.hidden_sums.test_level import check, drawn, own_gains

Lie = Callable[[str, Any], Any]
"""What the passive party makes of the computation with this label, and of its result."""


def lying(lie: Lie) -> Callable[[Plan[Any]], Plan[Any]]:
    """Makes a plan whose computations give what the ``lie`` makes of them."""

    def made(plan: Plan[Any]) -> Plan[Any]:
        value: Any = None
        while True:
            try:
                step = plan.send(value)
            except StopIteration as end:
                return end.value
            value = yield step
            if isinstance(step, Compute):
                labels = [computation.label for computation in step.computations]
                value = [lie(label, of) for label, of in zip(labels, value, strict=True)]

    return made


def another_share(copy: int) -> Lie:
    """The first candidate has the second one's share, in one of the copies."""

    def lie(label: str, result: Any) -> Any:
        if label == "OfferCopies":
            garbler: LevelGarbler = result[1][copy]
            garbler._shares[:, 0] = garbler._shares[:, 1]
        return result

    return lie


@pytest.fixture
def real_copy(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """Sets which copy the active party draws."""

    def draws(copy: int) -> None:
        monkeypatch.setattr(module, "secrets", SimpleNamespace(randbelow=lambda _: copy))

    return draws


@pytest.mark.parametrize("shape", [(4, 12, 2), *seldom((2, 5, 2), (6, 78, 2), (3, 20, 4))], ids=str)
@pytest.mark.parametrize("arithmetic", ["3.2", *seldom("3.4")])
def test_copies_find_the_winners_of_one_circuit(
    shape: tuple[int, int, int], arithmetic: str
) -> None:
    nodes, candidates, count = shape
    level = drawn(nodes, candidates, xgboost_arithmetic=arithmetic)
    level = replace(level, far=nodes == 4)
    to_beat = own_gains(level, 0.5, 0, 2)
    told, single = CopiedLevels(count).run(level, to_beat), LevelPair().run(level, to_beat)
    check(level, to_beat, told)
    assert (told.crowded, told.doubtful) == (single.crowded, single.doubtful)


def test_levels_of_a_session_have_seeds_of_their_own() -> None:
    level, levels = drawn(2, 9), CopiedLevels()
    to_beat = own_gains(level, 0.5)
    first, second = (levels.run(level, to_beat) for _ in range(2))
    assert first.index == second.index
    assert all(
        not np.array_equal(one[0]["bytes"], other[0]["bytes"])
        for one, other in zip(first.received, second.received, strict=True)
    )


def test_the_steps_of_copies_may_run_in_other_processes() -> None:
    level = drawn(2, 9)
    to_beat = own_gains(level, 0.5, 0)
    check(level, to_beat, CopiedLevels().run(level, to_beat, apart=True))


def test_tables_travel_once() -> None:
    level = drawn(4, 12)
    to_beat = own_gains(level, 0.5, 0)
    of_one, of_three = (pair.run(level, to_beat) for pair in (LevelPair(), CopiedLevels(3)))
    assert sum(map(size, of_three.received)) < 1.05 * sum(map(size, of_one.received))


@pytest.mark.parametrize("count", [2, *seldom(3)])
def test_another_circuit_is_caught_in_every_copy_but_the_real_one(
    count: int, real_copy: Callable[[int], None]
) -> None:
    level = drawn(2, 9)
    to_beat = own_gains(level, 0.5)
    caught = []
    for real in range(count):
        real_copy(real)
        try:
            CopiedLevels(count).run(level, to_beat, lying=lying(another_share(0)))
        except Inconsistent as error:
            assert error.party == "telco"
            assert error.evidence["copy"] == 0
            caught.append(real)
    assert caught == list(range(1, count))


def test_every_copy_is_as_likely_to_be_the_real_one() -> None:
    level, levels = drawn(1, 2), CopiedLevels(4)
    copies = levels.copies(level, *levels.tweaks[:2])
    found = [module.Drawn.at_random(copies).real for _ in range(400)]
    assert np.abs(np.bincount(found, minlength=4) - 100).max() < 60  # seven standard errors


def test_a_parcel_that_is_not_the_sum_of_what_was_hashed_is_caught(
    real_copy: Callable[[int], None],
) -> None:
    def flipped(label: str, result: Any) -> Any:
        if label == "JoinCopies":
            result = result.copy()
            result[0] ^= 1
        return result

    level = drawn(2, 9)
    for real in (0, 1):
        real_copy(real)
        with pytest.raises(Inconsistent, match="not those that its seeds give"):
            CopiedLevels().run(level, own_gains(level, 0.5), lying=lying(flipped))


def test_the_passive_party_is_told_the_same_of_all_copies() -> None:
    seen: list[tuple[bytes, bytes]] = []

    def look(label: str, result: Any) -> Any:
        if label == "HiddenLevel" and isinstance(result[0], LevelGarbler):
            garbler = result[0]
            seen.append((garbler.crowded.tobytes(), garbler._sure.tobytes()))
        return result

    level = drawn(6, 40)
    told = CopiedLevels().run(level, own_gains(level, 0.5, 0), lying=lying(look))
    assert any(told.crowded)
    assert seen[::2] == seen[1::2]


def test_the_seed_of_an_opened_copy_claims_nothing(real_copy: Callable[[int], None]) -> None:
    real_copy(0)
    level, levels = drawn(2, 9), CopiedLevels()
    opened = levels.copies(level, *(of for of in CopiedLevels().tweaks[:2]))
    seed = module.CopySecrets.of(levels.secret, opened)[1].seed
    evaluating, garbling = levels.plans(level, own_gains(level, 0.5))
    levels.plans = lambda *_: (_claims_with(seed, evaluating), garbling)  # type: ignore[method-assign]
    with pytest.raises(MessageError, match="no key of a copy"):
        levels.run(level, own_gains(level, 0.5))


def test_who_opens_all_copies_learns_no_winner(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.Drawn, "opens", lambda *_: np.array([True]))
    level = drawn(2, 9)
    with pytest.raises(MessageError):
        CopiedLevels().run(level, own_gains(level, 0.5))


def _claims_with(seed: bytes, plan: Plan[Any]) -> Plan[Any]:
    """The plan of an active party that shows ``seed`` in place of a key."""
    value: Any = None
    while True:
        try:
            step = plan.send(value)
        except StopIteration as end:
            return end.value
        if isinstance(step, Reply) and size(step.pieces) == 1 + len(seed):
            shown = np.frombuffer(b"\1" + seed, np.uint8)
            step = Reply(step.node, [{"bytes": shown}])
        value = yield step


@pytest.mark.parametrize("parcel", [b"", b"\0\0\0\0", b"\1" + bytes(32), b"\2"])
def test_a_malformed_parcel_ends_the_session(parcel: bytes) -> None:
    level, levels = drawn(2, 9), CopiedLevels()
    to_beat = own_gains(level, 0.5)
    evaluating, garbling = levels.plans(level, to_beat)

    def speaking(plan: Plan[Any]) -> Plan[Any]:
        value: Any = None
        said = 0
        while True:
            step = plan.send(value)
            if not isinstance(step, Compute) and step.pieces:
                said += 1
                if said == 3:  # behind which circuits, and how copies begin
                    step = Reply(step.node, [{"bytes": np.frombuffer(parcel, np.uint8)}])
            value = yield step

    levels.plans = lambda *_: (speaking(evaluating), garbling)  # type: ignore[method-assign]
    with pytest.raises(MessageError):
        levels.run(level, to_beat)


def test_circuits_that_take_constraints_have_no_copies() -> None:
    level, levels = drawn(2, 9, constrained=True), CopiedLevels()
    with pytest.raises(MessageError, match="constraints on columns"):
        levels.copies(level, *levels.tweaks[:2])
