"""Alerts and dashboard ask for metrics that a daemon shows, by labels that it gives them."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from fedmq.party.http.monitoring import (
    AnsweringCollector,
    DriftCollector,
    LookupCollector,
    ScoreCollector,
    metrics_router,
)
from fedmq.party.telemetry.metrics import Counters, Gauges, LookupCounters, ScoreCounters
from tests.deployment.helm import ROOT

PROMETHEUS = ROOT / "deploy" / "prometheus"
DASHBOARD: dict[str, Any] = json.loads((ROOT / "deploy" / "grafana" / "fedmq.json").read_text())
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((PROMETHEUS / "alerts.yaml").read_text())["groups"]
    for rule in group["rules"]
]
PAGE = ROOT / "docs" / "how-to" / "operations.md"


@pytest.fixture(scope="module")
def series() -> Mapping[str, set[str]]:
    """The labels of every series of a daemon that has counted one of each."""
    counters = Counters()
    counters.sessions_ended["training", "finished"] = 1
    for counted in (counters.retries, counters.refused, counters.arithmetic_seconds):
        counted["some"] = 1
    for volumes in (counters.messages_sent, counters.bytes_sent):
        volumes["some"] = 1
    for volumes in (counters.messages_received, counters.bytes_received):
        volumes["some"] = 1
    scores = ScoreCounters()
    scores.requests[200] = 1
    breaker = SimpleNamespace(is_open=True, times_opened=1)
    scorer = SimpleNamespace(queued_rows=0, breakers={"telco": breaker})
    answering = SimpleNamespace(questions=0, rate_limits=SimpleNamespace(turned_away=0))
    drift = SimpleNamespace(model="m", column="age", index=0.1, alarm=False)
    router = metrics_router(
        counters,
        lambda: Gauges(True, 0, {("training", "growing"): 1}, 0),
        ScoreCollector(SimpleNamespace(counters=scores, scorer=scorer)),  # type: ignore[arg-type]
        AnsweringCollector(answering),  # type: ignore[arg-type]
        DriftCollector(SimpleNamespace(found=[drift], others={"telco": True})),  # type: ignore[arg-type]
        LookupCollector(LookupCounters()),
    )
    [route] = router.routes
    text = asyncio.run(route.endpoint()).body.decode()  # type: ignore[attr-defined]
    return {
        sample.name: set(sample.labels)
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def asked() -> Iterator[tuple[str, str]]:
    """Who asks what: every expression of alerts and dashboard."""
    for rule in RULES:
        yield rule["alert"], rule["expr"]
    for panel in DASHBOARD["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]


ASKED = list(asked())


@pytest.mark.parametrize(("who", "expression"), ASKED, ids=lambda value: value[:40])
def test_what_is_asked_for_is_shown(
    who: str, expression: str, series: Mapping[str, set[str]]
) -> None:
    found = re.findall(r"\b(fedmq_\w+)(?:\{([^}]*)\})?", expression)
    assert found, who
    for name, matchers in found:
        assert name in series, who
        labels = set(re.findall(r"(\w+)[=!]", matchers)) - {"instance"}
        assert labels <= series[name], who


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule["alert"])
def test_an_alert_speaks_of_labels_that_are_there(
    rule: dict[str, Any], series: Mapping[str, set[str]]
) -> None:
    [name, *_] = re.findall(r"fedmq_\w+", rule["expr"])
    text = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", text)) <= series[name] | {"instance"}
    assert rule["annotations"]["summary"]
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_every_metric_is_on_the_dashboard(series: Mapping[str, set[str]]) -> None:
    text = " ".join(expression for _, expression in ASKED)
    for name in series:
        if not name.endswith(("_created", "_sum", "_count")):
            assert name in text, name


def test_every_metric_is_on_the_page_for_operators(series: Mapping[str, set[str]]) -> None:
    page = PAGE.read_text().replace(
        "`…_received_total`", "fedmq_messages_received_total fedmq_bytes_received_total"
    )
    for name in series:
        assert re.sub("_(bucket|sum|count)$", "", name) in page, name


def test_every_panel_has_a_place_of_its_own() -> None:
    taken = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="there is no promtool here; Debian's prometheus has it"
)
@pytest.mark.parametrize(
    "what", [("check", "rules", "alerts.yaml"), ("test", "rules", "alerts_test.yaml")]
)
def test_promtool_agrees(what: tuple[str, ...]) -> None:
    done = subprocess.run(
        ["promtool", *what], cwd=PROMETHEUS, check=False, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stdout + done.stderr
