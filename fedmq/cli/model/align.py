"""``fedmq align``: one alignment, by the active party's daemon."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from fedmq.cli.daemon_request import request_daemon
from fedmq.cli.next_step import print_next_step
from fedmq.cli.output import json_option, print_result
from fedmq.cli.party_argument import state_folder
from fedmq.cli.progress import ProgressBar
from fedmq.party.configuration.job import AlignmentJob

__all__ = ["align"]


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@json_option
def align(job: Path, as_json: bool) -> None:
    """Find the ids that all parties share, as described in JOB, without showing the others.

    Every party stores the result under its name; trainings refer to it. The alignment belongs to
    the daemon: Ctrl-C only stops watching it (see: fedmq status, cancel).
    """
    description = AlignmentJob.read(job)
    request = {"do": "align", "job": description.model_dump(mode="json")}
    with ProgressBar("aligning, ids", "id", quiet=as_json) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "progress":
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        result = request_daemon(state_folder(description.party), request, show)
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "train", job.with_name("train.toml"))


def _in_words(result: Any) -> str:
    return (
        f"alignment {result['alignment']}: {result['rows']} ids are shared by "
        f"{', '.join(result['parties'])}; {result['own_ids']} are here; "
        f"{result['seconds']:.1f} s, {result['bytes_sent'] / 1e6:.1f} MB sent"
    )
