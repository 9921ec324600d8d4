"""The state machines as a page of Mermaid diagrams, drawn from the tables and nothing else.

``python -m fedmq.protocol.diagram`` prints docs/reference/state-machines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.protocol.alignment.states import (
    ACTIVE_ALIGNMENT,
    PASSIVE_ALIGNMENT,
    ActiveAlignmentState,
    PassiveAlignmentState,
)
from fedmq.protocol.deployment.states import (
    ACTIVE_DEPLOYMENT,
    PASSIVE_DEPLOYMENT,
    ActiveDeploymentState,
    PassiveDeploymentState,
)
from fedmq.protocol.events import Cancelled, ComputationFailed, PeerLost
from fedmq.protocol.inference.states import (
    ACTIVE_INFERENCE,
    PASSIVE_INFERENCE,
    ActiveInferenceState,
    PassiveInferenceState,
)
from fedmq.protocol.online.states import ONLINE_BATCH, OnlineBatchState
from fedmq.protocol.table import Table
from fedmq.protocol.training.states import (
    ACTIVE_TRAINING,
    PASSIVE_TRAINING,
    ActiveTrainingState,
    PassiveTrainingState,
)

__all__ = ["MACHINES", "Drawing", "page"]

_BREAKDOWNS = (Abort, PeerLost, Cancelled, ComputationFailed, SessionUnknown)
_HEAD = """\
# State machines

Printed by `python -m fedmq.protocol.diagram` from the tables in `states.py` of each session kind in
`fedmq/protocol/`, which alone decide what is legal; a test fails when this page differs from them.
An event that a table lacks is an error that changes nothing. If a peer's message caused it, the
session ends, and every party is told the reason.

Messages are set in *italics*. The other events come from the party itself: Start; PlanReturned,
the arithmetic of a plan has come to its end or to a message; ComputationFailed; PeerLost, a peer
has not answered within the retry policy; Cancelled, Pause and Resume, what the party's owner wants
of the session; TimerFired, a time is over.
"""


@dataclass(frozen=True)
class Drawing:
    """One machine: its name, its table and its states, the first of which is the initial one."""

    name: str
    table: Table
    states: type[Enum]

    def diagram(self) -> str:
        """The machine as a Mermaid ``stateDiagram-v2``; what always fails is one note."""
        first, *_, finished, failed = self.states
        lines = ["stateDiagram-v2", f"    [*] --> {first.name}"]
        for (source, target), events in self._edges(failed).items():
            lines.append(f"    {source.name} --> {target.name}: {', '.join(events)}")
        endings = ", ".join(_label(event) for event in self._endings())
        lines += [
            f"    {finished.name} --> [*]",
            f"    {failed.name} --> [*]",
            f"    note left of {failed.name}",
            f"        from every state above on {endings},",
            "        or when a peer breaks the protocol",
            "    end note",
        ]
        if self._interrupted is not None:
            lines += [
                f"    note left of {self._interrupted.name}",
                f"        from every state above on {_label(SessionUnknown)}",
                "    end note",
            ]
        return "\n".join(lines)

    def _edges(self, failed: Enum) -> Mapping[tuple[Enum, Enum], list[str]]:
        edges: dict[tuple[Enum, Enum], list[str]] = {}
        for source, event in self._live():
            for target in self.table[source, event].to:
                aside = target is failed and event in self._endings()
                if not aside and target is not self._interrupted:
                    edges.setdefault((source, target), []).append(_label(event))
        return edges

    def _endings(self) -> list[type]:
        """What ends the session wherever it stands."""
        *live, _, failed = self.states
        return [
            event
            for event in _BREAKDOWNS
            if all(
                self.table[state, event].to == (failed,)
                for state in live
                if state is not self._interrupted
            )
        ]

    @property
    def _interrupted(self) -> Enum | None:
        """Where it waits for another attempt, if it ever does."""
        return next((state for state in self.states if state.name == "INTERRUPTED"), None)

    def state_table(self) -> str:
        """What each state means."""
        return _table(
            ("state", "meaning"), ([f"`{state.name}`", str(state.value)] for state in self.states)
        )

    def event_table(self) -> str:
        """State by event: where each may lead, empty where it is illegal."""
        events = list(dict.fromkeys(event for _, event in self._live()))
        live = [state for state in self.states if any(state is each for each, _ in self._live())]
        rows = (
            [_emphasised(event), *(self._targets(state, event) for state in live)]
            for event in events
        )
        return _table(("event", *(f"`{state.name}`" for state in live)), rows)

    def _live(self) -> Iterator[tuple[Enum, type]]:
        """State and event wherever something happens, in the order of the states."""
        *_, finished, failed = self.states
        for state in self.states:
            if state not in (finished, failed):
                own = [
                    event
                    for (at, event), step in self.table.items()
                    if at is state and step.handler != "_ignore"
                ]
                yield from ((state, event) for event in sorted(own, key=_BREAKDOWNS.__contains__))

    def _targets(self, state: Enum, event: type) -> str:
        transition = self.table.get((state, event))
        return ", ".join(target.name for target in transition.to) if transition else ""


MACHINES = (
    Drawing("Alignment: the active party", ACTIVE_ALIGNMENT, ActiveAlignmentState),
    Drawing("Alignment: a passive party", PASSIVE_ALIGNMENT, PassiveAlignmentState),
    Drawing("Training: the active party", ACTIVE_TRAINING, ActiveTrainingState),
    Drawing("Training: a passive party", PASSIVE_TRAINING, PassiveTrainingState),
    Drawing("Inference: the active party", ACTIVE_INFERENCE, ActiveInferenceState),
    Drawing("Inference: a passive party", PASSIVE_INFERENCE, PassiveInferenceState),
    Drawing("Online scores: a batch at the active party", ONLINE_BATCH, OnlineBatchState),
    Drawing("Serving a model: the active party", ACTIVE_DEPLOYMENT, ActiveDeploymentState),
    Drawing("Serving a model: a passive party", PASSIVE_DEPLOYMENT, PassiveDeploymentState),
)


def page() -> str:
    """The whole page, in Markdown."""
    sections = [
        f"## {each.name}\n\n```mermaid\n{each.diagram()}\n```\n\n"
        f"{each.state_table()}\n\n{each.event_table()}\n\n"
        f"In `{list(each.states)[-2].name}` and `{list(each.states)[-1].name}` whatever still "
        "comes in is let pass."
        for each in MACHINES
    ]
    return "\n".join([_HEAD, "\n\n".join(sections), ""])


def _label(event: type) -> str:
    return event.kind if issubclass(event, Body) else event.__name__


def _emphasised(event: type) -> str:
    return f"*{_label(event)}*" if issubclass(event, Body) else _label(event)


def _table(head: tuple[str, ...], rows: Iterator[list[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
