"""With hidden sums an active party learns the secret of a circuit's labels, and by it all sums.

It chooses otherwise for one group of an extension of transfers: what comes back tells whether a bit
of that group is set in the passive party's secret. All labels of a session differ by this secret.
"""

from __future__ import annotations

import numpy as np
import pytest

from fedmq.errors import MessageError
from fedmq.privacy.oblivious_transfer.seeds import GROUP_BITS
from tests.how_often import seldom
from tests.privacy.hidden_sums.level_chain import ToldChain, run
from tests.privacy.hidden_sums.test_level import drawn, own_gains
from tests.privacy.oblivious_transfer.base import pairs_of, secret_of
from tests.privacy.oblivious_transfer.cheating_receiver import CheatingReceiver

EXTENSIONS = ["filter", "gains", "best so far"]
LEVEL = drawn(2, 9)


def told(extension: str, column: int) -> ToldChain:
    """A level of two passive parties; the active party cheats the second one."""
    cheating = CheatingReceiver(pairs_of(2), EXTENSIONS.index(extension), column)
    found = run([LEVEL] * 2, own_gains(LEVEL, 0), receivers={2: cheating})
    assert len(cheating.sent) == len(EXTENSIONS)
    return found


@pytest.mark.parametrize("extension", [EXTENSIONS[0], *seldom(*EXTENSIONS[1:])])
def test_a_bit_that_is_set_costs_the_session(extension: str) -> None:
    with pytest.raises(MessageError, match="other choices in other columns"):
        told(extension, int(np.flatnonzero(secret_of(2))[5]))


@pytest.mark.parametrize("extension", [EXTENSIONS[0], *seldom(*EXTENSIONS[1:])])
def test_four_bits_that_are_not_set_are_learnt_and_change_nothing(extension: str) -> None:
    """A guess is right with a chance of 1/16, and 32 have to be before labels can be read."""
    honest = run([LEVEL] * 2, own_gains(LEVEL, 0))
    unset = ~secret_of(2).reshape(-1, GROUP_BITS).any(axis=1)
    found = told(extension, int(np.flatnonzero(unset)[0]) * GROUP_BITS)
    assert (found.owners, found.index) == (honest.owners, honest.index)
