"""``[telemetry]`` of a party's file: where its OpenTelemetry traces go."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from fedmq.party.configuration.toml_file import Section

__all__ = ["TelemetrySection"]


class TelemetrySection(Section):
    """Needs the extra ``fedmq[otel]``. The collector is this party's own, or one they share."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/]+")]
    """A collector that takes OTLP over HTTP, such as ``http://127.0.0.1:4318/v1/traces``."""
    scores: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of online batches that is traced; the same ones where parties say the same."""
