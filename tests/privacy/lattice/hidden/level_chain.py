"""A level among several passive partys in one process, and what each party is told of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from fedmq.privacy.engine import Place
from fedmq.privacy.lattice.hidden.circuits import NodeInputs
from fedmq.privacy.lattice.hidden.evaluator import LevelEvaluator
from fedmq.privacy.lattice.hidden.garbler import LevelGarbler
from fedmq.privacy.oblivious_transfer.extension import ExtensionReceiver, Permutation, Tweaks
from tests.privacy.lattice.hidden.drawn_level import DrawnLevel
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
    received: list[list[np.ndarray]]
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
        inputs = NodeInputs.of(level.totals, to_beat, level.scale, level.params, level.field)
        receiver, sender = extension_of(place.number)
        receiver = receivers.get(place.number, receiver)
        public = Permutation(b"public %d" % place.number)
        evaluators.append(
            LevelEvaluator(level.field, own, inputs, receiver, public, Tweaks(), place)
        )
        labels = b"labels" + bytes([place.number]) * 26
        garblers.append(LevelGarbler(level.field, other, sender, public, Tweaks(), labels, place))
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
        claim = evaluators[number - 1].claim(owners == number)
        won, index = garblers[number - 1].winners(claim)
        party.won, party.index = won.tolist(), index.tolist()
    return ToldChain(owners.tolist(), parties, received, leaders)


def linked(
    evaluators: Sequence[LevelEvaluator],
    garblers: Sequence[LevelGarbler],
    hand_on: Callable[[int, np.ndarray], np.ndarray] = lambda _, share: share,
) -> tuple[list[list[np.ndarray]], list[np.ndarray], list[np.ndarray]]:
    """What the active party received, and both shares of the best behind all links but the last.

    ``hand_on``: what a party makes of its share, by its number from 0 on.
    """
    pairs = list(zip(evaluators, garblers, strict=True))
    received = [until_the_link(*pair) for pair in pairs]
    leaders, handed = [], []
    for number, (evaluator, garbler) in enumerate(pairs[1:]):
        leaders.append(evaluators[number].leader())
        handed.append(hand_on(number, garblers[number].handed()))
        message = evaluator.follow(leaders[-1])
        received[number + 1] += _taken(evaluator, garbler.follow(message, handed[-1]))
    return received, leaders, handed


def until_the_link(evaluator: LevelEvaluator, garbler: LevelGarbler) -> list[np.ndarray]:
    """What the active party receives; the first party's link is with it."""
    carries = garbler.offer_carries(evaluator.choose_carries())
    squares = garbler.offer_squares(*evaluator.choose_squares(carries))
    labels = evaluator.choose_labels(*squares)
    return [carries, *squares, *_taken(evaluator, garbler.pieces(*labels))]


def _taken(evaluator: LevelEvaluator, pieces: Iterable[np.ndarray]) -> list[np.ndarray]:
    taken = []
    for piece in pieces:
        evaluator.take(piece)
        taken.append(piece)
    assert not evaluator.awaits_piece
    return taken
