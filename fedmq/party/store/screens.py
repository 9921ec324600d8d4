"""What does a party keep of looks at columns, so that a training can select among them?

The active party keeps each screen that it made, under its name; the others keep which columns they
numbered in it. Beside a model all keep which of these columns it was offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from fedmq.errors import Refused
from fedmq.messages.fields import ModelId, PartyName

__all__ = [
    "ColumnSelection",
    "MadeScreen",
    "Numbered",
    "OwnChoice",
    "PeerChoice",
    "ShownScreen",
]

Numbered = tuple[tuple[str, tuple[str, ...]], ...]
"""The columns that a screen numbers, from 1 on, each with its features."""
_Version = Annotated[int, Field(ge=1, le=1)]


class _Kept(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class OwnChoice(_Kept):
    """The own columns of these ``numbers``, of those that ``screen`` has ``numbered``."""

    screen: ModelId
    numbered: Numbered
    numbers: tuple[int, ...]

    @property
    def columns(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.numbered[number - 1][0] for number in self.numbers)

    @property
    def features(self) -> tuple[str, ...]:
        """The features of these columns."""
        return tuple(name for number in self.numbers for name in self.numbered[number - 1][1])

    def features_of(
        self, party: str, now: Sequence[tuple[str, tuple[str, ...]]]
    ) -> tuple[str, ...]:
        """The `features`; Refused if ``party`` would number other columns ``now``."""
        if tuple(now) != self.numbered:
            raise Refused(
                f"{party}: its columns, or those that its policy lets take part, have changed "
                f"since screen {self.screen!r} was made; make it anew with: fedmq screen"
            )
        return self.features


class PeerChoice(_Kept):
    """The columns of another party that are selected: their numbers, ``of`` so many.

    ``session``: in which it showed them.
    """

    numbers: tuple[int, ...]
    of: int
    session: str


class ColumnSelection(_Kept):
    """Which columns a training was offered: of the ``own`` ones, None if these are all.

    At the active party ``others`` has the parties whose columns were selected, too, and ``rule``
    what these had to meet; ``looked_at`` of ``rows`` people of ``alignment`` were looked at.
    """

    version: _Version = 1
    screen: ModelId
    made: str
    own: OwnChoice | None = None
    others: dict[PartyName, PeerChoice] = {}
    rule: dict[str, float] = {}
    alignment: str = ""
    rows: int = 0
    looked_at: int = 0

    def among(self, partners: Sequence[str]) -> ColumnSelection:
        """The same columns, where of the other parties these ``partners`` alone take part."""
        kept = {name: of for name, of in self.others.items() if name in partners}
        return self.model_copy(update={"others": kept})

    def described(self, party: str) -> dict[str, Any]:
        """As plain data: the screen, the counts, and the names of the own columns of ``party``."""
        own = None if self.own is None else list(self.own.columns)
        columns = {name: list(of) for name, of in self.counts(party).items()}
        return {"screen": self.screen, "made": self.made, "columns": columns, "own": own}

    def counts(self, party: str) -> dict[str, tuple[int, int]]:
        """By party, how many columns are selected, of how many; the own ones are of ``party``."""
        own = self.own
        return {
            **({} if own is None else {party: (len(own.numbers), len(own.numbered))}),
            **{name: (len(found.numbers), found.of) for name, found in self.others.items()},
        }


class MadeScreen(_Kept):
    """A screen as the active party made it: what each party told, without the bins of columns.

    ``numbered``: the own columns. ``sessions``: in which each other party showed its. ``selected``:
    the numbers of columns that its own rule selects, if it has one.
    """

    version: _Version = 1
    name: ModelId
    made: str
    alignment: str
    rows: int
    looked_at: int
    numbered: Numbered
    sessions: dict[PartyName, str]
    parties: dict[PartyName, dict[str, Any]]
    selected: dict[PartyName, list[int]] | None = None

    @property
    def found(self) -> dict[str, Any]:
        """What `fedmq screen --json` printed of it, as far as it is kept."""
        return {
            "screen": self.name,
            "alignment": self.alignment or None,
            "parties": self.parties,
            "selected": self.selected,
        }


class ShownScreen(_Kept):
    """Which columns this party numbered in a screen of the active party."""

    version: _Version = 1
    name: ModelId
    made: str
    numbered: Numbered
