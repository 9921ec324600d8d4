"""How a plan is run without I/O."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedmq.privacy.plan import Compute, Exchange, Plan, Reply

__all__ = ["RunningPlan", "single"]


def single(computation: Any) -> Plan[Any]:
    """The plan of one computation, and its result."""
    [result] = yield Compute([computation])
    return result


class RunningPlan:
    """A plan between two of its steps."""

    __slots__ = ("missing", "on_step", "plan", "results", "then")

    def __init__(
        self,
        plan: Plan[Any],
        then: Callable[[Any], None],
        on_step: Callable[[Exchange | Reply, RunningPlan], None] | None,
    ) -> None:
        self.plan = plan
        self.then = then
        self.on_step = on_step
        self.results: list[Any] = []
        self.missing = 0
