"""``fedmq train``: one training, asked of the active party's daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.cli.asking import ask_daemon, state_of
from fedmq.cli.output import json_option, print_result
from fedmq.cli.progress import ProgressBar
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.trace import check_writable, write_trace

__all__ = ["train"]


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--trace",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Write a timeline of this party's computations and messages; see ui.perfetto.dev.",
)
@json_option
def train(job: Path, trace: Path | None, as_json: bool) -> None:
    """Train the model described in JOB, with all parties of the federation.

    The training belongs to the daemon: Ctrl-C only stops watching it (see: fedmq status, cancel).
    """
    description = TrainingJob.read(job)
    request = {
        "do": "train",
        "job": description.model_dump(mode="json"),
        "trace": trace is not None,
    }
    if trace is not None:
        check_writable(trace)
    with ProgressBar("training, trees", quiet=as_json) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "progress":
                total = event["total"] or description.params.num_boost_round
                bar.show(event["done"], total, event["details"], "; ".join(event["waiting"]))

        result = ask_daemon(state_of(description.party), request, show)
    if trace is not None:
        write_trace(result.pop("trace"), trace)
    print_result(result, as_json, _in_words)


def _in_words(result: Any) -> str:
    metrics = "".join(f", {name} {value:.5f}" for name, value in result["metrics"].items())
    spent = result["epsilon_spent"]
    privacy = "" if spent is None else f", epsilon {spent:g} spent in all"
    return (
        f"model {result['model']}: {result['trees']} trees in {result['seconds']:.1f} s, "
        f"{result['bytes_sent'] / 1e6:.1f} MB sent{metrics}{privacy}"
    )
