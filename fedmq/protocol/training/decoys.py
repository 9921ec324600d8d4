"""How are splits hidden from who counts messages?

Messages are sealed, but the broker's operator counts them: each decision to a party is a split that
its columns won. With decoys all parties get a decision about a node, of the same length, and answer
it. When all have answered, all get the assignment, the split's owner among them.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import numpy as np

from fedmq.errors import ConfigError, ProtocolError
from fedmq.messages import training
from fedmq.privacy.engine import Best, Engine
from fedmq.privacy.plan import Values
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.level import decision

__all__ = ["DecoyActiveTraining", "check_decoys"]


def check_decoys(engine: Engine) -> None:
    """Raise ConfigError where directions are learned by questions, which no decoy imitates."""
    if engine.hides_rows:
        raise ConfigError(
            f"decoys: engine {engine.name!r} learns who goes left by questions of its own, which "
            "decoys do not imitate; leave decoys out, or choose another engine"
        )


def _nothing(best: Best) -> Best:
    """What names no candidate as often as ``best`` names some."""
    candidates = np.full_like(best.candidates, training.NO_CANDIDATE)
    sets = tuple(
        split._replace(right=np.full_like(split.right, training.NO_CANDIDATE))
        for split in best.sets
    )
    return Best(-np.inf, candidates, sets=sets)


_NOTHING = Best(-np.inf, np.array([training.NO_CANDIDATE], dtype=np.uint32))


class DecoyActiveTraining(ActiveTraining):
    """Decides towards every party about each node; all decisions but the owner's are decoys.

    Where trees grow by levels, nodes that are not split get decoys as well: so no party learns
    from them which nodes of the last level are split.

    Raises:
        ConfigError: as `ActiveTraining` and `check_decoys`.
    """

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        check_decoys(self._spec)
        self._undecided: Set[int] = frozenset()
        """Nodes of the level about which nobody was asked yet."""
        self._decoys: dict[tuple[str, int], int] = {}
        """How many rows an answer is about, by party and node."""
        self._assignments: list[training.NodeAssignment] = []

    def _opening(self, public: Values) -> training.TrainingOpen:
        return super()._opening(public).model_copy(update={"decoys": True})

    def _ask_level(self) -> None:
        super()._ask_level()
        by_levels = self._params.grow_policy == "depthwise"
        self._undecided = frozenset(self._level.nodes if by_levels else ())

    def _split_next(self) -> None:
        if not self._askable:
            super()._split_next()
            return
        splits = {node: owner for node, owner, _ in self._choice.pop()}
        nodes, self._undecided = sorted(splits.keys() | self._undecided), frozenset()
        for node in nodes:
            owner = self._parties[splits[node]] if node in splits else ""
            self._ask_all(node, owner, self._choice.best(node))
        if not nodes:
            self._end_tree()

    def _ask_all(self, node: int, owner: str, best: Best) -> None:
        """Decide about ``node``, which ``owner`` splits; nobody does if it is empty."""
        nothing = _nothing(best) if owner in self._askable else _NOTHING
        for peer in self._askable:
            if peer == owner:
                self._ask_split(node, peer, best)
            else:
                self._send_decoy(peer, node, nothing)
        if owner == self._party:
            self._split_own(node, best)

    def _send_decoy(self, peer: str, node: int, nothing: Best) -> None:
        self._decoys[peer, node] = len(self._builder.rows(node))
        self._send(peer, decision(self.tree, node, nothing))

    def _on_outcome(self, peer: str, body: training.SplitOutcome) -> None:
        rows = self._decoys.get((peer, body.node))
        if rows is None:
            super()._on_outcome(peer, body)
            return
        if body.tree != self.tree:
            raise ProtocolError(f"an answer about tree {body.tree}, in tree {self.tree}")
        self._level.check_directions(body, rows)
        del self._decoys[peer, body.node]
        self._go_on_when_split()

    def _assign(self, owner: int, assignment: training.NodeAssignment) -> None:
        if self._askable:
            self._assignments.append(assignment)

    def _go_on_when_split(self) -> None:
        if self._decoys or not self._level.is_split:
            return
        # In the order of nodes: that of answers would tell which of them the label holder split.
        for assignment in sorted(self._assignments, key=lambda assignment: assignment.node):
            for peer in self._askable:
                self._send(peer, assignment)
        self._assignments = []
        super()._go_on_when_split()
