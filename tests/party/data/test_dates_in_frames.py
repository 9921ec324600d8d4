"""Dates in data frames are days, as at daemons; nothing takes them for nanoseconds."""

from __future__ import annotations

from datetime import date
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from fedmq.errors import DataError
from fedmq.party.data.data_frame import party_features, trained_columns

DAYS = [date(1970, 1, 3), date(1969, 12, 31), None]
STAMPS = pd.to_datetime(pd.Series(["1970-01-03 23:59", "1969-12-31 12:00", None]))

TABLES = {
    "nanoseconds": pd.DataFrame({"since": STAMPS.astype("datetime64[ns]")}),
    "seconds": pd.DataFrame({"since": STAMPS.astype("datetime64[s]")}),
    "zones": pd.DataFrame({"since": STAMPS.dt.tz_localize("Asia/Tokyo")}),
    "objects": pd.DataFrame({"since": pd.Series(DAYS, dtype=object)}),
    "polars": pl.DataFrame({"since": DAYS}),
    "arrow": pl.DataFrame({"since": DAYS}).to_arrow(),
}


@pytest.mark.parametrize("table", TABLES.values(), ids=TABLES)
def test_dates_are_days_since_1970_and_missing_ones_are_missing(table: Any) -> None:
    features = party_features(table, "telco")
    assert features.names == ("since.days",)
    np.testing.assert_array_equal(features.values[:, 0], [2, -1, np.nan])
    read = trained_columns(table, "telco", features.names)
    np.testing.assert_array_equal(read, features.values)


def test_time_spans_and_arrays_of_dates_are_refused() -> None:
    spans = pd.DataFrame({"for": pd.to_timedelta([1, 2], unit="D")})
    with pytest.raises(DataError, match=r"^telco: column 'for' holds timedelta64.*no number"):
        party_features(spans, "telco")
    with pytest.raises(DataError, match=r"^telco: the array holds datetime64.*no number"):
        party_features(STAMPS.to_numpy()[:, None], "telco")
