"""What a link between parties costs: two daemons, of which one is far from the broker.

::

    python -m benchmarks.wide_area DATA [--trees 3] [--jobs ou ...] [--behind telco ...] [--json]
        [--page FILE]

DATA holds ``credit2_*.csv``. One daemon is beside a private RabbitMQ node; the other, the passive
party's or the active party's, reaches it over each of `LINKS`, which a relay makes. Beside Credit 2
stands a made-up table as large as the one of credit card frauds for which SecretFlow publishes
seconds: 284,807 rows, 30 columns, depth 5. Seconds per tree are the median, the first and the last
tree left out; bytes are those of all trees, with whatever was sent again. Over the slowest link,
`SLOWEST`, a small made-up table is trained on, and each time is estimated before.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from benchmarks.broker import private_node
from benchmarks.estimate import BANK, TELCO, Job, Parties, Taken, estimated, named
from benchmarks.made_up_table import link_tables, write_table
from benchmarks.page import write_page
from benchmarks.wide_area_link import Link, linked

CARDS = "cards"
CARD_ROWS, CARD_COLUMNS = 284_807, 30
LINKS = (Link(100, 20), Link(10, 50))
LARGE_LINKS = LINKS[:1]
"""Where a tree is of a hundred megabytes: over a slower link it takes what its bytes take."""
FEW = "few"
FEW_ROWS, FEW_COLUMNS = 1000, (2, 1)
SLOWEST = Link(0.256, 300)
ALONE = "no link"
HIDDEN = 'sums = "hidden"'
JOBS = [
    Job("credit2", "lattice"),
    Job("credit2", "ou"),
    Job("credit2", "paillier"),
    Job("credit2", "lattice", options=HIDDEN),
]
LARGE_JOBS = [
    Job("credit2", "lattice", 6, HIDDEN),
    Job(CARDS, "lattice", 5),
    Job(CARDS, "ou", 5),
]
SLOW_JOBS = [
    Job(FEW, engine, 2, options)
    for engine in ("lattice", "ou", "paillier")
    for options in ("", HIDDEN)
]
MOST_BYTES, MOST_ROUNDS = 1.5, 10
"""A tree over the slowest link takes at most so many times what its bytes take, and so many ways
there and back a level."""
ONCE = frozenset({"training open", "engine setup"})
"""Sent once a training, so no part of a tree."""
HEAD = (
    f"One party is behind a link, the other beside the broker: the passive one ({TELCO}) or the "
    f"active one ({BANK}). *Alone*: megabytes of a tree at the rate of the link, so many seconds "
    "as they take at least. *Bytes*: the most that a link made of those without one. What is sent "
    "once a training stands last in the second table, and in no tree. The made-up table "
    f"has {CARD_ROWS:,} rows and {CARD_COLUMNS} columns, half of them at either party. Over the "
    f"slowest link the table has {FEW_ROWS:,} rows, {FEW_COLUMNS[0]} columns at the active party "
    f"and {FEW_COLUMNS[1]} at the other: a tree may take {MOST_BYTES} times what its bytes take, "
    f"and {MOST_ROUNDS} ways there and back a level; *estimated* is what `fedmq estimate --link "
    f"{SLOWEST.megabits:g},{SLOWEST.milliseconds:g}` says before."
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("data", type=Path)
    parser.add_argument("--trees", type=int, default=3, help="at least 3")
    parser.add_argument("--jobs", nargs="+", default=[], help="those whose names hold a word")
    parser.add_argument("--behind", nargs="+", default=[TELCO, BANK], choices=(TELCO, BANK))
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    jobs, large_jobs, slow_jobs = (
        named(some, options.jobs) for some in (JOBS, LARGE_JOBS, SLOW_JOBS)
    )
    with private_node((BANK, TELCO)) as broker, tempfile.TemporaryDirectory() as name:
        tables = Path(name)
        write_table(tables, CARDS, CARD_ROWS, (CARD_COLUMNS // 2, CARD_COLUMNS // 2))
        write_table(tables, FEW, FEW_ROWS, FEW_COLUMNS)
        link_tables(tables, options.data)
        federation = Federation(tables, broker, options.trees, options.behind)
        found = federation.measured(jobs, LINKS) | federation.measured(large_jobs, LARGE_LINKS)
        slow = federation.measured(slow_jobs, (SLOWEST,))
        expected = {job.name: federation.estimated(job, SLOWEST) for job in slow_jobs}
    parts = [seconds_table(found), kinds_table(found, options.trees)] if found else []
    text = "\n\n".join([*parts, *([slow_table(slow_jobs, slow, expected)] if slow else [])])
    if options.page:
        write_page(options.page, "Over a link", "make bench-wide-area", HEAD, text)
    print(json.dumps(as_json({**found, **slow})) if options.json else text)


def place(link: Link | None, party: str) -> str:
    """The link and the party behind it, for people."""
    return f"{link.name}, {party}" if link else ALONE


@dataclass(frozen=True)
class Federation:
    """Both parties: where ``tables`` lie, how many ``trees`` are grown, and who is ``behind``."""

    tables: Path
    broker: str
    trees: int
    behind: Sequence[str]

    def measured(self, jobs: Sequence[Job], links: Sequence[Link]) -> dict[str, dict[str, Taken]]:
        """What each job takes without a link and over each, by the job's name and the place."""
        found: dict[str, dict[str, Taken]] = {job.name: {} for job in jobs}
        places = [(link, party) for link in links for party in self.behind]
        for link, party in (None, TELCO), *places:
            for job in jobs:
                taken = found[job.name][place(link, party)] = self._trained(job, link, party)
                print(f"{job.name}, {place(link, party)}: {taken}", file=sys.stderr)
        return found

    def estimated(self, job: Job, link: Link) -> float:
        """Seconds per tree over ``link``, as they are estimated beforehand."""
        with tempfile.TemporaryDirectory() as folder:
            file = Parties(Path(folder), self.tables, self.broker).prepare(job, self.trees)
            columns = f"{TELCO}={','.join(['32'] * FEW_COLUMNS[1])}"
            taken, _ = estimated(file, columns, f"{link.megabits},{link.milliseconds}")
        return taken.seconds

    def _trained(self, job: Job, link: Link | None, party: str) -> Taken:
        port = urlsplit(self.broker).port
        assert port is not None
        with linked(port, link) as far, tempfile.TemporaryDirectory() as folder:
            parties = Parties(Path(folder), self.tables, self.broker, ports={party: far})
            return parties.train(parties.prepare(job, self.trees))


