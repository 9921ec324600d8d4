"""``fedmq data`` and ``align``: a party's own rows, and the ids that all parties share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click
from rich.text import Text

from fedmq.cli.bins import bins
from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.cli.party_daemon import PARTY_HELP, party_argument, state_folder
from fedmq.cli.progress import ProgressBar
from fedmq.errors import ConfigError, DataError
from fedmq.evaluation.screening import alike_columns, own_page
from fedmq.party.atomic_file import write_whole
from fedmq.party.configuration.job import AlignmentJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.descriptions import describe_table
from fedmq.party.data.screening import own_correlation
from fedmq.party.data.table import numbered_columns, read_table
from fedmq.party.data.validation import validate_source
from fedmq.party.operations.control import request_daemon
from fedmq.party.store.alignments import AlignmentStore, StoredChoices

__all__ = ["align", "data"]

_LEVELS = " ▁▂▃▄▅▆▇█"


@click.group()
def data() -> None:
    """Check and describe a party's own data."""


@data.command(epilog=PARTY_HELP)
@party_argument
@click.option("--serving", is_flag=True, help="Check the rows to predict alone.")
@json_option
def check(party: Path, serving: bool, as_json: bool) -> None:
    """Read the tables of PARTY and show their rows, columns, missing values and repeated ids.

    That of [serving] follows that of [data], if there is one. Ends with exit code 4 if a session
    would refuse something. No daemon is needed.
    """
    config, _ = PartyFile.read(party)
    tables = {"data": config.data, "serving": config.serving}
    if serving:
        tables = {"serving": config.serving or config.data}
    found, refused = dict[str, Any](), list[str]()
    for name, section in tables.items():
        if section is None:
            continue
        labelled = section.label is not None and name == "data"
        try:
            with ProgressBar("reading, rows", "row", quiet=as_json) as bar:
                validation = validate_source(config.party, section, labelled, bar.show)
        except DataError as error:  # it cannot be read at all, and the other one may be
            refused.append(str(error))
        else:
            found[name] = asdict(validation)
            refused += validation.refused
    listed = refused if len(refused) > 1 else []  # the error below reports a single one
    if found:
        first, *others = found
        result = found[first] | {name: found[name] for name in others}
        print_result(result, as_json, lambda shown: _check_in_words(shown, listed))
    if refused:
        count = len(refused)
        where = ", ".join(section.place for section in tables.values() if section is not None)
        raise DataError(
            refused[0]
            if count == 1
            else f"{config.party}: {where}: {count} things would be refused"
        )
    print_next_step(as_json, "run", party)


data.add_command(bins)


@data.command(epilog=PARTY_HELP)
@party_argument
@click.argument("numbers", type=int, nargs=-1, required=True)
@json_option
def features(party: Path, numbers: tuple[int, ...], as_json: bool) -> None:
    """Name the columns of PARTY with these NUMBERS, as `fedmq screen` counts them.

    The line that is printed belongs into the [policy] of PARTY: then it trains with these columns
    alone. The command sends nothing, and needs no daemon.
    """
    config, _ = PartyFile.read(party)
    columns = numbered_columns(read_table(config.party, config.data), config.policy.features)
    for number in numbers:
        if not 1 <= number <= len(columns):
            raise ConfigError(
                f"{party}: there is no column {number}; those of a screen are 1 to {len(columns)}"
            )
    chosen = sorted({*numbers})
    named = {
        "party": config.party,
        "columns": {str(number): columns[number - 1][0] for number in chosen},
        "features": [name for number in chosen for name in columns[number - 1][1]],
    }
    print_result(
        named,
        as_json,
        lambda found: f"features = {json.dumps(found['features'], ensure_ascii=False)}",
    )
    print_next_step(as_json, "data check", party)


