"""Every command that goes well ends with the next one to type, where one follows."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from fedmq.cli import audit_trail, bench, broker, dead, estimate, models
from fedmq.cli.data import _overlap_in_words
from fedmq.cli.main import cli, main
from fedmq.party.operations import control
from fedmq.transport.sealing.keys import PrivateKeys
from tests.cli.command import fedmq

BANK, TELCO = "bank/party.toml", "telco/party.toml"
TWOS = ",".join("2" * 15)

STATUS: dict[str, Any] = {
    "party": "bank",
    "role": "active",
    "federation": "demo",
    "parties": ["bank"],
    "broker": "connected",
    "certificate_until": None,
    "models": 0,
    "sessions": [],
    "ended": [],
    "idle": [],
    "answered": None,
    "drift": {"columns": [], "parties": []},
    "retention": {},
    "refused": {},
    "asked": 0,
    "dead_letters": 0,
    "dropped": 0,
    "refusals": {},
    "store": "",
    "warnings": [],
}
TRAINING = {
    "session": "12ab",
    "purpose": "training",
    "model": "m",
    "done": 0,
    "total": None,
    "unit": None,
    "meaning": "",
    "waiting": [],
    "ended": None,
}
ASKED = {
    "request": "9f3c01ab",
    "kind": "alignment",
    "peer": "bank",
    "name": "people",
    "until": "2026-11-22T16:00:00+00:00",
    "state": "waiting",
    "decided_by": "",
    "terms": {
        "parties": ["bank", "telco"],
        "normalise": [],
        "spent": {"alignments": 1, "most_alignments_per_day": 50, "answered": None},
    },
}
TRAINED = {
    "model": "m",
    "trees": 1,
    "seconds": 1.0,
    "bytes_sent": 1,
    "metrics": {},
    "epsilon_spent": None,
    "departures": [],
}
CROSS_VALIDATED = {
    "cross_validation": "m-cv",
    "folds": 3,
    "rounds": 1,
    "best_iteration": None,
    "figures": {"test-auc-mean": [0.75], "test-auc-std": [0.01]},
    "seconds": 1.0,
    "bytes_sent": 1,
    "epsilon_spent": None,
}
ALIGNED = {
    "alignment": "a",
    "people": 1,
    "rows": 1,
    "parties": ["bank"],
    "own_ids": 1,
    "join": "inner",
    "lacked_at": {},
    "choices": {"left": 1, "inner": 1, "known_to": {"telco": 1}},
    "seconds": 1.0,
    "bytes_sent": 1,
}
COUNTED = {
    "people": 100,
    "exact": False,
    "fewest": 100,
    "parties": ["bank", "telco"],
    "own_ids": 1,
    "seconds": 1.0,
    "bytes_sent": 1,
}
SCREENED = {
    "screen": "look",
    "rows": 1,
    "looked_at": 1,
    "ones": 1,
    "bins": 10,
    "parties": {"bank": {"columns": []}},
    "select": None,
    "selected": None,
    "seconds": 1.0,
    "bytes_sent": 1,
}
SERVED = {"name": "production", "model": "m", "mode": "hop", "before": None, "fallbacks": []}
SERVING: dict[str, Any] = {
    "models": {},
    "away": [],
    "troubles": [],
    "counts": dict.fromkeys(("requests", "rows", "failed", "degraded", "turned_away"), 0),
    "recent": {"requests": 0, "per_second": 0.0, "median": None, "p99": None},
}
ANSWERING = {"party": "telco", "models": [], "questions": 0, "turned_away": 0, "troubles": []}
MODEL = {
    **{"model": "m", "trees": 1, "objective": "o", "metrics": {}, "departures": []},
    **{"made": "2026-11-22T09:03:59+00:00", "engine": "ou", "rows": 9, "names": []},
}
LETTER = {"letter": "3f09", "at": "", "header": None, "sender": "", "reason": "", "taken": True}
SHARE = SimpleNamespace(model_id="m", lookup_table=[], params=SimpleNamespace(objective="o"))


@dataclass(frozen=True)
class Step:
    """``typed`` with the daemon's ``answers`` ends with ``next``; ``fakes`` replace the rest."""

    typed: str
    next: str
    answers: Mapping[str, Any] = field(default_factory=dict)
    fakes: Callable[[pytest.MonkeyPatch], object] = lambda _: None


