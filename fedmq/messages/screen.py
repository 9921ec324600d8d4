"""The messages with which the active party looks at one other party's columns before a training.

In the order in which they are sent: an opening, then, as far as the owner agrees, encrypted labels
and encrypted columns of numbers, hints and products of these with own columns, and the columns.
Where sums are hidden, transfers come before the columns, and choices and tables of circuits after.
Two passive parties whose owners agree then correlate their columns with one another.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, FailFast, Field, model_validator

from fedmq.messages.array import Array, Uint32s
from fedmq.messages.body import Body
from fedmq.messages.fields import Count, Index, ModelId, PartyName, Text

__all__ = [
    "BODIES",
    "MOST_BINS",
    "MOST_CLASSES",
    "MOST_CORRELATED",
    "MOST_ROWS",
    "MOST_STEPS",
    "PEOPLE_OF_A_COLUMN",
    "DescribedColumn",
    "PairBegin",
    "PairLink",
    "PairOpen",
    "PairReady",
    "PairSums",
    "ScreenChoices",
    "ScreenColumns",
    "ScreenHints",
    "ScreenLabels",
    "ScreenNumbers",
    "ScreenOpen",
    "ScreenProducts",
    "ScreenReady",
    "ScreenTables",
    "ScreenTransfers",
]

MOST_ROWS = 100_000
"""Rows of which labels are encrypted."""
MOST_BINS = 50
"""Bins into which a column of numbers is cut."""
MOST_CLASSES = 50
"""Classes of a label: a ciphertext has a slot for each but the first."""
MOST_CORRELATED = 100
"""Columns of numbers of a party that are correlated with another party's."""
MOST_STEPS = 63
"""Steps of an information value that are told where sums are hidden: it stands for all above."""
PEOPLE_OF_A_COLUMN = 10
"""So many people are looked at for each column that is correlated, at least: with as many columns
as people, the coefficients of a column would tell its values."""


class ScreenOpen(Body):
    """Active to passive: what are your columns like, and how well does each tell my label?"""

    kind: ClassVar[str] = "screen open"

    name: ModelId
    alignment: str
    """The digest of the common rows, as in the opening of a training."""
    alignment_name: Literal[""] | ModelId = ""
    """The alignment that both stored; empty: the ids must be the same."""
    salt: Text
    """The salt of the digest."""
    rows: Annotated[int, Field(ge=1, lt=2**32)]
    """The common rows."""
    most_rows: Annotated[int, Field(ge=1, le=MOST_ROWS)]
    """So many of them, drawn by ``seed``, are looked at."""
    seed: Index
    bins: Annotated[int, Field(ge=2, le=MOST_BINS)]
    """Into so many bins a column of numbers is cut at most."""
    elements: Annotated[str, Field(pattern=r"^([0-9a-f]{64})?$")]
    """The seed of the ring elements under which labels are encrypted, of this session alone."""
    correlated: Annotated[int, Field(ge=0, le=MOST_CORRELATED)] = 0
    """So many of the active party's columns of numbers are to be correlated with the other's."""
    classes: Literal[0] | Annotated[int, Field(ge=2, le=MOST_CLASSES)] = 2
    """Those of the label; 0: it is a number."""
    least_steps: Annotated[int, Field(ge=0, le=MOST_STEPS)] = 0
    """Sums are hidden: of a column the steps of its information value are told, and fewer than
    these as none. 0: sums are shown."""

    @model_validator(mode="after")
    def _hides_two_classes(self) -> Self:
        if self.least_steps and self.classes != 2:
            raise ValueError("only a label of two classes has an information value to hide")
        return self


class ScreenReady(Body):
    """Passive to active: agreed, send your encrypted labels, or columns of numbers, or both."""

    kind: ClassVar[str] = "screen ready"

    label: bool = True
    correlates: bool = False
    among: bool = False
    """Whether its columns may be correlated with those of other passive parties as well."""


class ScreenLabels(Body):
    """Active to passive: encrypted labels of the rows that are looked at, from ``start`` on.

    The numbers of masks come last.
    """

    kind: ClassVar[str] = "screen labels"

    start: Index
    numbers: Array
    """uint8 (numbers, 12)."""


class ScreenNumbers(Body):
    """Active to passive: my standardised columns, encrypted, from number ``start`` of all on."""

    kind: ClassVar[str] = "screen numbers"

    start: Index
    seed: Annotated[bytes, Field(min_length=32, max_length=32)]
    """Of the elements that both sides make; the same in all of these messages."""
    ciphertexts: Array
    """uint32 (numbers, 3): column by column a number for each row, and its masks."""


