"""What a screen with hidden sums costs beside one that shows them, without a network.

::

    python -m benchmarks.hidden_screen [--rows N] [--columns N] [--json] [--page FILE]

On a made-up table, whose columns are cut into ten bins each. Seconds are the processor's, of each
party, in one process; bytes are those of the messages' arrays.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from benchmarks.page import write_page
from fedmq.privacy.hidden_screen.blocks import (
    GarblingSeeds,
    blocks_of,
    choose_block,
    choose_transfers,
    chosen_seeds,
    evaluate_block,
    garble_block,
    offer_transfers,
)
from fedmq.privacy.hidden_screen.label import (
    BinShares,
    add_shared_label,
    encrypt_shared_label,
    read_shares,
)
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.privacy.lattice.label_sums import add_label, decrypt_label, encrypt_label
from fedmq.privacy.oblivious_transfer.extension import Permutation
from fedmq.privacy.random_stream import fresh_seed

ROWS, COLUMNS, BINS = 30_000, 23, 10
_TOGETHER = 4  # columns of one computation, as in a session
HEAD = (
    "Processor seconds of each party, and megabytes that it sends, of a screen of a made-up table "
    "in ten bins a column: with sums that are shown, and with hidden ones, of which the active "
    "party reads steps alone."
)

T = TypeVar("T")


class Party:
    """Counts the processor's ``seconds`` of what it computes, and the ``sent`` bytes."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.sent = 0

    def does(self, function: Callable[..., T], *given: Any) -> T:
        begun = time.process_time()
        made = function(*given)
        self.seconds += time.process_time() - begun
        return made

    def sends(self, *arrays: NDArray[Any]) -> None:
        self.sent += sum(array.nbytes for array in arrays)


def shown(label: NDArray[np.bool_], columns: list[NDArray[np.uint16]]) -> tuple[Party, Party]:
    """A screen whose sums are shown."""
    active, passive, key = Party(), Party(), ColumnKey(fresh_seed(), fresh_seed())
    encrypted = active.does(encrypt_label, key, label, 2)
    active.sends(encrypted)
    sums: list[NDArray[np.uint8]] = []
    for first in range(0, len(columns), _TOGETHER):
        part = columns[first : first + _TOGETHER]
        sums += passive.does(add_label, key.public, encrypted, part, 2, fresh_seed())
    passive.sends(*sums)
    counts = [np.bincount(column) for column in columns]
    active.does(decrypt_label, key, sums, counts, 2)
    return active, passive


def hidden(label: NDArray[np.bool_], columns: list[NDArray[np.uint16]]) -> tuple[Party, Party]:
    """The same with hidden ones."""
    active, passive, key = Party(), Party(), ColumnKey(fresh_seed(), fresh_seed())
    seeds, permutation = GarblingSeeds(fresh_seed()), Permutation(fresh_seed())
    encrypted = active.does(encrypt_shared_label, key, label)
    active.sends(encrypted)
    begun = passive.does(choose_transfers, seeds)
    sums: list[NDArray[np.uint8]] = []
    own: list[BinShares] = []
    for first in range(0, len(columns), _TOGETHER):
        held = columns[first : first + _TOGETHER]
        of_part = passive.does(add_shared_label, key.public, encrypted, held, fresh_seed())
        sums += of_part[0]
        own += of_part[1]
    passive.sends(begun, *sums)
    offer, pairs = active.does(offer_transfers, begun, fresh_seed())
    active.sends(offer)
    shares = active.does(read_shares, key, sums, len(label))
    chosen = passive.does(chosen_seeds, offer, seeds)
    people = int(label.sum()), int((~label).sum())
    for block in blocks_of([len(each.ones) for each in shares], len(label), 1):
        part = block.columns
        choices, labels = active.does(choose_block, block, pairs, shares[part], people)
        active.sends(choices)
        counts = np.concatenate([np.bincount(column) for column in columns[part]])
        given = (choices, seeds, chosen, permutation, own[part], counts)
        tables = passive.does(garble_block, block, *given)
        passive.sends(tables)
        active.does(evaluate_block, block, labels, tables, permutation)
    return active, passive


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--columns", type=int, default=COLUMNS)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--page", type=Path)
    options = parser.parse_args()
    random = np.random.default_rng(1)
    label = random.random(options.rows) < 0.22
    columns = [
        (
            np.argsort(np.argsort(random.normal(size=options.rows) + label)) * BINS // options.rows
        ).astype(np.uint16)
        for _ in range(options.columns)
    ]
    figures: dict[str, dict[str, float]] = {}
    for title, screen in (("shown", shown), ("hidden", hidden)):
        screen(label, columns[:2])  # so that circuits and libraries are there
        active, passive = screen(label, columns)
        figures[title] = {
            "active, s": round(active.seconds, 3),
            "passive, s": round(passive.seconds, 3),
            "active sends, MB": round(active.sent / 1e6, 2),
            "passive sends, MB": round(passive.sent / 1e6, 2),
        }
    head, *rows = (
        ["sums", *figures["shown"]],
        *([title, *of.values()] for title, of in figures.items()),
    )
    lines = ["| " + " | ".join(head) + " |", "|---|" + "---:|" * (len(head) - 1)]
    lines += ["| " + " | ".join(str(cell) for cell in row) + " |" for row in rows]
    table = f"{options.rows:,} people, {options.columns} columns:\n\n" + "\n".join(lines)
    if options.page:
        command = "make bench-hidden-screen"
        write_page(options.page, "Screens that hide sums", command, HEAD, table)
    print(json.dumps(figures) if options.json else table)


if __name__ == "__main__":
    main()
