"""What the benchmark of more cores counts, and that it runs on Credit 1 where that lies here."""

from __future__ import annotations

import pytest

from benchmarks.more_cores import NOTHING, Taken, alone, serial_part, table, train
from tests.boosting.tables import DATA


def test_seconds_alone_are_those_in_which_nothing_else_is_at_work() -> None:
    spans = [("sum", 1.0, 3.0), ("sum", 2.0, 5.0), ("decrypt", 4.0, 6.0), ("early", -1.0, 0.5)]
    found = alone(spans, 0.0, 8.0)
    assert found == {"early": 0.5, NOTHING: 0.5 + 2.0, "sum": 1.0 + 1.0, "decrypt": 1.0}


def test_nothing_at_work_is_the_whole_time() -> None:
    assert alone([], 1.0, 4.0) == {NOTHING: 3.0}


def test_the_serial_part_is_that_of_amdahls_law() -> None:
    assert serial_part(10.0, 5.0, 2) == 0.0
    assert serial_part(10.0, 10.0, 2) == 1.0
    assert serial_part(10.0, 0.2 * 10 + 0.8 * 10 / 4, 4) == pytest.approx(0.2)


def test_the_table_compares_processes_with_one() -> None:
    one, two = Taken("ou", 1, 10.0, {}), Taken("ou", 2, 6.0, {"Merge": 0.6, NOTHING: 1.2})
    last = table([one, two]).splitlines()[-1]
    assert last == "| ou | 2 | 6.00 | 83% | 20% | no computation 20%, Merge 10% |"


@pytest.mark.long
@pytest.mark.skipif(not (DATA / "credit1_active.csv").exists(), reason="no Credit 1 here")
def test_a_training_says_what_worked_alone() -> None:
    taken = train(DATA, "plain", 2, 2000, 1)
    assert taken.seconds > 0
    assert 0 < sum(taken.alone.values()) <= taken.seconds * 1.5
