"""The page about MLflow, typed from top to bottom beside three daemons."""

from __future__ import annotations

import asyncio
from typing import Any

import mlflow
import pytest

import fedmq
from tests.documentation.fences import DOCS, to_run
from tests.party.daemons_in_memory import DaemonsInMemory

PAGE = DOCS / "how-to" / "mlflow.md"


async def test_the_page_keeps_a_training_and_serves_its_model(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(federation.folder)
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    known: dict[str, Any] = {"ids": [f"p{row:02}" for row in range(40)]}

    def typed() -> None:
        for fence in to_run("python", PAGE):
            text = fence.text.replace('job = {"', 'job = {"engine": "plain", "')
            text = text.replace("http://127.0.0.1:5000", str(federation.folder / "mlruns"))
            exec(compile(text, str(fence), "exec"), known)  # noqa: S102

    try:
        await asyncio.to_thread(typed)
        [run] = mlflow.search_runs(output_format="list", search_all_experiments=True)
    finally:
        fedmq.mlflow.autolog(disable=True)
        mlflow.set_tracking_uri(None)
    assert run.data.metrics["report auc"] == pytest.approx(run.data.metrics["eval-auc"])
    assert known["scores"].shape == (40, 1)
    served = await federation.ask("bank", "serving")
    assert served["models"]["production"]["model"] == "credit-november"
