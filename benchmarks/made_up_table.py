"""Tables of two parties with values that are made up, as files beside the real ones."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

__all__ = ["joined_table", "link_tables", "write_parquet", "write_table"]

_PARTIES = ("active", "passive")
_ROWS_AT_ONCE = 1_000_000


def write_table(folder: Path, name: str, rows: int, columns: tuple[int, int]) -> None:
    """``NAME_active.csv`` with a label, and ``NAME_passive.csv``, of so many ``columns``."""
    random = np.random.default_rng(0)
    label, *parts = _drawn(random, rows, columns)
    ids = np.arange(rows)
    for party, part in zip(_PARTIES, parts, strict=True):
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


def write_parquet(
    folder: Path, name: str, rows: int, columns: tuple[int, int], apart: int = 5
) -> None:
    """As `write_table`, as Parquet and in parts; one column in ``apart`` tells of the label."""
    random = np.random.default_rng(0)
    with ExitStack() as stack:
        files: dict[str, pq.ParquetWriter] = {}
        for first in range(0, rows, _ROWS_AT_ONCE):
            ids = np.arange(first, min(first + _ROWS_AT_ONCE, rows))
            label, *parts = _drawn(random, len(ids), columns, apart)
            active: dict[str, NDArray[Any]] = {"id": ids, "label": label.astype(np.int8)}
            known = (active, {"id": ids})
            for party, before, part in zip(_PARTIES, known, parts, strict=True):
                own = {f"{party}{number}": part[:, number] for number in range(part.shape[1])}
                batch = pa.table({**before, **own})
                if party not in files:
                    path = folder / f"{name}_{party}.parquet"
                    files[party] = stack.enter_context(pq.ParquetWriter(path, batch.schema))
                files[party].write_table(batch)


def _drawn(
    random: np.random.Generator, rows: int, columns: tuple[int, int], apart: int = 5
) -> tuple[NDArray[np.bool_], NDArray[np.float32], NDArray[np.float32]]:
    """The label (rows,), and the columns of each party (rows, columns)."""
    values = random.normal(size=(rows, sum(columns))).astype(np.float32)
    label = values[:, ::apart].sum(axis=1) + random.normal(size=rows) * 2 > 0
    return label, values[:, : columns[0]], values[:, columns[0] :]


def joined_table(folder: Path, name: str) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """All columns (rows, columns) and the label (rows,) of tables that are Parquet."""
    active, passive = (pq.read_table(folder / f"{name}_{party}.parquet") for party in _PARTIES)
    columns = [*active.drop_columns(["id", "label"]), *passive.drop_columns(["id"])]
    return np.column_stack(columns), active["label"].to_numpy().astype(np.float32)


def link_tables(folder: Path, data: Path) -> None:
    """Let the CSV files of ``data`` stand in ``folder``, too."""
    for file in data.glob("*.csv"):
        (folder / file.name).symlink_to(file.absolute())
