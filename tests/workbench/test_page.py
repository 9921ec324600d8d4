"""The page about Python for daemons, typed from top to bottom beside three daemons."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.documentation.fences import DOCS, to_run
from tests.party.daemons_in_memory import DaemonsInMemory

PAGE = DOCS / "how-to" / "drive-daemons.md"


async def test_the_page_drives_daemons_from_tables_to_a_served_model(
    federation: DaemonsInMemory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(federation.folder)
    known: dict[str, Any] = {"ids": [f"p{row:02}" for row in range(40)]}

    def typed() -> None:
        for fence in to_run("python", PAGE):
            text = fence.text
            for word in ("model=", "federation=", "nfold=2"):  # where a training begins
                text = text.replace(word, f'engine="plain", {word}')
            exec(compile(text, str(fence), "exec"), known)  # noqa: S102
        asyncio.run(known["train_again"]())

    await asyncio.to_thread(typed)
    assert federation.models()["bank"] == ["again", "by-estimator", "credit"]
    assert known["scores"].shape == (40,)
    served = await federation.ask("bank", "serving")
    assert served["models"]["production"]["model"] == "credit"
