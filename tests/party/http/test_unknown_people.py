"""A person whom a passive party does not know: one rule for the score, and always said."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.party.http.serving import PREDICT, serving
from tests.party.online.serving_harness import ServingHarness
from tests.protocol.online.test_online import World

STRANGER = 3  # to telco


@pytest.fixture(scope="module")
def world() -> World:
    return World(rows=120)


def harness(world: World, mode: str, learned: bool, **online: Any) -> ServingHarness:
    """Telco does not know P3. ``learned``: the training had people whom telco lacks."""
    telco = world.shares["telco"]
    known = {name: row for name, row in telco.row_of.items() if name != f"P{STRANGER}"}
    gapped = World.__new__(World)
    gapped.__dict__.update(world.__dict__)
    gapped.shares = {**world.shares, "telco": replace(telco, row_of=known)}
    if learned:
        share = world.model.share.model_copy(update={"lacked_at": {"telco": 7}})
        gapped.served = replace(world.served, share=share)
    return ServingHarness(gapped, mode=mode, **online)


@pytest.mark.parametrize("mode", ["hop", "bitmap"])
@pytest.mark.parametrize(
    ("online", "learned"),
    [
        ({}, True),
        ({"degrade": "partial"}, True),
        ({"unknown": "null"}, True),
        ({"unknown": "directions"}, False),
    ],
    ids=["nothing-said", "degrade-is-another-key", "null", "nothing-learned"],
)
async def test_such_a_person_has_no_score_unless_directions_are_learned_and_wanted(
    world: World, mode: str, online: dict[str, Any], learned: bool
) -> None:
    served = harness(world, mode, learned, **online)
    async with serving(served) as client:
        answer = (await client.post(PREDICT, json={"ids": ["P2", f"P{STRANGER}"]})).json()
        known, stranger = answer["scores"]
        assert known["score"] is not None and "unknown_at" not in known
        assert stranger == {"id": f"P{STRANGER}", "score": None, "unknown_at": ["telco"]}
        assert answer["degraded"] == {"telco": 0.5}
        alone = await client.post(PREDICT, json={"ids": [f"P{STRANGER}"]})
        assert alone.status_code == 404 and "is not known at telco" in alone.json()["error"]
    assert served.scorer.counts.degraded == 2


@pytest.mark.parametrize("mode", ["hop", "bitmap"])
async def test_learned_directions_give_xgboosts_score_of_missing_values(
    world: World, mode: str
) -> None:
    served = harness(world, mode, learned=True, unknown="directions")
    table = np.hstack(list(world.columns.values())).copy()
    table[STRANGER, 3:6] = np.nan
    expected = float(world.xgboost_margins(table)[STRANGER])
    async with serving(served) as client:
        asked = {"ids": [f"P{STRANGER}"], "output": "margin"}
        answer = (await client.post(PREDICT, json=asked)).json()
        [scored] = answer["scores"]
        assert scored["score"] == expected
        assert scored["unknown_at"] == ["telco"] and answer["degraded"] == {"telco": 1.0}
        both = {"ids": [f"P{STRANGER}", "nobody"], "output": "margin"}
        scores = (await client.post(PREDICT, json=both)).json()["scores"]
        assert [row["score"] for row in scores] == [expected, None]


async def test_a_model_that_has_lost_a_party_is_served_to_nobody(world: World) -> None:
    served = harness(world, "hop", learned=True, unknown="directions", degrade="partial")
    served.scorer.members = ("active", "retail")
    async with serving(served) as client:
        answer = await client.post(PREDICT, json={"ids": ["P2"]})
        assert answer.status_code == 409
        assert "cannot be used without telco, which has left" in answer.json()["error"]
