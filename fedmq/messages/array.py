"""Arrays and bitmaps as raw bytes, instead of lists of numbers or pickles."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

__all__ = [
    "Array",
    "Bitmap",
    "Float32s",
    "Payload",
    "Uint32s",
    "pack_payload",
    "payload_bytes",
    "unpack_payload",
]

DType = Literal["|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8"]
_DTYPES = frozenset(get_args(DType))
_MOST_AXES = 3
Dimension = Annotated[int, Field(ge=0, lt=2**40)]


class Array(BaseModel):
    """A dense little-endian array: dtype, shape and its bytes in C order.

    ``values`` is the read-only NumPy array over the same bytes: decoded once, where the array is
    validated or packed, and kept beside the fields, so that it is neither compared nor sent.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    dtype: DType
    shape: Annotated[
        tuple[Dimension, ...], Field(min_length=1, max_length=_MOST_AXES, strict=False)
    ]
    data: bytes

    if TYPE_CHECKING:

        @property
        def values(self) -> NDArray[Any]: ...

    @model_validator(mode="after")
    def _decode(self) -> Self:
        wanted = math.prod(self.shape) * np.dtype(self.dtype).itemsize
        if len(self.data) != wanted:
            raise ValueError(
                f"{self.dtype} array of shape {self.shape} needs {wanted} bytes, "
                f"not {len(self.data)}"
            )
        self.__dict__["values"] = np.frombuffer(self.data, self.dtype).reshape(self.shape)
        return self

    @classmethod
    def of(cls, values: NDArray[Any]) -> Array:
        """Pack ``values`` (1 to 3 axes), little-endian; ValueError for a dtype that is not sent."""
        array = np.ascontiguousarray(values)
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        dtype, data = cast(DType, array.dtype.str), array.tobytes()
        if dtype not in _DTYPES or not 1 <= array.ndim <= _MOST_AXES:
            raise ValueError(f"no array of {dtype} with {array.ndim} axes is sent")
        packed = cls.model_construct(dtype=dtype, shape=array.shape, data=data)
        packed.__dict__["values"] = np.frombuffer(data, dtype).reshape(array.shape)
        return packed

    def numpy(self) -> NDArray[Any]:
        """``values``, under the name that a `Bitmap` has for its bits."""
        return self.values

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Array) and (self.dtype, self.shape, self.data) == (
            other.dtype,
            other.shape,
            other.data,
        )

    def __hash__(self) -> int:
        return hash((self.dtype, self.shape, self.data))


def _vector_of(dtype: str) -> AfterValidator:
    def check(array: Array) -> Array:
        if array.dtype != dtype or len(array.shape) != 1:
            raise ValueError(f"expected a vector of {dtype}, not {array.dtype} {array.shape}")
        return array

    return AfterValidator(check)


Uint32s = Annotated[Array, _vector_of("<u4")]
Float32s = Annotated[Array, _vector_of("<f4")]


class Bitmap(BaseModel):
    """One bit per row, most significant bit first."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    count: Annotated[int, Field(ge=0, lt=2**40)]
    data: bytes

    @model_validator(mode="after")
    def _data_fits_the_count(self) -> Self:
        if len(self.data) != (self.count + 7) // 8:
            raise ValueError(f"{self.count} bits do not fit {len(self.data)} bytes")
        return self

    @classmethod
    def of(cls, bits: NDArray[np.bool_]) -> Bitmap:
        """Pack a vector of booleans."""
        return cls(count=len(bits), data=np.packbits(bits).tobytes())

    def numpy(self) -> NDArray[np.bool_]:
        """The bits as a vector of ``count`` booleans."""
        packed = np.frombuffer(self.data, dtype=np.uint8)
        return np.unpackbits(packed, count=self.count).astype(np.bool_)


Payload = dict[str, Array | int | float | str]
"""What an engine sends to its other half: named arrays and scalars, opaque to the protocol."""


def pack_payload(values: dict[str, Any]) -> Payload:
    """Wrap the NumPy arrays among ``values`` for the wire."""
    return {
        key: Array.of(value) if isinstance(value, np.ndarray) else value
        for key, value in values.items()
    }


def payload_bytes(payload: Payload) -> int:
    """How many bytes the arrays and texts of a payload take."""
    arrays = sum(len(value.data) for value in payload.values() if isinstance(value, Array))
    return arrays + sum(len(value) for value in payload.values() if isinstance(value, str))


def unpack_payload(payload: Payload) -> dict[str, Any]:
    """The values of a payload, with NumPy arrays again."""
    return {
        key: value.values if isinstance(value, Array) else value for key, value in payload.items()
    }
