"""A labelled function and its arguments are a computation, which any process can run."""

from __future__ import annotations

import pickle

import numpy as np
from numpy.typing import NDArray

from fedmq.computation import computation
from fedmq.party.compute.pool import run_pickled


@computation("WeighRows", urgency=-1)
def weigh_rows(values: NDArray[np.float64], weight: float = 2.0) -> NDArray[np.float64]:
    """The rows times ``weight``."""
    return values * weight


def test_it_stays_a_function() -> None:
    assert weigh_rows(np.arange(3.0), weight=3.0).tolist() == [0.0, 3.0, 6.0]
    assert weigh_rows.__doc__ == "The rows times ``weight``."


def test_with_its_arguments_it_runs_when_it_is_asked_to() -> None:
    assert weigh_rows.bind(np.arange(3.0)).run().tolist() == [0.0, 2.0, 4.0]
    assert weigh_rows.bind(np.arange(3.0), weight=1.0).run().tolist() == [0.0, 1.0, 2.0]


def test_it_travels_as_its_name_and_its_arguments() -> None:
    work = pickle.dumps(weigh_rows.bind(np.arange(3.0), weight=3.0))
    result, _ = run_pickled(work)
    assert result.tolist() == [0.0, 3.0, 6.0]
    assert len(work) < 400


def test_label_and_urgency_travel_with_it() -> None:
    bound = pickle.loads(pickle.dumps(weigh_rows.bind(np.arange(3.0))))  # noqa: S301
    assert (bound.label, bound.urgency) == ("WeighRows", -1)


def test_a_log_shows_the_label_but_no_argument() -> None:
    assert repr(weigh_rows.bind(np.full(3, 123456.0))) == "WeighRows"
