"""``fedmq models``: the models of which a party holds a share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.cli.asking import ask_daemon, party_argument_help, state_of
from fedmq.cli.output import json_option, print_result

__all__ = ["models"]


@click.command(epilog=party_argument_help)
@click.argument("party", type=click.Path(path_type=Path))
@json_option
def models(party: Path, as_json: bool) -> None:
    """List the models, the oldest first."""
    print_result(ask_daemon(state_of(party), {"do": "models"}), as_json, _in_words)


def _in_words(result: Any) -> str:
    return "\n".join(_line(each) for each in result) or "no models yet"


def _line(model: Any) -> str:
    if "trees" not in model:
        return f"{model['model']}: {model['records']} records of this party"
    metrics = "".join(f", {name} {value:.5f}" for name, value in model["metrics"].items())
    return f"{model['model']}: {model['trees']} trees, {model['objective']}{metrics}"