def scores(*values: Any) -> dict[str, Any]:
    answer = {"model": "m", "scores": list(values), "unknown_at": [[] for _ in values]}
    said = {"name": None, "newest": False, "degraded": {}, "learned_at": [], "mode": "hop"}
    return {**answer, **said, "without": [], "fallback": [None for _ in values]}


def fake(module: Any, **replaced: Any) -> Callable[[pytest.MonkeyPatch], object]:
    return lambda patch: [patch.setattr(module, name, new) for name, new in replaced.items()]


async def nothing(*_: Any, **__: Any) -> list[Any]:
    return []


LETTERS = fake(dead, _for_letters=lambda *_: [LETTER])
SHARES = fake(
    models,
    OwnShares=lambda _: SimpleNamespace(
        checked=lambda _: SHARE,
        share=lambda _: SHARE,
        party="bank",
        is_active=True,
        state=Path(),
        store=SimpleNamespace(
            save=lambda _: None, path=lambda _: Path("m.json"), ids=lambda: ["m"]
        ),
    ),
    write_share=lambda *_: "0",
    read_share=lambda *_: SHARE,
    shown=lambda *_: {},
    _model_in_words=lambda _: "",
    differences=lambda *_: [],
    importance_of=lambda *_: {},
    _importances=lambda _: "",
)
COST = SimpleNamespace(core_seconds=1.0, bytes_sent=1, bytes_received=1, memory=1)
ESTIMATED = SimpleNamespace(
    trees=1, per_tree=1.0, together=1.0, apart=1.0, open_files=9, parties={"bank": COST}
)
JOINED = SimpleNamespace(parties=("bank",), arrows=1, early=0.0, document={})


