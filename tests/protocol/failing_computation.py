"""A computation that cannot be done."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from fedmq.errors import FedmqError


@dataclass(frozen=True)
class FailingComputation:
    label: ClassVar[str] = "FailingComputation"
    error: FedmqError

    def run(self) -> Any:
        raise self.error
