"""``fedmq models card --worth`` of a model that was trained with selected columns."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from fedmq.boosting.params import TrainParams
from fedmq.errors import DaemonError
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.documents import selections
from tests.cli.command import Outcome, fedmq
from tests.party.test_selection import STRONG, Screened, features


async def typed(*words: str | Path) -> Outcome:
    return await asyncio.to_thread(fedmq, *words)


async def trained(demo: Screened, model: str, **keys: object) -> None:
    params = TrainParams(num_boost_round=2, max_depth=2, max_bin=8, eval_metric="auc")
    job = TrainingJob(model=model, engine="plain", params=params, evaluation=0.4, **keys)  # type: ignore[arg-type]
    await demo.ask("bank", "train", job=job.model_dump(mode="json"))


@pytest.mark.long
async def test_a_partner_is_compared_on_the_columns_that_were_selected_for_the_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    demo = Screened(tmp_path, monkeypatch)
    bank, card = tmp_path / "bank" / "party.toml", tmp_path / "few.card.json"
    async with demo:
        await demo.screen()
        await trained(demo, "few", select={"iv": 0.3})
        # Of few people all columns tell something, so this screen would select others.
        await demo.screen(most_rows=20)
        await trained(demo, "anew", select={"iv": 0.3}, parties=("telco",))
        words = ("models", "card", bank, "few", "-o", card, "--no-evaluation", "--worth", "--json")
        await typed(*words)
        for partner, other in (("telco", "retail"), ("retail", "telco")):
            assert features(demo.passive(other, f"few-without-{partner}")) == STRONG[other]
            kept = selections(demo.state("bank")).read(f"few-without-{partner}")
            assert set(kept.others) == {other}
        with pytest.raises(DaemonError, match="no columns that were selected for a model 'other'"):
            await trained(demo, "more", select={"model": "other"})
        # A model of other columns is no model without a partner.
        await typed("models", "delete", bank, "few-without-retail", "--yes")
        await trained(demo, "few-without-retail", select={"iv": 0.3}, parties=("telco",))
        refused = await typed(*words)
    assert features(demo.passive("telco", "anew")) != STRONG["telco"]
    worth = json.loads(card.read_text())["card"]["worth"]
    assert worth.keys() == {"telco", "retail"}
    assert "there is a model few-without-retail already, of other columns" in refused.error
