"""``fedmq cv``: a cross-validation by the active party's daemon."""

from __future__ import annotations

from pathlib import Path

import click

from fedmq.cli.model.cross_validated import cross_validated_in_words
from fedmq.cli.model.train import watched
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.messages.training import MOST_FOLDS
from fedmq.party.configuration.job import TrainingJob

__all__ = ["cv"]

_FOLDS = 3


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--nfold",
    type=click.IntRange(2, MOST_FOLDS),
    help=f"Into how many folds rows are divided; {_FOLDS}, unless JOB says.",
)
@json_option
def cv(job: Path, nfold: int | None, as_json: bool) -> None:
    """Cross-validate what JOB describes: how good would its model be on rows it has not seen?

    A model for each fold of the rows is trained on the others and scored on it, all in one session;
    no model is kept. Rows that the job's `evaluation` holds out take no part. Ctrl-C only stops
    watching it, as with: fedmq train
    """
    description = TrainingJob.read(job)
    folds = nfold or description.nfold or _FOLDS
    description = description.model_copy(update={"nfold": folds})
    request = {"do": "train", "job": description.model_dump(mode="json")}
    result = watched(description.party, request, as_json, description)
    print_result(result, as_json, cross_validated_in_words)
    print_next_step(as_json, "train", job)
