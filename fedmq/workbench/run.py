"""A training that the daemon drives: it is watched, paused and cancelled from a program."""

from __future__ import annotations

import html
import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

from fedmq.errors import DaemonAway, FedmqError, PeerSilent
from fedmq.workbench.daemon import Daemon

__all__ = ["Progress", "Run", "Watcher", "follow_to_the_end"]

_BACK_SECONDS = 60.0
_POLL_SECONDS = 0.5
_WIDTH, _HEIGHT = 320, 90  # pixels of a learning curve

T = TypeVar("T")


def follow_to_the_end(
    daemon: Daemon,
    request: Mapping[str, Any],
    show: Callable[[Mapping[str, Any]], None],
    opened: Sequence[str],
) -> Any:
    """The result, even if the daemon restarts meanwhile: the training then continues.

    Waits a minute for the daemon.
    """
    deadline: float | None = None

    def show_and_rearm(event: Mapping[str, Any]) -> None:
        nonlocal deadline
        deadline = None
        show(event)

    while True:
        try:
            return daemon.request(request, show_and_rearm)
        except DaemonAway:
            now = time.monotonic()
            deadline = now + _BACK_SECONDS if deadline is None else deadline
            if not opened or now > deadline:
                raise
        time.sleep(_POLL_SECONDS)
        request = {"do": "follow", "session": opened[0], "again": True}


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a training is: ``done`` of ``total`` trees, its newest metrics, whom it waits for."""

    done: int = 0
    total: int | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    waiting: tuple[str, ...] = ()

    def __str__(self) -> str:
        total = "?" if self.total is None else self.total
        metrics = (f"{name} {value:.5f}" for name, value in self.metrics.items())
        return "  ".join([f"tree {self.done}/{total}", *metrics, *self.waiting])


class Watcher(Protocol):
    """Is told of a training in the thread that follows it; it raises nothing."""

    def opened(self, run: Run[Any]) -> None:
        """The parties have been asked; ``run`` has a session and a model."""

    def progressed(self, run: Run[Any]) -> None:
        """Look at ``run.progress``."""

    def ended(self, result: Mapping[str, Any] | None, failure: BaseException | None) -> None:
        """What ``fedmq train --json`` prints, or why there is no model; nobody has been told."""


class Run(Generic[T]):
    """A training or cross-validation under way: ``session`` of ``model``.

    It belongs to the daemon, and goes on when the program ends. A notebook shows its learning
    curves. ``await run`` is ``run.wait()`` for asyncio.
    """

    def __init__(
        self,
        daemon: Daemon,
        request: Mapping[str, Any],
        made_of: Callable[[Mapping[str, Any]], T],
        trees: int | None = None,
        watchers: Sequence[Watcher] = (),
    ) -> None:
        self._daemon = daemon
        self._made_of = made_of
        self._trees = trees
        self._watchers = watchers
        self._opened: list[str] = [request["session"]] if "session" in request else []
        self._begun, self._ended = threading.Event(), threading.Event()
        self._changed = threading.Condition()
        self._result: Any = None
        self._failure: BaseException | None = None
        self.model: str | None = None
        """The model's name; None before the daemon has said it."""
        self.progress = Progress(total=trees)
        self.curves: dict[str, dict[int, float]] = {}
        """By metric, its value after each tree of which the daemon has told."""
        thread = threading.Thread(
            target=self._follow, args=(request,), name="fedmq-run", daemon=True
        )
        thread.start()
        self._begun.wait()
        if self._failure is not None and not self._opened:
            raise self._failure

    @property
    def session(self) -> str:
        """The session's id, as commands take it."""
        return self._opened[0]

    @property
    def done(self) -> bool:
        """Whether it has ended, one way or the other."""
        return self._ended.is_set()

    def wait(self, seconds: float | None = None) -> T:
        """What it makes: a model, or the figures of a cross-validation.

        Waits up to ``seconds``; a notebook shows its progress meanwhile. Ctrl-C only ends waiting.

        Raises:
            FedmqError: as `fedmq train` says it, with its exit code.
            PeerSilent: it has not ended by then; it goes on.
        """
        shown = _displayed(self)
        until = math.inf if seconds is None else time.monotonic() + seconds
        while not self._ended.is_set() and time.monotonic() < until:
            with self._changed:
                self._changed.wait(min(_POLL_SECONDS, max(0.0, until - time.monotonic())))
            shown()
        shown()
        if not self._ended.is_set():
            raise PeerSilent(f"session {self.session} is not at its end after {seconds:g} s")
        if self._failure is not None:
            raise self._failure
        return self._made_of(self._result)

    def __await__(self) -> Any:
        import asyncio

        return asyncio.to_thread(self.wait).__await__()

    @property
    def result(self) -> Mapping[str, Any]:
        """What ``fedmq train --json`` prints, as soon as it has ended; errors as of `wait`."""
        self.wait()
        found: Mapping[str, Any] = self._result
        return found

    def cancel(self) -> None:
        """End it at all parties; ``wait`` then raises."""
        self._ask("cancel")

    def pause(self) -> None:
        """Let it rest after the current tree, also across restarts."""
        self._ask("pause")

    def resume(self) -> None:
        """Let it go on after `pause`."""
        self._ask("resume")

    def _ask(self, what: str) -> None:
        self._daemon.request({"do": what, "session": self.session})

    def _follow(self, request: Mapping[str, Any]) -> None:
        try:
            self._result = follow_to_the_end(self._daemon, request, self._take, self._opened)
        except BaseException as error:  # it is raised in the thread that waits
            self._failure = error
        try:
            for watcher in self._watchers:
                watcher.ended(self._result, self._failure)
        except BaseException as error:
            self._failure = self._failure or error
        self._ended.set()
        self._begun.set()
        self._notify()

    def _take(self, event: Mapping[str, Any]) -> None:
        if event["event"] == "opened":
            self._opened.append(event["session"])
            self.model = event["model"]
            for watcher in self._watchers:
                watcher.opened(self)
        if event["event"] == "progress":
            done, metrics = event["done"], dict(event["details"])
            total = event["total"] or self._trees
            self.progress = Progress(done, total, metrics, tuple(event["waiting"]))
            for name, value in metrics.items():
                self.curves.setdefault(name, {})[done] = value
            for watcher in self._watchers:
                watcher.progressed(self)
        if self._opened:
            self._begun.set()
        self._notify()

    def _notify(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def __repr__(self) -> str:
        return f"<Run {self.session} of {self.model}: {self._state_in_words()}>"

    def _state_in_words(self) -> str:
        if not self._ended.is_set():
            return str(self.progress)
        if isinstance(self._failure, FedmqError):
            return str(self._failure)
        return "failed" if self._failure else f"done, {self.progress}"

    def _repr_html_(self) -> str:
        curves = "".join(_curve(name, points) for name, points in self.curves.items())
        title = html.escape(f"{self.model or 'training'}: {self._state_in_words()}")
        return f"<div><p>{title}</p>{curves}</div>"


def _curve(name: str, points: Mapping[int, float]) -> str:
    """A learning curve as a figure of SVG, which takes its colours from the page."""
    known = {tree: value for tree, value in points.items() if math.isfinite(value)}
    if len(known) < 2:
        return ""
    low, high = min(known.values()), max(known.values())
    across, up = (max(known) - min(known)) or 1, (high - low) or 1.0
    line = " ".join(
        f"{_WIDTH * (tree - min(known)) / across:.1f},{_HEIGHT * (high - value) / up:.1f}"
        for tree, value in sorted(known.items())
    )
    return (
        f'<figure style="display:inline-block;margin:0 1em 0 0">'
        f"<figcaption>{html.escape(name)}: {list(known.values())[-1]:.5f}</figcaption>"
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" viewBox="-2 -2 {_WIDTH + 4} {_HEIGHT + 4}">'
        f'<polyline points="{line}" fill="none" stroke="currentColor" stroke-width="1.5"/>'
        "</svg></figure>"
    )


def _displayed(run: Run[Any]) -> Callable[[], None]:
    """Show ``run`` in the notebook that this is, if it is one; what is returned draws it anew."""
    import sys

    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if shell is None or not hasattr(shell, "kernel"):
        return lambda: None
    handle = ipython.display.display(run, display_id=True)  # type: ignore[union-attr]
    return lambda: handle.update(run)
