"""How long does a party wait for an answer, and when does it send again?

This is a section of a party's file too: every command reads it, so it imports nothing heavy.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

__all__ = ["RetryPolicy"]


class RetryPolicy(BaseModel):
    """When to send again, and when to give up. Seconds; exponential back-off with jitter.

    By default a peer may be away for a day: a session that waits costs nothing, and its status
    shows it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    first: float = Field(default=2.0, gt=0, description="shortest wait before the first resend")
    factor: float = Field(default=2.0, ge=1, description="growth of the wait per resend")
    ceiling: float = Field(default=30.0, gt=0, description="longest wait between resends")
    jitter: float = Field(default=0.2, ge=0, le=1, description="random share of each wait")
    resends: int = Field(default=2880, ge=0, description="resends before a peer counts as lost")
    probe: float = Field(default=15.0, gt=0, description="silence after which a peer is probed")
    stall: float = Field(
        default=86400.0, gt=0, description="longest wait for peers that are there, but do nothing"
    )
    acknowledge: float = Field(default=0.2, gt=0, description="longest wait to acknowledge")
