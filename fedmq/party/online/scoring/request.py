"""A request for scores as callers write it, and what is wrong with it; JSON."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedmq.errors import FedmqError, PeerSilent
from fedmq.party.data.id_column import LONGEST_ID

__all__ = ["PredictRequest", "RequestError"]

Id = Annotated[str, Field(min_length=1, max_length=LONGEST_ID)]


class PredictRequest(BaseModel):
    """Who is to be scored, and how long the caller waits."""

    model_config = ConfigDict(extra="forbid", strict=True)

    ids: Annotated[list[Id], Field(min_length=1)]
    features: list[dict[str, float | str | None]] | None = None
    """The label holder's own columns of each row, in place of what it has stored: numbers, and the
    text of categories."""
    base_margin: list[float] | list[list[float]] | None = None
    """Where each row starts, not at the model's base score: a margin, or one for each class."""
    output: Literal["prediction", "margin"] = "prediction"
    explain: Annotated[int, Field(ge=1, le=1000)] | None = None
    """How many reasons each score comes with: the contributions to the margin that weigh most."""
    deadline_ms: Annotated[float, Field(ge=1, le=60_000)] | None = None

    @classmethod
    def read(cls, body: bytes) -> PredictRequest:
        """The request in JSON.

        Raises:
            RequestError: 400 or 422, naming the field.
        """
        try:
            return cls.model_validate_json(body)
        except ValidationError as error:
            raise RequestError.field(error) from None


class RequestError(Exception):
    """A request gets no scores: the HTTP status, and a line that names the field."""

    def __init__(self, http_status: int, text: str) -> None:
        super().__init__(text)
        self.http_status = http_status

    @classmethod
    def field(cls, error: ValidationError) -> RequestError:
        """What pydantic found first, without the offending value."""
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        status = 400 if first["type"] == "json_invalid" else 422
        return cls(status, f"{where or 'body'}: {first['msg']}")

    @classmethod
    def of(cls, error: FedmqError) -> RequestError:
        """``error`` as the caller reads it; where time ran out, with the field that allows more."""
        ran_out = error.http_status == PeerSilent.http_status
        return cls(error.http_status, f"deadline_ms: {error}" if ran_out else str(error))
