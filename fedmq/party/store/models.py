"""This party's shares of finished models, as JSON files in its state folder."""

from __future__ import annotations

import contextlib
from pathlib import Path

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.errors import ConfigError, DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["ModelStore"]


class ModelStore:
    """Shares by model id; their files are written whole or not at all."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / "models"

    def ids(self) -> list[str]:
        """The models that have a share here, the oldest first."""
        written = {}
        for path in self._folder.glob("*.json"):
            with contextlib.suppress(FileNotFoundError):  # deleted since the folder was listed
                written[path.stem] = path.stat().st_mtime_ns
        return sorted(written, key=lambda model: written[model])

    def newest(self) -> str:
        """The model that was saved last; DataError if there is none."""
        known = self.ids()
        if not known:
            raise DataError("there is no model yet; train one with: fedmq train JOB.toml")
        return known[-1]

    def path(self, model: str) -> Path:
        """The file of ``model``, whether it exists or not."""
        return self._folder / f"{model}.json"

    def save(self, share: ActiveShare | PassiveShare) -> None:
        """Write ``share``; ConfigError if the disk refuses."""
        path = self.path(share.model_id)
        try:
            write_atomically(path, share.dumps())
        except OSError as error:
            raise ConfigError(f"{path}: the share cannot be written: {error.strerror}") from None

    def active(self, model: str) -> ActiveShare:
        """The active party's share; DataError if it is missing or damaged."""
        return ActiveShare.loads(self._text(model), str(self.path(model)))

    def passive(self, model: str) -> PassiveShare:
        """A passive party's share; DataError if it is missing or damaged."""
        return PassiveShare.loads(self._text(model), str(self.path(model)))

    def _text(self, model: str) -> str:
        try:
            return self.path(model).read_text(encoding="utf-8")
        except FileNotFoundError:
            known = ", ".join(self.ids()[-5:]) or "none"
            raise DataError(f"model {model!r} has no share here; there are: {known}") from None
        except OSError as error:
            raise DataError(f"{self.path(model)}: cannot be read: {error.strerror}") from None
