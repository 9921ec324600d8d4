"""A page of docs/measured: what was measured, by which command, on what."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["write_page"]


def write_page(path: Path, title: str, command: str, head: str, text: str) -> None:
    """Write ``text``, Markdown, to ``path`` with a heading that says where it comes from."""
    where = (
        f"Written by `{command}`; do not edit. {len(os.sched_getaffinity(0))} cores "
        f"({platform.machine()}, Python {platform.python_version()}), "
        f"{os.getloadavg()[0]:.1f} tasks at work at the end."
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"# {title}\n\n{where}\n\n{head}\n\n{text}\n", encoding="utf-8")
