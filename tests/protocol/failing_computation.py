"""A computation that cannot be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedmq.errors import FedmqError


@dataclass(frozen=True)
class FailingComputation:
    error: FedmqError

    def run(self) -> Any:
        raise self.error
