"""What does the label holder know of the signs of candidates, under monotone constraints?

One sign per opaque candidate, told with the sums of a node; not by which column.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fedmq.errors import ProtocolError
from fedmq.messages.array import Bitmap
from fedmq.messages.training import HistogramReply
from fedmq.protocol.training.consistency import NodeAnswer

__all__ = ["CandidateSigns", "shown_signs"]


def shown_signs(signs: NDArray[np.int8]) -> dict[str, Bitmap]:
    """The fields of the first piece of a reply that carry ``signs`` (candidates,), as shown."""
    return {"rising": Bitmap.of(signs > 0), "falling": Bitmap.of(signs < 0)}


class CandidateSigns:
    """The signs of candidates as the ``signed`` peers showed them, by peer and node of a tree."""

    def __init__(self, signed: Sequence[str]) -> None:
        self._signed = frozenset(signed)
        self._signs: dict[tuple[str, int], NDArray[np.int8]] = {}

    def take(self, peer: str, body: HistogramReply, candidates: int) -> None:
        """Note the signs in a reply of ``peer``, which announced so many candidates at most.

        Raises:
            ProtocolError: there are none though the peer announced them, or the other way round.
            Inconsistent: there are more than candidates.
        """
        told = body.rising is not None and body.falling is not None
        if told != (peer in self._signed and body.piece == 0):
            raise ProtocolError(f"signs of the candidates of node {body.node}, out of place")
        if body.rising is None or body.falling is None:
            return
        claim = NodeAnswer(peer, body.tree, body.node)
        claim.check_count(max(body.rising.count, body.falling.count), candidates)
        rising, falling = body.rising.numpy(), body.falling.numpy()
        if len(rising) != len(falling) or (rising & falling).any():
            raise ProtocolError(f"signs of the candidates of node {body.node} that contradict")
        self._signs[peer, body.node] = rising.astype(np.int8) - falling.astype(np.int8)

    def of(self, peer: str, node: int, candidates: int) -> NDArray[np.int8]:
        """The signs of all that ``peer`` showed in ``node``; zeros where it announced none.

        Raises:
            ProtocolError: there are not as many as candidates.
        """
        signs = self._signs.get((peer, node), np.zeros(candidates, np.int8))
        if peer in self._signed and len(signs) != candidates:
            raise ProtocolError(f"{len(signs)} signs for {candidates} candidates of node {node}")
        return signs
