"""``fedmq search``: which parameters are best, by cross-validations with all parties."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.progress import ProgressBar
from fedmq.cli.train import set_option
from fedmq.errors import ConfigError, FedmqError
from fedmq.messages.training import MOST_FOLDS
from fedmq.party.configuration.job import TrainingJob
from fedmq.workbench.connection import connect
from fedmq.workbench.search import Found, Trial, space_of

__all__ = ["search"]

_SHOWN = 10


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--over",
    multiple=True,
    metavar="NAME=RANGE",
    help="A parameter and what it may be: max_depth=3:8, eta=0.01:0.3:log, max_bin=32,64. Repeat.",
)
@click.option(
    "--trials",
    type=click.IntRange(1, 10_000),
    default=20,
    show_default=True,
    help="The number of settings to try.",
)
@click.option("--nfold", type=click.IntRange(2, MOST_FOLDS), help="As of fedmq cv.")
@click.option("--seed", default=0, show_default=True, help="Of the search.")
@set_option
@json_option
def search(
    job: Path,
    over: Sequence[str],
    trials: int,
    nfold: int | None,
    seed: int,
    settings: Mapping[str, Any],
    as_json: bool,
) -> None:
    """Search the best parameters of the training described in JOB.

    Each trial is a cross-validation with all parties, as of fedmq cv: no model is kept, and every
    party's policy counts it as a training. Ctrl-C ends the search and the trial. The last metric of
    JOB is watched.
    """
    if not over:
        raise click.UsageError("name a parameter and its range: --over max_depth=3:8")
    space = space_of(over)
    if both := sorted({*space} & {*settings}):
        raise ConfigError(f"{both[0]} is given by --over and by --set; give one of them")
    bank = connect(TrainingJob.read(job, settings).party)
    best: Trial | None = None
    with ProgressBar("searching, trials", "trial", quiet=as_json) as bar:

        def job_of(chosen: Mapping[str, Any]) -> TrainingJob:
            named = {f"params.{name}": value for name, value in chosen.items()}
            return TrainingJob.read(job, {**settings, **named})

        def show(found: Found) -> None:
            nonlocal best
            best = found.best
            bar.show(len(found.trials), trials, {f"best {found.metric}": best.value})

        bar.show(0, trials)
        try:
            found = bank.search_jobs(job_of, space, trials, nfold=nfold, seed=seed, on_trial=show)
        except (FedmqError, KeyboardInterrupt):
            if best is not None:  # what was found does not get lost
                print_next_step(as_json, *_training(job, best))
            raise
    best = found.best
    result = {
        "metric": found.metric,
        "maximize": found.maximize,
        "best": {"settings": dict(best.settings), "value": best.value},
        "trials": [{"settings": dict(one.settings), "value": one.value} for one in found.trials],
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, *_training(job, best))


def _training(job: Path, best: Trial) -> list[str | Path]:
    """The words of the command that trains by the ``best`` settings."""
    words = [f"--set {name}={_spelt(value)}" for name, value in best.settings.items()]
    return ["train", job, *words]


def _spelt(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _in_words(result: Any) -> Text:
    names = list(result["best"]["settings"])
    ranked = sorted(result["trials"], key=lambda one: one["value"], reverse=result["maximize"])
    rows = [
        [*(_spelt(one["settings"][name]) for name in names), f"{one['value']:.5f}"]
        for one in ranked[:_SHOWN]
    ]
    left_out = len(ranked) - len(rows)
    return joined(
        table([*names, result["metric"]], rows),
        f"and {left_out} trials that were worse" if left_out else "",
    )
