"""What an engine is: two halves that turn secret gradients into sums per split candidate.

A half does no arithmetic itself: each of its operations is a plan (see `fedmq.privacy.plan`). An
`ActiveHalf` learns of each candidate its sums, or which ones are the best. The halves `HidesSums`
and `PassiveHidesSums` show neither: they decide each node by a comparison, in circuits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import Field, dataclass, fields, is_dataclass, replace
from typing import Any, ClassVar, Literal, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix
from fedmq.boosting.gradients import RESOLUTION_BITS, Gradients
from fedmq.boosting.params import TrainParams
from fedmq.boosting.splits import (
    UNCONSTRAINED,
    CandidateTable,
    CategorySet,
    ColumnMark,
    NodeConstraints,
)
from fedmq.errors import ConfigError, Refused
from fedmq.privacy.plan import Exchange, Plan, Values

__all__ = [
    "ALONE",
    "MOST_SORTED",
    "NOT_AN_OPTION",
    "ActiveHalf",
    "Answer",
    "AskedNode",
    "BroadcastPiece",
    "ComparedColumns",
    "Comparison",
    "Directions",
    "Engine",
    "HiddenSums",
    "HidesSums",
    "Leakage",
    "PassiveHalf",
    "PassiveHidesSums",
    "Place",
    "Query",
    "Question",
    "Rows",
    "SizeLimit",
    "SplitOffer",
    "Sums",
    "SumsShown",
    "Traits",
    "Winner",
]


@dataclass(frozen=True, slots=True)
class Place:
    """The ``number`` of a passive party, from 1 to ``parties``, in the order of the columns."""

    number: int
    parties: int

    def __post_init__(self) -> None:
        if not 1 <= self.number <= self.parties:
            raise ValueError(f"no place {self.number} in a chain of {self.parties}")

    @property
    def is_first(self) -> bool:
        """Whether its opponent is the active party's own best candidate."""
        return self.number == 1

    @property
    def is_last(self) -> bool:
        """Whether its comparison tells the active party the winner."""
        return self.number == self.parties


ALONE = Place(1, 1)


@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Nodes of a level with equally many candidates of a peer, and the gains to beat.

    Every node has been asked about. ``totals`` int64 (nodes, 2): each node's sums of g and h.
    ``best`` float32 (nodes,): the gain of the active party's best candidate, -inf without one.
    ``foreseen`` float32 (nodes,): the gain of the split above each node, of a root that of the root
    of the tree before; 0 if there is none. ``rows``: the rows of each node that carry a gradient.
    ``place``: the peer's place in the chain. ``constraints``: what they say of the nodes.
    ``categories``: the peer's candidates of each column that is split by sets, ascending.
    """

    nodes: tuple[int, ...]
    totals: NDArray[np.int64]
    best: NDArray[np.float32]
    foreseen: NDArray[np.float32]
    rows: tuple[NDArray[np.int32], ...]
    place: Place = ALONE
    constraints: NodeConstraints = UNCONSTRAINED
    categories: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ComparedColumns:
    """What is known of the columns of a passive party's candidates, in their shown order.

    ``signs`` int8 (candidates,) are the monotone constraints; ``held`` uint64 (nodes, candidates)
    the interaction constraints that hold each. ``categories``: the candidates of each column that
    is split by sets, ascending.
    """

    signs: NDArray[np.int8]
    held: NDArray[np.uint64]
    categories: tuple[tuple[int, ...], ...] = ()


Winner = int | CategorySet
"""A candidate, or a set of candidates that are categories, by their numbers as shown."""


@dataclass(frozen=True, slots=True)
class BroadcastPiece:
    """A range of the gradient broadcast: ``rows`` (uint32) and the engine's form of their g, h."""

    rows: NDArray[np.uint32]
    values: Values


