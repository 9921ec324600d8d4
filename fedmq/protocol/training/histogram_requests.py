"""Which sums were asked for, and which requests are complete?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from fedmq.errors import ProtocolError
from fedmq.messages import training
from fedmq.messages.array import payload_bytes, unpack_payload
from fedmq.privacy.engine import Extent
from fedmq.privacy.plan import Values

__all__ = ["HistogramRequest", "HistogramRequests"]


@dataclass(slots=True)
class HistogramRequest:
    """A request of a round, whose query ``pieces`` come in: so many are ``missing`` by node.

    All of a node are not longer than the ``largest`` query about it.
    """

    round: int
    missing: dict[int, int]
    pieces: dict[int, list[Values]]
    largest: Mapping[int, Extent]
    bytes: Counter[int] = field(default_factory=Counter)
    taking: int = 0
    """So many plans of the engine have begun with pieces, and not ended."""

    @property
    def is_complete(self) -> bool:
        """Whether all query pieces are here, and the engine has taken those that it began with."""
        return not self.taking and not any(self.missing.values())


class HistogramRequests:
    """The requests about tree ``tree`` that have no answer yet."""

    def __init__(self, tree: int) -> None:
        self._tree = tree
        self._open: list[HistogramRequest] = []
        self._declined: dict[int, int] = {}
        """Query pieces that are under way for nodes that were declined."""

    def add(self, body: training.HistogramRequest, largest: Mapping[int, Extent]) -> None:
        """A request about nodes that exist; the ``largest`` query about each.

        Raises:
            ProtocolError: it announces more pieces.
        """
        for query in body.nodes:
            if query.pieces > (most := largest[query.node].pieces):
                raise ProtocolError(
                    f"a query of {query.pieces} pieces about node {query.node}, {most} hold all"
                )
        missing = {query.node: query.pieces for query in body.nodes}
        pieces: dict[int, list[Values]] = {node: [] for node in missing}
        self._open.append(HistogramRequest(body.round, missing, pieces, largest))

    def add_piece(self, body: training.QueryPiece) -> HistogramRequest | None:
        """A piece of a query, and its request; None where it was dropped with a declined node.

        Raises:
            ProtocolError: it was not announced, or the query is longer than it can be.
        """
        announced = (
            request
            for request in self._open
            if request.round == body.round and request.missing.get(body.node)
        )
        request = next(announced, None)
        if request is None and body.tree == self._tree and self._declined.get(body.node):
            self._declined[body.node] -= 1
            return None
        if request is None or body.tree != self._tree:
            raise ProtocolError(f"a query piece for node {body.node} that was not announced")
        request.bytes[body.node] += payload_bytes(body.payload)
        if request.bytes[body.node] > (most := request.largest[body.node].bytes):
            raise ProtocolError(
                f"a query of {request.bytes[body.node]:,} bytes or more about node {body.node}, "
                f"it takes {most:,}"
            )
        request.pieces[body.node].append(unpack_payload(body.payload))
        request.missing[body.node] -= 1
        return request

    def decline(self, is_too_small: Callable[[int], bool]) -> Sequence[int]:
        """Drop the nodes that are too small from all requests; those nodes."""
        declined = []
        for request in self._open:
            for node in [node for node in request.pieces if is_too_small(node)]:
                self._declined[node] = request.missing.pop(node)
                del request.pieces[node]
                declined.append(node)
        return declined

    def take_complete(self) -> Sequence[tuple[int, Mapping[int, Sequence[Values]]]]:
        """Round and query pieces by node of the requests that are complete; they are forgotten."""
        complete = [request for request in self._open if request.is_complete]
        self._open = [request for request in self._open if not request.is_complete]
        return [(request.round, request.pieces) for request in complete if request.pieces]