STEPS = [
    Step("init f --active bank --passive telco", "  fedmq train f/bank/train.toml"),
    Step(
        "join shop --party shop --broker mq:5671",
        "next: fedmq join shop --signed shop.signed.json",
    ),
    Step("join bank --members federation.toml", f"next: fedmq party list {BANK}"),
    Step(f"party list {BANK}", f"next: fedmq data check {BANK}"),
    Step(f"party requests {BANK}", f"next: fedmq party list {BANK}"),
    Step(f"party add {BANK} REQUEST --fingerprint FINGERPRINT", f"next: fedmq party list {BANK}"),
    Step(f"party remove {BANK} telco", f"next: fedmq party list {BANK}"),
    Step("keys new fresh/party.toml", "next: fedmq keys show fresh/party.toml"),
    Step(f"keys show {BANK}", f"next: fedmq run {BANK}"),
    Step(f"keys rotate {BANK}", f"next: fedmq keys rotate {BANK} --finish"),
    Step(f"keys rotate {BANK} --now", f"next: fedmq keys show {BANK}"),
    Step(f"keys trust {BANK} telco KEY", f"next: fedmq keys show {BANK}"),
    Step("broker new mq", "next: mq/node start mq --port 5671"),
    Step("broker sign broker REQUEST", "next: broker/node load broker"),
    Step("broker renew broker telco", "next: fedmq join telco --signed telco.signed.json"),
    Step("broker renew broker", "next: broker/node stop broker"),
    Step("broker remove broker telco", "next: broker/node load broker"),
    Step(
        f"broker check {BANK} {TELCO}",
        f"next: fedmq run {BANK}",
        fakes=fake(broker, check_broker=nothing),
    ),
    Step(f"data describe {BANK}", f"next: fedmq data check {BANK}"),
    Step(f"data alignments {BANK}", f"next: fedmq status {BANK}"),
    Step(f"data check {BANK}", f"next: fedmq run {BANK}"),
    Step(f"data bins {TELCO} --max-bin 2", f"next: fedmq estimate train.toml --bins telco={TWOS}"),
    Step(f"data correlation {TELCO}", f"next: fedmq data check {TELCO}"),
    Step(f"data features {TELCO} 1", f"next: fedmq data check {TELCO}"),
    Step("align bank/align.toml", "next: fedmq train bank/train.toml", {"align": ALIGNED}),
    Step(
        "align bank/align.toml --count",
        "next: fedmq align bank/align.toml",
        {"overlap": COUNTED},
    ),
    Step(
        "align bank/align.toml --count",
        "next: fedmq data check bank/party.toml",
        {"overlap": COUNTED | {"people": None, "own_ids": 3000}},
    ),
    Step("screen screen.toml", "next: fedmq train train.toml", {"screen": SCREENED}),
    Step("screen screen.toml -o look", "next: open look/screen.html", {"screen": SCREENED}),
    Step(
        "estimate bank/train.toml",
        "next: fedmq train bank/train.toml",
        fakes=lambda patch: (
            fake(estimate.estimation, estimate=lambda **_: ESTIMATED)(patch),
            fake(estimate, _latency=lambda *_: None)(patch),
        ),
    ),
    Step("cv bank/train.toml", "next: fedmq train bank/train.toml", {"train": CROSS_VALIDATED}),
    Step(
        "train bank/train.toml",
        f"next: fedmq predict {BANK} IDS.csv --output scores.csv",
        {"train": TRAINED},
    ),
    Step(
        f"follow {BANK} 12ab",
        f"next: fedmq predict {BANK} IDS.csv --output scores.csv",
        {"follow": TRAINED},
    ),
    Step(f"pause {BANK} 12ab", f"next: fedmq resume {BANK} 12ab", {"pause": {"session": "12ab"}}),
    Step(f"resume {BANK} 12ab", f"next: fedmq follow {BANK} 12ab", {"resume": {"session": "12ab"}}),
    Step(f"cancel {BANK} 12ab", f"next: fedmq status {BANK}", {"cancel": {"session": "12ab"}}),
    Step(
        f"models {BANK}",
        f"next: fedmq predict {BANK} IDS.csv --output scores.csv",
        {"models": [MODEL]},
    ),
    Step(
        f"models list {TELCO}",
        f"next: fedmq models verify {TELCO}",
        {"models": [{"model": "m", "records": 3, "departures": [], "made": "", "names": []}]},
    ),
    Step(f"models list {BANK}", f"next: fedmq status {BANK}", {"models": []}),
    Step(
        f"models export {BANK} m m.share", f"next: fedmq models import {BANK} m.share", fakes=SHARES
    ),
    Step(f"models import {BANK} m.share", f"next: fedmq models verify {BANK} m", fakes=SHARES),
    Step(f"models show {BANK}", f"next: fedmq models importance {BANK} m", fakes=SHARES),
    Step(f"models diff {BANK} m n", f"next: fedmq models show {BANK} n", fakes=SHARES),
    Step(
        f"models importance {BANK}",
        f"next: fedmq evaluate {BANK} m --output report",
        fakes=SHARES,
    ),
    Step(
        f"models delete {BANK} m --yes",
        f"next: fedmq models list {BANK}",
        fakes=lambda patch: (SHARES(patch), Path("m.json").touch()),
    ),
    Step(f"models verify {BANK} --local", f"next: fedmq activate {BANK} m", fakes=SHARES),
    Step(
        f"predict {BANK} two.csv -o scores.csv --strict",
        f"next: fedmq activate {BANK} m",
        {"predict": scores(0.5, 0.5)},
    ),
    Step(
        f"predict {BANK} two.csv -o scores.csv --strict",
        f"next: fedmq models list {BANK}",
        {"predict": scores([0.5, 0.5], [0.5, 0.5])},
    ),
    Step(
        f"predict {BANK} two.csv -o scores.csv --strict",
        f"next: fedmq serving {BANK}",
        {"predict": {**scores(0.5, 0.5), "name": "production"}},
    ),
    Step(f"activate {BANK}", f"next: fedmq serving {BANK}", {"activate": SERVED}),
    Step(f"rollback {BANK}", f"next: fedmq serving {BANK}", {"rollback": SERVED}),
    Step(f"serving {BANK}", f"next: fedmq activate {BANK}", {"serving": SERVING}),
    Step(
        f"serving {BANK}",
        f"next: fedmq health {BANK}",
        {"serving": SERVING | {"models": {"p": {"model": "m", "mode": "hop", "rounds": 1}}}},
    ),
    Step(
        f"serving {TELCO}", f"next: fedmq audit-log list {TELCO} --online", {"serving": ANSWERING}
    ),
    Step(
        f"score {BANK} 7",
        f"next: fedmq serving {BANK}",
        {
            "score": {
                "model": "m",
                "mode": "hop",
                "scores": [{"id": "7", "score": 0.5}],
                "seconds": 0.01,
                "waited": {"telco": 0.005},
                "name": "production",
            }
        },
    ),
    Step(
        f"changes {BANK} 7 --above 0.5",
        f"next: fedmq serving {BANK}",
        {
            "changes": {
                "model": "m",
                "name": "production",
                "newest": False,
                "id": "7",
                "score": 0.4,
                "above": 0.5,
                "below": None,
                "reached": False,
                "parties": [
                    {
                        "party": "bank",
                        "tells": True,
                        "changes": [{"column": "income", "change": "more than 2400.0"}],
                        "score": 0.55,
                    },
                    {"party": "telco", "tells": False, "changes": [], "score": None},
                ],
            }
        },
    ),
    Step(f"status {BANK}", "next: fedmq train bank/train.toml", {"status": STATUS}),
    Step(f"status {BANK}", f"next: fedmq models list {BANK}", {"status": STATUS | {"models": 1}}),
    Step(
        f"status {BANK}",
        f"next: fedmq follow {BANK} 12ab",
        {"status": STATUS | {"sessions": [TRAINING]}},
    ),
    Step(
        f"status {TELCO}",
        f"next: fedmq status {TELCO}",
        {"status": STATUS | {"role": "passive", "sessions": [TRAINING]}},
    ),
    Step(
        f"status {TELCO}",
        f"next: fedmq data check {TELCO}",
        {"status": STATUS | {"role": "passive"}},
    ),
    Step(
        f"status {TELCO}",
        f"next: fedmq inbox {TELCO}",
        {"status": STATUS | {"role": "passive", "sessions": [TRAINING], "asked": 1}},
    ),
    Step(f"history {TELCO}", f"next: fedmq status {TELCO}", {"history": []}),
    Step(f"inbox {TELCO}", f"next: fedmq status {TELCO}", {"inbox": []}),
    Step(f"inbox {TELCO}", f"next: fedmq approve {TELCO} 9f3c01ab", {"inbox": [ASKED]}),
    Step(f"approve {TELCO} 9f3c01ab", f"next: fedmq status {TELCO}", {"approve": {}}),
    Step(f"refuse {TELCO} 9f3c01ab", f"next: fedmq status {TELCO}", {"refuse": {}}),
    Step(
        f"health {BANK}",
        f"next: fedmq status {BANK}",
        {"health": {"ready": True, "reasons": [], "away": [], "warnings": []}},
    ),
    Step(f"dead list {BANK}", f"next: fedmq dead show {BANK} 3f09", fakes=LETTERS),
    Step(f"dead show {BANK} 3f09", f"next: fedmq dead requeue {BANK} 3f09", fakes=LETTERS),
    Step(f"dead drop {BANK} 3f09", f"next: fedmq dead list {BANK}", fakes=LETTERS),
    Step(f"dead requeue {BANK} --all", f"next: fedmq dead list {BANK}", fakes=LETTERS),
    Step(f"audit-log list {TELCO}", f"next: fedmq audit-log verify {TELCO}"),
    Step(
        f"transcript export {TELCO} 12ab",
        "next: fedmq transcript verify telco-12ab.transcript --federation telco/../federation.toml",
        fakes=fake(audit_trail, export=lambda *_: 1),
    ),
    Step(
        "trace join a.json -o all.json",
        "next: open all.json at ui.perfetto.dev",
        fakes=fake(
            audit_trail,
            JoinedTrace=SimpleNamespace(of=lambda _: JOINED),
            read_trace=lambda _: {},
            write_trace=lambda *_: None,
        ),
    ),
    Step(
        "bench infer http/party.toml --seconds 1",
        "next: fedmq serving http/party.toml",
        fakes=fake(bench, run=nothing, _result=lambda *_: {}, _in_words=lambda _: ""),
    ),
]

