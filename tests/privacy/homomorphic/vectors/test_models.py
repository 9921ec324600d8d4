"""On a wide table an encrypting engine grows the trees of the engine without secrecy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.params import TrainParams
from fedmq.simulation.simulate import simulate
from tests.how_often import seldom_several


@pytest.mark.parametrize(
    ("engine", "key_bits", "gradient_bits"),
    [("ou", 576, None), *seldom_several(("paillier", 768, 2))],
)
def test_shares_are_byte_for_byte_those_of_plain(
    engine: str, key_bits: int, gradient_bits: int | None
) -> None:
    random = np.random.default_rng(4)
    own = random.normal(size=(300, 2))
    other = random.normal(size=(300, 45))
    other[:, ::3] = other[:, ::3] > 0  # few values
    other[:, 1::6][random.random((300, 8)) < 0.97] = 0  # mostly zero
    other[random.random(other.shape) < 0.1] = np.nan
    label = (np.nansum(other[:, :6], axis=1) + own[:, 0] > 0).astype(int)

    def shares(name: str, options: dict[str, Any]) -> tuple[str, str]:
        model = simulate(
            active=own,
            label=label,
            passive={"telco": other},
            params=TrainParams(
                num_boost_round=2, max_depth=3, max_bin=32, gradient_bits=gradient_bits
            ),
            engine=name,
            engine_options=options,
            workers=1,
        )
        return model.share.model_dump_json(), model.passive_shares["telco"].model_dump_json()

    encrypted = shares(engine, {"key_bits": key_bits, "allow_weak_keys": True})
    assert encrypted == shares("plain", {})
