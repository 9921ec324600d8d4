"""Both halves of copies of a level in one process, and all that goes between them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from fedmq.computation import Given
from fedmq.privacy.engine import ALONE
from fedmq.privacy.hidden_sums.copies import Copies, CopySecrets
from fedmq.privacy.hidden_sums.level import HiddenLevel
from fedmq.privacy.hidden_sums.proof import Signer
from fedmq.privacy.hidden_sums.talks import evaluate_copies, garble_copies
from fedmq.privacy.oblivious_transfer.extension import Tweaks
from fedmq.privacy.plan import Plan
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import Running, run_all
from tests.privacy.hidden_sums.filtered import factors_of
from tests.privacy.hidden_sums.level_pair import BACK, PERMUTATION, Told, drawn_shares
from tests.privacy.oblivious_transfer.base import extension, extension_of

SIGNER = Ed25519PrivateKey.from_private_bytes(b"k" * 32)
"""The passive party's key of the session."""

FIRST = 1
"""The node under which parcels travel."""


@dataclass(eq=False)
class CopiedLevels:
    """Levels of one session, of which ``count`` copies are made; ``secret`` is the garbler's."""

    count: int = 2
    secret: bytes = b"s" * 32
    tweaks: tuple[Tweaks, ...] = field(default_factory=lambda: tuple(Tweaks() for _ in range(4)))

    def __post_init__(self) -> None:
        self.receiver, self.sender = extension()
        self.back_receiver, self.back_sender = extension_of(9)

    def copies(self, level: DrawnLevel, own: Tweaks, back: Tweaks) -> Copies:
        hidden = HiddenLevel(level.circuit.ranked_at(ALONE), *level.left.shape[:2], ALONE)
        return Copies.of(hidden, self.count, (PERMUTATION, own), (BACK, back))

    def plans(
        self, level: DrawnLevel, to_beat: np.ndarray, seed: bytes = b"s" * 32
    ) -> tuple[Plan[Any], Plan[Any]]:
        own, other = drawn_shares(level, seed)
        copies = self.copies(level, *self.tweaks[:2])
        evaluating = evaluate_copies(
            copies,
            self.receiver,
            self.back_sender,
            own,
            level.inputs(to_beat),
            Given(factors_of(level, to_beat)),
            Signer("telco", SIGNER.public_key().public_bytes_raw(), b"by telco"),
            FIRST,
        )
        copies = self.copies(level, *self.tweaks[2:])
        keys = CopySecrets.of(self.secret, copies)
        garbling = garble_copies(
            copies, other, keys, self.sender, self.back_receiver, SIGNER, FIRST
        )
        return evaluating, garbling

    def run(
        self,
        level: DrawnLevel,
        to_beat: np.ndarray,
        seed: bytes = b"s" * 32,
        *,
        lying: Callable[[Plan[Any]], Plan[Any]] = lambda plan: plan,
        apart: bool = False,
    ) -> Told:
        """``lying`` makes the passive party's plan another one."""
        evaluating, garbling = self.plans(level, to_beat, seed)
        active = Running(evaluating, apart=apart)
        passive = Running(lying(garbling), active.hear, opened=False, apart=apart)
        active.send = passive.hear
        learned, winners = run_all([active, passive])
        return Told(
            drawn_shares(level, seed)[0],
            learned.won.tolist(),
            [winner is not None for winner in winners],
            [winner or 0 for winner in winners],
            learned.crowded.tolist(),
            learned.overfull.tolist(),
            learned.doubtful.tolist(),
            active.heard,
            passive.heard,
        )
