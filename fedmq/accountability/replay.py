"""What would an honest party have answered? Its machine, run again on the same questions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from fedmq.boosting.splits import CandidateTable
from fedmq.computation import Given
from fedmq.errors import FedmqError
from fedmq.messages import training
from fedmq.messages.array import unpack_payload
from fedmq.messages.body import Body
from fedmq.messages.training import HistogramReply
from fedmq.privacy.engine import (
    BroadcastPiece,
    ComparedColumns,
    Directions,
    Engine,
    PassiveHalf,
    PassiveHidesSums,
    Place,
    Query,
    SizeLimit,
    Winner,
)
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
"""Kind, tree, node, round or parcel, and piece: unique for each answer of an attempt."""

_ROUNDED_APART = 1e-6
"""Numbers are of the order of 1; roots and factors of a matrix come out to 10 digits at least."""


def _place_of(body: Body) -> _Place:
    """The place of ``body`` among the answers of an attempt."""
    numbered = "parcel" if isinstance(body, training.CircuitPiece) else "round"
    tree, node, number, piece = (
        getattr(body, name, None) for name in ("tree", "node", numbered, "piece")
    )
    return body.kind, tree, node, number, piece


class Replay:
    """Replays an attempt of ``party`` from its commitment; ``answers`` are hashes by place.

    ``saved``: the trees of earlier attempts; after the replay, the trees at its end. The
    replay does not compute sums of ``thin`` trees, whose gradients or queries are missing, nor
    circuits: who ``won`` there, by tree and node, is the party's word. ``rounded``: the answers
    with arrays that another machine may round differently.
    """

    def __init__(
        self,
        party: str,
        active: str,
        commitment: Commitment,
        saved: Sequence[PassiveTree],
        thin: frozenset[int],
        won: Mapping[int, Mapping[int, Winner]],
    ) -> None:
        self.answers: dict[_Place, bytes] = {}
        self.rounded: dict[_Place, training.HistogramReply] = {}
        self.saved = list(saved)
        self._party = party
        self._active = active
        self._commitment = commitment
        self._thin = thin
        self._won = won
        settings = commitment.settings
        self._engine = engine_named(settings.engine, settings.options, party)

    def _training(self, others: Sequence[str]) -> _ReplayedTraining:
        """The party's machine, which finds winners with ``others``."""
        commitment, engine = self._commitment, self._engine
        settings = commitment.settings
        table = PassiveTable(
            commitment.values,
            commitment.features,
            commitment.alignment,
            commitment.digest,
            signs=settings.signs,
            column_groups=settings.column_groups,
            category_columns=settings.category_columns,
            bins={
                name: tuple(given) if isinstance(given, list) else given
                for name, given in settings.bins.items()
            },
        )
        machine = _ReplayedTraining(
            self._party,
            self._active,
            Given(table),
            lambda _: engine,
            commitment.secret,
            saved=self.saved,
            others=others,
            smallest_node=settings.smallest_node,
            smallest_cell=settings.smallest_cell,
            signing=Signing("", 1, lambda _: b"", lambda *_: True),
        )
        machine.thin, machine.won = self._thin, self._won
        return machine

    def run(self, questions: Sequence[Body]) -> None:
        """Ask ``questions`` to the end, or until an honest party gives up."""
        before = _before_in_chains(self._party, questions)
        opening = next(
            (body for body in questions if isinstance(body, training.TrainingOpen)), None
        )
        chain = () if opening is None else opening.chain
        self._machine = self._training([party for party in chain if party != self._party])
        for body in questions:
            if self._is_left_out(body):
                continue
            sender = self._active
            if isinstance(body, training.BestSoFar):
                sender = before.get((body.tree, body.node), "")
            try:
                self._handle(Received(sender, body))
            except FedmqError:
                return

    def _is_left_out(self, body: Body) -> bool:
        """Whether ``body`` is about circuits of a thin tree, and opens none."""
        kinds = training.CircuitPiece | training.BestSoFar
        return isinstance(body, kinds) and body.tree in self._thin and not _opens(body)

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


def _opens(body: training.CircuitPiece | training.BestSoFar) -> bool:
    return isinstance(body, training.CircuitPiece) and bool(body.level)


def _before_in_chains(party: str, questions: Iterable[Body]) -> dict[tuple[int, int], str]:
    """Who hands on to ``party``, by tree and first node; nobody does to the first of a chain."""
    chains = {
        (body.tree, body.node): body.chain
        for body in questions
        if isinstance(body, training.CircuitPiece) and party in body.chain[1:]
    }
    return {place: chain[chain.index(party) - 1] for place, chain in chains.items()}


class _ReplayedTraining(PassiveTraining):
    """A training without the questions about ``thin`` trees, whose nodes it has ``won``."""

    thin: frozenset[int] = frozenset()
    won: Mapping[int, Mapping[int, Winner]] = MappingProxyType({})

    def _find_earlier(self, table: PassiveTable) -> Plan[None]:
        """Find nothing: a transcript holds no messages about an earlier model's trees."""
        return
        yield

    def _preparing(self, spec: Engine) -> Plan[PreparedTraining]:
        prepared = yield from super()._preparing(spec)
        half = prepared.engine
        if isinstance(half, PassiveHidesSums):
            return replace(prepared, engine=_WithoutCircuits(half, self.thin, self.won))
        return replace(prepared, engine=_WithoutGradients(half, self.thin))


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


class _WithoutCircuits(_WithoutGradients, PassiveHidesSums):
    """The same of a half that hides sums: in ``thin`` trees it has ``won`` what it says."""

    def __init__(
        self, half: PassiveHidesSums, thin: frozenset[int], won: Mapping[int, Mapping[int, Winner]]
    ) -> None:
        super().__init__(half, thin)
        self._circuits = half
        self._won = won
        self._tree = 0

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        self._tree = tree
        super().start_tree(tree, candidates)

    def comparison_bytes(
        self, nodes: int, place: Place, opening: Values, columns: ComparedColumns
    ) -> int:
        return self._circuits.comparison_bytes(nodes, place, opening, columns)

    @property
    def sorts_categories(self) -> bool:
        return self._circuits.sorts_categories

    def pass_over(self) -> None:
        self._circuits.pass_over()

    def compare(
        self, nodes: Sequence[int], place: Place, opening: Values, columns: ComparedColumns
    ) -> Plan[Sequence[Winner | None]]:
        if self._tree not in self._thin:
            return self._circuits.compare(nodes, place, opening, columns)
        self.pass_over()
        return self._told(nodes)

    def _told(self, nodes: Sequence[int]) -> Plan[Sequence[Winner | None]]:
        """Who won, as the party says."""
        won = self._won.get(self._tree, {})
        return [won.get(node) for node in nodes]
        yield


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