@data.command(epilog=PARTY_HELP)
@party_argument
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to write a page with a map of the correlations into.",
)
@json_option
def correlation(party: Path, output: Path | None, as_json: bool) -> None:
    """Show how much PARTY's own columns of numbers are alike: correlation, variance inflation.

    The command sends nothing, and needs no daemon.
    """
    config, _ = PartyFile.read(party)
    table_read = read_table(config.party, config.data)
    found = own_correlation(config.party, table_read, config.policy.features)
    if output is not None:
        page = own_page(found)
        write_whole(output, page.encode(), 0o600)
    print_result(found, as_json, _correlation_in_words)
    print_next_step(as_json, "data check", party)


def _correlation_in_words(found: Any) -> Text:
    [told] = found["parties"].values()
    columns = [
        (
            column["column"],
            column["name"],
            f"{factor:.4f}" if isinstance(factor := column["vif"], float) else factor or "",
        )
        for column in told["columns"]
    ]
    alike = [(one, other, f"{value:+.4f}") for one, other, value in alike_columns(found)]
    return joined(
        f"{found['party']}: {found['rows']:,} rows",
        table(("number", "column", "vif"), columns) if columns else "no columns of numbers",
        *([table(("column", "column", "correlation"), alike)] if alike else ()),
    )


@data.command(epilog=PARTY_HELP)
@party_argument
@click.option("--max-bin", default=256, show_default=True, help="The training's max_bin.")
@json_option
def describe(party: Path, max_bin: int, as_json: bool) -> None:
    """Show how the values of each column of PARTY are distributed, and its bins in a training.

    The command sends nothing, and needs no daemon.
    """
    config, _ = PartyFile.read(party)
    found = describe_table(config.party, config.data, max_bin)
    print_result(found, as_json, _spreads)
    print_next_step(as_json, "data check", party)


@data.command(epilog=PARTY_HELP)
@party_argument
@json_option
def alignments(party: Path, as_json: bool) -> None:
    """List the alignments of PARTY with their sizes, the oldest first. No daemon is needed."""
    config, _ = PartyFile.read(party)
    store = AlignmentStore(config.state)
    found = [store.described(name) for name in store.names()]
    print_result(found, as_json, _aligned)
    print_next_step(as_json, "status", party)


def _aligned(found: Any) -> str | Text:
    rows = [
        (
            row["alignment"],
            row["rows"],
            row["made"].replace("T", " ")[:16],
            ", ".join(row["parties"]),
        )
        for row in found
    ]
    return table(("alignment", "people", "made", "parties"), rows) if rows else "no alignments"


def _spreads(found: Any) -> Text:
    rows = [
        (
            spread["name"],
            f"{spread['low']:g}" if spread["counts"] else "",
            f"{spread['high']:g}" if spread["counts"] else "",
            len(spread["cuts"]) + 1,
            _bars(spread["counts"]),
        )
        for column in found["columns"]
        for spread in column["spreads"]
    ]
    shown = table(("column", "smallest", "largest", "bins", "spread"), rows) if rows else ""
    counted = [
        f"{column['name']}: " + ", ".join(f"{name} {count:,}" for name, count in column["counts"])
        for column in found["columns"]
        if column["counts"]
    ]
    refused = [f"would be refused: {refusal}" for refusal in found["refused"]]
    return joined(f"{found['place']}: {found['rows']} rows", shown, *counted, *refused)


def _bars(counts: Sequence[int]) -> str:
    """A histogram of one line."""
    most = max(counts, default=0) or 1
    return "".join(_LEVELS[round((len(_LEVELS) - 1) * count / most)] for count in counts)


def _check_in_words(found: Any, refused: Sequence[str] = ()) -> Text:
    words = [_table_in_words(shown) for shown in (found, found.get("serving")) if shown]
    return joined(*words, *(f"would be refused: {refusal}" for refusal in refused))


