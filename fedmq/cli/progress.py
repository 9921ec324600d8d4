"""Progress for people, on standard error: a bar with elapsed and remaining time."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

__all__ = ["ProgressBar"]


class ProgressBar:
    """The progress of one long piece of work: a bar on a terminal, plain lines elsewhere."""

    def __init__(self, what: str, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._plain = not self._console.is_terminal
        self._printed = -1
        self._first: tuple[int, float] | None = None
        """How much was done at the first `show`, and how many seconds had passed by then."""
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[details]}"),
            console=self._console,
            disable=quiet or self._plain,
        )
        self._task: TaskID

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=None, details="")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def show(
        self,
        done: int,
        total: int | None,
        details: Mapping[str, float] | None = None,
        note: str = "",
    ) -> None:
        """Set the bar to ``done`` of ``total``; ``note`` is what it waits for."""
        numbers = "  ".join(f"{name} {value:.5f}" for name, value in (details or {}).items())
        text = "  ".join(part for part in (numbers, note) if part)
        if self._first is None or done < self._first[0]:
            # The work done before the first look is no measure of the speed.
            self._progress.reset(self._task, completed=done, total=total)
            self._first = done, self._progress.tasks[self._task].elapsed or 0.0
        self._progress.update(self._task, completed=done, total=total, details=text)
        if self._plain and not self._quiet and (note or done != self._printed):
            self._printed = done
            self._console.print(self._line(done, total, text), highlight=False, soft_wrap=True)

    def note(self, text: str) -> None:
        """Print ``text`` as a line of its own, above the bar."""
        if not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=True)

    def _line(self, done: int, total: int | None, text: str) -> str:
        elapsed = self._progress.tasks[self._task].elapsed
        before, since = self._first or (0, 0.0)
        left = ""
        if elapsed and done > before and total:
            rest = (elapsed - since) / (done - before) * (total - done)
            left = f"  {elapsed:.1f} s, about {rest:.1f} s left"
        return f"{self._what} {done}/{total if total is not None else '?'}{left}  {text}".rstrip()
