"""How a daemon's log reads: lines for people, or one JSON object per line for machines."""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from typing import Literal, get_args

from fedmq.cli.daemon.repeated_warnings import RepeatedWarnings
from fedmq.cli.table import printable

__all__ = ["LOG_FORMATS", "LogFormat", "log_to_stderr"]

LogFormat = Literal["text", "json"]
LOG_FORMATS: tuple[LogFormat, ...] = get_args(LogFormat)

_ABOUT = ("session", "message_id")


def log_to_stderr(form: LogFormat, party: str, *, verbose: bool) -> None:
    """Log fedmq's own news, and warnings of the libraries it uses."""
    handler = logging.StreamHandler()
    handler.addFilter(RepeatedWarnings())
    handler.setFormatter(
        _JsonFormatter(party)
        if form == "json"
        else _TextFormatter("%(asctime)s %(levelname)s %(name)s: %(message)s")
    )
    level = logging.INFO if verbose else logging.WARNING
    logging.basicConfig(level=level, handlers=[handler], force=True)
    logging.getLogger("fedmq").setLevel(logging.DEBUG if verbose else logging.INFO)


class _TextFormatter(logging.Formatter):
    """A line per message, whatever a peer has put into it."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record))

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802
        return super().formatMessage(record).replace("\n", "\\n")


class _JsonFormatter(logging.Formatter):
    """Keys: at, level, logger, party, text, session and message_id where known, error."""

    def __init__(self, party: str) -> None:
        super().__init__()
        self._party = party

    def format(self, record: logging.LogRecord) -> str:
        entry = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "party": self._party,
            "text": record.getMessage(),
        }
        entry |= {name: getattr(record, name) for name in _ABOUT if hasattr(record, name)}
        if record.exc_info:
            entry["error"] = self.formatException(record.exc_info)
        return json.dumps(entry)
