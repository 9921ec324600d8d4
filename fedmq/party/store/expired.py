"""Which files that name people has a party kept for longer than its policy says?"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Set
from pathlib import Path

from fedmq.errors import ConfigError

__all__ = ["delete_expired"]

_DAY_SECONDS = 24 * 3600.0

_FILES = {
    "held_out": ("models/*.held-out.csv", "cross-validations/*.folds.csv"),
    "question_logs": ("audit/questions-*.jsonl",),
    "transcripts": ("transcripts/*",),
    "alignments": ("alignments/*.json",),
}
"""By key of ``retention``: where the files lie in the state folder."""


def delete_expired(
    state: Path,
    recordings: Path | None,
    days: Mapping[str, int],
    now: float,
    running: Set[str],
) -> dict[str, int]:
    """Delete what was last written more than ``days`` before ``now`` (Unix seconds).

    Sessions that are ``running`` keep their files, and while there are any, alignments stay.
    Returns how many files, or folders of transcripts, were deleted, by key; ConfigError if the
    disk refuses one.
    """
    deleted: Counter[str] = Counter()
    for key, period in days.items():
        for path in _kept(state, recordings, key):
            if _session_of(key, path) in running or (key == "alignments" and running):
                continue
            try:
                if now - _written(path) > period * _DAY_SECONDS:
                    if path.is_dir():
                        shutil.rmtree(path)
                    else:
                        path.unlink()
                    deleted[key] += 1
            except FileNotFoundError:
                continue  # somebody else has deleted it meanwhile
            except OSError as error:
                raise ConfigError(
                    f"{path}: cannot be deleted (retention.{key}): {error.strerror}"
                ) from None
    return dict(deleted)


def _kept(state: Path, recordings: Path | None, key: str) -> Iterator[Path]:
    if key == "recordings":
        if recordings is not None:
            yield from sorted(recordings.glob("*.recording"))
        return
    for pattern in _FILES[key]:
        yield from sorted(state.glob(pattern))


def _session_of(key: str, path: Path) -> str:
    """The session that writes ``path``, if it is one's."""
    return path.name.partition(".")[0] if key in ("recordings", "transcripts") else ""


def _written(path: Path) -> float:
    """When anything in ``path`` was last written, in Unix seconds."""
    return max(one.stat().st_mtime for one in (path, *path.glob("*")))
