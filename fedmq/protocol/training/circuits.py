"""What do both halves of an engine say to one another while they find winners by circuits?

Parcels, one after the other, each in pieces that are messages (`Circuits`). A half sends and waits
as its plan says. What has come of a parcel lies in memory alone, until the half reads it. Where
several parties compete, each hands the best so far on to the next in the chain (`HandedOn`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import pack_payload, payload_bytes, unpack_payload
from fedmq.privacy.plan import PARCELS_AHEAD, Exchange, Reply, Values
from fedmq.protocol.machine import PlanState

__all__ = ["Circuits", "HandedOn"]

_MOST_UNREAD = 2**10  # contests; one at a time is begun unless nodes draw their columns


@dataclass(slots=True)
class _Talk:
    """About ``nodes`` of a tree with one peer, who may send so many bytes of parcels in all."""

    tree: int
    nodes: Sequence[int]
    most_bytes: int
    chain: tuple[str, ...]
    sent: int = 0
    heard: int = 0
    bytes: int = 0
    pieces: list[Values] = field(default_factory=list)
    unread: deque[list[Values]] = field(default_factory=deque)
    waiting: PlanState | None = None


class Circuits:
    """The talks by peer and first node; the active party ``opens`` them.

    ``send`` takes a recipient and a body, ``resume`` a plan and what it waits for.
    """

    def __init__(
        self,
        send: Callable[[str, training.CircuitPiece], None],
        resume: Callable[[PlanState, Any], None],
        *,
        opens: bool,
    ) -> None:
        self._send = send
        self._resume = resume
        self._opens = opens
        self._talks: dict[tuple[str, int], _Talk] = {}

    def begin(
        self,
        peer: str,
        tree: int,
        nodes: Sequence[int],
        most_bytes: int,
        chain: tuple[str, ...] = (),
    ) -> None:
        """A talk about ``nodes`` with ``peer``, who sends so many bytes at most.

        ``chain``: all peers with whom there is one, if they are several.
        """
        talk = _Talk(tree, nodes, most_bytes, chain)
        talk.heard = 0 if self._opens else 1  # what opens it was heard
        self._talks[peer, nodes[0]] = talk

    def end(self, peer: str, node: int) -> None:
        """The winners are known. Raises ProtocolError where ``peer`` has said more."""
        talk = self._talks.pop((peer, node))
        if talk.unread or talk.pieces:
            raise ProtocolError(f"circuits of node {node} go on after their end")

    def follow(self, peer: str, node: int, step: Exchange | Reply, run: PlanState) -> None:
        """The plan ``run`` of this party's half wants to send a parcel, or waits for one."""
        talk = self._talks[peer, node]
        if step.pieces:
            self._say(peer, node, talk, step.pieces)
        if isinstance(step, Exchange):
            if talk.unread:
                self._resume(run, talk.unread.popleft())
            else:
                talk.waiting = run

    def _say(self, peer: str, node: int, talk: _Talk, pieces: Sequence[Values]) -> None:
        opening = self._opens and not talk.sent
        for index, values in enumerate(pieces):
            piece = training.CircuitPiece(
                tree=talk.tree,
                node=node,
                parcel=talk.sent,
                piece=index,
                pieces=len(pieces),
                payload=pack_payload(values),
                level=tuple(talk.nodes) if opening else (),
                chain=talk.chain if opening else (),
            )
            self._send(peer, piece)
        talk.sent += 1

    def hear(self, peer: str, body: training.CircuitPiece) -> None:
        """Take a piece of a parcel of ``peer``; who waits for the parcel goes on after the last.

        Raises:
            ProtocolError: it is out of place, or all parcels together are longer than they can be.
        """
        talk = self._talks.get((peer, body.node))
        if (
            talk is None
            or body.tree != talk.tree
            or body.level
            or (body.parcel, body.piece) != (talk.heard, len(talk.pieces))
            or len(talk.unread) >= PARCELS_AHEAD
        ):
            raise ProtocolError(f"a piece of circuits of node {body.node}, out of place")
        talk.bytes += payload_bytes(body.payload)
        if talk.bytes > talk.most_bytes or body.pieces > talk.most_bytes + 1:
            raise ProtocolError(
                f"circuits of {talk.bytes:,} bytes or more about node {body.node}, they take "
                f"{talk.most_bytes:,}"
            )
        talk.pieces.append(unpack_payload(body.payload))
        if len(talk.pieces) < body.pieces:
            return
        parcel, talk.pieces = talk.pieces, []
        talk.heard += 1
        if talk.waiting is None:
            talk.unread.append(parcel)
        else:
            run, talk.waiting = talk.waiting, None
            self._resume(run, parcel)


Key = tuple[str, int]
"""Who hands on, and the first node of a contest."""


class HandedOn:
    """What came, and who waits, in one tree; ``resume`` takes a plan and what it waits for."""

    def __init__(self, resume: Callable[[PlanState, Any], None]) -> None:
        self._resume = resume
        self._unread: dict[Key, Sequence[Values]] = {}
        self._waiting: dict[Key, PlanState] = {}

    def wait(self, sender: str, node: int, run: PlanState) -> None:
        """The plan ``run`` goes on with what ``sender`` hands on, when it has come."""
        key = (sender, node)
        if key in self._unread:
            self._resume(run, self._unread.pop(key))
        else:
            self._waiting[key] = run

    def take(self, sender: str, node: int, pieces: Sequence[Values]) -> None:
        """``sender`` hands on ``pieces``. Raises ProtocolError where it has done so before."""
        key = (sender, node)
        if key in self._waiting:
            self._resume(self._waiting.pop(key), pieces)
        elif key in self._unread or len(self._unread) >= _MOST_UNREAD:
            raise ProtocolError(f"shares of node {node}, which nobody waits for")
        else:
            self._unread[key] = pieces
