"""``fedmq cv``, ``train``, ``follow``, ``pause``, ``resume`` and ``cancel``: trainings.

A training belongs to the daemon of the active party. The commands ask for it and watch it.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.boosting.model.share import departures_in_words
from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.cli.progress import ProgressBar
from fedmq.messages.training import MOST_FOLDS
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.operations.control import request_daemon
from fedmq.party.telemetry.timeline import check_writable, write_trace
from fedmq.workbench.daemon import LocalDaemon
from fedmq.workbench.run import follow_to_the_end

__all__ = [
    "cancel",
    "cross_validated_in_words",
    "cv",
    "follow",
    "pause",
    "resume",
    "set_option",
    "train",
    "watched",
]

_FOLDS = 3
_SHOWN = 20
"""Most rounds to show: beyond, some between the first and the last are left out."""


def _settings(_: click.Context, __: click.Parameter, given: Sequence[str]) -> dict[str, Any]:
    """What ``--set`` gave, by name; a value that is no TOML is a text."""
    settings: dict[str, Any] = {}
    for text in given:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise click.BadParameter(f"{text!r}: write NAME=VALUE, such as eta=0.1")
        if name in settings:
            raise click.BadParameter(f"{name} is given twice")
        try:
            settings[name] = tomllib.loads(f"value = {value}")["value"]
        except tomllib.TOMLDecodeError:
            settings[name] = value
    return settings


set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    callback=_settings,
    help="In place of what JOB says: eta=0.1, model=second, engine_options.sums=hidden, ...",
)


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@set_option
@click.option(
    "--nfold",
    type=click.IntRange(2, MOST_FOLDS),
    help=f"Number of folds; {_FOLDS}, unless JOB sets it.",
)
@json_option
def cv(job: Path, settings: Mapping[str, Any], nfold: int | None, as_json: bool) -> None:
    """Cross-validate the training described in JOB: score its models on rows they have not seen.

    A model for each fold of the rows is trained on the others and scored on it, all in one session;
    no model is kept. Rows that the job's `evaluation` holds out take no part. Ctrl-C only stops
    watching it, as with: fedmq train
    """
    description = TrainingJob.read(job, settings)
    folds = nfold or description.nfold or _FOLDS
    description = description.model_copy(update={"nfold": folds})
    request = {"do": "train", "job": description.model_dump(mode="json")}
    result = watched(description.party, request, as_json, description)
    print_result(result, as_json, cross_validated_in_words)
    print_next_step(as_json, "train", job)


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@set_option
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a timeline of this party's computations and messages; see ui.perfetto.dev.",
)
@json_option
def train(job: Path, settings: Mapping[str, Any], trace: Path | None, as_json: bool) -> None:
    """Train the model described in JOB, with all parties of the federation.

    The training belongs to the daemon: Ctrl-C only stops watching it (see: fedmq follow, cancel).
    Asked again for a model that is being trained, by the same job, it watches that training. If the
    daemon is restarted, it waits for it for a minute, and watches on.
    """
    description = TrainingJob.read(job, settings).model_copy(update={"nfold": None})
    request = {
        "do": "train",
        "job": description.model_dump(mode="json"),
        "trace": trace is not None,
    }
    if trace is not None:
        check_writable(trace)
    result = watched(description.party, request, as_json, description)
    if trace is not None:
        write_trace(result.pop("trace"), trace)
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "predict", description.party, "IDS.csv --output scores.csv")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def follow(party: Path, session: str, as_json: bool) -> None:
    """Watch the training SESSION that the daemon of PARTY drives, up to its end.

    Ctrl-C only stops watching it.
    """
    request = {"do": "follow", "session": session}
    result = watched(party, request, as_json)
    if "cross_validation" in result:
        print_result(result, as_json, cross_validated_in_words)
        return
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "predict", party, "IDS.csv --output scores.csv")


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def pause(party: Path, session: str, as_json: bool) -> None:
    """Pause the training SESSION after the current tree, also across restarts."""
    result = request_daemon(state_folder(party), {"do": "pause", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} rests after this tree")
    print_next_step(as_json, "resume", party, session)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def resume(party: Path, session: str, as_json: bool) -> None:
    """Resume the paused training SESSION."""
    result = request_daemon(state_folder(party), {"do": "resume", "session": session})
    print_result(result, as_json, lambda done: f"session {done['session']} goes on")
    print_next_step(as_json, "follow", party, session)


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("session")
@json_option
def cancel(party: Path, session: str, as_json: bool) -> None:
    """Cancel SESSION at the daemon of PARTY, and tell every party."""
    request = {"do": "cancel", "session": session}
    result = request_daemon(state_folder(party), request)
    print_result(result, as_json, lambda done: f"session {done['session']} is cancelled")
    print_next_step(as_json, "status", party)


def watched(
    party: Path, request: Mapping[str, Any], quiet: bool, job: TrainingJob | None = None
) -> Any:
    """The result of a request; shows its progress in trees."""
    state = state_folder(party)
    expected = job.params.total_trees * (job.nfold or 1) if job else None
    opened: list[str] = [request["session"]] if "session" in request else []
    named: list[str] = []
    with ProgressBar("training, trees", "tree", quiet=quiet) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "opened":
                opened.append(event["session"])
                named.append(f"session {event['session']} of model {event['model']}")
            if event["event"] == "progress":
                while named:  # not before: a table that cannot be read ends the session at once
                    bar.note(named.pop())
                waits = "; ".join(event["waiting"])
                bar.show(event["done"], event["total"] or expected, event["details"], waits)

        try:
            return follow_to_the_end(LocalDaemon(state), request, show, opened)
        except KeyboardInterrupt:
            session = opened[0] if opened else "SESSION"
            click.echo(
                f"\nthe training goes on; watch it with: fedmq follow {party} {session}; "
                f"end it with: fedmq cancel {party} {session}",
                err=True,
            )
            raise


def _in_words(result: Any) -> Text:
    selected = _selected_in_words(result, "the evaluation") if result["metrics"] else ""
    return joined(_model_in_words(result), selected, _fallbacks_in_words(result))


def _fallbacks_in_words(result: Any) -> str | Text:
    """A row for each fallback model: what the model is worth with the parties that it lacks."""
    found = result.get("fallbacks", ())
    if not found:
        return ""
    failed = "\n".join(
        f"fallback model {fallback['model']} is missing: {fallback['failed']}"
        for fallback in found
        if "failed" in fallback
    )
    rows = [
        (
            fallback["model"],
            ", ".join(fallback["without"]),
            *(
                (worth["metric"], *(_number(worth[of]) for of in ("value", "without")))
                if (worth := fallback["worth"])
                else ("", "", "")
            ),
        )
        for fallback in found
        if "failed" not in fallback
    ]
    return joined(table(("fallback model", "without", "metric", "with", "without"), rows), failed)


def _model_in_words(result: Any) -> str:
    metrics = "".join(f", {name} {value:.5f}" for name, value in result["metrics"].items())
    spent = result["epsilon_spent"]
    privacy = "" if spent is None else f", epsilon {spent:g} spent in all"
    return (
        f"model {result['model']}: {result['trees']} trees in {result['seconds']:.1f} s, "
        f"{result['bytes_sent'] / 1e6:.1f} MB sent{metrics}{privacy}; as XGBoost: "
        f"{departures_in_words(result['departures'])}"
    )


def cross_validated_in_words(result: Mapping[str, Any]) -> Text:
    """A row for each round, with mean and deviation over the folds; then the cost."""
    figures = {name: values for name, values in result["figures"].items() if values}
    metrics = [name.removesuffix("-mean") for name in figures if name.endswith("-mean")]
    rounds = len(figures[f"{metrics[0]}-mean"])
    rows = [
        [
            number,
            *(
                f"{_number(figures[f'{name}-mean'][number])} ± "
                f"{_number(figures[f'{name}-std'][number])}"
                for name in metrics
            ),
        ]
        for number in _shown(rounds)
    ]
    best, spent = result["best_iteration"], result["epsilon_spent"]
    privacy = "" if spent is None else f", epsilon {spent:g} spent in all"
    return joined(
        table(["round", *metrics], rows),
        f"cross-validation {result['cross_validation']}: {result['folds']} folds of "
        f"{result['rounds']} rounds in {result['seconds']:.1f} s, "
        f"{result['bytes_sent'] / 1e6:.1f} MB sent{privacy}"
        + ("" if best is None else f"; best round {best}"),
        _selected_in_words(result, "the folds"),
    )


def _selected_in_words(result: Mapping[str, Any], rows: str) -> str:
    screen, model = result.get("selected_by"), result.get("selected_as")
    if not screen and not model:
        return ""
    by = f"by screen {screen}" if screen else f"for model {model}, by a screen"
    return (
        f"columns were selected once, {by}: where it looked at people of {rows}, the figures are "
        "better than on people whom nobody has looked at"
    )


def _shown(rounds: int) -> list[int]:
    """The rounds with a row: all of few, some of many."""
    if rounds <= _SHOWN:
        return list(range(rounds))
    return sorted({round(place * (rounds - 1) / (_SHOWN - 1)) for place in range(_SHOWN)})


def _number(value: float | None) -> str:
    return "none" if value is None else f"{value:.5f}"
