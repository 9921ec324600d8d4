"""A model of a party: what its share shows, and what the daemons compute with it."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedmq.boosting.callbacks import EvalsLog, evals_log
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.shown_model import (
    ImportanceKind,
    importance_kind,
    owned_importance,
    shown,
    split_counts,
)
from fedmq.errors import ConfigError, UnknownModel
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.documents import read_column_names
from fedmq.workbench.asked_model import AskedModel, frame
from fedmq.workbench.daemon import LocalDaemon
from fedmq.workbench.dossier import DossierWanted, model_dossier
from fedmq.workbench.evaluation import Evaluation, Wanted, evaluate_model
from fedmq.workbench.joint_model import federated_booster
from fedmq.workbench.own_shares import OwnShares

if TYPE_CHECKING:
    import xgboost

    from fedmq.evaluation.dossier_page import Dossier

__all__ = [
    "EVALUATED",
    "PartyModel",
    "PartyModels",
    "importance_of",
]

EVALUATED: list[Callable[[PartyModel, Evaluation], None]] = []
"""Each is given every evaluation that this program makes."""

_WAIT = 60.0


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


class PartyModel(AskedModel):
    """The model ``name`` of a party, as far as this party may see it.

    Shares lie in the party's state folder; scores come from its daemon.
    """

    def __init__(self, shares: OwnShares, party_file: Path, name: str) -> None:
        super().__init__(LocalDaemon(shares.state), name)
        self._shares = shares
        self.party_file = party_file
        self._share = shares.checked(name)

    @property
    def metrics(self) -> Mapping[str, float]:
        """Each metric after the last tree; only the active party has them."""
        return self._active("has metrics").metrics

    @property
    def evals_result(self) -> EvalsLog:
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

    def dossier(
        self,
        purpose: str = "",
        *,
        samples: int = 0,
        audits: Sequence[str | Path] = (),
        transcripts: Sequence[str | Path] = (),
    ) -> Dossier:
        """What a validator asks for, as ``fedmq models dossier`` writes it.

        The options are those of the command, and errors are the same; ``write`` of the result
        writes the file.
        """
        wanted = DossierWanted(
            purpose, samples, [Path(path) for path in audits], [Path(path) for path in transcripts]
        )
        ask = partial(request_daemon, self._shares.state)
        return model_dossier(self._shares, self._active("has trees"), wanted, ask)

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

    def _active(self, what: str) -> ActiveShare:
        if not isinstance(self._share, ActiveShare):
            raise ConfigError(f"{self.party_file}: only {self._shares.federation.active} {what}")
        return self._share

    def __repr__(self) -> str:
        share = self._share
        if not isinstance(share, ActiveShare):
            return f"<PartyModel {self.name}: {len(share.lookup_table)} records of this party>"
        metrics = "".join(f", {name} {value:.5f}" for name, value in share.metrics.items())
        return f"<PartyModel {self.name}: {len(share.used_trees)} trees{metrics}>"

    def _repr_html_(self) -> str:
        return f"<p>{html.escape(repr(self).strip('<>'))}</p>"


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
