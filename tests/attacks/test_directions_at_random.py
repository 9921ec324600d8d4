"""A passive party sends other rows left than its sums said: it spoils the model, unnoticed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import Inconsistent
from fedmq.privacy.engine import Engine
from fedmq.protocol.training import passive_growth
from tests.protocol.federation import ACTIVE, OU, PAILLIER, PLAIN, small


@pytest.mark.parametrize("engine", [PLAIN, PAILLIER, OU], ids=lambda engine: engine.name)
def test_directions_that_do_not_fit_the_sums_end_the_session(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    random = np.random.default_rng(9)

    def at_random(*given: Any) -> Any:
        return random.random(len(given[-1])) < 0.5

    monkeypatch.setattr(passive_growth, "went_left", at_random)
    simulation = small(counts=(0, 2, 2)).having(engine=engine).train()
    error = simulation.errors[ACTIVE]
    assert isinstance(error, Inconsistent)
    assert error.party in {"telco", "shop"}
    assert "the rows that go left contradict the sums" in str(error)
    assert simulation.errors.keys() == {ACTIVE, "telco", "shop"}
    for other in ("telco", "shop"):
        assert str(error) in str(simulation.errors[other])
