"""A daemon whose parties, models, columns and reasons all bear one name."""

from __future__ import annotations

from typing import Any

from fedmq.errors import Refused
from tests.party.console.served_console import STATUS

__all__ = ["answers"]


def answers(name: str) -> dict[str, Any]:
    """What the daemon answers to the console's commands."""
    return {
        "status": STATUS
        | {
            "broker": name,
            "warnings": [name],
            "store": name,
            "idle": [name],
            "ended": [_ended(name)],
            "drift": _drift(name),
        },
        "sessions": [_session(name)],
        "models": [
            {
                "model": name,
                "trees": 1,
                "objective": name,
                "metrics": {name: 0.5},
                "departures": [name],
            }
        ],
        "model": _model(name),
        "serving": _serving(name),
        "compare": [{"key": name, "one": name, "other": None}],
        "tree": [
            {"node": 0, "party": name, "record": 1, "left": 1, "right": 2, "gain": 1.0, "cover": 1},
            {"node": 1, "weight": 0.5, "cover": 1.0},
            {"node": 2, "weight": [0.5, 1.0], "cover": 1.0},
        ],
        "score": _scored(name),
        "data": _data(name),
        "alignments": [],
        "last_screen": None,
        "cancel": Refused(name),
    }


def _session(name: str) -> dict[str, Any]:
    return {
        "session": "12ab",
        "purpose": "training",
        "model": name,
        "meaning": name,
        "ended": None,
        "paused": False,
        "waiting": [f"waiting for {name}"],
        "done": 1,
        "total": 2,
        "unit": "tree",
        "seconds": 1.0,
        "seconds_left": 2.0,
        "bytes_sent": 1000,
        "curve": {"done": [1.0], f"{name}-{name}": [0.5]},
        "traffic": [
            {
                "party": name,
                "messages_sent": 1,
                "bytes_sent": 1,
                "messages_received": 1,
                "bytes_received": 1,
            }
        ],
        "activity": {
            "seconds": 120.0,
            "busy": {"bank": [(3.0, 1.0)], name: [(2.0, 0.0)]},
            "owed": {name: {"kind": name, "seconds": 2.0}},
        },
    }


def _ended(name: str) -> dict[str, Any]:
    return {
        "session": "34cd",
        "purpose": "training",
        "model": name,
        "ended": "2026-01-01T00:00:00+00:00",
        "reason": name,
    }


def _report(name: str) -> dict[str, Any]:
    return {
        "made": "2026-01-01T00:00:00+00:00",
        "facts": {name: name},
        "metrics": {name: {"value": 0.5, "low": None, "high": None}},
        "charts": [
            {
                "name": name,
                "x": name,
                "y": name,
                "lines": [{"name": name, "x": [0.0, 0.0, 1.0], "y": [0.0, 0.5, 1.0]}],
            }
        ],
        "tables": [{"name": name, "about": name, "headers": [name], "rows": [[name]]}],
    }


def _model(name: str) -> dict[str, Any]:
    return {
        "model": name,
        "objective": name,
        "parties": ["bank", name],
        "params": {name: [name]},
        "departures": [name],
        "refreshes": name,
        "trees": [{"nodes": 1, "leaves": 1, "depth": 0}],
        "own_splits": {name: 1},
        "curve": {name: [0.5]},
        "training": None,
        "importance": [{"party": name, "column": name, "gain": 1.0, "splits": 1.0}],
        "report": _report(name),
        "card": {
            "card": {
                "made": "2026-01-01T00:00:00+00:00",
                "training": None,
                "splits": {name: 1},
                "worth": {name: {"metric": name, "without": 0.5}},
            },
            "endorsements": [{"party": name}],
        },
    }


def _serving(name: str) -> dict[str, Any]:
    return {
        "models": {name: {"model": name, "mode": "hop", "rounds": 1}},
        "troubles": [name],
        "away": [name],
        "counts": {"requests": 1, "failed": 1, "degraded": 1},
        "recent": {"requests": 1, "per_second": 1.0, "median": 0.1, "p99": 0.1},
        "scored": {name: {"columns": [name], "unexplained": ""}},
    }


def _scored(name: str) -> dict[str, Any]:
    return {
        "model": name,
        "mode": "hop",
        "scores": [
            {
                "id": name,
                "score": 0.5,
                "unknown_at": [name],
                "reasons": [
                    {"party": name, "column": 3, "value": 1.0, "text": name},
                    {"party": name, "value": -0.5},
                ],
            }
        ],
        "degraded": {name: 0.5},
        "seconds": 0.1,
        "waited": {name: 0.05},
    }


def _drift(name: str) -> dict[str, Any]:
    return {
        "columns": [{"column": name, "model": name, "rows": 1, "index": 0.3, "alarm": True}],
        "parties": [name],
    }


def _data(name: str) -> dict[str, Any]:
    spread = {"name": name, "low": 0.0, "high": 1.0, "counts": [3, 1], "cuts": [0.5]}
    column = {"name": name, "role": "feature", "type": "number", "missing": 0.0, "categories": 0}
    return {
        "columns": [{**column, "spreads": [spread], "counts": []}],
        "refused": [name],
        "warnings": [name],
        "repeated": 0,
        "duplicates": "refuse",
        "rows": 4,
        "features": 1,
        "read": "2026-01-01T00:00:00+00:00",
        "max_bin": 32,
        "place": name,
    }
