"""``fedmq estimate``: what a training, or scores, will take, before anyone commits to it."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np
from rich.text import Text

from fedmq.boosting.params import TrainParams
from fedmq.cli.output import joined, json_option, print_next_step, print_result, table
from fedmq.errors import ConfigError, LinkError
from fedmq.large_array import allow_open_files, too_many_files
from fedmq.messages.training import MOST_ROWS
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.data.loading import Aligned, LoadActiveTable
from fedmq.party.operations.broker import BrokerLatency, latency_of_broker
from fedmq.party.store.alignments import AlignmentStore, StoredChoices
from fedmq.party.store.documents import ModelStore
from fedmq.protocol.session_records import most_sums
from fedmq.simulation import estimate as estimation
from fedmq.simulation.estimate import CORE_HOUR, GIGABYTE, Prices, made_up_table
from fedmq.simulation.refresh_estimate import RefreshEstimate, estimate_refresh
from fedmq.simulation.score_estimate import estimate_scores
from fedmq.simulation.tables import ACTIVE

__all__ = ["estimate"]


@click.command()
@click.argument("job", type=click.Path(path_type=Path))
@click.option(
    "--columns",
    multiple=True,
    metavar="PARTY=COUNT",
    help=("A party's number of columns; this party's number when left out. Repeat for each party."),
)
@click.option(
    "--bins",
    multiple=True,
    metavar="PARTY=BINS,BINS,...",
    help=(
        "The bins that each column of a party fills, as `fedmq data bins` prints them; "
        "max_bin when left out. Repeat for each party."
    ),
)
@click.option(
    "--link",
    metavar="MBIT,MS",
    help=(
        "The slowest link between a party and the broker: Mbit/s, and milliseconds there and back. "
        "This party's own link, as it is now, when left out."
    ),
)
@click.option(
    "--rows",
    type=click.IntRange(min=2),
    metavar="COUNT",
    help=(
        "So many made-up rows in place of this party's, which are not read. --columns then says "
        "how many columns this party has, too."
    ),
)
@click.option(
    "--price-core-hour",
    type=click.FloatRange(min=0),
    default=CORE_HOUR,
    show_default=True,
    help="What an hour of a core costs; the default is a round figure of January 2025, in USD.",
)
@click.option(
    "--price-gigabyte",
    type=click.FloatRange(min=0),
    default=GIGABYTE,
    show_default=True,
    help=(
        "What a gigabyte costs that leaves a party, or the broker; the default is a round figure "
        "of January 2025, in USD."
    ),
)
@click.option(
    "--model",
    metavar="NAME",
    help="Estimate scores of this model instead; JOB is the party's file.",
)
@json_option
def estimate(
    job: Path,
    columns: tuple[str, ...],
    bins: tuple[str, ...],
    link: str | None,
    rows: int | None,
    price_core_hour: float,
    price_gigabyte: float,
    model: str | None,
    as_json: bool,
) -> None:
    """Estimate time, traffic and memory of the training described in JOB, for each party.

    Trains on some rows of this party's table, here and alone: about ten seconds, of large
    tables and of hidden sums up to a minute. No daemon need run, and no party is asked; with --rows
    no table is read, either. Of a job that refreshes a model, some rows walk down its trees. With
    --model, what scores of a trained model take, in each mode.
    """
    if model is not None:
        _estimate_scores(job, model, link, as_json)
        return
    description = TrainingJob.read(job)
    party, federation = PartyFile.read(description.party)
    if party.party != federation.active:
        raise ConfigError(f"{party.party} holds no label: {federation.active} can estimate this")
    earlier = None
    if description.refresh is not None:
        earlier = ModelStore(party.state).active(description.refresh)
        description = description.of_refreshed(earlier)
        if rows is not None:
            raise ConfigError("--rows: rows of the table walk down the trees that are refreshed")
    description = description.of_labels(party.data.labels)
    name, store = description.alignment, AlignmentStore(party.state)
    partners = federation.partners(description.parties)
    if rows is not None:
        name = None
        counts = _columns(columns, partners, None, own=party.party)
        active, label = made_up_table(rows, counts.pop(party.party))
    else:
        loaded = LoadActiveTable(
            party.party,
            party.data,
            description.params,
            description.evaluation,
            salt="",
            aligned=None if name is None else Aligned(store, name),
        ).run()
        learned = np.flatnonzero(~loaded.evaluation)
        active, label = loaded.values[learned], loaded.label[learned]
        counts = _columns(columns, partners, loaded.values.shape[1])
    latency = _latency(party, federation) if link is None else _latency_of(link)
    if earlier is not None:
        share = earlier.model_copy(update={"params": description.params})
        free = latency or BrokerLatency(0.0, 0.0)
        refresh = estimate_refresh(share, loaded.values, loaded.label, free)
        print_result(_of_refresh(refresh, description, latency, len(loaded.label)), as_json, _said)
        print_next_step(as_json, "train", job)
        return
    filled = _bins(bins, counts, description.params.max_bin)
    allow_open_files()  # as a daemon does
    found = estimation.estimate(
        active=active,
        label=label,
        passive=filled,
        params=description.params,
        engine=description.engine,
        engine_options=description.engine_options,
        workers=party.compute.workers,
        folder=party.state.parent,
        broker=latency or BrokerLatency(0.0, 0.0),
        decoys=description.decoys,
        rows=rows,
    )
    prices = Prices(price_core_hour, price_gigabyte)
    result: dict[str, Any] = {
        "trees": found.trees,
        "rows": rows or len(loaded.label),
        "most_rows": MOST_ROWS,
        "alignment": name,
        "choices": None if name is None else store.described(name)["choices"],
        "broker_answers": latency is not None,
        "link": _link(latency),
        "seconds_per_tree": round(found.per_tree, 4),
        "seconds_on_one_machine": round(found.together, 1),
        "seconds_on_a_machine_each": round(found.apart, 1),
        "open_files": found.open_files,
        "prices": {"core_hour": price_core_hour, "gigabyte": price_gigabyte},
        "broker_cost": round(prices.of_broker(found), 4),
        "parties": {
            party.party if name == ACTIVE else name: {
                "core_seconds": round(cost.core_seconds, 4),
                "bytes_sent": int(cost.bytes_sent),
                "bytes_received": int(cost.bytes_received),
                "memory_bytes": int(cost.memory),
                "cost": round(prices.of_party(cost), 4),
                **_sums_per_row(filled.get(name), description.params, rows or len(label)),
            }
            for name, cost in found.parties.items()
        },
    }
    if description.fallback:
        result["with_fallbacks"] = _with_fallbacks(result, party.party)
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "train", job)


def _of_refresh(
    found: RefreshEstimate, job: TrainingJob, latency: BrokerLatency | None, rows: int
) -> dict[str, Any]:
    return {
        "refreshes": job.refresh,
        "trees": found.trees,
        "rows": rows,
        "alignment": job.alignment,
        "broker_answers": latency is not None,
        "link": _link(latency),
        "rounds": found.rounds,
        "seconds_on_one_machine": round(found.seconds, 1),
        "parties": {
            name: {
                "core_seconds": round(cost.core_seconds, 4),
                "bytes_sent": cost.bytes_sent,
                "bytes_received": cost.bytes_received,
            }
            for name, cost in found.parties.items()
        },
    }


def _said(result: Any) -> str:
    """What a refresh takes, in words."""
    return "\n".join(
        [
            f"leaves of {result['refreshes']}, {result['trees']} trees, on {result['rows']} rows"
            f"{_on(result)}: about {result['seconds_on_one_machine']:,.1f} s if all share this "
            f"machine, {result['rounds']} questions after one another{_silence(result)}",
            *(
                f"  {party}: {cost['core_seconds']:,.1f} s of its cores, sends "
                f"{cost['bytes_sent'] / 1e6:,.1f} MB, receives {cost['bytes_received'] / 1e6:,.1f} "
                "MB"
                for party, cost in result["parties"].items()
            ),
        ]
    )


def _estimate_scores(file: Path, model: str, link: str | None, as_json: bool) -> None:
    party, federation = PartyFile.read(file)
    if party.party != federation.active:
        raise ConfigError(f"{party.party} holds no trees: {federation.active} can estimate this")
    latency = _latency(party, federation) if link is None else _latency_of(link)
    share = ModelStore(party.state).active(model)
    found = estimate_scores(share, latency or BrokerLatency(0.0, 0.0))
    result: dict[str, Any] = {
        "model": model,
        "trees": len(share.used_trees),
        "broker_answers": latency is not None,
        "link": _link(latency),
        "modes": {
            mode: {
                "rounds": cost.rounds,
                "seconds_alone": round(cost.alone, 4),
                "seconds_per_person": round(cost.per_person, 6),
                "parties": {
                    name: {
                        "core_seconds": round(one.core_seconds, 6),
                        "bytes_sent": round(one.bytes_sent),
                        "bytes_received": round(one.bytes_received),
                    }
                    for name, one in cost.parties.items()
                },
            }
            for mode, cost in found.items()
        },
    }
    print_result(result, as_json, _scores_in_words)
    print_next_step(as_json, "activate", file, model)


def _scores_in_words(result: Any) -> Text:
    heads = (
        "mode",
        "rounds",
        "one person",
        "persons a second",
        "party",
        "cores, a person",
        "sends",
    )
    rows = [
        (
            mode * first,
            str(cost["rounds"]) * first,
            f"{1e3 * cost['seconds_alone']:,.0f} ms" * first,
            f"{1 / cost['seconds_per_person']:,.0f}" * first,
            party,
            f"{1e3 * one['core_seconds']:,.3f} ms",
            f"{one['bytes_sent']:,} bytes",
        )
        for mode, cost in result["modes"].items()
        for first, (party, one) in zip(
            itertools.chain([True], itertools.repeat(False)), cost["parties"].items(), strict=False
        )
    ]
    of = f"scores of {result['model']}, {result['trees']} trees{_silence(result)}"
    large = "" if "sealed" in result["modes"] else "mode sealed: too many leaves for online scores"
    return joined(of, table(heads, rows), large)


def _with_fallbacks(result: Mapping[str, Any], active: str) -> dict[str, Any]:
    """What a training takes at most with those of its fallback models.

    Each passive party takes part in those without each other one, on the same rows and terms. None
    takes longer than the training itself, nor more of the active party's cores.
    """
    passive = len(result["parties"]) - 1
    models = passive + 1 if passive > 1 else passive
    every = ("seconds_on_one_machine", "seconds_on_a_machine_each")
    exchanged = ("bytes_sent", "bytes_received", "sums_per_row")
    # A cost of cores and bytes grows by the larger of both.

    def times(name: str, key: str, value: float) -> float:
        if key in ("core_seconds", "cost") and name == active:
            return value * (1 + models)
        return value * passive if key in (*exchanged, "core_seconds", "cost") else value

    return {
        "models": models,
        **{key: round(result[key] * (1 + models), 1) for key in every},
        "parties": {
            name: {key: round(times(name, key, value), 4) for key, value in cost.items()}
            for name, cost in result["parties"].items()
        },
    }


def _latency(party: PartyFile, federation: Federation) -> BrokerLatency | None:
    try:
        return asyncio.run(latency_of_broker(party, federation))
    except LinkError:
        return None


def _latency_of(link: str) -> BrokerLatency:
    """The latency that ``--link`` names."""
    try:
        megabits, milliseconds = map(float, link.split(","))
    except ValueError:
        megabits = milliseconds = math.nan
    if not (0 < megabits < math.inf and 0 <= milliseconds < math.inf):
        raise ConfigError(
            f"--link {link}: write MBIT,MS, such as 10,50: Mbit/s, and milliseconds there and back"
        )
    return BrokerLatency(milliseconds / 1e3, 8 / (megabits * 1e6), is_far=True)


def _link(latency: BrokerLatency | None) -> dict[str, float | None] | None:
    """The link that counts; None for a broker nearby. Bytes may be too fast to be measured."""
    if latency is None or not latency.is_far:
        return None
    megabits = round(8e-6 / latency.byte, 4) if latency.byte else None
    return {"megabits": megabits, "milliseconds": round(1e3 * latency.message, 1)}


def _columns(
    given: tuple[str, ...],
    passive: Sequence[str],
    otherwise: int | None,
    own: str | None = None,
) -> dict[str, int]:
    """Columns by party; with ``own``, this party, all of them must be named."""
    counts = dict.fromkeys((*([own] if own else []), *passive), otherwise or 0)
    for option in given:
        party, _, count = option.partition("=")
        if party not in counts or not count.isdecimal():
            raise ConfigError(
                f"--columns {option}: write PARTY=COUNT with one of {', '.join(counts)}"
            )
        counts[party] = int(count)
    if missing := [party for party, count in counts.items() if own and not count]:
        raise ConfigError(
            f"--rows reads no table: say how many columns {missing[0]} has, "
            f"--columns {missing[0]}=COUNT"
        )
    return counts


def _bins(given: tuple[str, ...], columns: Mapping[str, int], most: int) -> dict[str, list[int]]:
    filled = {party: [most] * count for party, count in columns.items()}
    for option in given:
        party, _, counts = option.partition("=")
        if party not in filled or not all(count.isdecimal() for count in counts.split(",")):
            raise ConfigError(
                f"--bins {option}: write PARTY=BINS,BINS,... with one of {', '.join(filled)}"
            )
        filled[party] = [int(count) for count in counts.split(",")]
    return filled


def _sums_per_row(bins: Sequence[int] | None, params: TrainParams, rows: int) -> dict[str, float]:
    """The most sums that a party will answer, divided by rows; the party limits them itself.

    Twice as many for a column with missing values: they may go to either side.
    """
    if bins is None:
        return {}
    columns = params.colsample_bytree * params.colsample_bylevel * params.colsample_bynode
    candidates = math.ceil(sum(max(0, filled - 1) for filled in bins) * columns)
    trees = params.total_trees - params.trees_alone
    return {
        "sums_per_row": round(
            trees * most_sums(params.depth_limit, rows, candidates, params.max_leaves) / rows, 1
        )
    }


def _parties_in_words(result: Any) -> list[str]:
    return [
        f"  {party}: {cost['core_seconds']:,.1f} s of its cores, sends "
        f"{cost['bytes_sent'] / 1e6:,.1f} MB, receives {cost['bytes_received'] / 1e6:,.1f} MB, "
        f"takes {cost['memory_bytes'] / 1e6:,.0f} MB of memory"
        + (f", answers {cost['sums_per_row']:,} sums per row" if "sums_per_row" in cost else "")
        for party, cost in result["parties"].items()
    ]


def _silence(result: Any) -> str:
    """Said of a broker that did not answer."""
    return "" if result["broker_answers"] else "; the broker does not answer, so it counts as free"


def _on(result: Any) -> str:
    """Which alignment, and over which link."""
    of = f" of alignment {result['alignment']!r}" if result["alignment"] else ""
    if (link := result["link"]) is None:
        return of
    rate = f"{link['megabits']:.3g} Mbit/s" if link["megabits"] else "unknown rate"
    return f"{of} over a link of {rate} and {link['milliseconds']:.0f} ms"


def _in_words(result: Any) -> str:
    lines = [
        f"{result['trees']} trees on {result['rows']} rows{_on(result)}: about "
        f"{result['seconds_on_a_machine_each']:,.1f} s if each party has a machine like this one, "
        f"{result['seconds_on_one_machine']:,.1f} s if all share this one{_silence(result)}"
    ]
    lines += _parties_in_words(result)
    if (all_models := result.get("with_fallbacks")) is not None:
        lines += [
            f"with fallback models ({all_models['models']}) at most "
            f"{all_models['seconds_on_a_machine_each']:,.1f} s, "
            f"{all_models['seconds_on_one_machine']:,.1f} s if all share this machine",
            *_parties_in_words(all_models),
        ]
    prices = result["prices"]
    costs = ", ".join(f"{party} {cost['cost']:,.2f}" for party, cost in result["parties"].items())
    lines.append(
        f"at {prices['core_hour']:g} a core hour and {prices['gigabyte']:g} a gigabyte that "
        f"leaves: {costs}, the broker {result['broker_cost']:,.2f}"
    )
    if result["rows"] > result["most_rows"]:
        lines.append(f"a training takes {result['most_rows']:,} rows at most: this is on paper")
    if result["choices"]:
        choices = StoredChoices.model_validate(result["choices"])
        lines.append(f"{choices.in_words()}; another join: fedmq align")
    lines += filter(None, [too_many_files(result["open_files"])])
    return "\n".join(lines)
