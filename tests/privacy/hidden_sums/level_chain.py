"""A level among several passive parties in one process, and what each party is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from fedmq.computation import Given
from fedmq.privacy.engine import Place
from fedmq.privacy.hidden_sums.circuits import taken_bits
from fedmq.privacy.hidden_sums.evaluator import LevelEvaluator
from fedmq.privacy.hidden_sums.garbler import LevelGarbler
from fedmq.privacy.hidden_sums.level import BackTransfers
from fedmq.privacy.hidden_sums.sides import Unpacked, packed_bits, pieces_of, take_bits
from fedmq.privacy.hidden_sums.steps import evaluate_level, garble_links
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, Permutation, Tweaks
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import Parcel, Running, run_all
from tests.privacy.hidden_sums.filtered import factors_of
from tests.privacy.oblivious_transfer.base import extension_of


@dataclass(eq=False)
class ToldParty:
    """What a passive party learns of each node, and what it receives of the one before it."""

    won: list[bool] = field(default_factory=list)
    index: list[int] = field(default_factory=list)
    handed: np.ndarray | None = None


@dataclass(eq=False)
class ToldChain:
    """Who won each node, and what each party was told and sent."""

    owners: list[int]
    parties: list[ToldParty]
    received: list[list[Parcel]]
    """What the active party received of each passive party."""
    leaders: list[np.ndarray]
    """The active party's shares of the best so far, behind each link but the last one."""

    @property
    def index(self) -> list[int]:
        """The winner's index of each node, 0 where the active party won."""
        return [
            self.parties[owner - 1].index[node] if owner else 0
            for node, owner in enumerate(self.owners)
        ]


def divided(level: DrawnLevel, sizes: Iterable[int]) -> list[DrawnLevel]:
    """The candidates of ``level`` as those of several parties."""
    stops = np.cumsum(list(sizes))
    return [replace(level, left=left) for left in np.split(level.left, stops[:-1], axis=1)]


def halves(
    levels: Sequence[DrawnLevel],
    to_beat: np.ndarray,
    seed: int = 0,
    receivers: Mapping[int, ExtensionReceiver] = MappingProxyType({}),
) -> tuple[list[LevelEvaluator], list[LevelGarbler]]:
    """Of all parties, each of which has base transfers and tweaks of its own.

    ``receivers`` are by place those of an active party that lies.
    """
    chain = [Place(number, len(levels)) for number in range(1, len(levels) + 1)]
    random = np.random.default_rng(seed)
    evaluators, garblers = [], []
    for place, level in zip(chain, levels, strict=True):
        own, other = level.shares(random)
        inputs = level.inputs(to_beat)
        factors = factors_of(level, to_beat)
        receiver, sender = extension_of(place.number)
        receiver = receivers.get(place.number, receiver)
        back_receiver, back_sender = extension_of(10 + place.number)
        public, back = (Permutation(name + b"%d" % place.number) for name in (b"public", b"back"))
        evaluators.append(
            LevelEvaluator(
                level.circuit.ranked_at(place),
                own,
                inputs,
                Given(factors),
                receiver,
                public,
                Tweaks(),
                BackTransfers(back_sender, back, Tweaks()),
                place,
            )
        )
        chooses = BackTransfers(back_receiver, back, Tweaks())
        columns = level.column_bits
        garblers.append(
            LevelGarbler(
                level.circuit.ranked_at(place),
                other,
                columns,
                sender,
                public,
                Tweaks(),
                chooses,
                b"m%d" % place.number * 16,
                place,
            )
        )
    return evaluators, garblers


def run(
    levels: Sequence[DrawnLevel],
    to_beat: np.ndarray,
    seed: int = 0,
    receivers: Mapping[int, ExtensionReceiver] = MappingProxyType({}),
) -> ToldChain:
    """One level of all parties."""
    evaluators, garblers = halves(levels, to_beat, seed, receivers)
    received, leaders, handed = linked(evaluators, garblers)
    parties = [ToldParty(handed=share) for share in (None, *handed)]
    owners = evaluators[-1].owners()
    for number, party in enumerate(parties, start=1):
        won, index = claimed(garblers[number - 1], evaluators[number - 1].claim(owners == number))
        party.won, party.index = won.tolist(), index.tolist()
    return ToldChain(owners.tolist(), parties, received, leaders)


def claimed(garbler: LevelGarbler, claim: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What a passive party makes of a claim."""
    return garbler.winners(Unpacked(pieces_of(claim)))


def linked(
    evaluators: Sequence[LevelEvaluator],
    garblers: Sequence[LevelGarbler],
    hand_on: Callable[[int, np.ndarray], np.ndarray] = lambda _, share: share,
) -> tuple[list[list[Parcel]], list[np.ndarray], list[np.ndarray]]:
    """What the active party received, and both shares of the best behind all links but the last.

    ``hand_on``: what a party makes of its share, by its number from 0 on.
    """
    pairs = [_pair(*pair) for pair in zip(evaluators, garblers, strict=True)]
    handed: list[np.ndarray] = []
    for number, (active, passive) in enumerate(pairs):
        following, follower = pairs[(number + 1) % len(pairs)]
        active.hand_on = following.handed.append
        level = garblers[number].level
        bits = sum(taken_bits(Place(number + 2, len(pairs) + 1)).values())

        def altered(
            parcel: Parcel,
            number: int = number,
            shape: tuple[int, int] = (bits, level.nodes),
            follower: Running = follower,
        ) -> None:
            share = hand_on(number, take_bits(Unpacked(parcel), shape))
            handed.append(share)
            follower.handed.append(pieces_of(packed_bits(share)))

        passive.hand_on = altered
    received = [pair[0].heard for pair in pairs]
    run_all(one for pair in pairs for one in pair)
    return received, [evaluator.leader() for evaluator in evaluators[:-1]], handed


def _pair(evaluator: LevelEvaluator, garbler: LevelGarbler) -> tuple[Running, Running]:
    """The plans of both halves; the active party's claim comes to nothing."""
    active = Running(evaluate_level(evaluator, 1))
    passive = Running(garble_links(garbler, 1), active.hear)
    passive.opened = False
    active.send = passive.hear
    return active, passive
