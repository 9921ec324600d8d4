"""``fedmq audit``: what could one party learn from what it saw in a training?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objectives.regression import BinaryLogistic
from fedmq.cli.output import json_option, print_result
from fedmq.cli.progress import ProgressBar
from fedmq.errors import ConfigError, DataError
from fedmq.leakage.audit import audit as mount_attacks
from fedmq.leakage.view import SessionView
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.data import DataSection
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import rows_in_order
from fedmq.party.data.table import Table, read_table
from fedmq.party.sessions.observe import Recording
from fedmq.party.store.alignments import AlignmentStore, StoredAlignment
from fedmq.party.store.documents import ModelStore

__all__ = ["audit"]

_File = click.Path(path_type=Path)
_SHOWN_STEPS = 100
_EG = {"FILE": "data.csv", "STATE": "state", "TOML": "party.toml"}


@click.command()
@click.argument("recording", type=_File)
@click.option("--id", "id_column", default="id", show_default=True, help="Id column of the files.")
@click.option("--labels", type=_File, help="CSV with the labels: scores a passive party's attacks.")
@click.option("--label-column", default="label", show_default=True, help="Their column.")
@click.option(
    "--features",
    multiple=True,
    metavar="PARTY=FILE",
    help="CSV with a passive party's columns: scores the active party's attacks.",
)
@click.option(
    "--bins",
    "own_bins",
    multiple=True,
    metavar="PARTY=TOML",
    help="The party file of a party of --features, if bins in its [data] cut its columns.",
)
@click.option(
    "--state",
    type=_File,
    help="State folder of the party that recorded: for a training on an alignment, whose rows and "
    "order it holds.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="What sealed scores of this model in --state tell, too, and answers to fedmq changes; the "
    "active party's columns are those beside the labels in --labels.",
)
@click.option(
    "--share",
    "shares",
    multiple=True,
    metavar="PARTY=STATE",
    help="State folder of a passive party, for its splits in --model. Repeat for each.",
)
@click.option("--known", default=0.01, show_default=True, help="Share of labels known before.")
@click.option(
    "--quick", is_flag=True, help="Do not solve all sums together, which may take minutes."
)
@click.option("--plot", type=_File, help="Draw the table into this image file.")
@json_option
def audit(
    recording: Path,
    id_column: str,
    labels: Path | None,
    label_column: str,
    features: tuple[str, ...],
    own_bins: tuple[str, ...],
    state: Path | None,
    model: str | None,
    shares: tuple[str, ...],
    known: float,
    quick: bool,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Run the known attacks on RECORDING, all that one party saw in a training.

    Scoring an attack needs the truth, which no single party holds: run this on trial data.
    """
    recorded = Recording.read(recording)
    truth = _Truth(id_column, _alignment(SessionView(recorded).terms, state))
    label = None if labels is None else truth.labels(labels, label_column)
    tables = dict(truth.features(given) for given in features)
    given_bins = dict(_bins(given, tables) for given in own_bins)
    scored = {} if model is None else _scored(truth, model, state, shares, labels, label_column)
    with ProgressBar("solving sums, steps", "step", quiet=as_json) as bar:

        def show(done: int, total: int) -> None:
            if done % _SHOWN_STEPS == 0 or done == total:
                bar.show(done, total)

        report = mount_attacks(
            recorded,
            label=label,
            passive={party: held.values for party, held in tables.items()},
            known=known,
            solve=not quick,
            on_progress=show,
            column_bins=given_bins,
            **scored,
        )
    if plot is not None:
        report.plot(plot)
    print_result(report.as_dict(), as_json, lambda _: report.table())


def _alignment(terms: TrainingOpen, state: Path | None) -> StoredAlignment | None:
    if not terms.alignment_name:
        return None
    if state is None:
        raise ConfigError(
            f"the training was on the alignment {terms.alignment_name!r}: give the state folder of "
            "the party that recorded it with --state"
        )
    alignment = AlignmentStore(state).load(terms.alignment_name)
    if alignment.session != terms.alignment:
        raise DataError(
            f"{state}: the alignment {terms.alignment_name!r} was made anew ({alignment.made}) "
            "since the training; its rows are others"
        )
    return alignment


def _scored(
    truth: _Truth,
    model: str,
    state: Path | None,
    shares: Sequence[str],
    own: Path | None,
    label_column: str,
) -> dict[str, Any]:
    """What `fedmq.audit` needs besides, to say what the served ``model`` tells."""
    if state is None or own is None:
        raise ConfigError(
            "--model: give the active party's state folder (--state) and its table (--labels)"
        )
    return {
        "share": ModelStore(state).active(model),
        "active": truth.columns("--labels", own, label_column),
        "lookup_tables": {
            party: ModelStore(folder).passive(model).lookup_table
            for party, folder in (_named("--share", given, "STATE") for given in shares)
        },
    }


def _bins(given: str, tables: Mapping[str, Table]) -> tuple[str, Any]:
    """The bins of a party's own file, by the places of columns in its table."""
    party, path = _named("--bins", given, "TOML")
    if party not in tables:
        raise ConfigError(f"--bins {given!r}: give the columns of {party} with --features")
    own, columns = PartyFile.read(path)[0].data.bins, tables[party].features
    strange = next((name for name in own if name not in columns), None)
    if strange is not None:
        raise ConfigError(f"{path}: data.bins: --features of {party} has no column {strange!r}")
    return party, {f"f{columns.index(name)}": bins for name, bins in own.items()}


def _named(option: str, given: str, what: str) -> tuple[str, Path]:
    party, equals, path = given.partition("=")
    if not equals or not party or not path:
        raise ConfigError(
            f"{option} {given!r}: write PARTY={what}, such as telco=telco/{_EG[what]}"
        )
    return party, Path(path)


@dataclass(frozen=True)
class _Truth:
    """Files with the true values, read in the order of the session's rows."""

    id_column: str
    alignment: StoredAlignment | None

    def labels(self, path: Path, column: str) -> NDArray[Any]:
        data = self._section(path, label=column)
        table = read_table("--labels", data, BinaryLogistic().labels)
        label = self._rows("--labels", table).label
        assert label is not None
        return np.asarray(label)

    def features(self, given: str) -> tuple[str, Table]:
        party, file = _named("--features", given, "FILE")
        name = f"--features {party}"
        return party, self._rows(name, read_table(name, self._section(file)))

    def columns(self, name: str, path: Path, label: str) -> Any:
        """The columns beside the ``label``."""
        table = read_table(name, self._section(path, label=label), BinaryLogistic().labels)
        return self._rows(name, table).values

    def _section(self, path: Path, **more: Any) -> DataSection:
        rules = {} if self.alignment is None else {"normalise": self.alignment.normalise}
        return DataSection(path=path, id=self.id_column, **rules, **more)

    def _rows(self, name: str, table: Table) -> Table:
        if self.alignment is None:
            return table
        return rows_in_order(name, table, self.alignment.ids, bool(self.alignment.lacked_at))
