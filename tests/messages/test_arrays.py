"""Are arrays decoded once, and compared and sent by what they hold?"""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.messages.array import Array
from fedmq.messages.codec import pack_body, unpack_body
from fedmq.messages.inference import InferenceRows


def test_an_array_that_came_is_decoded_once_and_not_to_be_written_to() -> None:
    sent = InferenceRows(hop=0, rows=Array.of(np.array([3, 5], np.uint32)))
    came = unpack_body(InferenceRows.kind, pack_body(sent))
    assert isinstance(came, InferenceRows)
    assert came.rows.values is came.rows.numpy() is came.rows.values
    assert came.rows.values.tolist() == [3, 5]
    assert not came.rows.values.flags.writeable


def test_arrays_are_equal_where_dtype_shape_and_bytes_are() -> None:
    packed = Array.of(np.arange(6, dtype=np.int64).reshape(2, 3))
    read = Array.model_validate(packed.model_dump())
    assert packed == read == packed.model_copy()
    assert len({packed, read}) == 1
    assert packed != Array.of(np.arange(6, dtype=np.int64))
    assert set(packed.model_dump()) == {"dtype", "shape", "data"}


@pytest.mark.parametrize(
    "values", [np.array([True]), np.array(["a"]), np.zeros((1, 1, 1, 1))], ids=["bool", "text", "4"]
)
def test_what_has_no_place_on_the_wire_is_not_packed(values: np.ndarray) -> None:
    with pytest.raises(ValueError, match="no array of"):
        Array.of(values)
