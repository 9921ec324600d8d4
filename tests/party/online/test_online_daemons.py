"""Online scores by three daemons on a broker: exact, in time, and right again after failures."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator

import httpx
import numpy as np
import pytest
import xgboost
from numpy.typing import NDArray

from fedmq import TrainParams
from fedmq.party.store.documents import ModelStore
from tests.how_often import seldom
from tests.party.online.serving_federation import PARTIES, TOKEN, ServingFederation, fedmq

ROWS = 2_000
AT_ONCE = 4
SECONDS = 4.0  # that a question waits while something fails
PATIENT_SECONDS = 20.0  # that one waits else: this machine may be busy


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServingFederation]:
    random = np.random.default_rng(3)
    table = random.normal(size=(ROWS, 9)).astype(np.float32)
    label = (table[:, 1] + table[:, 4] * table[:, 7] > random.normal(size=ROWS)).astype(np.int64)
    table[random.random(table.shape) < 0.05] = np.nan
    made = ServingFederation(
        tmp_path_factory.mktemp("federation") / "demo",
        table,
        label,
        [
            TrainParams(num_boost_round=10, max_depth=4, max_bin=16),
            TrainParams(num_boost_round=5, max_depth=3, max_bin=16),
        ],
        online=f'degrade = "partial"\ndeadline = {PATIENT_SECONDS}\naway = 1.5\n',
    )
    try:
        made.start_broker()
        made.start()
        yield made
    finally:
        made.stop()


class Caller:
    """Asks for margins, and knows which are right."""

    def __init__(self, federation: ServingFederation, client: httpx.AsyncClient) -> None:
        self.federation = federation
        self.client = client
        self.longest = 0.0

    async def ask(
        self, rows: list[int], seconds: float = PATIENT_SECONDS
    ) -> tuple[int, bool, bool]:
        """Status, whether the answer is marked as degraded, and whether it is exact."""
        start = time.perf_counter()
        asked = {
            "ids": [self.federation.ids[row] for row in rows],
            "output": "margin",
            "deadline_ms": int(seconds * 1000),
        }
        answer = await self.client.post("/v1/models/production/predict", json=asked)
        self.longest = max(self.longest, time.perf_counter() - start)
        if answer.status_code != 200:
            return answer.status_code, False, False
        body = answer.json()
        margins = np.array([row["score"] for row in body["scores"]], dtype=np.float32)
        right = self.federation.margins[body["model"]]
        if body["mode"] == "sealed":  # but for the last digits
            exact = bool(np.abs(margins - right[rows]).max() <= 2**-20 * np.abs(right).max())
        else:
            exact = np.array_equal(margins, right[rows])
        return 200, "degraded" in body, exact

    async def load_while(
        self,
        what: Callable[[], Awaitable[object]],
        rate: float = 20.0,
        seconds: float = SECONDS,
    ) -> list[tuple[int, bool, bool]]:
        """Single rows at ``rate`` while ``what`` is done."""
        random = np.random.default_rng(1)
        doing = asyncio.ensure_future(what())
        asking = []
        while not doing.done():
            rows = [int(random.integers(ROWS))]
            asking.append(asyncio.create_task(self.ask(rows, seconds)))
            await asyncio.sleep(1 / rate)
        await doing
        return list(await asyncio.gather(*asking))


@pytest.fixture
async def caller(federation: ServingFederation):  # type: ignore[no-untyped-def]
    headers = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx.AsyncClient(base_url=federation.url, headers=headers, timeout=30) as client:
        yield Caller(federation, client)


@pytest.mark.parametrize("mode", ["sealed", *seldom("hop", "bitmap")])
async def test_all_scores_are_xgboosts(caller: Caller, mode: str) -> None:
    await asyncio.to_thread(caller.federation.activate, "model-1", mode)

    parts = np.array_split(np.random.default_rng(0).permutation(ROWS), 40)
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(part: NDArray[np.int64]) -> tuple[int, bool, bool]:
        async with limit:
            return await caller.ask(part.tolist())

    answers = await asyncio.gather(*(ask(part) for part in parts))

    assert set(answers) == {(200, False, True)}


async def test_reasons_over_columns_that_owners_show_are_xgboost_s(caller: Caller) -> None:
    federation = caller.federation
    await asyncio.to_thread(federation.activate, "model-1", "bitmap")
    asked = {"ids": federation.ids[:300], "explain": 100}
    answer = (await caller.client.post("/v1/models/production/predict", json=asked)).json()

    booster = federation.boosters["model-1"]
    matrix = xgboost.DMatrix(federation.table[:300], feature_names=booster.feature_names)
    expected = booster.predict(matrix, pred_contribs=True)[:, :-1]
    found = np.zeros_like(expected)
    columns = {
        (party, number): name
        for party in PARTIES[1:]
        for number, name in enumerate(federation.columns_used(party, "model-1"))
    }
    for row, score in enumerate(answer["scores"]):
        for reason in score["reasons"]:
            party, column = reason["party"], reason["column"]
            name = columns.get((party, column), column)
            assert reason.get("text", "") == (f"f1 of {party}" if name == "f1" else "")
            place = PARTIES.index(party) * 3 + int(name.removeprefix("f"))
            found[row, place] = reason["value"]
    np.testing.assert_allclose(found, expected, atol=1e-5)


async def test_a_model_whose_share_is_missing_somewhere_is_not_activated(caller: Caller) -> None:
    federation = caller.federation
    store = ModelStore(federation.folder / "bank" / "state")
    store.save(store.active("model-1").model_copy(update={"model_id": "model-lost"}))

    done = await asyncio.to_thread(
        fedmq, "activate", federation.folder / "bank" / "party.toml", "model-lost", check=False
    )

    assert done.returncode == 6
    assert "has no share of model model-lost" in done.stderr
    assert await caller.ask([1, 2]) == (200, False, True)


async def test_models_are_swapped_under_load_without_a_lost_request(caller: Caller) -> None:
    federation = caller.federation

    async def swap() -> None:
        await asyncio.to_thread(federation.activate, "model-2")
        bank = federation.folder / "bank" / "party.toml"
        done = await asyncio.to_thread(fedmq, "rollback", bank)
        assert "production is model-1" in done.stdout

    answers = await caller.load_while(swap, seconds=PATIENT_SECONDS)

    assert {status for status, _, _ in answers} == {200}
    # On a machine that is busy with other things a party may be slow; never is a score wrong.
    assert all(degraded or exact for _, degraded, exact in answers)


@pytest.mark.parametrize("party", ["retail", *seldom("telco")])
async def test_a_killed_party_degrades_scores_and_its_return_heals_them(
    caller: Caller, party: str
) -> None:
    federation = caller.federation

    async def kill() -> None:
        federation.kill(party)
        await asyncio.sleep(4)

    answers = await caller.load_while(kill)
    assert all(status == 200 and (degraded or exact) for status, degraded, exact in answers)
    assert sum(degraded for _, degraded, _ in answers) > len(answers) / 2
    assert caller.longest < SECONDS + 0.5
    health = await caller.client.get("/health/ready")
    assert (health.status_code, health.json()["away"]) == (200, [party])

    await asyncio.to_thread(federation.start, party)
    back = time.monotonic()
    while await caller.ask([5, 6]) != (200, False, True):
        assert time.monotonic() - back < 5
        await asyncio.sleep(0.1)
    assert (await caller.client.get("/health/ready")).json()["away"] == []
    assert await caller.ask(list(range(200))) == (200, False, True)


@pytest.mark.long
async def test_a_broker_that_is_restarted_causes_no_wrong_score_and_no_lost_request(
    caller: Caller,
) -> None:
    federation = caller.federation

    answers = await caller.load_while(lambda: asyncio.to_thread(federation.restart_broker))

    assert all(degraded or exact for status, degraded, exact in answers if status == 200)
    assert {status for status, _, _ in answers} <= {200, 503, 504}
    assert caller.longest < SECONDS + 0.5
    back = time.monotonic()
    while await caller.ask([5, 6]) != (200, False, True):
        assert time.monotonic() - back < 20
        await asyncio.sleep(0.2)


@pytest.mark.long
async def test_while_the_broker_is_frozen_no_party_counts_as_away(caller: Caller) -> None:
    federation = caller.federation

    with federation.frozen_broker():
        answers = await caller.load_while(lambda: asyncio.sleep(4))
        health = await caller.client.get("/health/ready")

    assert sum(degraded for _, degraded, _ in answers) > len(answers) / 2
    assert health.json()["away"] == []
    back = time.monotonic()
    while await caller.ask([5, 6]) != (200, False, True):
        assert time.monotonic() - back < 20
        await asyncio.sleep(0.1)


@pytest.mark.long
async def test_what_is_served_is_served_again_after_a_restart_of_all(caller: Caller) -> None:
    federation = caller.federation
    for party in list(federation.processes):
        federation.processes[party].terminate()
    for process in federation.processes.values():
        assert await asyncio.to_thread(process.wait, 15) == 0

    await asyncio.to_thread(federation.start)

    assert await caller.ask(list(range(50))) == (200, False, True)
