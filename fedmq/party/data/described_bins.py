"""The bins of a party's own columns, for its owner alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.monotone_bins import monotone_pools
from fedmq.boosting.screened_columns import Strength
from fedmq.errors import DataError
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.given_bins import checked_bins
from fedmq.party.data.screening import label_check
from fedmq.party.data.table import Table, read_table

__all__ = ["describe_bins"]


def describe_bins(
    party: str, data: DataSection, max_bin: int, monotone: bool = False
) -> dict[str, Any]:
    """The bins of each feature of all rows of ``party``, as a training cuts them, as plain data.

    ``monotone``: bins of numbers are pooled until their weight of evidence is monotone; each then
    has its ones and its weight. Categories are left out, and so is ``bins``, the number of each.

    Raises:
        DataError: as `read_table`; ``data.bins`` names no column of numbers; with ``monotone`` the
            labels are not 0 and 1, or all alike.
    """
    table = read_table(party, data, label_check("binary") if monotone else None)
    given = checked_bins(party, data, table)
    places = {name: place for place, name in enumerate(table.features)}
    own = {places[name]: bins for name, bins in given.items()}
    cuts = Cuts.of(table.values, max_bin, own)
    features, label = table.features, None
    if monotone:
        label = _label(party, data, table)
        of_sets = {name for names in table.category_columns.values() for name in names}
        features = tuple(name for name in features if name not in of_sets)
    found = {
        "party": party,
        "rows": len(table.ids),
        "max_bin": max_bin,
        "columns": [
            {
                "name": name,
                "given": given.get(name),
                **_described(table.values[:, places[name]], cuts.thresholds[places[name]], label),
            }
            for name in features
        ],
    }
    return found if monotone else found | {"bins": cuts.n_bins.tolist()}


def _label(party: str, data: DataSection, table: Table) -> NDArray[np.bool_]:
    assert table.label is not None
    label = table.label > 0.5
    if label.all() or not label.any():
        raise DataError(
            f"{party}: {data.place}: all labels are {int(label.all())}; both are needed"
        )
    return label


def _described(
    values: NDArray[np.float32], cuts: NDArray[np.float32], label: NDArray[np.bool_] | None
) -> dict[str, Any]:
    missing = np.isnan(values)
    if label is not None:
        codes, counts = _counts(values, cuts)
        ones = np.bincount(codes[~missing], label[~missing], minlength=len(counts))
        pools = monotone_pools(counts, ones.astype(np.int64))
        cuts = cuts[np.flatnonzero(np.diff(pools))]
    codes, counts = _counts(values, cuts)
    found = {
        "cuts": [_shortest(cut) for cut in cuts],
        "missing": float(missing.mean()) if len(values) else 0.0,
        "shares": (counts / max(1, len(values))).tolist(),
    }
    if label is None:
        return found
    with_missing = np.append(counts, missing.sum()) if missing.any() else counts
    ones = np.bincount(codes, label, minlength=len(with_missing)).astype(np.int64)
    strength = Strength.of(with_missing, ones)
    assert strength is not None
    woe = list(strength.woe)
    return found | {
        "iv": strength.iv,
        "direction": next(_directions(woe[: len(counts)])),
        "ones": ones[: len(counts)].tolist(),
        "woe": woe[: len(counts)],
        "missing_woe": woe[-1] if missing.any() else None,
    }


def _counts(
    values: NDArray[np.float32], cuts: NDArray[np.float32]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """The bin of each row, and the rows of each bin; missing values have the number behind it."""
    made = Cuts(thresholds=(cuts,), has_missing=np.isnan(values[:1]))
    codes = BinMatrix.of(values[:, None], made).codes[:, 0].astype(np.intp)
    return codes, np.bincount(codes, minlength=len(cuts) + 2)[: len(cuts) + 1]


def _directions(woe: Sequence[float]) -> Iterator[str]:
    if len(woe) > 1:
        yield "rises" if woe[0] < woe[-1] else "falls"
    yield "flat"


def _shortest(cut: np.float32) -> float:
    """The decimal number of the fewest digits that is this cut in float32."""
    return float(str(cut))
