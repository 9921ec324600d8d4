"""Parties that hold partly the same people, and the machines that align them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import Given
from fedmq.messages import alignment
from fedmq.privacy.kept_blinding import Blinding
from fedmq.privacy.set_intersection import LACKED, IdList
from fedmq.protocol.alignment.active import ActiveAlignment, KeptList, PeopleFound
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.protocol.machine import Machine

PARTIES = ("bank", "telco", "retail", "insurer")


@dataclass
class Own:
    """A party's ids, and the alignment that it stored."""

    names: Sequence[str]
    rows_of: NDArray[np.uint32] | None = None
    """How many rows each of them has, if this is the active party."""
    stored: list[str] = field(default_factory=list)
    """The people of the alignment; "" for a person whom it lacks."""
    found: PeopleFound | None = None
    blinding: Blinding | None = None

    @property
    def ids(self) -> IdList:
        return IdList.of(self.names)

    def keep(
        self,
        rows: NDArray[np.uint32],
        found: PeopleFound | None = None,
        counts: NDArray[np.uint32] | None = None,
    ) -> Any:
        self.found = found
        if counts is not None:
            rows = np.repeat(rows, counts)
        return _Store(self, ["" if row == LACKED else self.names[row] for row in rows])


@dataclass
class _Store:
    label: ClassVar[str] = "_Store"
    own: Own
    names: list[str]

    def run(self) -> list[str]:
        self.own.stored[:] = self.names
        return self.names


def machines(
    owners: Mapping[str, Own],
    agree: Callable[[alignment.AlignmentOpen], None] = lambda _: None,
    fewest: Mapping[str, int] | None = None,
    seed: int = 0,
    asked: Mapping[str, int] | None = None,
    known_to: Sequence[str] | None = None,
    kept_list: KeptList | None = None,
) -> dict[str, Machine]:
    parties = tuple(owners)
    least = fewest or {}
    keys = np.random.default_rng(seed).bytes(32 * len(parties))
    active = owners[parties[0]]
    made: dict[str, Machine] = {
        parties[0]: ActiveAlignment(
            "customers",
            parties,
            active.ids,
            ("trim",),
            keys[:32],
            active.keep,
            least.get(parties[0], 1),
            known_to,
            active.rows_of,
            kept_list,
        )
    }
    for number, party in enumerate(parties[1:], start=1):
        key = keys[32 * number : 32 * number + 32]
        made[party] = PassiveAlignment(
            party,
            parties,
            Given(owners[party]),
            agree,
            key,
            least.get(party, 1),
            consent_within=(asked or {}).get(party, 0),
        )
    return made


def people(count: int, seed: int = 0, share: float = 0.7, of: int = 60) -> dict[str, Own]:
    """``count`` parties that hold about ``share`` of the same ``of`` people, each in its order."""
    random = np.random.default_rng(seed)
    return {
        party: Own([f"id-{row}" for row in random.permutation(of)[: int(share * of)]])
        for party in PARTIES[:count]
    }
