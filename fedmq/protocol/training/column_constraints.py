"""What do a training's parameters ask of columns, and whose columns are they?

They name the label holder's own columns, and another party's as ``party.column``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, Refused
from fedmq.messages.training import TrainingOpen
from fedmq.privacy.engine import Engine
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = ["ColumnConstraints", "kept_signs"]


class ColumnConstraints:
    """The constraints of a training of ``party`` with ``peers``, over its own ``table``.

    Raises:
        ConfigError: a column does not exist, or ``engine`` cannot keep a constraint.
    """

    def __init__(
        self,
        party: str,
        peers: Sequence[str],
        table: ActiveTable,
        params: TrainParams,
        engine: Engine,
    ) -> None:
        self._party = party
        self._own = table.features
        self._asked: dict[str, dict[str, int]] = {name: {} for name in (party, *peers)}
        for name, sign in params.monotone_constraints.items():
            owner, column = self._owner(name, "monotone_constraints")
            if sign:
                self._asked[owner][column] = sign
        self.signs = _signs(party, table.features, table.signs, self._asked[party])
        """Of the own columns: int8 (columns,)."""
        if self.signs.any() and not engine.scores_signs:
            raise ConfigError(f"engine {engine.name} keeps no monotone constraint of {party}")

    def hold(self, signed: Sequence[str]) -> bool:
        """Whether some column is under a monotone constraint, here or at ``signed`` peers."""
        return bool(signed) or bool(self.signs.any())

    def opening(self, peer: str, terms: TrainingOpen) -> TrainingOpen:
        """``terms`` for ``peer``: what others are asked of their columns is not for it."""
        return terms.model_copy(update={"signs": self._asked[peer]})

    def _owner(self, name: str, parameter: str) -> tuple[str, str]:
        if name in self._own:
            return self._party, name
        party, _, column = name.partition(".")
        if column and party in self._asked and party != self._party:
            return party, column
        raise ConfigError(
            f"{parameter}: {self._party} has no column {name!r}; another party's is named as "
            "party.column"
        )


def _signs(
    party: str, columns: Sequence[str], own: Mapping[str, int], asked: Mapping[str, int]
) -> NDArray[np.int8]:
    """The sign of each of the ``columns`` of ``party``: int8 (columns,).

    ``own`` signs are those of its file, ``asked`` those of the training's parameters.

    Raises:
        ConfigError: a column does not exist, or has two signs.
    """
    signs = np.zeros(len(columns), np.int8)
    for where, named in (("monotone", own), ("monotone_constraints", asked)):
        for column, sign in named.items():
            if column not in columns:
                raise ConfigError(f"{where}: {party} trains with no column {column!r}")
            place = columns.index(column)
            if signs[place] == -sign:
                raise ConfigError(
                    f"{where}: column {column!r} has sign {sign}, and {-sign} in the file of "
                    f"{party}"
                )
            signs[place] = sign
    return signs


def kept_signs(
    party: str, table: PassiveTable, terms: TrainingOpen, engine: Engine
) -> NDArray[np.int8]:
    """The sign of each column of ``party``: int8 (columns,); Refused where they cannot be kept."""
    try:
        signs = _signs(party, table.features, table.signs, terms.signs)
    except ConfigError as error:
        raise Refused(str(error)) from None
    if signs.any() and not engine.scores_signs:
        raise Refused(
            f"{party} has columns under a monotone constraint, which engine {engine.name!r} "
            "cannot keep"
        )
    return signs