class ScreenTransfers(Body):
    """Passive to active: with this, transfers begin by which you choose what circuits take.

    It comes before the columns, where sums are hidden.
    """

    kind: ClassVar[str] = "screen transfers"

    chosen: Array
    """uint8 (128, 256)."""
    seed: Annotated[bytes, Field(min_length=32, max_length=32)]
    """Of the permutation with which circuits are garbled."""


class ScreenChoices(Body):
    """Active to passive: what circuits of the columns of a block take of me, which you cannot read.

    ``offer`` uint8 (2, 256) answers the transfers: in the first block alone; it is empty in others.
    """

    kind: ClassVar[str] = "screen choices"

    block: Index
    offer: Array
    choices: Array
    """uint8 (bytes,)."""


class ScreenTables(Body):
    """Passive to active: garbled circuits of a block, from byte ``start`` on; colours come last."""

    kind: ClassVar[str] = "screen tables"

    block: Index
    start: Index
    tables: Array
    """uint8 (bytes,)."""


class ScreenHints(Body):
    """Passive to active: what inner products are read by, of my columns from the ``first`` on."""

    kind: ClassVar[str] = "screen hints"

    first: Index
    hints: Array
    """uint16 (columns, N, 5), masked."""


class ScreenProducts(Body):
    """Passive to active: how my columns of numbers are correlated with yours, and among themselves.

    It comes after the hints, and before the columns.
    """

    kind: ClassVar[str] = "screen products"

    columns: Uint32s
    """The numbers of the columns, from 1 on, ascending: those whose variance a group carries."""
    own: Array
    """int8 (columns, columns): coefficients in hundredths."""
    sums: Array
    """uint32 (columns, other columns, 3): encrypted inner products, with noise."""


class DescribedColumn(BaseModel):
    """A column as its owner lets it be seen; ``name`` is empty where names are private.

    ``counts`` and ``ones`` are of its bins, in random order, and empty where the owner shows only
    descriptions: how many people, and their labels' encrypted sum, uint8 (bins, bytes); of several
    classes it holds the people of each. Where sums are hidden there are no counts, and each sum is
    masked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    name: Text
    type: Literal["number", "categories"]
    missing: Annotated[int, Field(ge=0, le=100)]
    """Percent of the rows without a value; none where they are fewer than a group."""
    distinct: Text
    """How many values it has, in steps."""
    counts: Uint32s
    ones: Array


class ScreenColumns(Body):
    """Passive to active: some of my columns, from number ``first`` on, ``of`` so many."""

    kind: ClassVar[str] = "screen columns"

    first: Index
    of: Count
    described: Annotated[tuple[DescribedColumn, ...], Field(strict=False), FailFast()]


# Columns of two passive parties: one asks, the other answers, and the active party reads.


class PairOpen(ScreenOpen):
    """Active to both: correlate your columns of numbers with one another, for me alone.

    ``correlated`` are the columns of the party that ``asks``. No label is encrypted, and the seed
    of ``elements`` is empty.
    """

    kind: ClassVar[str] = "pair open"

    asks: PartyName
    answers: PartyName


class PairReady(Body):
    """Passive to active: agreed, so many columns of mine are correlated."""

    kind: ClassVar[str] = "pair ready"

    columns: Count


class PairBegin(Body):
    """Active to both: both agree, and the other one has so many columns."""

    kind: ClassVar[str] = "pair begin"

    columns: Annotated[int, Field(ge=1, le=MOST_CORRELATED)]


class PairLink(Body):
    """Passive to passive: half of the seed of masks that the active party does not know.

    ``marks`` uint8 (columns, 32): by what the other tells my columns from others, and nothing else.
    """

    kind: ClassVar[str] = "pair link"

    seed: Annotated[bytes, Field(min_length=32, max_length=32)]
    marks: Array


class PairSums(Body):
    """Passive to active: what, with the other party's, is the sums; each alone looks random."""

    kind: ClassVar[str] = "pair sums"

    sums: Array
    """uint32 (answering party's columns, asking party's columns, 3)."""


BODIES: tuple[type[Body], ...] = (
    ScreenOpen,
    ScreenReady,
    ScreenLabels,
    ScreenNumbers,
    ScreenHints,
    ScreenProducts,
    ScreenColumns,
    ScreenTransfers,
    ScreenChoices,
    ScreenTables,
    PairOpen,
    PairReady,
    PairBegin,
    PairLink,
    PairSums,
)
