"""Scores over HTTP: ``POST /v1/models/{model}/predict``, JSON or Arrow."""

from __future__ import annotations

import secrets
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from fastapi import APIRouter, Header, Request, Response
from fastapi.responses import JSONResponse
from pydantic import ValidationError

from fedmq.party.configuration.http import HttpSection
from fedmq.party.online.requests import (
    Prediction,
    PredictionService,
    PredictRequest,
    PredictResponse,
    RequestError,
)

__all__ = ["predict_router", "unpacked_bytes"]

ARROW = "application/vnd.apache.arrow.stream"
JSON = "application/json"
_LONGEST_REQUEST_ID = 128
_ERRORS = {
    400: "the body cannot be read",
    404: "no such model, or the only id is unknown",
    409: "the model needs a party that has left the federation",
    413: "too many rows in one request, or too long a body",
    415: "another type than JSON or Arrow, or Arrow is not installed at the server",
    422: "a field is wrong; the message names it",
    429: "too many rows wait; ask again later",
    503: "a party is away or refuses",
    504: "no score in time",
}
_HEADER, _BUFFERS, _COMPRESSION, _DICTIONARY_DATA = 2, 2, 3, 1  # places of fields in their tables
_CELL_BYTES = 8
_RECORD_BATCH = "record batch"
_DICTIONARY = "dictionary"


def predict_router(
    predictions: PredictionService, most_bytes: int = HttpSection().body_bytes
) -> APIRouter:
    """The endpoints that ask ``predictions``; an Arrow body unpacks to at most ``most_bytes``."""
    router = APIRouter(prefix="/v1", tags=["scores"])

    @router.get("/models", summary="The models that are served")
    async def models() -> dict[str, Any]:
        return {
            name: {"model": served.id, "mode": served.mode}
            for name, served in sorted(predictions.scorer.models.items())
        }

    @router.get("/serving", summary="What is under way, who is away, and what has happened")
    async def serving() -> dict[str, Any]:
        return predictions.scorer.status()

    @router.post(
        "/models/{model}/predict",
        summary="Scores of people",
        response_model=PredictResponse,
        responses={code: {"description": text} for code, text in _ERRORS.items()},
        openapi_extra={
            "requestBody": {
                "required": True,
                "content": {
                    "application/json": {"schema": PredictRequest.model_json_schema()},
                    ARROW: {"schema": {"type": "string", "format": "binary"}},
                },
            }
        },
    )
    async def predict(
        model: str,
        request: Request,
        x_request_id: Annotated[str | None, Header(max_length=_LONGEST_REQUEST_ID)] = None,
    ) -> Response:
        headers = {"X-Request-ID": x_request_id or secrets.token_hex(8)}
        try:
            kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
            body = await request.body()
            with predictions.counters.request():
                # A browser lets any web page send other types here without asking first.
                if kind not in (ARROW, JSON):
                    raise RequestError(415, f"Content-Type: {JSON} or {ARROW} is taken")
                asked = (
                    _from_arrow(body, request, predictions.scorer.most_rows, most_bytes)
                    if kind == ARROW
                    else PredictRequest.read(body)
                )
                prediction = await predictions.answer(model, asked)
            if ARROW in request.headers.get("accept", ""):
                return Response(_to_arrow(prediction), headers=headers, media_type=ARROW)
        except RequestError as error:
            return _error_response(error, headers)
        return JSONResponse(prediction.json(), headers=headers)

    return router


def _error_response(error: RequestError, headers: Mapping[str, str]) -> JSONResponse:
    retry_after = {"Retry-After": "1"} if error.http_status in (429, 503) else {}
    return JSONResponse(
        {"error": str(error), "request_id": headers["X-Request-ID"]},
        status_code=error.http_status,
        headers={**headers, **retry_after},
    )


def _from_arrow(body: bytes, request: Request, most_rows: int, most_bytes: int) -> PredictRequest:
    """Read a stream with a column ``id``; other columns are features of the active party."""
    arrow = _arrow()
    try:
        if unpacked_bytes(arrow, body) > most_bytes:
            raise RequestError(
                413, f"body: unpacked it is longer than {most_bytes} bytes (http.body_bytes)"
            )
        table = _read_table(arrow, body, most_rows, most_bytes)
        ids = [None if cell is None else str(cell) for cell in table.column("id").to_pylist()]
    except (arrow.ArrowException, OSError, ValueError):
        raise RequestError(400, "body: no Arrow stream") from None
    if not ids or None in ids or "" in ids:
        raise RequestError(422, "id: no rows, or a row without an id")
    features = None
    if table.num_columns > 1:
        columns = [name for name in table.column_names if name != "id"]
        features = table.select(columns).to_pylist()
    fields = {"ids": ids, "features": features}
    fields |= {
        name: request.query_params.get(name) for name in ("output", "explain", "deadline_ms")
    }
    try:
        return PredictRequest.model_validate(
            {name: value for name, value in fields.items() if value is not None}, strict=False
        )
    except ValidationError as error:
        raise RequestError.field(error) from None


