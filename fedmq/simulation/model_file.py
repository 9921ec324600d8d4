"""A model of a simulation as one versioned JSON document: the shares of all its parties."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.errors import ConfigError, DataError
from fedmq.party.telemetry.metrics import Traffic, Volume

__all__ = ["ModelFile", "Sent"]

_Figure = Annotated[int, Field(ge=0)]


class Sent(BaseModel):
    """What one party sent to another in the training, of one kind of message."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    sender: str
    recipient: str
    kind: str
    messages: _Figure
    bytes: _Figure


class ModelFile(BaseModel):
    """The document. Its shares are those that the parties of a federation would keep apart."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    format: Literal["fedmq.simulated-model"] = "fedmq.simulated-model"
    version: Annotated[int, Field(strict=True)] = 1
    share: ActiveShare
    passive_shares: tuple[PassiveShare, ...]
    epsilon_spent: float | None
    traffic: tuple[Sent, ...]

    @field_validator("version")
    @classmethod
    def _known(cls, version: int) -> int:
        if version != 1:
            raise ValueError(
                f"version {version} is unknown; this fedmq reads version 1, so use the fedmq that "
                "wrote the file"
            )
        return version

    @classmethod
    def loads(cls, text: str | bytes, where: str) -> ModelFile:
        """The document in ``text``.

        Raises:
            DataError: it is none that this fedmq reads; the text begins with ``where``, a file.
        """
        try:
            return cls.model_validate_json(text)
        except ConfigError as error:
            raise DataError(f"{where}: params: {error}") from None
        except ValidationError as error:
            first = error.errors()[0]
            key = ".".join(str(part) for part in first["loc"]) or "document"
            raise DataError(f"{where}: not a model: {key}: {first['msg']}") from None

    @staticmethod
    def counted(traffic: Traffic) -> tuple[Sent, ...]:
        """``traffic`` as the document has it."""
        return tuple(
            Sent(
                sender=sender,
                recipient=recipient,
                kind=kind,
                messages=volume.messages,
                bytes=volume.bytes,
            )
            for (sender, recipient), kinds in traffic.volumes.items()
            for kind, volume in kinds.items()
        )

    def volumes(self) -> Traffic:
        """The traffic of the training."""
        traffic = Traffic()
        for sent in self.traffic:
            volume = Volume(sent.messages, sent.bytes)
            traffic.volumes[sent.sender, sent.recipient][sent.kind] = volume
        return traffic
