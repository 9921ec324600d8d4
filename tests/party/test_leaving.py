"""A passive party leaves, and the active party goes on with a model without it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from fedmq.party.store.documents import training_records
from tests.cli.command import Outcome, fedmq
from tests.party.daemons_in_memory import DaemonsInMemory
from tests.party.test_fallback_models import grown, job
from tests.party.test_membership import members

ASKED = [f"p{row:02}" for row in range(40)]


async def without(demo: DaemonsInMemory, party: str, *more: str) -> Outcome:
    words = ("models", "without", demo.folder / "bank" / "party.toml", "m", party, *more)
    return await asyncio.to_thread(fedmq, *words, "--json")


async def test_a_model_is_retrained_with_the_parties_that_stay_and_stands_in_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    bank = demo.folder / "bank" / "party.toml"
    bank.write_text(bank.read_text() + '[online]\nunknown = "fallback"\n')
    async with demo:
        await demo.ask("bank", "train", job=job())
        made = (await without(demo, "retail")).result
        assert (made["model"], made["how"]) == ("m-without-retail", "retrained")
        assert made["without"] == ["retail"]
        store = demo.daemons["bank"].parts.context.model_store
        main, found = store.active("m"), store.active("m-without-retail")
        assert made["metrics"] == found.metrics
        assert made["metrics_with"] == main.metrics
        await demo.ask("bank", "train", job=job(model="own", parties=["telco"]))
        assert grown(found) == grown(store.active("own"))
        assert (await without(demo, "retail")).result["how"] == "kept"
        assert "is no passive party" in (await without(demo, "bank")).error
        members(demo, "telco")
        await demo.ask("bank", "reload")
        scored = await demo.ask("bank", "predict", model="m", ids=ASKED)
        assert set(scored["fallback"]) == {"m-without-retail"}
        alone = await demo.ask("bank", "predict", model="m-without-retail", ids=ASKED)
        assert scored["scores"] == alone["scores"]


@pytest.mark.long
async def test_where_nothing_can_be_trained_the_own_splits_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = DaemonsInMemory(tmp_path, monkeypatch)
    state = demo.folder / "bank" / "state"
    async with demo:
        params = {"num_boost_round": 20, "max_depth": 2, "max_bin": 8, "min_child_weight": 0.1}
        await demo.ask("bank", "train", job=job(params=params))
        training_records(state).forget("m")
        assert "--prune keeps the own splits" in (await without(demo, "telco")).error
        made = (await without(demo, "telco", "--prune")).result
        assert (made["model"], made["how"]) == ("m-alone", "pruned")
        assert made["without"] == ["retail", "telco"]
        assert "pruned to leaves" in made["departures"][-1]
        assert "there is a model m-alone already" in (await without(demo, "telco", "--prune")).error
        members(demo)
        await demo.ask("bank", "reload")
        scores = (await demo.ask("bank", "predict", model="m-alone", ids=ASKED))["scores"]
        assert None not in scores
        assert len(set(scores)) > 1
        log = (state / "audit.jsonl").read_text().splitlines()
        notes: list[Any] = [entry for entry in map(json.loads, log) if entry.get("did")]
        assert (notes[-1]["did"], notes[-1]["model"]) == ("model pruned", "m-alone")