ELSEWHERE = {
    "demo": "test_main.py types it",
    "search": "tests/workbench/test_search.py types it",
    "schedule": "a timer calls it",
    "run": "it goes on, and names fedmq status when it is ready",
    "console": "its address is what was wanted",
    "evaluate": "names its page, which nobody types",
    "screen": "names its page, too",
    "forget": "test_forget.py types it",
    "models card": "test_card.py types it",
    "models dossier": "test_dossier.py types it; a file is its end",
    "models without": "tests/party/test_leaving.py types it",
    "audit": "its table is what was wanted",
    "audit-log verify": "the hash is what was wanted",
    "transcript verify": "the verdict is what was wanted",
    "transcript verify-certificate": "the verdict is what was wanted",
}
"""Commands after which nothing follows, or that another test types."""


def leaves(group: click.Group, before: str = "") -> Iterator[str]:
    for name in group.commands:
        command = group.get_command(click.Context(group), name)
        if isinstance(command, click.Group):
            yield from leaves(command, f"{before}{name} ")
        else:
            yield before + name


def test_each_command_has_a_next_one_or_a_reason_to_have_none() -> None:
    assert isinstance(cli, click.Group)
    typed = {
        name
        for name in leaves(cli)
        if any(f"{step.typed} ".startswith(f"{name} ") for step in STEPS)
    }
    assert typed | {*ELSEWHERE} == {*leaves(cli)}


