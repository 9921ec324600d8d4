from __future__ import annotations

import pytest

from tests.differential.fuzz import run
from tests.how_often import some_seeds

pytest.importorskip("xgboost")


@some_seeds(150, block=6, often=4)
def test_every_node_is_xgboosts(seeds: range) -> None:
    assert run(seeds.start, len(seeds)) == []
