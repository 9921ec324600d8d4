"""``fedmq demo``: three parties in this process, on breast-cancer data, beside XGBoost."""

from __future__ import annotations

import json
import time

import click
import numpy as np

from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.metrics import auc
from fedmq.boosting.params import TrainParams
from fedmq.boosting.xgboost_comparison.parity import compare, installed_arithmetic, train_reference
from fedmq.cli.example_data import breast_cancer
from fedmq.cli.output import print_next_step
from fedmq.cli.progress import ProgressBar
from fedmq.privacy.engine import SumsShown
from fedmq.protocol.events import Report
from fedmq.simulation.simulate import simulate
from fedmq.simulation.tables import ACTIVE

__all__ = ["demo"]

_PASSIVE = ("telco", "retail")


@click.command()
@click.option(
    "--trees", type=click.IntRange(1), default=5, show_default=True, help="Number of trees."
)
@click.option("--engine", help="Privacy engine; the quickest that hides sums when left out.")
@click.option(
    "--sums",
    type=click.Choice(["hidden", "shown"]),
    help="Whether the active party sees sums; hidden, unless --engine is given.",
)
def demo(trees: int, engine: str | None, sums: SumsShown | None) -> None:
    """Train three parties on breast-cancer data, and compare with XGBoost on the joined table.

    Ends with one line of JSON. Needs the extra fedmq[demo].
    """
    if engine is None and sums is None:
        sums = "hidden"
    data = breast_cancer((ACTIVE, *_PASSIVE))
    train, test = ~data.test, data.test
    params = TrainParams(
        num_boost_round=trees, max_depth=3, max_bin=32, xgboost_arithmetic=installed_arithmetic()
    )
    done: list[float] = [time.perf_counter()]
    with ProgressBar("training, trees", "tree") as bar:

        def show(report: Report) -> None:
            done.append(time.perf_counter())
            bar.show(report.done, report.total, report.details)

        model = simulate(
            active=data.columns[ACTIVE][train],
            label=data.label[train],
            passive={party: data.columns[party][train] for party in _PASSIVE},
            params=params,
            engine=engine,
            sums=sums,
            on_report=show,
        )
    scores = model.predict(
        active=data.columns[ACTIVE][test],
        passive={party: data.columns[party][test] for party in _PASSIVE},
    )
    columns = [data.columns[party][train] for party in (ACTIVE, *_PASSIVE)]
    values = np.hstack(columns).astype(np.float32)
    bins = BinMatrix.of(values, Cuts.of(values, params.max_bin))
    reference = train_reference(bins, data.label[train].astype(np.float32), params)
    parity = compare(reference, model.joined_trees(), bins)
    click.echo(
        json.dumps(
            {
                "parties": 1 + len(_PASSIVE),
                "trees": len(model.share.trees),
                "sums": sums or "shown",
                "test_auc": round(auc(data.label[test].astype(np.float32), scores), 5),
                "xgboost_nodes_identical": f"{parity.identical}/{parity.total}",
                "seconds_per_tree": round(float(np.median(np.diff(done))), 3),
                "bytes_sent": model.bytes_sent,
            }
        )
    )
    words = ("--active bank --passive telco --passive retail --example",)
    print_next_step(False, "init", "my-federation", *words)