@pytest.fixture(scope="module")
def fresh(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The federation of ``fedmq init --example``, and a shop that wants to join."""
    folder = tmp_path_factory.mktemp("fresh") / "federation"
    parties = ("--active", "bank", "--passive", "telco", "--broker", "127.0.0.1:1")
    assert fedmq("init", folder, *parties, "--example").code == 0
    shop = fedmq("join", folder / "new", "--party", "shop", "--broker", "mq:5671", "--json")
    (folder / "fingerprint").write_text(shop.result["fingerprint"])
    shutil.copytree(folder / "bank", folder / "fresh")
    (folder / "fresh" / "keys.json").unlink()
    shutil.copytree(folder / "bank", folder / "http")
    with (folder / "http" / "party.toml").open("a") as file:
        file.write("\n[http]\nport = 1\n")
    (folder / "screen.toml").write_text('party = "bank/party.toml"\nname = "look"\n')
    (folder / "two.csv").write_text("id\nP0001\nP0002\n")
    return folder


@pytest.mark.parametrize("step", STEPS, ids=lambda step: f"{step.typed} -> {step.next}"[:90])
def test_a_command_ends_with_the_next_one_to_type(
    step: Step,
    fresh: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = tmp_path / "federation"
    shutil.copytree(fresh, folder)
    monkeypatch.chdir(folder)
    fingerprint = (folder / "fingerprint").read_text()
    drawn = {
        "REQUEST": "new/shop.request.json",
        "FINGERPRINT": fingerprint,
        "KEY": str(PrivateKeys.generate().public),
    }
    words = [drawn.get(word, word) for word in step.typed.split()]

    send_request = control.send_request

    async def answer(_: Path, request: Mapping[str, Any]) -> AsyncIterator[dict[str, Any]]:
        if request["do"] not in step.answers:
            async for event in send_request(_, request):
                yield event
            return
        yield {"event": "done", "result": step.answers[request["do"]]}

    monkeypatch.setattr(control, "send_request", answer)
    step.fakes(monkeypatch)
    typed(words, monkeypatch)
    shown = capsys.readouterr()
    assert (shown.out + shown.err).splitlines()[-1] == step.next
    if "--json" not in words and step.typed.split()[0] != "init":
        assert "next:" not in shown.out


def typed(words: list[str], patch: pytest.MonkeyPatch) -> None:
    patch.setattr(sys, "argv", ["fedmq", *words])
    try:
        main()
    except SystemExit as ended:
        assert ended.code in (None, 0), json.dumps(words)


def test_of_fewer_shared_people_than_expected_the_spelling_of_ids_is_named() -> None:
    said = str(_overlap_in_words(COUNTED | {"people": None, "own_ids": 3000}))
    assert "fewer than 100 people are shared by bank, telco; 3,000 are here" in said
    assert "parties may write ids differently; see normalise in [data]" in said
    assert "normalise" not in str(_overlap_in_words(COUNTED | {"people": None, "own_ids": 90}))