def _read_table(arrow: Any, body: bytes, most_rows: int, most_bytes: int) -> Any:
    reader = arrow.ipc.open_stream(body)
    names = reader.schema.names
    twice = next((name for name, found in Counter(names).items() if found > 1), None)
    if twice is not None:
        raise RequestError(422, f"{twice}: the column appears more than once")
    if "id" not in names:
        raise RequestError(422, "id: the column is missing")
    kind, types = reader.schema.field("id").type, arrow.types
    if not (types.is_string(kind) or types.is_large_string(kind) or types.is_integer(kind)):
        raise RequestError(422, f"id: {kind} is neither text nor a whole number")
    for field in reader.schema:
        numeric = types.is_integer(field.type) or types.is_floating(field.type)
        text = types.is_string(field.type) or types.is_large_string(field.type)
        if field.name != "id" and not (numeric or text or types.is_boolean(field.type)):
            raise RequestError(422, f"{field.name}: {field.type} is neither a number nor text")
    batches, rows = [], 0
    for batch in reader:
        rows += batch.num_rows
        if rows > most_rows:  # before any cell becomes a Python object
            raise RequestError(413, f"id: more than {most_rows} rows in one request")
        if rows * len(names) * _CELL_BYTES > most_bytes:  # a cell may take one bit of the body
            raise RequestError(
                413, f"body: {rows} rows of {len(names)} columns are too many (http.body_bytes)"
            )
        # Where texts begin and end is the caller's word: pyarrow would read beyond the body.
        batch.validate(full=True)
        batches.append(batch)
    return arrow.Table.from_batches(batches, reader.schema)


def _to_arrow(prediction: Prediction) -> bytes:
    arrow = _arrow()
    of_classes = any(isinstance(value, list) for value in prediction.values)
    scores = arrow.list_(arrow.float64()) if of_classes else arrow.float64()
    columns = {
        "id": prediction.ids,
        "score": arrow.array(prediction.values, scores),
        "unknown_at": arrow.array(prediction.unknown_at, arrow.list_(arrow.string())),
    }
    if any(fallback := prediction.fallback):
        columns["fallback"] = arrow.array(fallback, arrow.string())
    if prediction.reasons is not None:
        columns["reasons"] = _reasons_to_arrow(arrow, prediction.reasons)
    table = arrow.table(columns)
    degraded = ",".join(f"{party}={share:g}" for party, share in prediction.degraded.items())
    table = table.replace_schema_metadata({"model": prediction.model, "degraded": degraded})
    sink = arrow.BufferOutputStream()
    with arrow.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return bytes(sink.getvalue())


def _reasons_to_arrow(arrow: Any, reasons: Sequence[Sequence[Mapping[str, Any]] | None]) -> Any:
    """By row a list of reasons; a column is text, whether name or number."""
    text = arrow.string()
    kind = arrow.struct(
        [("party", text), ("column", text), ("value", arrow.float64()), ("text", text)]
    )
    rows = [
        None
        if found is None
        else [
            {**reason, "column": str(reason["column"])} if "column" in reason else dict(reason)
            for reason in found
        ]
        for found in reasons
    ]
    return arrow.array(rows, arrow.list_(kind))


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.ipc
    except ImportError:
        raise RequestError(
            415, "Content-Type: Arrow needs pyarrow at the server; send JSON"
        ) from None
    return pyarrow


# The unpacked size of an Arrow stream: each compressed buffer begins with its unpacked length, and
# pyarrow allocates that much without a check. pyarrow shows neither the length nor whether a batch
# is compressed. So this code reads the metadata of the stream's messages (FlatBuffers, Arrow's
# Message.fbs).


def unpacked_bytes(arrow: Any, body: bytes) -> int:
    """The bytes of all buffers of the stream ``body``; ``arrow`` is the module pyarrow.

    Nothing is unpacked. If a length is false, pyarrow refuses the buffer.

    Raises:
        ValueError: no Arrow stream.
        pyarrow.ArrowException: the same.
    """
    size = 0
    reader = arrow.ipc.MessageReader.open_stream(body)
    try:
        while True:
            message = reader.read_next_message()
            if message.type in (_RECORD_BATCH, _DICTIONARY):
                size += _message_bytes(message)
    except StopIteration:
        return size
    except struct.error:
        raise ValueError("the metadata of a message end early") from None


def _message_bytes(message: Any) -> int:
    metadata, data = memoryview(message.metadata), memoryview(message.body)
    batch = _field(metadata, _uint(metadata, 0), _HEADER)
    if message.type == _DICTIONARY and batch is not None:
        batch = _field(metadata, _follow(metadata, batch), _DICTIONARY_DATA)
    if batch is None:
        raise ValueError("a message without a batch")
    table = _follow(metadata, batch)
    buffers = _field(metadata, table, _BUFFERS)
    if buffers is None:
        return 0
    vector = _follow(metadata, buffers)
    compressed = _field(metadata, table, _COMPRESSION) is not None
    size = 0
    for number in range(_uint(metadata, vector)):
        start, length = struct.unpack_from("<qq", metadata, vector + 4 + 16 * number)
        if compressed and length:
            # -1: this buffer is not compressed.
            (unpacked,) = struct.unpack_from("<q", data, start)
            length = length if unpacked == -1 else unpacked
        if length < 0:
            raise ValueError("a buffer of negative length")
        size += length
    return size


def _field(metadata: memoryview, table: int, number: int) -> int | None:
    """The position of a field of the ``table``; None if it is left out."""
    (back,) = struct.unpack_from("<i", metadata, table)
    vtable = table - back
    size, entry = struct.unpack_from("<H", metadata, vtable)[0], 4 + 2 * number
    if entry >= size:
        return None
    (offset,) = struct.unpack_from("<H", metadata, vtable + entry)
    return table + offset if offset else None


def _follow(metadata: memoryview, at: int) -> int:
    return at + _uint(metadata, at)


def _uint(metadata: memoryview, at: int) -> int:
    number: int = struct.unpack_from("<I", metadata, at)[0]
    return number
