"""A model that a daemon scores with: asked by programs beside the daemon, and on other machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.errors import ConfigError, DataError
from fedmq.workbench.daemon import Daemon

__all__ = ["AskedModel", "as_array", "frame", "ids_of"]

_NAME = "production"


class AskedModel:
    """The model ``name`` of the party of ``daemon``."""

    def __init__(self, daemon: Daemon, name: str) -> None:
        self._daemon = daemon
        self.name = name

    def predict(
        self,
        ids: ArrayLike | None = None,
        *,
        alignment: str | None = None,
        output_margin: bool = False,
        strict: bool = False,
        base_margin: ArrayLike | None = None,
    ) -> NDArray[np.float64]:
        """The score of each of ``ids``, (rows,) or (rows, classes), by all parties together.

        Without ``ids`` all people of ``alignment`` are scored, in its order. A person whom a party
        does not know has NaN, unless [online] unknown gives such people a score; ``strict`` refuses
        them.

        Raises:
            DataError: an id is empty or repeated.
            DaemonError: the daemon cannot score them.
        """
        answer = self._scored(ids, alignment, output_margin, strict, base_margin, False)
        return as_array(answer["scores"])

    def explain(self, ids: ArrayLike) -> Any:
        """What each column, or party, adds to the margin of each id: a data frame.

        The last column is the bias. Several outputs, as of classes, have a column for each.
        """
        answer = self._scored(ids, None, True, False, None, True)
        players = answer["players"]
        none: list[list[float]] = [[]]
        known = next((row for row in answer["contributions"] if row is not None), none)
        missing = [[float("nan")] * len(players)] * len(known)
        rows = np.array([missing if row is None else row for row in answer["contributions"]])
        suffixes = [""] if len(known) == 1 else [f"_{number}" for number in range(len(known))]
        found = frame(
            {
                f"{player}{suffix}": rows[:, output, place]
                for output, suffix in enumerate(suffixes)
                for place, player in enumerate(players)
            }
        )
        return found.set_axis(ids_of(ids))

    def changes(
        self, person: str, *, above: float | None = None, below: float | None = None
    ) -> dict[str, Any]:
        """By party, the smallest change of its own columns with which ``person`` would score so.

        The JSON of ``fedmq changes``. Another party tells its changes where its policy allows it.

        Raises:
            ConfigError: neither or both of ``above`` and ``below`` are given.
            DaemonError: the daemon cannot score the person, or a party refuses.
        """
        if (above is None) == (below is None):
            raise ConfigError("changes: give either above or below")
        asked = {"id": str(person), "above": above, "below": below}
        found: dict[str, Any] = self._daemon.request({"do": "changes", "model": self.name, **asked})
        return found

    def activate(
        self, name: str = _NAME, *, mode: Literal["hop", "bitmap", "sealed"] | None = None
    ) -> dict[str, Any]:
        """Serve it under ``name`` at all parties together; the JSON of ``fedmq activate``."""
        request = {"do": "activate", "model": self.name, "name": name, "mode": mode}
        found: dict[str, Any] = self._daemon.request(request)
        return found

    def _scored(
        self,
        ids: ArrayLike | None,
        alignment: str | None,
        output_margin: bool,
        strict: bool,
        base_margin: ArrayLike | None,
        explain: bool,
    ) -> Mapping[str, Any]:
        if (ids is None) == (alignment is None):
            raise ConfigError("predict: give either ids, or the name of an alignment")
        request = {
            "do": "predict",
            "model": self.name,
            "ids": None if ids is None else ids_of(ids),
            "alignment": alignment,
            "strict": strict,
            "output_margin": output_margin,
            "explain": explain,
        }
        if base_margin is not None:
            request["base_margin"] = np.asarray(base_margin, np.float64).tolist()
        answer: Mapping[str, Any] = self._daemon.request(request)
        return answer

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"


def frame(columns: Mapping[str, Any]) -> Any:
    """``columns`` as a pandas data frame; ConfigError without pandas."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("pandas is not installed; run: pip install pandas") from None
    return pandas.DataFrame(columns)


def ids_of(people: Any) -> list[str]:
    """The ids in ``people``: a list, a column, or a table with one column; DataError otherwise."""
    ids = np.asarray([people] if isinstance(people, str) else people)
    if ids.ndim == 2 and ids.shape[1] == 1:
        ids = ids[:, 0]
    if ids.ndim != 1 or not len(ids):
        raise DataError("ids: a list or column of ids is needed, such as frame['id']")
    return [str(one) for one in ids.tolist()]


def as_array(scores: Sequence[Any]) -> NDArray[np.float64]:
    """The scores as float64 (rows,), or (rows, classes), with NaN for None."""
    several = next((len(score) for score in scores if isinstance(score, list | tuple)), None)
    missing = float("nan") if several is None else [float("nan")] * several
    return np.array([missing if score is None else score for score in scores], np.float64)
