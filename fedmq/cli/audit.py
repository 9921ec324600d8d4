"""``fedmq audit``: what could one party learn from what it saw?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.objective import OBJECTIVES
from fedmq.cli.output import json_option, print_result
from fedmq.errors import ConfigError
from fedmq.party.audit import audit as mounted
from fedmq.party.configuration.data import DataSection
from fedmq.party.table import ReadTable

__all__ = ["audit"]

_File = click.Path(path_type=Path)


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
@click.option("--known", default=0.01, show_default=True, help="Share of labels known before.")
@click.option("--plot", type=_File, help="Draw the table into this image file.")
@json_option
def audit(
    recording: Path,
    id_column: str,
    labels: Path | None,
    label_column: str,
    features: tuple[str, ...],
    known: float,
    plot: Path | None,
    as_json: bool,
) -> None:
    """Mount the known attacks on what one party saw in a training: its RECORDING.

    The truth, which no single party holds, is needed to score them: run this on trial data.
    """
    truth = None if labels is None else _labels(labels, id_column, label_column)
    tables = dict(_features(each, id_column) for each in features)
    report = mounted(recording, label=truth, passive=tables, known=known)
    if plot is not None:
        report.plot(plot)
    print_result(report.as_dict(), as_json, lambda _: report.table())


def _labels(path: Path, id_column: str, column: str) -> NDArray[Any]:
    data = DataSection(path=path, id=id_column, label=column)
    label = ReadTable("--labels", data, OBJECTIVES["binary:logistic"].labels).run().label
    assert label is not None
    return np.asarray(label)


def _features(given: str, id_column: str) -> tuple[str, Any]:
    party, equals, file = given.partition("=")
    if not equals or not party or not file:
        raise ConfigError(f"--features {given!r}: PARTY=FILE is needed, telco=telco.csv say")
    data = DataSection(path=Path(file), id=id_column)
    return party, ReadTable(f"--features {party}", data).run().values