@dataclass(frozen=True, slots=True)
class AskedNode:
    """A node to ask about; its ``rows`` (int32, ascending) carry a gradient."""

    tree: int
    node: int
    rows: NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Sums:
    """Per opaque candidate, the sums of g and h on its left side: int64 (candidates, 2).

    For vector leaves (candidates, 2 * outputs), as in `Gradients`. Sums use the fixed point of the
    tree's gradients; an inexact engine rounds to it.
    """

    left: NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class SplitOffer:
    """The best candidates of a party (opaque numbers, more than one if they tie) and their gain.

    ``left``: their left sums, int64 (candidates, columns), where the active half knows them
    exactly; ``signs`` int8 and ``constraints`` uint64 (candidates,) describe their columns under
    monotone and interaction constraints. ``sets`` of categories with the same gain follow the
    candidates.
    """

    gain: float
    candidates: NDArray[np.uint32]
    left: NDArray[np.int64] | None = None
    signs: NDArray[np.int8] | None = None
    constraints: NDArray[np.uint64] | None = None
    sets: tuple[CategorySet, ...] = ()

    def mark(self, place: int) -> ColumnMark:
        """The mark of the column at ``place`` among the candidates and sets."""
        return ColumnMark(
            0 if self.signs is None else int(self.signs[place]),
            np.uint64(0) if self.constraints is None else self.constraints[place],
        )

    def mark_of(self, split: int | CategorySet) -> ColumnMark:
        """The mark of the column of ``split``, a candidate or a set."""
        if isinstance(split, int):
            return self.mark(self.candidates.tolist().index(split))
        place = next(place for place, known in enumerate(self.sets) if known is split)
        return self.mark(len(self.candidates) + place)


@dataclass(frozen=True, slots=True)
class HiddenSums:
    """An answer for ``candidates`` candidates that shows no sum; see `Comparison`."""

    candidates: int


Answer = Sums | SplitOffer | HiddenSums

Rows = NDArray[np.int32]
"""Numbers of rows, ascending."""

Directions = NDArray[np.bool_]
"""Which rows go left."""


@dataclass(frozen=True, slots=True)
class Query:
    """The passive party's view of a node that the active half asks about.

    ``rows`` (int32, ascending) are all rows in the node, or every row of the alignment when the
    engine hides row sets. ``order`` permutes the tree's ``candidates``: the opaque number of
    candidate ``order[i]`` is ``i``.
    """

    tree: int
    node: int
    round: int
    rows: NDArray[np.int32]
    candidates: CandidateTable
    order: NDArray[np.int64]
    pieces: Sequence[Values]


