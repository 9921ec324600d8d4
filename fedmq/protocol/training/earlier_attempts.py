"""What of earlier attempts at a training binds the one that goes on?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedmq.errors import ProtocolError
from fedmq.messages.array import pack_payload
from fedmq.messages.codec import pack_body
from fedmq.messages.training import TrainingOpen
from fedmq.protocol.records import PassiveTree

__all__ = ["kept_before", "terms_digest"]

_REGROWN = 1
"""No two parties are further apart, so nobody needs more of another's trees grown again."""


def terms_digest(terms: TrainingOpen) -> str:
    """What tells ``terms`` from others: 16 bytes of BLAKE2b (RFC 7693), in hex.

    Keys are not among them: an engine makes new ones for each attempt.
    """
    lasting = {"public": pack_payload({}), "signs": dict(sorted(terms.signs.items()))}
    packed = pack_body(terms.model_copy(update=lasting))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def kept_before(
    tree: int, saved: Sequence[PassiveTree], *, finished: bool
) -> tuple[PassiveTree, ...]:
    """Those of ``saved`` before ``tree``, with which the session goes on.

    ``finished``: an earlier attempt has finished at this party, and so all trees are everywhere.
    Raises ProtocolError where more trees would grow again than a crash can cost.
    """
    kept = tuple(earlier for earlier in saved if earlier.number < tree)
    if len(saved) - len(kept) > (0 if finished else _REGROWN):
        raise ProtocolError(
            f"tree {tree} was to grow again after {saved[-1].number + 1} were saved everywhere"
        )
    return kept
