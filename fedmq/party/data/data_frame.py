"""Tables that Python users hold: NumPy arrays, and pandas, Polars or Arrow data frames."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedmq.boosting.binning import ColumnBins
from fedmq.errors import DataError
from fedmq.party.data.columns import CategoryColumn, reads_as_number
from fedmq.party.data.table import Table

__all__ = ["PartyFeatures", "feature_matrix", "feature_table", "party_features", "trained_columns"]

_MOST_CATEGORIES = 64
_EPOCH = date(1970, 1, 1)
_CATEGORICAL = ("categor", "enum", "dictionary")  # as pandas, Polars and Arrow call such types


class PartyFeatures(NamedTuple):
    """A party's features, float32 (rows, features), NaN is missing, and their names.

    ``category_columns``: the features of each column of categories. ``bins``: how single features
    are cut, where their owner says it.
    """

    values: NDArray[np.float32]
    names: tuple[str, ...]
    category_columns: Mapping[str, tuple[str, ...]] = {}
    bins: Mapping[str, ColumnBins] = {}


_SHOWN = 5


def party_features(data: Any, where: str) -> PartyFeatures:
    """The features that a training takes from ``data``.

    Columns of an array are named f0, f1, ... A data frame's column of words or of a categorical
    type is one feature COLUMN=CATEGORY per category, and one of dates is COLUMN.days since 1970.

    Raises:
        DataError: ``data`` is no table, or holds words among numbers, or infinite values; the text
            begins with ``where``.
    """
    table = _read(data, where)
    return PartyFeatures(table.values, table.features, table.category_columns)


def feature_table(data: Any, where: str) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """``data`` as float32 (rows, features) with NaN for missing, and the features' names.

    Raises:
        DataError: as in :func:`party_features`.
    """
    features = party_features(data, where)
    return features.values, features.names


def trained_columns(data: Any, where: str, names: tuple[str, ...]) -> NDArray[np.float32]:
    """The features ``names`` that a model was trained on, float32 (rows, names), from ``data``.

    Raises:
        DataError: as in :func:`feature_table`, or the columns of ``data`` are others.
    """
    table = _read(data, where)
    if table.features == names:
        return table.values
    try:
        if all(_is_known(feature, names, table) for feature in table.features):
            return table.columns(names)
    except KeyError:
        pass
    held = tuple(f"{column}=" for column in table.uncategorised)
    missing = [name for name in names if name not in table.features and not name.startswith(held)]
    new = [feature for feature in table.features if not _is_known(feature, names, table)]
    wrong = [
        f"{_first(features)} {what}"
        for features, what in ((missing, "missing"), (new, "not known"))
        if features
    ]
    raise DataError(f"{where}: the columns are not those of the training: {'; '.join(wrong)}")


def _first(features: list[str]) -> str:
    shown = ", ".join(map(repr, features[:_SHOWN]))
    more = f" and {len(features) - _SHOWN} more" if len(features) > _SHOWN else ""
    return f"{shown}{more} {'is' if len(features) == 1 else 'are'}"


def feature_matrix(values: ArrayLike, names: Sequence[str], where: str) -> NDArray[np.float32]:
    """``values`` (rows, features) as a C-ordered float32 matrix with NaN for missing.

    Raises:
        DataError: a value is infinite, or becomes so in float32, which XGBoost refuses too; the
            text names ``where``, the column and the first such row, counted from 1.
    """
    with np.errstate(over="ignore"):
        matrix = np.array(values, dtype=np.float32, order="C")
    if matrix.ndim != 2 or matrix.shape[1] != len(names):
        raise DataError(f"{where}: expected {len(names)} feature columns, got {matrix.shape}")
    infinite = np.isinf(matrix)
    if infinite.any():
        column = int(np.argmax(infinite.any(axis=0)))
        row = int(np.argmax(infinite[:, column])) + 1
        raise DataError(
            f"{where}: column {names[column]!r}, row {row} is infinite or too large for float32; "
            "leave the cell empty if the value is missing"
        )
    return matrix


def _is_known(feature: str, names: tuple[str, ...], table: Table) -> bool:
    """Whether ``names`` has ``feature``, or another category of the same column."""
    columns = [column for column in table.uncategorised if feature.startswith(f"{column}=")]
    return feature in names or any(
        name.startswith(f"{column}=") for column in (feature, *columns) for name in names
    )


def _read(data: Any, where: str) -> Table:
    if type(data).__name__.endswith("DMatrix"):
        raise DataError(f"{where}: give the table of which this {type(data).__name__} was made")
    if hasattr(data, "tocsr"):
        data = _dense(data)
    names = getattr(data, "column_names", None)  # Arrow
    if names is None and hasattr(data, "columns"):
        names = list(data.columns)  # pandas, Polars
    return _from_array(data, where) if names is None else _from_frame(data, names, where)


def _dense(sparse: Any) -> NDArray[Any]:
    """A SciPy table with NaN where it holds nothing, as XGBoost takes it; a stored 0 is a 0."""
    cells = sparse.tocsr(copy=True)
    cells.sum_duplicates()
    cells = cells.tocoo()
    values = np.full(cells.shape, np.nan)
    values[cells.row, cells.col] = cells.data
    return values


def _from_array(data: Any, where: str) -> Table:
    if isinstance(data, np.ma.MaskedArray):
        data = np.where(np.ma.getmaskarray(data), np.nan, np.ma.getdata(data))
    try:
        values = np.asarray(data)
    except ValueError:
        raise DataError(f"{where}: rows of several lengths are no table") from None
    if values.ndim != 2:
        raise DataError(f"{where}: a table has rows and columns, this has shape {values.shape}")
    if values.dtype.kind not in "fiub":
        values = _numbers(values, where, "the array")
    features = tuple(f"f{index}" for index in range(values.shape[1]))
    return Table((), features, feature_matrix(values, features, where), None)


def _from_frame(data: Any, names: Sequence[Any], where: str) -> Table:
    _check_distinct([str(name) for name in names], where)
    vectors: dict[str, NDArray[Any]] = {}
    uncategorised = {}
    category_columns = {}
    for name in names:
        days = _days(data[name])
        if days is not None:
            vectors[f"{name}.days"] = days
            continue
        column = _column(data[name], where, str(name))
        if isinstance(column, CategoryColumn):
            uncategorised[str(name)] = column.missing
            vectors |= zip(column.features, column.vectors(), strict=True)
            category_columns[str(name)] = column.features
        else:
            vectors[str(name)] = column
    stacked = np.column_stack(list(vectors.values())) if vectors else np.empty((len(data), 0))
    features = tuple(vectors)
    return Table(
        (),
        features,
        feature_matrix(stacked, features, where),
        None,
        uncategorised,
        category_columns=category_columns,
    )


def _check_distinct(names: list[str], where: str) -> None:
    if len(set(names)) < len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise DataError(f"{where}: column {twice!r} appears more than once")


def _days(column: Any) -> NDArray[np.float64] | None:
    """Days since 1970-01-01, NaN where the date is missing; None if the cells are no dates."""
    values = column.to_numpy()
    if values.dtype.kind == "M":
        whole = values.astype("datetime64[D]")
        return np.where(np.isnat(whole), np.nan, whole.astype(np.int64))
    if values.dtype.kind != "O":
        return None
    cells = [None if _is_missing(value) else value for value in values.tolist()]
    if not any(isinstance(cell, date) for cell in cells):
        return None
    if not all(cell is None or isinstance(cell, date) for cell in cells):
        return None
    return np.array([_since_epoch(cell) for cell in cells])


def _since_epoch(day: date | None) -> float:
    # A datetime is a date, too: that of its own time zone.
    return np.nan if day is None else day.toordinal() - _EPOCH.toordinal()


def _column(column: Any, where: str, name: str) -> NDArray[Any] | CategoryColumn:
    kind = str(getattr(column, "dtype", None) or getattr(column, "type", ""))
    declared = kind.lower().startswith(_CATEGORICAL)
    values = column.to_numpy()
    if not declared and values.dtype.kind in "fiub":
        return np.asarray(values)
    cells = [None if _is_missing(value) else value for value in values.tolist()]
    if not declared and not _are_words(cells):
        return _numbers(values, where, f"column {name!r}")
    category = CategoryColumn(name, ("",), _MOST_CATEGORIES, declared=True)
    category.take(cells, lambda row: f"{where}: row {row + 1}")
    return category


def _are_words(cells: list[Any]) -> bool:
    """Whether there is text among the cells, and nothing that reads as a number."""
    present = [cell for cell in cells if cell is not None]
    return bool(present) and not any(
        not isinstance(cell, str) or reads_as_number(cell) for cell in present
    )


def _is_missing(value: Any) -> bool:
    return value is None or type(value).__name__ == "NAType" or value != value


def _numbers(values: NDArray[Any], where: str, what: str) -> NDArray[np.float64]:
    """Objects as numbers: None and pandas' NA are missing."""
    if values.dtype.kind in "mM":  # as Python's numbers they would be nanoseconds
        raise DataError(
            f"{where}: {what} holds {values.dtype}, which is no number; give whole days, say, or "
            "dates as a column of a data frame"
        )
    flat = values.ravel()
    numbers = np.empty(flat.shape, dtype=np.float64)
    for row, value in enumerate(flat.tolist()):
        try:
            numbers[row] = np.nan if _is_missing(value) else value
        except (TypeError, ValueError, OverflowError):
            raise DataError(
                f"{where}: {what}, row {row + 1} holds {value!r}, which is no number"
            ) from None
    return numbers.reshape(values.shape)
