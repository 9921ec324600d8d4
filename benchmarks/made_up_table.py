"""Tables of two parties with values that are made up, as CSV beside the real ones."""

from __future__ import annotations

from pathlib import Path

import numpy as np

__all__ = ["link_tables", "write_table"]


def write_table(folder: Path, name: str, rows: int, columns: tuple[int, int]) -> None:
    """``NAME_active.csv`` with a label, and ``NAME_passive.csv``, of so many ``columns``."""
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, sum(columns))).astype(np.float32)
    label = values[:, ::5].sum(axis=1) + random.normal(size=rows) * 2 > 0
    ids = np.arange(rows)
    parts = (("active", values[:, : columns[0]]), ("passive", values[:, columns[0] :]))
    for party, part in parts:
        first = [ids, label] if party == "active" else [ids]
        names = [f"{party}{number}" for number in range(part.shape[1])]
        np.savetxt(
            folder / f"{name}_{party}.csv",
            np.column_stack([*first, part]),
            fmt=["%d"] * len(first) + ["%.5g"] * part.shape[1],
            delimiter=",",
            header=",".join(["id", *["label"][: len(first) - 1], *names]),
            comments="",
        )


def link_tables(folder: Path, data: Path) -> None:
    """Let the CSV files of ``data`` stand in ``folder``, too."""
    for file in data.glob("*.csv"):
        (folder / file.name).symlink_to(file.absolute())
