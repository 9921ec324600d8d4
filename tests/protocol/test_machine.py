"""A machine's table says what is legal, and its parts handle what a session needs them for."""

from __future__ import annotations

from enum import Enum

import pytest

from fedmq.errors import ProtocolError
from fedmq.messages.body import Body
from fedmq.messages.training import CircuitPiece, TreeFinished
from fedmq.protocol.events import Received
from fedmq.protocol.machine import Machine, Part, Transition, on_message


class _State(Enum):
    TALKING = "messages come"
    DONE = "it has ended"


class _Circuits(Part):
    def __init__(self) -> None:
        self.heard: list[str] = []

    @on_message(CircuitPiece)
    def _on_piece(self, peer: str, _: CircuitPiece) -> None:
        self.heard.append(peer)


class _Session(Machine):
    TABLE = {  # noqa: RUF012 (a constant of the class, as every machine has it)
        (_State.TALKING, CircuitPiece): Transition(_State.DONE),
        (_State.TALKING, TreeFinished): Transition(_State.DONE),
    }
    PARTS = (_Circuits,)
    failed_state = _State.DONE

    def __init__(self, part: Part | None) -> None:
        super().__init__(_State.TALKING, ("telco",))
        if part is not None:
            self._attach(part)


def received(kind: type[Body]) -> Received:
    """A body of that kind, whose fields nobody reads."""
    return Received("telco", kind.model_construct())


def test_a_part_that_is_attached_handles_its_messages() -> None:
    part = _Circuits()
    session = _Session(part)
    session.handle(received(CircuitPiece))
    assert part.heard == ["telco"]
    assert session.state is _State.DONE


def test_a_message_for_a_part_that_the_session_does_without_is_illegal() -> None:
    session = _Session(None)
    with pytest.raises(ProtocolError, match="TALKING cannot take CircuitPiece from telco"):
        session.handle(received(CircuitPiece))
    assert session.state is _State.TALKING
