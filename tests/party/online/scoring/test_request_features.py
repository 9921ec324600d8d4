from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.party.online.request_features import features_of_request

FEATURES = ("age", "city=Bonn", "city=Köln", "zip=50667", "a=b=c")


def test_a_category_comes_as_its_text_or_as_its_features() -> None:
    rows = [
        {"age": 3, "city": "Köln", "zip": 50667.0},
        {"city": " Bonn ", "zip": "1", "a": "b=c"},
        {"city": "Berlin", "a=b": "c"},
        {"city": None, "city=Bonn": 1},
    ]
    nan = np.nan
    np.testing.assert_array_equal(
        features_of_request("bank", FEATURES, rows),
        np.array(
            [[3, 0, 1, 1, nan], [nan, 1, 0, 0, 1], [nan, 0, 0, nan, 1], [nan, 1, nan, nan, nan]],
            np.float32,
        ),
    )


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"age": "old"}, "features.0.age: string is no number: 'old'"),
        ({"town": "Bonn"}, "features.0.town: the model has no such feature of bank"),
        ({"age": 1e39}, "features.0.age: beyond float32"),
    ],
)
def test_what_is_no_value_names_row_and_feature(row: dict[str, float | str], words: str) -> None:
    with pytest.raises(DataError) as error:
        features_of_request("bank", FEATURES, [row])
    assert str(error.value) == words