@dataclass(frozen=True, slots=True)
class SizeLimit:
    """A limit on ``pieces`` and on their total ``bytes``, counting arrays and texts of payloads."""

    pieces: int
    bytes: int

    @classmethod
    def of(cls, items: int, item_bytes: int, per_piece: int) -> SizeLimit:
        """The limit for ``items`` cut into pieces of ``per_piece``; zero items take one piece."""
        return cls(max(1, -(-items // per_piece)), items * item_bytes)


@dataclass(frozen=True, slots=True)
class Leakage:
    """What each side learns beyond the finished model, in plain words."""

    active: str
    passive: str


@dataclass(frozen=True, slots=True)
class Traits:
    """The properties of an engine that no option changes.

    ``replays``, ``rounded`` and ``light`` concern those that check answers and that run
    computations. They stand here since the arithmetic of the halves makes them true.
    """

    exact: bool
    """Whether the model equals, node by node, the one trained on the joined table."""
    shows_best: bool = False
    """Whether passive parties score their own candidates, and show the best of a node alone."""
    hides_rows: bool = False
    """Whether passive parties answer over all rows and never learn which rows stand in a node."""
    keeps_numbers: bool = False
    """Whether a candidate has one opaque number in all nodes of a tree, so that the active half can
    subtract sums of siblings. It can then follow a candidate from node to node."""
    takes_weights: bool = True
    """Whether rows may count more than once, so that their gradients grow."""
    takes_vectors: bool = False
    """Whether the engine sums the gradients of several outputs together, for vector leaves."""
    replays: bool = False
    """Whether a passive party's answers follow to the last bit from table, secret and question."""
    rounded: Set[str] = frozenset()
    """Names of the reply arrays whose last bits depend on the machine."""
    light: bool = False
    """Whether its arithmetic is faster than a hand-over to another process."""
    narrow: bool = False
    """Whether gradients travel as float32, and rows that follow one another as first and last."""


class Question:
    """Nodes of a level asked about together; an exchange without a node is about the first."""

    def __init__(self, half: ActiveHalf, nodes: Sequence[AskedNode]) -> None:
        self._half = half
        self.nodes = nodes

    def parts(self) -> Mapping[int, Sequence[Plan[Sequence[Values]]]]:
        """Plans, by node, that make the pieces sent to all peers after a first exchange."""
        return {}

    def ask(self, peer: str) -> Plan[Sequence[Answer]]:
        """Learn the value of the candidates of ``peer`` in each of the ``nodes``."""
        answers = []
        for asked in self.nodes:
            answer = yield from self._half.ask(peer, asked)
            answers.append(answer)
        return answers


class ActiveHalf(ABC):
    """The active party's half of an engine, for one session."""

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        outputs: int = 1,
    ) -> None:
        """Comes first: only rows of ``training``, bool (all rows,), ever carry a gradient.

        No g or h of a row exceeds ``2**value_bits`` in its fixed point; it has ``outputs`` of them.
        """
        return

    def gather(self, person: NDArray[np.int32]) -> None:
        """Before `start_session`: several own rows are of one person, of whom peers hold one row.

        ``person`` int32 (rows,): which of the peers' rows each own row belongs to. Sums are then
        of people, and so are ``value_bits``; rows of all other arguments stay own rows. Only for
        engines with the trait ``hides_rows``: a person may stand in several nodes.
        """
        raise AssertionError(f"{type(self).__name__} shows who stands in which node")

    @abstractmethod
    def open(self) -> Plan[Values]:
        """Make the session's secrets; returns the public parameters for the passive halves."""

    def setup(self, peer: str, pieces: Sequence[Values]) -> Plan[None]:
        """Take what the passive half of ``peer`` sent before the first tree."""
        return
        yield

    @abstractmethod
    def broadcast(self, gradients: Gradients) -> Sequence[Plan[BroadcastPiece]]:
        """One plan for each piece of the tree's broadcast; none if nothing is broadcast."""

    def prepare(self) -> Sequence[Plan[None]]:
        """Plans that prepare the next tree while the other parties work on this one."""
        return ()

    def largest_setup(self, candidates: int) -> SizeLimit:
        """The most that a passive half with ``candidates`` candidates sends before the first tree.

        Raises:
            MessageError: this half does not accept that much.
        """
        return SizeLimit(0, 0)

    @abstractmethod
    def largest_reply(self, candidates: int, rows: int) -> SizeLimit:
        """The largest answer about ``candidates`` in a node with ``rows`` carried rows."""

    @abstractmethod
    def ask(self, peer: str, asked: AskedNode) -> Plan[Answer]:
        """Learn the sums, or the best, of the candidates of ``peer`` in a node.

        Exchanges at least once.
        """

    def ask_level(self, level: Sequence[AskedNode]) -> Sequence[Question]:
        """The questions for a level: one per node, unless one answer implies others."""
        return [Question(self, (asked,)) for asked in level]

    def read_directions(self, peer: str, tree: int, node: int, rows: Rows) -> Plan[Directions]:
        """Learn which of ``rows``, all rows of the node, go left in a split of ``peer``.

        Exchanges once, and resumes with the directions from the passive half: of ``rows``, or of
        all rows when the engine hides row sets. Directions of other rows are arbitrary.
        """
        shown: Directions = yield Exchange()
        return shown


class HidesSums(ActiveHalf):
    """An active half that learns no sum: it answers `HiddenSums`, and comparisons decide nodes.

    Several passive parties form a chain; each hands the best candidate so far to the next. The
    active party runs one plan per passive party; the last plan announces the winner.
    """

    @abstractmethod
    def comparison_bytes(self, comparison: Comparison, candidates: int) -> int:
        """The most bytes that a passive half sends about nodes with ``candidates`` each."""

    @abstractmethod
    def compare(self, peer: str, comparison: Comparison) -> Plan[NDArray[np.bool_]]:
        """Learn in which nodes a candidate of ``peer`` wins: bool (nodes,).

        `Reply` sends a parcel to the passive half. `Exchange` sends its pieces, if any, and then
        waits for the passive half's next parcel. The first parcel leaves at once. The last plan of
        a chain hands on to the first one.
        """


class PassiveHalf(ABC):
    """A passive party's half of an engine, for one session."""

    nodes_per_query: int = 1
    """The most nodes in one query; each answered sum counts as that many."""
    queries_per_node: int = 1
    """The most queries about one node that are answered, one after the other."""

    def start_session(
        self,
        training: NDArray[np.bool_],
        value_bits: int = RESOLUTION_BITS,
        secret: bytes | None = None,
        outputs: int = 1,
    ) -> None:
        """Comes first: only rows of ``training``, bool (all rows,), ever carry a gradient.

        No g or h of a row exceeds ``2**value_bits`` in its fixed point; it has ``outputs`` of them,
        more than one only with the trait ``takes_vectors``. If the engine ``replays``, all
        randomness of its answers derives from ``secret``, which is unique to the session.

        Raises:
            Refused: this half cannot work with so many rows.
        """
        return

    def setup(self) -> Plan[Sequence[Values]]:
        """The pieces that the active half needs before the first tree."""
        return ()
        yield

    def start_tree(self, tree: int, candidates: CandidateTable) -> None:
        """Begin a tree with these ``candidates``."""
        return

    @abstractmethod
    def receive(self, tree: int, piece: BroadcastPiece) -> Plan[None]:
        """Take a piece of the gradient broadcast."""

    def sums_bytes(self, nodes: int) -> int:
        """The most memory for the sums of ``nodes`` nodes; 0 if the half keeps none."""
        return 0

    def largest_query(self, rows: int) -> SizeLimit:
        """The largest query about a node with ``rows`` rows."""
        return SizeLimit(0, 0)

    def largest_directions_query(self) -> SizeLimit:
        """The largest query about the directions of a split."""
        return SizeLimit(0, 0)

    def take_piece(
        self, tree: int, node: int, number: int, piece: Values, *, alone: bool = True
    ) -> Plan[None] | None:
        """Start work on a piece of a query, ``alone`` in its request; `answer` gets it again."""
        return None

    @abstractmethod
    def answer(self, queries: Sequence[Query]) -> Plan[None]:
        """Answer each query with one :class:`Reply`; a level's first queries come together."""

    def show_directions(
        self, tree: int, node: int, left: Directions, pieces: Sequence[Values]
    ) -> Plan[Directions]:
        """Make the active half's view of ``left``, same length, by an exchange's ``pieces``."""
        return left
        yield

    @abstractmethod
    def forget_tree(self) -> None:
        """The tree is finished: drop its gradients and sums."""


MOST_SORTED = 256
"""The most categories of a column that circuits sort: so many take some 55 MB a node."""


class PassiveHidesSums(PassiveHalf):
    """The passive half that faces `HidesSums`."""

    @property
    def sorts_categories(self) -> bool:
        """Whether columns of categories may be split by sets of at most `MOST_SORTED` of them."""
        return True

    @abstractmethod
    def comparison_bytes(
        self, nodes: int, place: Place, opening: Values, columns: ComparedColumns
    ) -> int:
        """The most bytes that the active half sends about nodes with candidates of ``columns``.

        ``opening``: the comparison's first parcel. Raises `MessageError` if it is malformed.
        """

    @abstractmethod
    def compare(
        self, nodes: Sequence[int], place: Place, opening: Values, columns: ComparedColumns
    ) -> Plan[Sequence[Winner | None]]:
        """Learn the winner of each of ``nodes``, None where they are not won.

        Candidates are counted in the order of the answers. The other side of
        `HidesSums.compare`; it begins when the first parcel, the ``opening``, has come.
        """

    @abstractmethod
    def pass_over(self) -> None:
        """Use up what a comparison uses up: a replay lacks its parcels, not those of later ones."""


SIGNER = "signer"
"""The name, in a setup, of the key by which a passive half signs copies of circuits. Beside it the
active half finds, as bytes, the passive party's signature under that key, if it signs."""

MOST_COPIES = 8
"""Of circuits: a lie is caught with a chance of 7 in 8, for eight times the arithmetic."""

NOT_AN_OPTION: Mapping[str, bool] = {"option": False}
"""Metadata of a field of an engine that is no option."""

SumsShown = Literal["shown", "hidden"]
"""Whether the active party sees sums, or learns only which candidates win."""


class Engine(ABC):
    """One way of keeping the sums secret: its two halves and its leakage."""

    name: ClassVar[str]
    traits: ClassVar[Traits]
    leakage: ClassVar[Leakage]
    known_leak: ClassVar[str] = ""
    """A measured leak so grave that a daemon refuses the engine unless its owner accepts it."""
    leak_of_sums: ClassVar[str] = ""
    """The same, of an engine that may hide sums, where it shows them."""

    sums: SumsShown = "shown"
    """An option of engines that can hide sums. A passive party set to ``hidden`` refuses to show
    them."""

    covert: int = 1
    """An option of engines that can hide sums: how many copies of its circuits a passive party
    garbles, of which the active party checks all but one."""

    @property
    def disclosed(self) -> Leakage:
        """What each side learns by these options."""
        if not self.hides_sums:
            return self.leakage
        return replace(
            self.leakage,
            active="no sum: how many split candidates there are, and of each node whether one of "
            "a passive party wins, then also which constraints hold its column, and whether more "
            "than four are near the best, or another one is next to it",
            passive=f"{self.leakage.passive}; in which nodes more than four are near the best, or "
            "another one is next to it, and which nodes do not fit the filter",
        )

    @property
    def leak(self) -> str:
        """The grave leak that these options have; empty if there is none."""
        return self.known_leak or ("" if self.hides_sums else self.leak_of_sums)

    @property
    def hides_sums(self) -> bool:
        """Whether these options make halves that hide sums, `HidesSums` and `PassiveHidesSums`."""
        return self.sums == "hidden"

    @property
    def shows_exact_sums(self) -> bool:
        """Whether the active party scores by exact sums, which constraints and sets need."""
        return self.traits.exact and not self.traits.shows_best and not self.hides_sums

    @property
    def keeps_constraints(self) -> bool:
        """Whether candidates that constraints forbid are told from those they allow."""
        return self.shows_exact_sums or self.hides_sums

    @property
    def first_order(self) -> bool:
        """Whether candidates are scored by g alone (``split.first_order_gains``)."""
        return False

    def check(self, params: TrainParams) -> None:
        """Raise ConfigError where this engine cannot train with ``params``.

        Parameters that alone disclose labels raise with every engine.
        """
        if params.goss and params.num_class is not None:
            raise ConfigError(
                "goss with num_class: the rows that a first tree sends are mostly those of "
                "its class, so a party that sees them reads the labels; leave goss off"
            )
        if params.goss and params.outputs > 1:
            raise ConfigError(
                f"goss with several {params.output_kind}s: the rows that each tree of a round "
                "sends are those with its largest gradients, so a party that sees them learns "
                "which; leave goss off"
            )
        if params.goss and params.num_parallel_tree > 1:
            raise ConfigError(
                "goss with num_parallel_tree: the rows that all trees of a round send are "
                "those with the largest gradients, so a party that sees them learns which; "
                "leave goss off"
            )
        if params.goss and params.booster == "dart":
            raise ConfigError(
                "goss with dart: trees that are left out make the gradients those of the beginning "
                "again, so the rows that every tree sends are the people with the rarer label; "
                "leave goss off"
            )
        if params.vector_outputs > 1 and not self.traits.takes_vectors:
            raise ConfigError(
                f"engine {self.name}: multi_strategy = multi_output_tree: it sums one g and h a "
                "row; take one_output_per_tree, or the engine paillier or ou"
            )
        if self.hides_sums:
            self._check_circuits(params)
        if params.max_cat_to_onehot is not None and not (self.shows_exact_sums or self.hides_sums):
            raise ConfigError(
                f"engine {self.name}: max_cat_to_onehot: the active party does not see the exact "
                "sums by which sets of categories are found; leave it out"
            )
        for name in ("monotone_constraints", "interaction_constraints"):
            if getattr(params, name) and not self.keeps_constraints:
                raise ConfigError(
                    f"engine {self.name}: {name}: the active party does not see the sums that they "
                    "need; leave them out"
                )

    def _check_copies(self) -> None:
        """Raise ConfigError for a number of copies that no circuits can have."""
        if not 1 <= self.covert <= MOST_COPIES:
            raise ConfigError(f"covert = {self.covert}: a number from 1 to {MOST_COPIES} is needed")
        if self.covert > 1 and not self.hides_sums:
            raise ConfigError(
                f'covert = {self.covert}: copies are of circuits, which sums = "hidden" alone has'
            )

    def _check_circuits(self, params: TrainParams) -> None:
        """Raise ConfigError for what circuits would find at no sane price, or not at all."""
        for name in ("monotone_constraints", "interaction_constraints"):
            if self.covert > 1 and getattr(params, name):
                raise ConfigError(
                    f"engine {self.name}: {name}: circuits take what a passive party knows of its "
                    "columns, which no seed of a copy gives; leave it out, or set covert = 1"
                )
        by_gains = params.grow_policy == "lossguide" and params.max_leaves > 0
        for name, unfit, reason in (
            (
                "multi_strategy = multi_output_tree",
                params.vector_outputs > 1,
                "where sums are hidden, each output takes 16,000 gates a candidate: 1.5 MB a "
                "candidate and node for three",
            ),
            (
                "grow_policy = lossguide with max_leaves",
                by_gains,
                "which node is split next follows from gains, which nobody sees where sums are "
                "hidden",
            ),
        ):
            if unfit:
                raise ConfigError(
                    f'engine {self.name}: {name}: {reason}; leave it out, or set sums = "shown"'
                )

    def on_terms(self, sums: SumsShown) -> Self:
        """This engine on terms in which ``sums`` are shown or hidden; Refused if it takes none."""
        if sums == self.sums:
            return self
        if sums == "shown":
            raise Refused(
                f"engine {self.name!r}: the active party wants sums to be shown, and this party "
                'takes part with sums = "hidden" only'
            )
        if "sums" not in self.options():
            raise Refused(f"engine {self.name!r} hides no sums")
        engine: Any = self
        hiding: Self = replace(engine, sums=sums)
        return hiding

    def drawn(self) -> Mapping[str, int]:
        """Options drawn at random for one session, which all its attempts must share."""
        return {}

    def epsilon_spent(self, trees: int) -> float | None:
        """The privacy budget of ``trees`` broadcast trees; None without differential privacy."""
        return None

    def with_key(self, key: Any) -> Self:
        """This engine with a key from a calling program; files cannot name a key.

        Raises:
            ConfigError: the engine takes no key, or not one of this type.
        """
        raise ConfigError(f"key: engine {self.name} takes none")

    @classmethod
    def options(cls) -> tuple[str, ...]:
        """The names of this engine's options, as files give them."""
        options: tuple[Field[Any], ...] = fields(cls) if is_dataclass(cls) else ()
        return tuple(option.name for option in options if option.metadata != NOT_AN_OPTION)

    def key_bits_of(self, public: Values) -> int | None:
        """The length of the key in ``public``; None without a key."""
        return None

    def announced(self, public: Values) -> Mapping[str, str | int | float]:
        """The options in ``public`` that change what is learned, without those that protect most.

        Another engine has its own of the active party's options among its public values.
        """
        plain = (str, int, float)
        return {name: value for name, value in public.items() if isinstance(value, plain)}

    @abstractmethod
    def active(self, parallelism: int) -> ActiveHalf:
        """The active party's half; heavy work is split into about ``parallelism`` computations."""

    @abstractmethod
    def passive(self, public: Values, bins: BinMatrix, parallelism: int) -> PassiveHalf:
        """A passive party's half, over its training table as ``bins``.

        Raises:
            Refused: the public parameters are malformed or weaker than this party accepts.
        """
