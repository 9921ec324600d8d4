"""A model of a party: what its share shows, and what the daemons compute with it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.callbacks import evals_log
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_model import (
    ImportanceKind,
    importance_kind,
    owned_importance,
    shown,
    split_counts,
)
from fedmq.errors import ConfigError, DataError, UnknownModel
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.documents import read_column_names
from fedmq.workbench.evaluation import Evaluation, Wanted, evaluate_model
from fedmq.workbench.joint_model import federated_booster
from fedmq.workbench.own_shares import OwnShares

if TYPE_CHECKING:
    import xgboost

__all__ = [
    "EVALUATED",
    "PartyModel",
    "PartyModels",
    "as_array",
    "frame",
    "ids_of",
    "importance_of",
]

EVALUATED: list[Callable[[PartyModel, Evaluation], None]] = []
"""Each is given every evaluation that this program makes."""

_NAME = "production"
_WAIT = 60.0


def frame(columns: Mapping[str, Any]) -> Any:
    """``columns`` as a pandas data frame; ConfigError without pandas."""
    try:
        import pandas
    except ImportError:
        raise ConfigError("pandas is not installed; run: pip install pandas") from None
    return pandas.DataFrame(columns)


def importance_of(
    shares: OwnShares,
    share: ActiveShare | PassiveShare,
    kind: ImportanceKind,
    wait: float | None = None,
) -> dict[str, Any]:
    """What ``fedmq models importance --json`` prints.

    ``wait``: the seconds within which other parties answer with the names of their columns; None:
    they are not asked.
    """
    found: Mapping[tuple[str, str], float]
    refused: list[str] = []
    if isinstance(share, ActiveShare):
        if wait is not None:
            request = {"do": "column_names", "model": share.model_id, "seconds": wait}
            answers = request_daemon(shares.state, request)
            refused = [answer["refused"] for answer in answers.values() if "refused" in answer]
        shared = read_column_names(shares.state, share.model_id)
        found = owned_importance(share, kind, shared)
    else:
        kind = "weight"
        found = {(shares.party, name): count for name, count in split_counts(share).items()}
    columns = [
        {"party": owner, "column": column, kind: value}
        for (owner, column), value in sorted(found.items(), key=lambda item: -item[1])
    ]
    return {"model": share.model_id, "type": kind, "columns": columns, "refused": refused}


class PartyModel:
    """The model ``name`` of a party, as far as this party may see it.

    Shares lie in the party's state folder; scores come from its daemon.
    """

    def __init__(self, shares: OwnShares, party_file: Path, name: str) -> None:
        self._shares = shares
        self.party_file = party_file
        self.name = name
        self._share = shares.checked(name)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Each metric after the last tree; only the active party has them."""
        return self._active("has metrics").metrics

    @property
    def evals_result(self) -> dict[str, dict[str, list[float]]]:
        """Each metric of each set after each round; only the active party has them."""
        return evals_log(self._active("has metrics").history)

    @property
    def best_iteration(self) -> int | None:
        """The last round that predictions use, from 0; None without early stopping."""
        return self._active("has rounds").best_iteration

    def shown(self) -> dict[str, Any]:
        """What ``fedmq models show --json`` prints."""
        state, active = self._shares.state, self._shares.is_active
        return shown(self._share, read_column_names(state, self.name) if active else {})

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

    def evaluate(
        self,
        rows: str | Path | None = None,
        *,
        label: str | None = None,
        group: str | None = None,
        threshold: float = 0.5,
        smallest_group: int = 30,
        false_positive: float = 1.0,
        false_negative: float = 1.0,
        samples: int = 200,
        base_margin: Sequence[str] = (),
    ) -> Evaluation:
        """How good it is on rows whose labels are known: those that its training held out.

        ``rows``: a CSV of other people's ids and labels. The options are those of ``fedmq
        evaluate``; a notebook shows the report. Errors are the same, too.
        """
        wanted = Wanted(
            None if rows is None else Path(rows),
            label,
            group,
            threshold,
            smallest_group,
            false_positive,
            false_negative,
            samples,
            base_margin,
        )
        shares = self._shares
        ask = partial(request_daemon, shares.state)
        active = shares.federation.active
        found = evaluate_model(self.party_file, shares.config, active, self.name, wanted, ask)
        for watcher in EVALUATED:
            watcher(self, found)
        return found

    def importance(self, kind: str = "gain", *, names: bool = False, wait: float = _WAIT) -> Any:
        """The importance of each column, or party, as far as this party sees it: a data frame.

        ``kind``: as in XGBoost's ``get_score``. ``names``: ask the other parties for the names of
        their columns, for ``wait`` seconds.
        """
        found = importance_of(
            self._shares, self._share, importance_kind(kind), wait if names else None
        )
        rows, kind = found["columns"], found["type"]
        return frame({key: [row[key] for row in rows] for key in ("party", "column", kind)})

    def to_xgboost(self, *, wait: float = _WAIT) -> xgboost.Booster:
        """The model with everybody's thresholds, where all owners have said yes to that.

        Columns are named ``party.column``. The first call asks the owners, whose policy may refuse;
        repeat it after their yes. ``wait``: seconds within which each party's daemon answers.

        Raises:
            ConfigError: this is not the active party, or xgboost is not installed.
            Refused: an owner refuses, or has not yet said yes; the text names each.
        """
        return federated_booster(self._shares, self.name, wait)

    def activate(
        self, name: str = _NAME, *, mode: Literal["hop", "bitmap", "sealed"] | None = None
    ) -> dict[str, Any]:
        """Serve it under ``name`` at all parties together; the JSON of ``fedmq activate``."""
        request = {"do": "activate", "model": self.name, "name": name, "mode": mode}
        found: dict[str, Any] = request_daemon(self._shares.state, request)
        return found

    def _active(self, what: str) -> ActiveShare:
        if not isinstance(self._share, ActiveShare):
            raise ConfigError(f"{self.party_file}: only {self._shares.federation.active} {what}")
        return self._share

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
        answer: Mapping[str, Any] = request_daemon(self._shares.state, request)
        return answer

    def __repr__(self) -> str:
        share = self._share
        if not isinstance(share, ActiveShare):
            return f"<PartyModel {self.name}: {len(share.lookup_table)} records of this party>"
        metrics = "".join(f", {name} {value:.5f}" for name, value in share.metrics.items())
        return f"<PartyModel {self.name}: {len(share.used_trees)} trees{metrics}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self).strip('<>'))}</p>"


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


class PartyModels(Mapping[str, PartyModel]):
    """The models of a party by name, the oldest first."""

    def __init__(self, party_file: Path) -> None:
        self._party_file = party_file

    def __getitem__(self, name: str) -> PartyModel:
        shares = OwnShares(self._party_file)
        if name not in shares.store.ids():
            known = ", ".join(shares.store.ids()) or "none yet"
            raise UnknownModel(f"model {name!r} has no share here; there are: {known}")
        return PartyModel(shares, self._party_file, name)

    def __iter__(self) -> Iterator[str]:
        return iter(OwnShares(self._party_file).store.ids())

    def __len__(self) -> int:
        return len(OwnShares(self._party_file).store.ids())

    @property
    def newest(self) -> PartyModel:
        """The model that was made last; DataError if there is none."""
        return self[OwnShares(self._party_file).store.newest()]

    def __repr__(self) -> str:
        return f"<models: {', '.join(self) or 'none yet'}>"

    def _repr_html_(self) -> str:
        return (
            "<ul>" + "".join(f"<li>{html.escape(repr(self[name]))}</li>" for name in self) + "</ul>"
        )
