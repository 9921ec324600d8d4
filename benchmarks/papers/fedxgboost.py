"""FedXGBoost: Figures 4 and 5, and Table 1: loss, time and bytes per tree of every engine."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.credit import Credit
from benchmarks.papers.page import Curve, draw, table
from benchmarks.papers.tables import TITLES, params, train, workers_time

TREES = 25
EXACT = {"plain": TREES, "smm1": 10, "smm2": 5, "lattice": 10, "ou": 4, "paillier": 4}
"""How many trees each is timed over; the loss of all of them is that of plain."""
NOISY = [
    {"mechanism": mechanism, "epsilon": epsilon, "order": order}
    for order in (2, 1)
    for mechanism in ("laplace", "duchi")
    for epsilon in (3.0, 1.0)
]


def engines(data: Credit, plots: Path) -> Iterator[str]:
    """Table 1 and Figure 5 on one data set."""
    held_out = data.held_out(0)
    rows: list[list[str]] = []
    base, curves = 0.0, []
    plain: list[float] = []
    for engine, trees in EXACT.items():
        losses, seconds, megabytes = _run(data, engine, trees, held_out)
        if engine == "plain":
            base, plain = seconds, losses
            curves.append(Curve("plain", losses))
        assert losses == plain[:trees], f"{engine} is not exact"
        rows.append(_row(engine, plain[-1], seconds, base, megabytes))
    for index, options in enumerate(NOISY, start=1):
        losses, seconds, megabytes = _run(data, "ldp", TREES, held_out, noise_seed=0, **options)
        name = f"ldp {options['mechanism']}, epsilon {options['epsilon']:g}"
        name += ", first order" if options["order"] == 1 else ""
        curves.append(Curve(name, losses, dashed=options["order"] == 1, colour=index))
        rows.append(_row(name, losses[-1], seconds, base, megabytes))
    file = plots / f"fedxgboost-figure-5-{data.name}.png"
    draw(file, f"{TITLES[data.name]}: test log loss", "trees", "log loss", curves)
    yield f"#### {TITLES[data.name]}, {len(data.label):,} rows\n"
    yield f"![Loss under noise on {TITLES[data.name]}](data/{file.name})\n"
    loss = f"test log loss, {TREES} trees"
    yield table(["engine", loss, "processor s per tree", "times plain", "MB per tree"], rows)


def by_rows(data: Credit, plots: Path) -> Iterator[str]:
    """Figure 4: time per tree by the number of rows."""
    sizes = [2_000, 5_000, 10_000, 20_000]
    curves = []
    for colour, engine in enumerate(("plain", "smm1", "smm2", "ldp")):
        seconds = []
        for size in sizes:
            part = data.first(size)
            seconds.append(_run(part, engine, 5, part.held_out(0))[1])
        curves.append(Curve(engine, seconds, colour=colour))
    file = plots / "fedxgboost-figure-4.png"
    draw(file, "Processor seconds per tree by rows", "rows", "seconds", curves, at=sizes)
    yield "### Figure 4: processor time per tree by the number of rows\n"
    yield f"![Time by rows](data/{file.name})\n"
    rows = [
        [f"{size:,}", *(f"{curve.values[index]:.3f}" for curve in curves)]
        for index, size in enumerate(sizes)
    ]
    yield table(["rows", *(f"{curve.name}, seconds" for curve in curves)], rows)


def _run(
    data: Credit, engine: str, trees: int, held_out: Any, **options: Any
) -> tuple[list[float], float, float]:
    """Test losses, processor seconds of all parties and their workers, and MB per tree."""
    ends: list[float] = []
    before = workers_time()
    model = train(
        data,
        engine,
        params(trees),
        held_out,
        lambda _: ends.append(time.process_time()),
        **options,
    )
    losses = model.evals_result["eval"]["logloss"]
    seconds = float(np.median(np.diff(ends))) + (workers_time() - before) / trees
    return losses, seconds, model.bytes_sent / trees / 1e6


def _row(name: str, loss: float, seconds: float, base: float, megabytes: float) -> list[str]:
    return [name, f"{loss:.4f}", f"{seconds:.3f}", f"{seconds / base:.1f}", f"{megabytes:.1f}"]