def _table_in_words(found: Any) -> Text:
    columns = ("column", "role", "type", "missing", "categories")
    rows = [
        (
            column["name"],
            column["role"],
            column["type"],
            "" if column["missing"] is None else f"{column['missing']:.2%}",
            "" if column["categories"] is None else column["categories"],
        )
        for column in found["columns"]
    ]
    lines = []
    if found["repeated"]:
        some = ", ".join(found["repeated_ids"])
        rules = dict.fromkeys(("each", "hidden"), "each row counts") | {"refuse": "refused"}
        kept = rules.get(found["duplicates"], f"the {found['duplicates']} counts")
        lines.append(f"{found['repeated']} repeated ids, such as {some}: {kept}")
    lines += [f"look at this: {warning}" for warning in found["warnings"]]
    return joined(f"{found['place']}: {found['rows']} rows", table(columns, rows), *lines)


# fedmq align: one alignment, by the active party's daemon.


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--count",
    is_flag=True,
    help="Only count the people whom all parties share, as the owners' policies allow: nobody "
    "learns which, and nothing is stored.",
)
@click.option(
    "--prepare",
    is_flag=True,
    help="The other party, a single one, blinds its ids once and keeps the key, if its policy "
    "allows it; later alignments with --prepare cost the ids of JOB's party and what is new.",
)
@json_option
def align(job: Path, count: bool, prepare: bool, as_json: bool) -> None:
    """Find the ids that all parties share, as described in JOB, without showing other ids.

    Every party stores the result under its name; trainings refer to it. The alignment belongs to
    the daemon: Ctrl-C only stops watching it (see: fedmq status, cancel).
    """
    description = AlignmentJob.read(job)
    if count and prepare:
        raise ConfigError("--count keeps no key: leave out either --count or --prepare")
    if prepare:
        description = description.model_copy(update={"prepare": True})
    what = "overlap" if count else "align"
    request = {"do": what, "job": description.model_dump(mode="json")}
    with ProgressBar("counting, ids" if count else "aligning, ids", "id", quiet=as_json) as bar:

        def show(event: Mapping[str, Any]) -> None:
            if event["event"] == "progress":
                bar.show(event["done"], event["total"], note="; ".join(event["waiting"]))

        result = request_daemon(state_folder(description.party), request, show)
    print_result(result, as_json, _overlap_in_words if count else _alignment_in_words)
    if count and result["people"] is None:
        print_next_step(as_json, "data", "check", description.party)
    elif count:
        print_next_step(as_json, "align", job)
    else:
        print_next_step(as_json, "train", job.with_name("train.toml"))


def _overlap_in_words(result: Any) -> Text:
    about, people = "" if result["exact"] else "about ", result["people"]
    number = f"fewer than {result['fewest']:,}" if people is None else f"{about}{people:,}"
    return joined(
        f"{number} people are shared by {', '.join(result['parties'])}; "
        f"{result['own_ids']:,} are here; {result['seconds']:.1f} s, "
        f"{result['bytes_sent'] / 1e6:.1f} MB sent",
        *(() if result["exact"] else ("noise was added to the number, and it was rounded",)),
        *(
            ("if there should be more: parties may write ids differently; see normalise in [data]",)
            if people is None and result["own_ids"] >= result["fewest"]
            else ()
        ),
    )


def _alignment_in_words(result: Any) -> Text:
    what = "are shared by" if result["join"] == "inner" else "are taken, of"
    several = result["people"] < result["rows"]
    return joined(
        f"alignment {result['alignment']}: {result['rows']} ids {what} "
        f"{', '.join(result['parties'])}; {result['own_ids']} are here; "
        f"{result['seconds']:.1f} s, {result['bytes_sent'] / 1e6:.1f} MB sent",
        *(
            [f"{result['reused']} ids of {result['parties'][1]} were blinded before"]
            if result.get("reused")
            else ()
        ),
        *([f"these are rows of {result['people']} people"] if several else ()),
        *(f"{party} lacks {lacked} of them" for party, lacked in result["lacked_at"].items()),
        StoredChoices.model_validate(result["choices"]).in_words(),
    )
