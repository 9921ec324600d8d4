"""What would an honest party have answered? Its machine, run again on the same questions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import replace
from typing import Any

import numpy as np

from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Given
from fedmq.errors import FedmqError
from fedmq.messages import training
from fedmq.messages.array import unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import BroadcastPiece, Directions, Engine, PassiveHalf, Query, SizeLimit
from fedmq.privacy.plan import Plan, Reply, Values
from fedmq.privacy.registry import engine_named
from fedmq.protocol.events import (
    ComputationFailed,
    Effect,
    Event,
    Received,
    RunPlan,
    Save,
    Send,
)
from fedmq.protocol.machine import run_inline
from fedmq.protocol.session_records import Commitment, PassiveTree, Signing, message_hash
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.passive_growth import PreparedTraining
from fedmq.protocol.training.terms import PassiveTable

__all__ = ["Replay", "same_but_rounded"]

_Place = tuple[str, int | None, int | None, int | None, int | None]
"""Kind, tree, node, round and piece: unique for each answer of an attempt."""

_ROUNDED_APART = 1e-6
"""Numbers are of the order of 1; roots and factors of a matrix come out to 10 digits at least."""


def _place_of(body: Body) -> _Place:
    """The place of ``body`` among the answers of an attempt."""
    tree, node, number, piece = (
        getattr(body, name, None) for name in ("tree", "node", "round", "piece")
    )
    return body.kind, tree, node, number, piece


class Replay:
    """Replays an attempt of ``party`` from its commitment; ``answers`` are hashes by place.

    ``saved``: the trees of earlier attempts; after the replay, the trees at its end. The
    replay does not compute sums of ``thin`` trees, whose gradients or queries are missing.
    ``rounded``: the answers with arrays that another machine may round differently.
    """

    def __init__(
        self,
        party: str,
        active: str,
        commitment: Commitment,
        saved: Sequence[PassiveTree],
        thin: frozenset[int],
    ) -> None:
        self.answers: dict[_Place, bytes] = {}
        self.rounded: dict[_Place, training.HistogramReply] = {}
        self.saved = list(saved)
        self._active = active
        settings = commitment.settings
        self._engine = engine = engine_named(settings.engine, settings.options, party)
        table = PassiveTable(
            commitment.values,
            commitment.features,
            commitment.alignment,
            commitment.digest,
            signs=settings.signs,
            column_groups=settings.column_groups,
            category_columns=settings.category_columns,
        )
        self._machine = _ReplayedTraining(
            party,
            active,
            Given(table),
            lambda _: engine,
            commitment.secret,
            saved=saved,
            smallest_node=settings.smallest_node,
            smallest_cell=settings.smallest_cell,
            signing=Signing("", 1, lambda _: b"", lambda *_: True),
        )
        self._machine.thin = thin

    def run(self, questions: Iterable[Body]) -> None:
        """Ask ``questions`` to the end, or until an honest party gives up."""
        for body in questions:
            try:
                self._handle(Received(self._active, body))
            except FedmqError:
                return

    def has(self, answer: Body, digest: bytes) -> bool:
        """Whether an honest party gives ``answer``, whose `message_hash` is ``digest``."""
        place = _place_of(answer)
        if self.answers.get(place) == digest:
            return True
        honest = self.rounded.get(place)
        return (
            honest is not None
            and isinstance(answer, training.HistogramReply)
            and same_but_rounded(answer, honest, self._engine.traits.rounded)
        )

    def _handle(self, event: Event) -> None:
        effects: list[Effect] = self._machine.handle(event)
        while effects:
            match effects.pop(0):
                case Send(_, body):
                    self.answers[_place_of(body)] = message_hash(body)
                    if isinstance(body, training.HistogramReply) and not (
                        self._engine.traits.rounded.isdisjoint(body.payload)
                    ):
                        self.rounded[_place_of(body)] = body
                case Save(PassiveTree() as tree):
                    kept = [saved for saved in self.saved if saved.number < tree.number]
                    self.saved = [*kept, tree]
                case RunPlan() as plan:
                    effects += self._machine.handle(_ran(plan))


def _ran(plan: RunPlan) -> Event:
    try:
        return run_inline(plan)
    except FedmqError as error:
        return ComputationFailed(plan.ticket, error)


class _ReplayedTraining(PassiveTraining):
    """A training without the questions about ``thin`` trees."""

    thin: frozenset[int] = frozenset()

    def _find_earlier(self, table: PassiveTable) -> Plan[None]:
        """Find nothing: a transcript holds no messages about an earlier model's trees."""
        return
        yield

    def _preparing(self, spec: Engine) -> Plan[PreparedTraining]:
        prepared = yield from super()._preparing(spec)
        return replace(prepared, engine=_WithoutGradients(prepared.engine, self.thin))


class _WithoutGradients(PassiveHalf):
    """Wraps ``half``: it answers nothing about nodes of ``thin`` trees."""

    def __init__(self, half: PassiveHalf, thin: frozenset[int]) -> None:
        self._half = half
        self._thin = thin
        self.nodes_per_query = half.nodes_per_query
        self.queries_per_node = half.queries_per_node

    def largest_query(self, rows: int) -> SizeLimit:
        return self._half.largest_query(rows)

    def largest_directions_query(self) -> SizeLimit:
        return self._half.largest_directions_query()

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        self._half.start_tree(tree, candidates)

    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        if tree not in self._thin:
            yield from self._half.receive(tree, piece)

    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        if queries[0].tree not in self._thin:
            yield from self._half.answer(queries)
            return
        for query in queries:
            yield Reply(query.node, [{}])

    def show_directions(
        self, tree: int, node: int, left: Directions, pieces: Sequence[Values]
    ) -> Plan[Directions]:
        shown = yield from self._half.show_directions(tree, node, left, pieces)
        return shown

    def forget_tree(self) -> None:
        self._half.forget_tree()


def same_but_rounded(
    shown: HistogramReply, honest: HistogramReply, rounded: Set[str], apart: float = _ROUNDED_APART
) -> bool:
    """Whether both are equal, except that ``rounded`` arrays may differ by up to ``apart``."""
    if shown.model_copy(update={"payload": honest.payload}) != honest:
        return False
    ours, theirs = unpack_payload(honest.payload), unpack_payload(shown.payload)
    return ours.keys() == theirs.keys() and all(
        _is_near(ours[name], theirs[name], apart if name in rounded else 0.0) for name in ours
    )


def _is_near(ours: Any, theirs: Any, apart: float) -> bool:
    if not isinstance(ours, np.ndarray) or not isinstance(theirs, np.ndarray):
        return type(ours) is type(theirs) and bool(ours == theirs)
    if (ours.dtype, ours.shape) != (theirs.dtype, theirs.shape):
        return False
    if not apart or ours.dtype.kind != "f":
        return np.array_equal(ours, theirs)
    return bool((np.abs(ours - theirs) <= apart).all())
