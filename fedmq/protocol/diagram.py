"""How are the tables drawn? As a page of Mermaid diagrams, from the tables and nothing else.

``python -m fedmq.protocol.diagram`` prints docs/reference/state-machines.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from fedmq.messages.body import Abort, Body, SessionUnknown
from fedmq.protocol.events import Cancelled, ComputationFailed, PeerLost
from fedmq.protocol.kinds import SESSION_KINDS
from fedmq.protocol.machine import REFUSES, Key, Table

__all__ = ["MACHINES", "Drawing", "page"]

_BREAKDOWNS = (Abort, PeerLost, Cancelled, ComputationFailed, SessionUnknown)
_HEAD = """\
# State machines

Printed by `python -m fedmq.protocol.diagram` from the tables in `fedmq/protocol/*/states.py`, which
alone decide what is legal and where it leads; a test fails when this page differs from them. An
event that a table lacks is an error that changes nothing. If a peer's message caused it, the
session ends: this party's error tells the state, the message and the events before it, and every
other party reads the state and the message.

Messages are set in *italics*. The other events come from the party itself: Start; Done, a plan of
that name has been computed; Yields, a plan wants to exchange messages with the other party, or to
reply to it; ComputationFailed; PeerLost, a peer has not answered within the retry policy;
Cancelled, Pause and Resume, what the party's owner wants of the session; ConsentDecided, the owner
has been asked whether the party takes part, and has answered; TimerFired, a time is over. A row
that begins with "when" is no event: it is what the machine finds to be so while it handles one.
"""


@dataclass(frozen=True)
class Drawing:
    """One machine: its name, its table and its states, the initial state first."""

    name: str
    table: Table
    states: type[Enum]

    def diagram(self) -> str:
        """The machine as a Mermaid ``stateDiagram-v2``; events that always fail share one note."""
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
            # A note needs a state that a line has named before it.
            lines += [
                f"    {self._interrupted.name}",
                f"    note left of {self._interrupted.name}",
                f"        from every state above on {_label(SessionUnknown)}",
                "    end note",
            ]
        return "\n".join(lines)

    def _edges(self, failed: Enum) -> Mapping[tuple[Enum, Enum], list[str]]:
        edges: dict[tuple[Enum, Enum], list[str]] = {}
        for source, event in self._live():
            target = self.table[source, event].to
            aside = target is failed and event in self._endings()
            if not aside and (target is not self._interrupted or event is not SessionUnknown):
                edges.setdefault((source, target), []).append(_label(event))
        return edges

    def _endings(self) -> list[type]:
        """The events that end the session in every state."""
        *live, _, _ = self.states
        return [
            event
            for event in _BREAKDOWNS
            if all(self._ends(state, event) for state in live if state is not self._interrupted)
        ]

    def _ends(self, state: Enum, event: type) -> bool:
        """Whether ``event`` leads to the failed state, at once or by a refusal."""
        *_, failed = self.states
        target = self.table[state, event].to
        return target is failed or (target is state and (state, REFUSES) in self.table)

    @property
    def _interrupted(self) -> Enum | None:
        """The state that waits for another attempt, if there is one."""
        return next((state for state in self.states if state.name == "INTERRUPTED"), None)

    def state_table(self) -> str:
        """The meaning of each state, as a Markdown table."""
        return _table(
            ("state", "meaning"), ([f"`{state.name}`", str(state.value)] for state in self.states)
        )

    def event_table(self) -> str:
        """The next states by event and state, as a Markdown table; illegal events are empty."""
        events = list(dict.fromkeys(event for _, event in self._live()))
        sources = [source for source, _ in self._live()]
        live = [state for state in self.states if state in sources]
        rows = (
            [_emphasised(event), *(self._target(state, event) for state in live)]
            for event in events
        )
        return _table(("event", *(f"`{state.name}`" for state in live)), rows)

    def _live(self) -> Iterator[tuple[Enum, Key]]:
        """State and event of all rows that are not ignored, in the order of the states."""
        *_, finished, failed = self.states
        for state in self.states:
            if state not in (finished, failed):
                own = [
                    event
                    for (at, event), transition in self.table.items()
                    if at is state and not transition.ignored
                ]
                yield from ((state, event) for event in sorted(own, key=_BREAKDOWNS.__contains__))

    def _target(self, state: Enum, event: Key) -> str:
        transition = self.table.get((state, event))
        return transition.to.name if transition and not transition.ignored else ""


MACHINES = tuple(
    Drawing(side.name, side.table, side.states)
    for kind in SESSION_KINDS.values()
    for side in kind.sides
)


def page() -> str:
    """The whole page, in Markdown."""
    sections = [
        f"## {drawing.name}\n\n```mermaid\n{drawing.diagram()}\n```\n\n"
        f"{drawing.state_table()}\n\n{drawing.event_table()}\n\n"
        f"In `{list(drawing.states)[-2].name}` and `{list(drawing.states)[-1].name}` whatever "
        "still comes in changes nothing."
        for drawing in MACHINES
    ]
    return "\n".join([_HEAD, "\n\n".join(sections), ""])


def _label(event: Key) -> str:
    if not isinstance(event, type):
        return str(event)
    return event.kind if issubclass(event, Body) else event.__name__


def _emphasised(event: Key) -> str:
    is_message = isinstance(event, type) and issubclass(event, Body)
    return f"*{_label(event)}*" if is_message else _label(event)


def _table(head: tuple[str, ...], rows: Iterator[list[str]]) -> str:
    lines = [list(head), ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


if __name__ == "__main__":
    print(page(), end="")
