"""Progress for people, on standard error: position, time left, metrics; then a bar."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from rich.console import Console
from rich.progress import Progress, ProgressColumn, Task, TaskID
from rich.text import Text

__all__ = ["ProgressBar"]

_GAP = "  "
_BETWEEN = " · "
_SHORTEST_BAR = 10
_LONGEST_BAR = 30


class ProgressBar:
    """The progress of one long piece of work: a line on a terminal, plain lines elsewhere.

    ``what`` begins plain lines; ``unit`` is the unit on a terminal: ``tree 12/50``.
    """

    def __init__(self, what: str, unit: str, quiet: bool = False) -> None:
        self._what = what
        self._quiet = quiet
        self._console = Console(stderr=True)
        self._plain = not self._console.is_terminal
        self._printed = -1
        self._first: tuple[int, float] | None = None
        """How much was done at the first `show`, and how many seconds had passed by then."""
        self._progress = Progress(
            _Line(self._console, unit), console=self._console, disable=quiet or self._plain
        )
        self._task: TaskID

    def __enter__(self) -> Self:
        self._progress.start()
        self._task = self._progress.add_task(self._what, total=None, details={}, note="", left=None)
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()

    def show(
        self,
        done: int,
        total: int | None,
        details: Mapping[str, float] | None = None,
        note: str = "",
    ) -> None:
        """Set the bar to ``done`` of ``total``; ``note`` names what the work waits for."""
        waits = self._first is not None and done == self._first[0] and bool(note)
        if self._first is None or done < self._first[0] or waits:
            # Neither work done before the first look shows the speed, nor the wait for a consent.
            self._progress.reset(self._task, completed=done, total=total)
            self._first = done, self._progress.tasks[self._task].elapsed or 0.0
        left = self._left(done, total)
        self._progress.update(
            self._task, completed=done, total=total, details=details or {}, note=note, left=left
        )
        if self._plain and not self._quiet and (note or done != self._printed):
            self._printed = done
            numbers = "  ".join(f"{name} {value:.5f}" for name, value in (details or {}).items())
            text = "  ".join(part for part in (numbers, note) if part)
            self._console.print(
                self._line(done, total, left, text), highlight=False, soft_wrap=True
            )

    def note(self, text: str) -> None:
        """Print ``text`` as a line of its own, above the bar."""
        if not self._quiet:
            self._console.print(text, highlight=False, soft_wrap=True)

    def _left(self, done: int, total: int | None) -> float | None:
        """Estimated seconds left, from the work done since the first look."""
        elapsed = self._progress.tasks[self._task].elapsed
        before, since = self._first or (0, 0.0)
        if not elapsed or done <= before or not total:
            return None
        return (elapsed - since) / (done - before) * (total - done)

    def _line(self, done: int, total: int | None, left: float | None, text: str) -> str:
        elapsed = self._progress.tasks[self._task].elapsed
        time = "" if left is None else f"  {elapsed:.1f} s, about {left:.1f} s left"
        return f"{self._what} {done}/{total if total is not None else '?'}{time}  {text}".rstrip()


class _Line(ProgressColumn):
    """One line of the terminal's width: the most important part comes first, and is never cut."""

    def __init__(self, console: Console, unit: str) -> None:
        super().__init__()
        self._console = console
        self._unit = unit

    def render(self, task: Task) -> Text:
        total = "?" if task.total is None else f"{task.total:.0f}"
        numbers = _by_weight(task.fields["details"])
        left = task.fields["left"]
        first = [
            f"{self._unit} {task.completed:.0f}/{total}",
            "" if left is None else f"{_clock(left)} left",
            *numbers[:1],
        ]
        text = Text(_BETWEEN.join(part for part in first if part))
        width = self._console.width
        _append_if_it_fits(text, task.fields["note"], width)
        length = min(_LONGEST_BAR, width - len(text) - len(_GAP))
        if task.total and length >= _SHORTEST_BAR:
            filled = round(length * task.completed / task.total)
            text.append(_GAP + "━" * filled, style="green")
            text.append("─" * (length - filled), style="dim")
        for part in numbers[1:]:
            _append_if_it_fits(text, part, width)
        return text


def _append_if_it_fits(text: Text, part: str, width: int) -> None:
    if part and len(text) + len(_BETWEEN) + len(part) <= width:
        text.append(_BETWEEN + part)


def _by_weight(details: Mapping[str, float]) -> list[str]:
    """The metrics, with early stopping's metric first: the last held-out one."""
    held_out = [name for name in details if not name.startswith("train-")] or list(details)
    first = held_out[-1:]
    names = [*first, *(name for name in details if name not in first)]
    return [f"{name} {details[name]:.5f}" for name in names]


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
