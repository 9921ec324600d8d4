"""Style sheets and scripts: read once, and served by their names alone."""

from __future__ import annotations

import hashlib
import mimetypes
from dataclasses import dataclass
from pathlib import Path

__all__ = ["StaticFile", "StaticFiles"]

_FOLDER = Path(__file__).parent / "static"
_SERVED = (".css", ".js", ".svg")


@dataclass(frozen=True, slots=True)
class StaticFile:
    """A file as it is sent; ``version`` changes with its content."""

    content: bytes
    media_type: str
    version: str


class StaticFiles:
    """The files by name, such as ``console.css``. A name that is none of theirs finds nothing."""

    def __init__(self, folder: Path = _FOLDER) -> None:
        self._files = {
            path.relative_to(folder).as_posix(): _read(path)
            for path in sorted(folder.rglob("*"))
            if path.suffix in _SERVED
        }

    def find(self, name: str) -> StaticFile | None:
        """The file ``name``, or None."""
        return self._files.get(name)

    def address(self, name: str) -> str:
        """Where a page finds the file ``name``."""
        return f"/console/static/{name}?v={self._files[name].version}"


def _read(path: Path) -> StaticFile:
    content = path.read_bytes()
    kind = mimetypes.types_map[path.suffix]
    kind = "text/javascript" if path.suffix == ".js" else kind
    return StaticFile(content, f"{kind}; charset=utf-8", hashlib.sha256(content).hexdigest()[:12])
