"""What an owner sees of online scores: commands, metrics and the audit, at running daemons."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from fedmq import TrainParams
from fedmq.party.store.documents import ModelStore, TrainedCounts, keep_trained_counts
from tests.cli.command import fedmq
from tests.party.online.serving_federation import TOKEN, ServingFederation
from tests.rabbitmq_node import RabbitNode

ROWS = 400


@pytest.fixture(scope="module")
def federation(
    tmp_path_factory: pytest.TempPathFactory, node: RabbitNode
) -> Iterator[ServingFederation]:
    random = np.random.default_rng(5)
    table = random.normal(size=(ROWS, 6)).astype(np.float32)
    label = (table[:, 1] + table[:, 3] * table[:, 5] > random.normal(size=ROWS)).astype(np.int64)
    made = ServingFederation(
        tmp_path_factory.mktemp("federation") / "demo",
        table,
        label,
        [TrainParams(num_boost_round=4, max_depth=4, max_bin=8)],
        online="drift = { least_rows = 20 }\n",
        node=node,
    )
    for party, shift in (("bank", 0), ("telco", 100), ("retail", 0)):
        values = made.columns[party] + np.float32(shift)
        names = tuple(f"f{place}" for place in range(values.shape[1]))
        keep_trained_counts(
            made.folder / party / "state", "model-1", TrainedCounts.of(names, values)
        )
    try:
        made.start()
        made.activate("model-1")
        yield made
    finally:
        made.stop()


@pytest.fixture
def bank(federation: ServingFederation) -> Path:
    return federation.folder / "bank" / "party.toml"


@pytest.fixture
def telco(federation: ServingFederation) -> Path:
    return federation.folder / "telco" / "party.toml"


def predict(federation: ServingFederation, ids: list[str]) -> Any:
    answer = httpx.post(
        f"{federation.url}/v1/models/production/predict",
        json={"ids": ids},
        headers={"Authorization": f"Bearer {TOKEN}"},
        timeout=30,
    )
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_serving_shows_what_is_served_and_how_that_goes(
    federation: ServingFederation, bank: Path, telco: Path
) -> None:
    before = fedmq("serving", bank, "--json").result
    asked = fedmq("serving", telco, "--json").result
    predict(federation, federation.ids[:7])

    after = fedmq("serving", bank, "--json").result
    assert after["models"] == {"production": {"model": "model-1", "mode": "hop", "rounds": 2}}
    assert after["counts"]["requests"] == before["counts"]["requests"] + 1
    assert after["counts"]["rows"] == before["counts"]["rows"] + 7
    assert after["away"] == []
    assert fedmq("serving", telco, "--json").result["questions"] > asked["questions"]
    assert re.fullmatch(
        r"NAME +MODEL +MODE +ROUNDS AT MOST\nproduction +model-1 +hop +2\n"
        r"\d+ requests, \d+ rows, 0 failed, 0 degraded, 0 turned away\n"
        r"\d+\.\d requests a second in the last minute; of the last \d+, half within [\d.]+ ms, "
        r"99 of 100 within [\d.]+ ms\n",
        fedmq("serving", bank).out,
    )
    assert re.fullmatch(
        r"telco: \d+ questions, 0 turned away\nMODEL\nmodel-1\n", fedmq("serving", telco).out
    )


def test_an_owner_sees_its_columns_drift_and_the_active_party_an_alarm_alone(
    federation: ServingFederation, bank: Path, telco: Path
) -> None:
    predict(federation, federation.ids)
    _until_counted(lambda: any(found["alarm"] for found in drift_at(telco)["columns"]))
    assert {found["alarm"] for found in drift_at(telco)["columns"]} == {True}
    assert re.search(r"f0 of model model-1 drifts: .* index over", fedmq("status", telco).out)

    predict(federation, federation.ids[:20])
    _until_counted(lambda: drift_at(bank)["columns"])
    seen = drift_at(bank)
    assert seen["parties"] == ["telco"]
    assert not any(found["alarm"] for found in seen["columns"])
    assert "telco says that its columns drift" in fedmq("status", bank).out
    headers = {"Authorization": f"Bearer {TOKEN}"}
    text = httpx.get(f"{federation.url}/metrics", headers=headers).text
    assert 'fedmq_drift_party{party="telco"} 1.0' in text
    assert 'fedmq_drift_party{party="retail"} 0.0' in text
    assert 'fedmq_drift_alarm{column="f0",model="model-1"} 0.0' in text


def _until_counted(seen: Callable[[], object]) -> None:
    """A thread of each party counts every five seconds."""
    for _ in range(300):
        if seen():
            return
        time.sleep(0.2)


def drift_at(party: Path) -> Any:
    return fedmq("status", party, "--json").result["drift"]


def test_bench_infer_asks_at_the_rate_and_reports_percentiles(
    federation: ServingFederation, bank: Path, tmp_path: Path
) -> None:
    rows_before = fedmq("serving", bank, "--json").result["counts"]["rows"]
    plot = tmp_path / "latency.svg"

    measured = fedmq(
        "bench", "infer", bank, "--rate", "40", "--seconds", "1.5", "--rows", "3",
        "--deadline-ms", "5000", "--plot", plot, "--json",
    ).result  # fmt: skip

    assert measured["requests"] == 60
    assert measured["rows"] == 180
    assert measured["statuses"] == {"200": 60}
    assert measured["degraded"] == 0
    milliseconds = list(measured["milliseconds"].values())
    assert list(measured["milliseconds"])[0::4] == ["p50", "p99"]
    assert milliseconds[0] > 0
    assert milliseconds == sorted(milliseconds)
    rows = fedmq("serving", bank, "--json").result["counts"]["rows"]
    assert rows == rows_before + 180
    svg = plot.read_text()
    assert svg.startswith("<svg ")
    assert "40 requests/s of 3 rows" in svg


def test_bench_infer_reports_in_words_what_was_refused(bank: Path) -> None:
    outcome = fedmq("bench", "infer", bank, "--rate", "20", "--seconds", "0.5", "--name", "staging")
    assert outcome.code == 0
    assert re.match(r"10 requests, [\d.]+ rows/s; 10 times 404; 0 degraded\nms: p50 ", outcome.out)


def test_bench_infer_says_what_is_missing(
    federation: ServingFederation, bank: Path, telco: Path, tmp_path: Path
) -> None:
    no_http = fedmq("bench", "infer", telco)
    assert no_http.code == 3
    assert no_http.error == f"{telco}: there is no [http], so the daemon serves none"

    elsewhere = bank.with_name("elsewhere.toml")
    elsewhere.write_text(bank.read_text().replace(f"port = {federation.http_port}", "port = 9"))
    nobody = fedmq("bench", "infer", elsewhere, "--rate", "5", "--seconds", "0.2")
    assert nobody.code == 7
    assert nobody.error.startswith("http://127.0.0.1:9: no daemon serves there")

    plot = tmp_path / "nowhere" / "latency.svg"
    unwritable = fedmq("bench", "infer", bank, "--rate", "5", "--seconds", "0.2", "--plot", plot)
    assert unwritable.code == 3
    assert unwritable.error == f"{plot}: cannot be written: No such file or directory"


def test_metrics_of_the_daemon_have_its_scores(federation: ServingFederation) -> None:
    predict(federation, federation.ids[:2])
    headers = {"Authorization": f"Bearer {TOKEN}"}
    text = httpx.get(f"{federation.url}/metrics", headers=headers).text

    assert re.search(r'^fedmq_online_requests_total\{status="200"\} [1-9]', text, re.MULTILINE)
    assert 'fedmq_online_party_away{party="retail"} 0.0' in text
    assert 'fedmq_online_party_away{party="telco"} 0.0' in text
    assert "fedmq_online_queued_rows 0.0" in text


def test_every_question_is_in_the_audit_of_whom_was_asked(
    federation: ServingFederation, telco: Path
) -> None:
    federation.activate("model-1", "bitmap")  # every row is asked about everywhere
    asked = federation.ids[100:103]
    predict(federation, asked)
    federation.activate("model-1", "hop")

    folder = federation.folder / "telco" / "state" / "audit"
    key = folder / "key"
    assert key.stat().st_mode & 0o777 == 0o600
    hashed = {
        hmac.new(key.read_bytes(), name.encode(), hashlib.sha256).hexdigest()[:32] for name in asked
    }
    last = _noted(folder, lambda line: set(line["ids"]) == hashed)
    assert (last["mode"], last["model"], last["answer"]) == ("bitmap", "model-1", "yes")
    assert (last["event"], last["peer"]) == ("asked online", "bank")
    text = "".join(path.read_text() for path in folder.glob("*.jsonl"))
    assert not any(name in text for name in federation.ids)
    assert not (federation.folder / "bank" / "state" / "audit").exists()

    listed = fedmq("audit-log", "list", telco, "--online", "--json").result
    assert last in listed
    verified = fedmq("audit-log", "verify", telco, "--online", "--json").result
    assert sum(day["entries"] for day in verified) >= len(listed)
    [path] = folder.glob("*.jsonl")
    whole = path.read_text()
    path.write_text(whole.replace('"yes"', '"no"', 1))
    try:
        changed = fedmq("audit-log", "verify", telco, "--online")
        assert changed.code == 4
        assert "the log was changed" in changed.error
    finally:
        path.write_text(whole)


def _noted(folder: Path, fits: Any) -> dict[str, Any]:
    """The last line that ``fits``; the audit is written within a second."""
    until = time.monotonic() + 30
    while time.monotonic() < until:
        lines = [
            json.loads(line)
            for path in sorted(folder.glob("*.jsonl"))
            for line in path.read_text().splitlines()
        ]
        found = [line for line in lines if fits(line)]
        if found:
            return found[-1]
        time.sleep(0.1)
    raise AssertionError(f"no such line in {folder}")


def test_verifying_a_model_asks_every_party_and_changes_nothing(
    federation: ServingFederation, bank: Path, telco: Path
) -> None:
    served = fedmq("serving", bank, "--json").result["models"]
    stores = {
        party: ModelStore(federation.folder / party / "state") for party in ("telco", "retail")
    }
    records = {party: len(store.passive("model-1").lookup_table) for party, store in stores.items()}

    [verified] = fedmq("models", "verify", bank, "model-1", "--json").result

    assert verified["records"] == records
    assert "model-1: sound, " in fedmq("models", "verify", bank).out
    assert (
        fedmq("models", "verify", telco).out == f"model-1: sound, {records['telco']} records here\n"
    )
    assert fedmq("serving", bank, "--json").result["models"] == served


def test_verifying_names_the_party_whose_share_is_missing_damaged_or_of_another_model(
    federation: ServingFederation, bank: Path, tmp_path: Path
) -> None:
    retail = ModelStore(federation.folder / "retail" / "state")
    share = retail.passive("model-1")
    short = share.lookup_table.empty(share.lookup_table.feature_names).appended(0, 0.5, True)
    try:
        for damage, reason in (
            (lambda path: path.unlink(), "retail has no share of model model-1"),
            (lambda path: path.write_text("{"), "its own share or data could not be loaded"),
            (
                lambda path: path.write_text(
                    share.model_copy(update={"lookup_table": short, "places": ()}).dumps()
                ),
                "its own share or data could not be loaded",
            ),
        ):
            damage(retail.path("model-1"))
            outcome = fedmq("models", "verify", bank, "model-1")
            assert outcome.code == 6
            assert outcome.error.startswith("retail does not serve the model: ")
            assert reason in outcome.error
        assert "has 1 records here, not " in (federation.folder / "retail.log").read_text()
        # What is served lies in memory: nothing of this touched it.
        assert "degraded" not in predict(federation, federation.ids[:5])
    finally:
        retail.save(share)
    assert fedmq("models", "verify", bank, "model-1").code == 0


def test_a_share_is_exported_and_imported_beside_a_running_daemon(
    federation: ServingFederation, bank: Path, telco: Path, tmp_path: Path
) -> None:
    file = tmp_path / "model-1.share"
    assert fedmq("models", "export", telco, "model-1", file).code == 0
    store = ModelStore(federation.folder / "telco" / "state")
    store.path("model-1").unlink()
    assert fedmq("models", "verify", bank, "model-1").code == 6

    assert fedmq("models", "import", telco, file).code == 0

    assert fedmq("models", "verify", bank, "model-1").code == 0
    assert re.search(r"^model-1 +\S+ +\d+ +production$", fedmq("models", telco).out, re.MULTILINE)