def seconds_table(found: Mapping[str, Mapping[str, Taken]]) -> str:
    """Seconds per tree by link, as Markdown."""
    places = list(dict.fromkeys(name for taken in found.values() for name in taken))
    places.remove(ALONE)
    heads = [*places, *(f"{link.name}, alone" for link in LINKS), "MB", "bytes"]
    lines = [
        f"| seconds per tree | {ALONE} | {' | '.join(heads)} |",
        "|---|---:|" + "---:|" * len(heads),
    ]
    for job, taken in found.items():
        local = taken[ALONE]
        size = of_trees(local) / 1e6
        cells = [
            f"{local.seconds:.2f}",
            *(f"{taken[name].seconds:.2f}" if name in taken else "-" for name in places),
            *(f"{8 * size / link.megabits:.2f}" for link in LINKS),
            f"{size:.2f}",
            f"{max(over(taken[name], local) for name in taken):.2f}",
        ]
        lines.append(f"| {job} | {' | '.join(cells)} |")
    return "\n".join(lines)


def of_trees(taken: Taken) -> float:
    """Bytes of a tree."""
    return sum(size for kind, size in taken.kinds.items() if kind not in ONCE)


def slow_table(
    jobs: Sequence[Job],
    found: Mapping[str, Mapping[str, Taken]],
    expected: Mapping[str, float],
) -> str:
    """Seconds per tree over the slowest link, what they may be, and what was expected."""
    places = [name for name in found[jobs[0].name] if name != ALONE]
    heads = [*places, "alone", "at most", "estimated", "kB", "bytes"]
    lines = [f"| seconds per tree | {' | '.join(heads)} |", "|---|" + "---:|" * len(heads)]
    for job in jobs:
        taken, local = found[job.name], found[job.name][ALONE]
        alone = of_trees(local) / (SLOWEST.megabits * 125_000)
        most = MOST_BYTES * alone + MOST_ROUNDS * job.depth * SLOWEST.milliseconds / 1e3
        cells = [
            *(f"{taken[name].seconds:.1f}" for name in places),
            *(f"{seconds:.1f}" for seconds in (alone, most, expected[job.name])),
            f"{of_trees(local) / 1e3:,.0f}",
            f"{max(over(taken[name], local) for name in places):.2f}",
        ]
        lines.append(f"| {job.name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def over(taken: Taken, local: Taken) -> float:
    """All bytes of a training over those of one without a link."""
    return sum(taken.kinds.values()) / sum(local.kinds.values())


def kinds_table(found: Mapping[str, Mapping[str, Taken]], trees: int) -> str:
    """Bytes per tree by kind of message, and those of once a training, as Markdown."""
    local = {job: taken[ALONE].kinds for job, taken in found.items()}
    kinds = sorted({kind for sizes in local.values() for kind in sizes if sizes[kind] >= 500})
    lines = [
        f"| kB per tree | {' | '.join(local)} |",
        "|---|" + "---:|" * len(local),
    ]
    for kind in sorted(kinds, key=lambda kind: kind in ONCE):
        times, name = (trees, f"{kind}, once a training") if kind in ONCE else (1, kind)
        sizes = (f"{times * sizes.get(kind, 0) / 1e3:,.0f}" for sizes in local.values())
        lines.append(f"| {name} | {' | '.join(sizes)} |")
    return "\n".join(lines)


def as_json(found: Mapping[str, Mapping[str, Taken]]) -> dict[str, Any]:
    """What was found, for scripts."""
    return {
        job: {link: {"seconds": one.seconds, "bytes": one.kinds} for link, one in taken.items()}
        for job, taken in found.items()
    }


if __name__ == "__main__":
    main()
