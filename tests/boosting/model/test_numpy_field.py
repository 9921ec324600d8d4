from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ValidationError

from fedmq.boosting.model.tree import Bools, Float32s, Int16s, Leaves


class Document(BaseModel):
    small: Int16s
    real: Float32s
    flag: Bools


def document(**changed: object) -> Document:
    return Document.model_validate({"small": [1], "real": [0.5], "flag": [True], **changed})


@given(st.lists(st.floats(width=32, allow_nan=False)))
def test_float32s_return_bit_for_bit_through_strict_json(values: list[float]) -> None:
    before = document(real=np.array(values, np.float32))
    text = before.model_dump_json()
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no strict JSON"))
    after = Document.model_validate_json(text)
    np.testing.assert_array_equal(after.real.view(np.int32), before.real.view(np.int32))


@pytest.mark.parametrize(
    "changed",
    [
        {"small": [40_000]},
        {"small": [1.5]},
        {"small": [True]},
        {"small": 5},
        {"small": np.array([1.5])},
        {"small": np.zeros((2, 2), np.int16)},
        {"real": [1e39]},
        {"real": ["much"]},
        {"flag": [1]},
        {"flag": "yes"},
        {"flag": None},
    ],
)
def test_what_does_not_fit_is_refused(changed: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match=next(iter(changed))):
        document(**changed)


def test_vectors_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        document().real[0] = 1


def test_vectors_are_not_those_that_were_given() -> None:
    given_to_it = np.array([0.5, 1.5], np.float32)
    kept = document(real=given_to_it).real
    given_to_it[0] = 7
    assert kept.tolist() == [0.5, 1.5]


class Vectors(BaseModel):
    leaves: Leaves


def test_vector_leaves_are_rows_and_numbers_stay_numbers() -> None:
    rows = Vectors.model_validate_json('{"leaves": [[0.5, -1], [0.1, "Infinity"]]}')
    assert rows.leaves.shape == (2, 2)
    assert rows.leaves.dtype == np.float32
    assert Vectors.model_validate_json(rows.model_dump_json()).leaves.tolist() == (
        rows.leaves.tolist()
    )
    assert Vectors(leaves=np.array([0.5, 1], np.float32)).model_dump_json() == (
        '{"leaves":[0.5,1.0]}'
    )


@pytest.mark.parametrize("leaves", [[[1.0], [1.0, 2.0]], [[1.0], 2.0], [["x"]], [1.0, [2.0]]])
def test_leaves_of_other_lengths_are_refused(leaves: object) -> None:
    with pytest.raises(ValidationError, match="expected"):
        Vectors.model_validate({"leaves": leaves})
