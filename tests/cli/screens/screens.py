"""Screens of the command line from made-up results; ``python -m tests.cli.screens.screens`` records
them anew, for a change that is meant."""

from __future__ import annotations

import contextlib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

from rich.console import Console

from fedmq.cli import data, models, operate, scores, set_up
from fedmq.cli.main import cli
from fedmq.cli.output import print_result
from fedmq.cli.progress import ProgressBar
from fedmq.transport.sealing.keys import PublicKeys

__all__ = ["SCREENS", "WIDTHS", "recorded", "shown"]

WIDTHS = (80, 130)

_SESSION = {
    "session": "1f0a9c3377e2b1d4",
    "purpose": "training",
    "model": "churn-2026",
    "done": 12,
    "total": 50,
    "unit": "tree",
    "meaning": "the passive parties add encrypted gradients",
    "waiting": ["waiting for telco (last seen 09:12:44, retry 2 of 8): no keys are agreed on yet"],
    "ended": None,
}
_STATUS = {
    "party": "bank",
    "role": "active",
    "federation": "demo",
    "parties": ["bank", "telco", "retail"],
    "broker": "connected to mq.example.org:5671",
    "certificate_until": "2028-11-21T09:00:00+00:00",
    "models": 3,
    "sessions": [_SESSION],
    "ended": [
        {
            "session": "93b7c1e04d8855aa",
            "purpose": "alignment",
            "model": "customers",
            "ended": "2026-11-22T09:01:07+00:00",
            "reason": "",
        },
        {
            "session": "0c5d11fe92a7b346",
            "purpose": "training",
            "model": "churn-2026-plain",
            "ended": "2026-11-22T09:03:59+00:00",
            "reason": "telco refused the session: telco does not take part with engine 'plain', "
            "only paillier, ou",
        },
    ],
    "idle": [],
    "answered": None,
    "drift": {"columns": [], "parties": []},
    "refused": {},
    "asked": 1,
    "dead_letters": 0,
    "dropped": 0,
    "refusals": {},
    "store": "",
    "warnings": ["bank: bank/data.csv: there is no such file"],
}
_MODELS = [
    {
        "model": "churn-2026",
        "made": "2026-11-22T09:03:59+00:00",
        "engine": "lattice",
        "rows": 10827,
        "names": ["production"],
        "trees": 50,
        "objective": "binary:logistic",
        "departures": ["cells of few rows were withheld"],
        "metrics": {
            "train-logloss": 0.3412,
            "train-auc": 0.912,
            "eval-logloss": 0.4,
            "eval-auc": 0.87,
        },
    },
    {
        "model": "m2",
        "made": "2026-11-23T10:00:00+00:00",
        "engine": None,
        "rows": None,
        "names": [],
        "trees": 7,
        "objective": "reg:squarederror",
        "metrics": {},
        "departures": [],
    },
]
_SERVING = {
    "models": {"production": {"model": "churn-2026", "mode": "hop", "rounds": 5}},
    "away": ["telco"],
    "troubles": ["online.requests: broker 127.0.0.1:5673 cannot be reached"],
    "counts": {"requests": 12, "rows": 48, "failed": 1, "degraded": 0, "turned_away": 0},
    "recent": {"per_second": 0.2, "requests": 12, "median": 0.0081, "p99": 0.0462},
    "source_trouble": "",
}
_KEYS = [
    {"party": party, "fingerprint": public.fingerprint, "public": str(public)}
    for party, public in (
        (party, PublicKeys(bytes([place]) * 32, bytes([place + 9]) * 32))
        for place, party in enumerate(("bank", "telco"))
    )
]
_DATA = {
    "place": "bank/data.csv",
    "rows": 1200,
    "columns": [
        {"name": "id", "role": "id", "type": "id", "missing": None, "categories": None},
        {"name": "town", "role": "feature", "type": "category", "missing": 0.1, "categories": 12},
        {"name": "since", "role": "feature", "type": "date", "missing": 0.0, "categories": None},
    ],
    "warnings": [
        "bank: bank/data.csv: column 'x' has no value in any row; leave it out with ignore"
    ],
    "repeated": 0,
    "refused": [],
}


def _result(result: Any, words: Callable[[Any], Any]) -> Callable[[], None]:
    return lambda: print_result(result, False, words)


def _help() -> None:
    cli.main(["--help"], prog_name="fedmq", standalone_mode=False)


def _progress() -> None:
    with (
        mock.patch.object(ProgressBar, "_left", lambda *_: 100.0),
        ProgressBar("training, trees", "tree") as bar,
    ):
        metrics = {"train-logloss": 0.5, "train-auc": 0.9, "eval-logloss": 0.6, "eval-auc": 0.761}
        bar.show(12, 50, metrics)


SCREENS: dict[str, Callable[[], None]] = {
    "help": _help,
    "status": _result(_STATUS, operate._status_in_words),
    "models": _result(_MODELS, models._models_in_words),
    "serving": _result(_SERVING, scores._serving_in_words),
    "keys": _result(_KEYS, set_up._pinned),
    "data": _result(_DATA, data._check_in_words),
    "progress": _progress,
}


def shown(name: str, width: int) -> str:
    """What a terminal of this width shows, without its colours."""
    terminal = {"COLUMNS": str(width), "LINES": "50", "FORCE_COLOR": "1", "TERM": "xterm"}
    out = io.StringIO()
    with (
        mock.patch.dict(os.environ, terminal),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(out),
    ):
        assert Console().is_terminal
        SCREENS[name]()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", out.getvalue()).replace("\r", "\n")
    lines = [line.rstrip() for line in text.splitlines()]
    if name == "progress":  # drawn several times in one place
        lines = [line for line in lines if line][-1:]
    return "\n".join(lines).strip("\n") + "\n"


def recorded(name: str, width: int) -> Path:
    """The file of a screen."""
    return Path(__file__).parent / f"{name}.{width}.txt"


if __name__ == "__main__":
    for name in SCREENS:
        for width in WIDTHS:
            recorded(name, width).write_text(shown(name, width))
