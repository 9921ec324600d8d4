"""``[[policy.approved]]``: to what an owner has said yes for all times, when it was asked once."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from fedmq.messages.envelope import PartyName
from fedmq.party.configuration.toml_file import Section

__all__ = ["Particular", "StandingConsent"]

Particular = Literal[
    "continues a model",
    "cross-validation",
    "monotone constraints",
    "interaction constraints",
    "sets of categories",
    "vector leaves",
    "decoys",
]
"""What a training may have beside its size."""


class StandingConsent(Section):
    """Sessions about which the owner is not asked; a size that is left out is 0, and allows none.

    ``fedmq approve --alike`` writes it, with the sizes of what was asked.
    """

    peer: PartyName
    """Who may ask."""
    session: Literal["alignment", "training"]
    """For what."""
    alignment: str = ""
    """The alignment that is made, or that selects the rows; empty where rows are matched without
    one."""
    parties: tuple[PartyName, ...] = ()
    """All parties of an alignment, the label holder first."""
    engine: str = ""
    """The engine of a training."""
    most_rows: Annotated[int, Field(ge=0)] = 0
    """Rows of a training."""
    most_trees: Annotated[int, Field(ge=0)] = 0
    """Its trees."""
    most_depth: Annotated[int, Field(ge=0)] = 0
    """Their depth."""
    most_bins: Annotated[int, Field(ge=0)] = 0
    """Its `max_bin`."""
    most_gradient_bits: Annotated[int, Field(ge=0)] = 0
    """Its `gradient_bits`, as they are announced."""
    particulars: tuple[Particular, ...] = ()
    """What it may have beside: other trainings are asked about."""
