"""``fedmq data bins``: where a party's own columns are cut, and how many rows stand between."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument
from fedmq.errors import ConfigError
from fedmq.party.configuration.data import MOST_BINS
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.described_bins import describe_bins

__all__ = ["bins"]

_MAX_BIN, _BEFORE_POOLING = 256, 20
_SHOWN = 6  # cuts of a column, where all columns are listed


@click.command(epilog=PARTY_HELP)
@party_argument
@click.option(
    "--max-bin",
    type=click.IntRange(2, MOST_BINS),
    help=f"The training's max_bin; {_MAX_BIN} when left out, and {_BEFORE_POOLING} with "
    "--monotone, which pools them.",
)
@click.option("--column", multiple=True, help="Show each bin of this column. Repeat for others.")
@click.option(
    "--monotone",
    is_flag=True,
    help="Pool bins until the weight of evidence only rises or only falls, and print the cuts "
    "ready for [data.bins]. The active party's own columns alone.",
)
@json_option
def bins(
    party: Path, max_bin: int | None, column: tuple[str, ...], monotone: bool, as_json: bool
) -> None:
    """Show where a training cuts the columns of PARTY, and what share of rows each bin has.

    The last line is what the active party's `fedmq estimate` takes. The command sends nothing, and
    needs no daemon: the owner decides whether to pass the numbers on.
    """
    config, federation = PartyFile.read(party)
    if monotone and config.party != federation.active:
        raise ConfigError(
            f"--monotone: {federation.active} alone has the label, and {config.party} does not "
            "learn which of its bins hold how many ones"
        )
    most = max_bin or (_BEFORE_POOLING if monotone else _MAX_BIN)
    found = describe_bins(config.party, config.data, most, monotone)
    if column:
        named = {of["name"]: of for of in found["columns"]}
        for name in column:
            if name not in named:
                raise ConfigError(
                    f"--column: {config.party} has no column {name!r}"
                    + " of numbers" * monotone
                    + f"; there are {', '.join(map(repr, named))}"
                )
        found["columns"] = [named[name] for name in dict.fromkeys(column)]
    shown = _of_columns if column else _of_all
    print_result(found, as_json, _to_paste if monotone else shown)
    if monotone:
        print_next_step(as_json, "data check", party)
    else:
        print_next_step(as_json, "estimate", "train.toml", f"--bins {_for_estimate(found)}")


def _of_all(found: Any) -> Text:
    rows = [
        (
            of["name"],
            len(of["cuts"]) + 1,
            "" if of["given"] is None else "given",
            f"{min(of['shares']):.2%}",
            f"{max(of['shares']):.2%}",
            f"{of['missing']:.2%}",
            _numbers(of["cuts"][:_SHOWN]) + ", …" * (len(of["cuts"]) > _SHOWN),
        )
        for of in found["columns"]
    ]
    heads = ("column", "bins", "", "smallest", "largest", "missing", "cuts")
    return joined(table(heads, rows), _for_estimate(found))


def _of_columns(found: Any) -> Text:
    return joined(*_tables(found), _for_estimate(found))


def _tables(found: Any) -> Iterator[Any]:
    for of in found["columns"]:
        rows = [*zip(_ranges(of["cuts"]), map("{:.2%}".format, of["shares"]), strict=True)]
        rows += [("missing", f"{of['missing']:.2%}")] * bool(of["missing"])
        yield table((of["name"], "rows"), rows)


def _for_estimate(found: Any) -> str:
    return f"{found['party']}={','.join(map(str, found['bins']))}"


def _to_paste(found: Any) -> Text:
    """Lines of TOML; what they leave out is a comment."""
    lines = ["[data.bins]"]
    for of in found["columns"]:
        key = json.dumps(of["name"], ensure_ascii=False)
        about = f"  # IV {of['iv']:.3f}, the share of ones {of['direction']}"
        flat = f"# {key}: no cut is monotone" + "; leave it out with ignore, or as it is"
        lines.append(f"{key} = [{_numbers(of['cuts'])}]{about}" if of["cuts"] else flat)
    return joined("\n".join(lines))


def _ranges(cuts: Sequence[float]) -> list[str]:
    if not cuts:
        return ["all"]
    between = [f"{low:.9g} to {cut:.9g}" for low, cut in pairwise(cuts)]
    return [f"up to {cuts[0]:.9g}", *between, f"above {cuts[-1]:.9g}"]


def _numbers(cuts: Sequence[float]) -> str:
    return ", ".join(f"{cut:.9g}" for cut in cuts)
