"""What a worker does, be it a thread, a process or another machine."""

from __future__ import annotations

import os
import pickle
import threading
import time
from dataclasses import replace
from typing import Any

from fedmq.computation import Computation
from fedmq.party.compute.single_thread import SINGLE_THREAD
from fedmq.party.telemetry.timeline import Span

__all__ = ["run_pickled", "run_timed"]


def run_timed(computation: Computation) -> tuple[Any, Span]:
    """The result of ``computation``, and when this thread computed it."""
    start, busy = time.time(), time.thread_time()
    with SINGLE_THREAD:
        result = computation.run()
    busy = time.thread_time() - busy
    return result, Span(threading.get_ident(), start, time.time(), busy)


def run_pickled(work: bytes) -> tuple[Any, Span]:
    """The result of a pickled computation, and when this process computed it."""
    result, span = run_timed(pickle.loads(work))  # noqa: S301 (made by this party a moment ago)
    return result, replace(span, worker=os.getpid())
