"""The base transfers between one sender and one receiver, done once."""

from __future__ import annotations

from functools import cache

import numpy as np

from fedmq.privacy.oblivious_transfer.base_transfers import ChooseSeeds, MakeOffer, OfferedSeeds
from fedmq.privacy.oblivious_transfer.extension import (
    ExtensionReceiver,
    ExtensionSender,
    draw_choices,
)

SENDER, RECEIVER = b"s" * 32, b"r" * 32
CHOICES = draw_choices(b"c" * 32)


def base() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """What was chosen, its seeds, and both seeds of each transfer."""
    return _transferred(CHOICES.tobytes())


def extension() -> tuple[ExtensionReceiver, ExtensionSender]:
    """Both sides of extensions: who chose in the base transfers sends in these.

    Its secret is what it did not choose.
    """
    return extension_by(CHOICES)


def extension_of(party: int) -> tuple[ExtensionReceiver, ExtensionSender]:
    """The same with one of several senders, each of which has a secret of its own."""
    return extension_by(secret_of(party))


def pairs_of(party: int) -> np.ndarray:
    """What the receiver of one of several senders begins with."""
    return _transferred((~secret_of(party)).tobytes())[2]


def extension_by(secret: np.ndarray) -> tuple[ExtensionReceiver, ExtensionSender]:
    """The same by the sender's ``secret``, bool (128,)."""
    _, seeds, pairs = _transferred((~secret).tobytes())
    return ExtensionReceiver(pairs), ExtensionSender(secret, seeds)


def secret_of(party: int) -> np.ndarray:
    """The secret of one of several senders: bool (128,)."""
    return draw_choices(bytes([party]) * 32)


@cache
def _transferred(choices: bytes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    offer = MakeOffer(SENDER).run()
    chosen, seeds = ChooseSeeds(offer, np.frombuffer(choices, np.bool_), RECEIVER).run()
    return chosen, seeds, OfferedSeeds(chosen, SENDER).run()
