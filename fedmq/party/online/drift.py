"""Are the people who are scored like those that the model learned from?

While a caller waits, values are only put aside; a thread counts them every few seconds.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.population_stability import BinnedColumn, stability_index
from fedmq.errors import FedmqError
from fedmq.party.atomic_file import write_atomically
from fedmq.party.configuration.online import DriftSection
from fedmq.party.store.documents import TrainedCounts, scored_counts_path, trained_counts
from fedmq.transport.background_tasks import BackgroundTasks

__all__ = ["Drift", "DriftWatch", "DriftWindow", "KeptDrift", "kept_drift"]

log = logging.getLogger(__name__)

_COUNT_SECONDS = 5.0
_SAVE_SECONDS = 60.0
_MOST_WAITING = 100_000  # rows that wait for counting; more are left out
_MOST_BATCHES = 256  # whose ids are remembered
_WINDOW_BLOCKS = 20


@dataclass(frozen=True, slots=True)
class Drift:
    """The distance ``index`` of a model's column, or score, from the training.

    ``alarm``: it exceeds the owner's threshold.
    """

    model: str
    column: str
    index: float
    rows: int
    alarm: bool


@dataclass(frozen=True, slots=True)
class KeptDrift:
    """The drift of a model as its daemon last kept it; ``rows``: people who were scored online.

    ``found`` is empty where these are fewer than ``least_rows``.
    """

    rows: int
    least_rows: int
    threshold: float
    found: tuple[Drift, ...]


def kept_drift(state: Path, section: DriftSection, model: str) -> KeptDrift | None:
    """The drift of ``model`` by the counts in the folder ``state``; None without those of training.

    A daemon keeps its counts once a minute, and when it stops. DataError if they are damaged.
    """
    trained = trained_counts(state).find(model)
    if trained is None or not section.rows:
        return None
    watched = _WatchedModel(trained, scored_counts_path(state, model), section.rows)
    watched.read()
    rows = max(watched.columns.rows, watched.scores.rows)
    found = tuple(watched.drift(model, section))
    return KeptDrift(rows, section.least_rows, section.threshold, found)


class DriftWatch:
    """Watches the models that ``served`` names; the folder ``state`` keeps its counts."""

    def __init__(self, state: Path, section: DriftSection, served: Callable[[], Set[str]]) -> None:
        self.found: tuple[Drift, ...] = ()
        """The drift of each column, for models with enough scored people."""
        self.others: dict[str, bool] = {}
        """At the active party: whether each passive party last reported drift."""
        self._state = state
        self._section = section
        self._served = served
        self._models: dict[str, _WatchedModel | None] = {}
        self._waiting: list[_PutAside] = []
        self._rows_waiting = 0
        self._batches: OrderedDict[tuple[str, int], set[str]] = OrderedDict()
        self._tasks = BackgroundTasks()
        self._counting = asyncio.Lock()
        self.shows_alarm = False
        """Whether answers tell the active party that a column drifts here."""

    def status(self) -> dict[str, Any]:
        """The drifting columns, as plain data; other parties report only whether they drift."""
        drifting = sorted(party for party, drifts in self.others.items() if drifts)
        return {"columns": [asdict(drift) for drift in self.found], "parties": drifting}

    async def start(self) -> None:
        """Start counting, with the counts from before."""
        if self._section.rows:
            await self.count()
            self._tasks.spawn(self._count_now_and_then())

    async def close(self) -> None:
        """Count the waiting values, and keep the counts."""
        await self._tasks.close()
        if self._section.rows:
            await self.count(save=True)

    # Called while a caller waits

    def put_aside_asked(
        self,
        batch: tuple[str, int],
        model: str,
        ids: Sequence[str],
        row_of: Mapping[str, int],
        values: NDArray[np.float32],
    ) -> None:
        """Put aside the people of a question, except those of earlier questions of its ``batch``.

        ``row_of`` gives the places of known people in ``values``. A batch is a session and
        a number.
        """
        if not self._section.rows:
            return
        before = self._batches.setdefault(batch, set())
        if len(self._batches) > _MOST_BATCHES:
            self._batches.popitem(last=False)
        new = [row_of[name] for name in ids if name not in before and name in row_of]
        before.update(ids)
        self._put_aside(model, values[new], scores=False)

    def put_aside(self, model: str, values: NDArray[np.float32]) -> None:
        """Put aside the columns (rows, columns) of people who are scored."""
        self._put_aside(model, values, scores=False)

    def put_aside_scores(self, model: str, margins: NDArray[np.float32]) -> None:
        """Put aside their margins: (rows,), or (rows, outputs)."""
        self._put_aside(model, margins.reshape(len(margins), -1), scores=True)

    def _put_aside(self, model: str, values: NDArray[np.float32], scores: bool) -> None:
        if self._section.rows and len(values) and self._rows_waiting < _MOST_WAITING:
            self._waiting.append(_PutAside(model, scores, values))
            self._rows_waiting += len(values)

    # Runs beside the event loop

    async def _count_now_and_then(self) -> None:
        saved = time.monotonic()
        while True:
            await asyncio.sleep(_COUNT_SECONDS)
            due = time.monotonic() - saved > _SAVE_SECONDS
            await self.count(save=due)
            if due:
                saved = time.monotonic()

    async def count(self, save: bool = False) -> None:
        """Count the waiting values, and find drift; with ``save`` the counts are kept."""
        async with self._counting:
            waiting, self._waiting, self._rows_waiting = self._waiting, [], 0
            served = frozenset(self._served())
            try:
                found = await asyncio.to_thread(self._count, waiting, served, save)
            except Exception:  # no score waits for it
                log.exception("drift could not be counted")
                return
            self._warn(found)
            self.found = found
            self.shows_alarm = self._section.show_alarm and any(drift.alarm for drift in found)

    def _warn(self, found: Sequence[Drift]) -> None:
        before = {(drift.model, drift.column) for drift in self.found if drift.alarm}
        for drift in found:
            if drift.alarm and (drift.model, drift.column) not in before:
                log.warning(
                    "model %s: %s drifts: over the last %d people its population stability index "
                    "is %.2f",
                    drift.model,
                    drift.column,
                    drift.rows,
                    drift.index,
                )

    def _count(
        self, waiting: Sequence[_PutAside], served: frozenset[str], save: bool
    ) -> tuple[Drift, ...]:
        for name in served - self._models.keys():
            self._models[name] = self._watched(name)
        watched = {name: model for name, model in self._models.items() if model is not None}
        for aside in waiting:
            model = watched.get(aside.model)
            if model is not None:
                window = model.scores if aside.scores else model.columns
                if aside.values.shape[1] == len(window.columns):
                    window.add(aside.values)
                    model.unsaved = True
        for name, model in watched.items():
            if model.unsaved and (save or name not in served):
                model.write()
                if trained_counts(self._state).find(name) is None:
                    model.forget()  # the model was deleted meanwhile
        for name in self._models.keys() - served:
            del self._models[name]
        return tuple(
            drift
            for name, model in sorted(watched.items())
            if name in served
            for drift in model.drift(name, self._section)
        )

    def _watched(self, name: str) -> _WatchedModel | None:
        """The windows of a model; None if no counts of its training are kept."""
        try:
            trained = trained_counts(self._state).find(name)
        except FedmqError as error:
            log.warning("%s", error)
            return None
        if trained is None:
            return None
        scored = scored_counts_path(self._state, name)
        model = _WatchedModel(trained, scored, self._section.rows)
        model.read()
        return model


@dataclass(frozen=True, slots=True, eq=False)
class _PutAside:
    """Values (rows, columns) that wait for counting; ``scores``: they are margins."""

    model: str
    scores: bool
    values: NDArray[np.float32]


class _WatchedModel:
    """The windows of one model; ``file`` keeps their counts across restarts."""

    def __init__(self, trained: TrainedCounts, file: Path, rows: int) -> None:
        self.columns = DriftWindow(trained.columns, rows)
        self.scores = DriftWindow(trained.scores, rows)
        self.unsaved = False
        self._file = file
        self._trained = hashlib.sha256(trained.model_dump_json().encode()).hexdigest()

    def read(self) -> None:
        """Restore the earlier counts, if their bins are the same."""
        try:
            saved = json.loads(self._file.read_text(encoding="utf-8"))
            if saved["trained"] == self._trained:
                self.columns.restore(saved["columns"])
                self.scores.restore(saved["scores"])
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError):
            log.warning("%s: cannot be read; drift is counted anew", self._file)

    def drift(self, name: str, section: DriftSection) -> Iterator[Drift]:
        """How far each column, and the scores, are from the training, if enough were scored."""
        for window in (self.columns, self.scores):
            if window.rows >= section.least_rows:
                for column, index in window.indices().items():
                    yield Drift(name, column, index, window.rows, index > section.threshold)

    def write(self) -> None:
        """Keep the counts; OSError if the disk refuses."""
        saved = {
            "trained": self._trained,
            "columns": self.columns.saved(),
            "scores": self.scores.saved(),
        }
        write_atomically(self._file, json.dumps(saved), 0o600)
        self.unsaved = False

    def forget(self) -> None:
        """Delete the kept counts; OSError if the disk refuses."""
        self._file.unlink(missing_ok=True)


class DriftWindow:
    """About the last ``rows`` rows, counted in the bins of ``columns``."""

    def __init__(self, columns: Sequence[BinnedColumn], rows: int) -> None:
        self.columns = tuple(columns)
        self._limit = rows
        self._blocks: deque[list[NDArray[np.int64]]] = deque([self._empty()])
        self._sizes: deque[int] = deque([0])

    @property
    def rows(self) -> int:
        """Number of rows in the window."""
        return sum(self._sizes)

    def add(self, values: NDArray[np.float32]) -> None:
        """Count ``values``, float32 (rows, columns); a new block replaces the oldest."""
        step = max(1, self._limit // _WINDOW_BLOCKS)
        while len(values):
            if self._sizes[-1] >= step:
                self._blocks.append(self._empty())
                self._sizes.append(0)
            part, values = np.split(values, [step - self._sizes[-1]])
            for at, column in enumerate(self.columns):
                self._blocks[-1][at] += column.count(part[:, at])
            self._sizes[-1] += len(part)
        while self.rows - self._sizes[0] >= self._limit:
            self._blocks.popleft()
            self._sizes.popleft()

    def indices(self) -> dict[str, float]:
        """The population stability index of each column, by its name."""
        return {
            column.name: stability_index(
                column.counts, np.sum([block[at] for block in self._blocks], axis=0)
            )
            for at, column in enumerate(self.columns)
        }

    def saved(self) -> list[Any]:
        """Plain data for :meth:`restore`."""
        return [
            [size, [counts.tolist() for counts in block]]
            for size, block in zip(self._sizes, self._blocks, strict=True)
        ]

    def restore(self, saved: list[Any]) -> None:
        """Restore the counts ``saved``; ValueError if their bins differ."""
        blocks = [[np.array(counts, np.int64) for counts in block] for _, block in saved]
        shapes = [(len(column.counts),) for column in self.columns]
        if any([counts.shape for counts in block] != shapes for block in blocks):
            raise ValueError("other bins")
        self._blocks = deque(blocks or [self._empty()])
        self._sizes = deque([int(size) for size, _ in saved] or [0])

    def _empty(self) -> list[NDArray[np.int64]]:
        return [np.zeros(len(column.counts), np.int64) for column in self.columns]
