from __future__ import annotations

import pytest

from tests.differential.fuzz import run

pytest.importorskip("xgboost")


@pytest.mark.parametrize("first", range(0, 150, 25))
def test_every_node_is_xgboosts(first: int) -> None:
    assert run(first, 25) == []
