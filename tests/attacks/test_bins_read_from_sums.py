"""An active party that only looks recognises small sums as those of particular people.

With very few ``gradient_bits`` many sets of people have the same sum; it does not end there.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

import fedmq
from tests.how_often import seldom

RANDOM = np.random.default_rng(1)
TABLE = RANDOM.normal(size=(300, 4)).astype(np.float32)
LABEL = TABLE.sum(axis=1) + RANDOM.normal(size=300) > 0


def learned(
    folder: Path, engine: str, bits: int | None, weight: NDArray[np.float32] | None = None
) -> dict[str, float]:
    weak = {"key_bits": 512, "allow_weak_keys": True} if engine == "paillier" else {}
    passive = {"telco": TABLE[:, 2:]}
    model = fedmq.simulate(
        active=TABLE[:, :2],
        label=LABEL.astype(int),
        passive=passive,
        params=fedmq.TrainParams(num_boost_round=3, max_depth=4, max_bin=64, gradient_bits=bits),
        engine=engine,
        engine_options=weak,
        workers=1,
        weight=weight,
        record=folder,
    )
    report = fedmq.audit(
        folder / "active.recording",
        passive=passive,
        label=LABEL,
        leaf_weights=model.leaf_weights(active=TABLE[:, :2], passive=passive),
        solve=False,
        weight=weight,
    )
    return {
        finding.target.removeprefix("telco's "): finding.value
        for finding in report.findings
        if finding.attack == "bins from sums"
    }


@pytest.mark.long
def test_sums_of_long_gradients_name_people_and_those_of_two_bits_far_fewer(
    tmp_path: Path,
) -> None:
    long = learned(tmp_path / "long", "plain", None)
    short = learned(tmp_path / "short", "plain", 2)
    assert long["cells between two cuts"] > 0.1
    assert long["rows named in sums"] > 0.99
    assert short["cells between two cuts"] < long["cells between two cuts"] / 2


@pytest.mark.long
@pytest.mark.parametrize("bits", [4, *seldom(None)])
def test_what_is_encrypted_tells_the_one_who_decrypts_as_much(
    tmp_path: Path, bits: int | None
) -> None:
    plain = learned(tmp_path / "plain", "plain", bits)
    assert plain == learned(tmp_path / "paillier", "paillier", bits)


@pytest.mark.long
def test_weights_of_rows_are_no_shelter_from_who_knows_them(tmp_path: Path) -> None:
    weight = RANDOM.integers(1, 4, 300).astype(np.float32)
    plain = learned(tmp_path / "plain", "plain", None, weight)
    encrypted = learned(tmp_path / "paillier", "paillier", None, weight)
    assert plain["rows named in sums"] > 0.95
    assert encrypted == plain
