"""Timelines that several parties wrote of one session, joined into one."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedmq.errors import DataError

__all__ = ["JoinedTrace", "read_trace"]


def read_trace(path: Path) -> dict[str, Any]:
    """The document in ``path``; DataError if it is no timeline that a party wrote."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        assert all(
            isinstance(event["ph"], str) and isinstance(event["pid"], int)
            for event in document["traceEvents"]
        )
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, AssertionError):
        raise DataError(f"{path}: not a timeline of fedmq") from None
    return dict(document)


@dataclass(frozen=True)
class JoinedTrace:
    """``document`` has the format of its parts; ``parties`` are in the order of the parts.

    ``arrows``: the number of messages with both ends in it. ``early``: if clocks disagree, a
    message may arrive before it was sent; the seconds of the earliest such one, else 0.
    """

    document: Mapping[str, Any]
    parties: tuple[str, ...]
    arrows: int
    early: float

    @classmethod
    def of(cls, parts: Sequence[tuple[str, Mapping[str, Any]]]) -> JoinedTrace:
        """From documents, with their names for errors; DataError if two hold the same party."""
        owner: dict[str, str] = {}
        left: dict[str, float] = {}
        arrived: dict[str, float] = {}
        events = []
        for name, document in parts:
            for event in document["traceEvents"]:
                if event.get("name") == "process_name":
                    party = str(event["args"]["name"])
                    if party in owner:
                        raise DataError(f"{name}: {party} is in {owner[party]} already")
                    owner[party] = name
                elif event["ph"] == "s":
                    left.setdefault(str(event["id"]), event["ts"] / 1e6)
                elif event["ph"] == "f":
                    arrived.setdefault(str(event["id"]), event["ts"] / 1e6)
                events.append(event)
        gaps = [arrived[message] - left[message] for message in arrived.keys() & left.keys()]
        return cls(
            {"displayTimeUnit": "ms", "traceEvents": events},
            tuple(owner),
            len(gaps),
            max(0.0, -min(gaps, default=0.0)),
        )
