"""What a passive party sends follows from its secret and from what it is sent."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.errors import MessageError
from fedmq.privacy.hidden_sums.steps import garble_level
from fedmq.privacy.plan import Compute, Values
from tests.privacy.hidden_sums.drawn_level import DrawnLevel
from tests.privacy.hidden_sums.driven import Parcel, Running
from tests.privacy.hidden_sums.level_pair import SEED, LevelPair, talked
from tests.protocol.dealt_shares_engine import DealtShares

VALUES = np.random.default_rng(1).normal(size=(20, 2)).astype(np.float32)
TO_BEAT = np.full(2, -np.inf, np.float32)


def level() -> DrawnLevel:
    return DrawnLevel.of(np.random.default_rng(3), 2, 12, rows=200)


def computed(plan: Any) -> Any:
    """What a plan returns that talks to nobody."""
    value = None
    while True:
        try:
            step = plan.send(value)
        except StopIteration as end:
            return end.value
        if isinstance(step, Compute):
            value = [computation.run() for computation in step.computations]


def opened() -> Values:
    """What the active party sends before the session."""
    active = DealtShares().active(1)
    active.start_session(np.ones(20, np.bool_))
    return computed(active.open())


def first_message(public: Values, secret: bytes) -> tuple[bytes, bytes]:
    """The passive party's choices of transfers, and its offer."""
    bins = BinMatrix.of(VALUES, Cuts.of(VALUES, 6))
    passive = DealtShares().passive(public, bins, 1)
    passive.start_session(np.ones(20, np.bool_), secret=secret)
    [setup] = computed(passive.setup())
    return setup["circuits"].tobytes(), setup["back"].tobytes()


def test_the_same_secret_begins_the_same_transfers_and_another_one_others() -> None:
    public = opened()
    first, again, other = (first_message(public, secret * 32) for secret in (b"a", b"a", b"b"))
    assert first == again
    assert all(own != theirs for own, theirs in zip(first, other, strict=True))


def sent_again(asked: list[Parcel], masks: bytes) -> list[bytes]:
    """What a new half sends that is asked the same, until it refuses."""
    _, garbler = LevelPair().halves(level(), TO_BEAT, masks=masks)
    sent: list[Parcel] = []
    passive = Running(garble_level(garbler, 1), sent.append)
    for parcel in asked:
        passive.hear(parcel)
    try:
        while not passive.ended and passive.go_on():
            pass
    except MessageError:
        pass  # labels that fit other masks
    return contents(sent)


def contents(parcels: list[Parcel]) -> list[bytes]:
    return [b"".join(piece["bytes"].tobytes() for piece in parcel) for parcel in parcels]


def test_a_level_that_is_replayed_sends_the_same_bytes_and_under_other_masks_others() -> None:
    evaluator, garbler = LevelPair().halves(level(), TO_BEAT)
    _, _, sent, asked = talked(evaluator, garbler, apart=False)
    assert sent_again(asked, SEED) == contents(sent)
    others = sent_again(asked, b"o" * 32)
    same = [own == other for own, other in zip(contents(sent), others, strict=False)]
    assert True in same  # what comes before the masks
    assert False in same
