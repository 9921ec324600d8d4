from __future__ import annotations

from pathlib import Path
from typing import cast

import numpy as np
import pytest

from fedmq.boosting.params import OLDEST, TrainParams
from fedmq.errors import ConfigError, DataError
from fedmq.party.operations.broker import BrokerLatency
from fedmq.privacy.registry import engine_named
from fedmq.simulation import calibration
from fedmq.simulation import estimate as estimation
from fedmq.simulation.calibration import Calibration, Measurement
from fedmq.simulation.estimate import Estimate, PartyEstimate, Prices, made_up_table
from fedmq.simulation.simulate import simulate

ROWS = 3000
PARAMS = TrainParams(num_boost_round=4, max_depth=2, max_bin=8)


@pytest.fixture(scope="module")
def table() -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(0)
    values = random.normal(size=(ROWS, 4)).astype(np.float32)
    return values, (values.sum(axis=1) > 0).astype(np.float32)


def estimated(table: tuple[np.ndarray, np.ndarray], folder: Path, **changes: object) -> Estimate:
    values, label = table
    given = {
        "active": values[:, :2],
        "label": label,
        "passive": {"telco": [8, 8]},
        "params": PARAMS,
        "engine": "plain",
        "engine_options": {},
        "workers": 1,
        "folder": folder,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(estimation, "_FEWEST_ROWS", 400)
        patch.setattr(estimation, "_BUDGET", 0.0)
        patch.setattr(calibration, "_SHORT_TREE", 0.0)
        return estimation.estimate(**{**given, **changes})  # type: ignore[arg-type]


def measured(rows: int, seconds: float = 1.0, **changes: object) -> Measurement:
    given = {
        "first": 1.0,
        "grown": 100,
        "code": 0,
        "in_workers": {},
        "work": {},
        **{key: {} for key in ("sent", "received", "sent_once", "received_once")},
        "messages": 0.0,
        "rounds": 4.0,
        "splits": 7.0,
    }
    return Measurement(rows, seconds, **{**given, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def estimate(
    table: tuple[np.ndarray, np.ndarray], tmp_path_factory: pytest.TempPathFactory
) -> Estimate:
    return estimated(table, tmp_path_factory.mktemp("stores"))


def test_traffic_is_estimated_within_thirty_percent(
    estimate: Estimate, table: tuple[np.ndarray, np.ndarray]
) -> None:
    values, label = table
    model = simulate(
        active=values[:, :2],
        label=label,
        passive={"telco": values[:, 2:]},
        params=PARAMS,
        engine="plain",
    )
    for pair in (("active", "telco"), ("telco", "active")):
        sent = sum(volume.bytes for volume in model.traffic[pair].values())
        assert estimate.parties[pair[0]].bytes_sent == pytest.approx(sent, rel=0.3)


def test_a_hint_that_is_sent_once_is_not_counted_for_every_tree(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    values, label = table
    options = {"directions": "all"}
    estimate = estimated(table, tmp_path, engine="lattice", engine_options=options)
    model = simulate(
        active=values[:, :2],
        label=label,
        passive={"telco": values[:, 2:]},
        params=PARAMS,
        engine="lattice",
        engine_options=options,
    )
    sent = sum(volume.bytes for volume in model.traffic["telco", "active"].values())
    assert estimate.parties["telco"].bytes_sent == pytest.approx(sent, rel=0.3)


def test_every_party_has_its_share_of_the_work(estimate: Estimate) -> None:
    assert estimate.parties.keys() == {"active", "telco"}
    assert all(party.core_seconds > 0 for party in estimate.parties.values())
    assert all(party.memory > 10e6 for party in estimate.parties.values())
    assert estimate.trees == 4
    assert estimate.together > 0
    assert estimate.apart > 0


def test_fewer_bins_are_less_to_send(table: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    sent = [
        estimated(
            table,
            tmp_path,
            passive={"telco": bins},
            engine="ou",
            engine_options={"key_bits": 384, "allow_weak_keys": True},
        )
        .parties["telco"]
        .bytes_sent
        for bins in ([2, 2], [8, 8])
    ]
    assert sent[0] < sent[1]


@pytest.mark.long
def test_constraints_are_part_of_what_circuits_take(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    own = PARAMS.model_copy(update={"max_depth": 1, "xgboost_arithmetic": OLDEST})
    bound = {"monotone_constraints": {"telco.calls": -1}}
    both = bound | {"interaction_constraints": (("age", "telco.calls"), ("telco.data",))}
    sent = [
        estimated(
            table,
            tmp_path,
            params=own.model_copy(update=constraints),
            passive={"telco": [3, 3]},
            engine="lattice",
            engine_options={"sums": "hidden"},
        )
        .parties["telco"]
        .bytes_sent
        for constraints in ({}, bound, both)
    ]
    assert sent[1] > 2 * sent[0]
    assert sent[2] > sent[1]


def test_a_slow_broker_adds_to_the_time_and_to_nothing_else(
    table: tuple[np.ndarray, np.ndarray], estimate: Estimate, tmp_path: Path
) -> None:
    slow = estimated(table, tmp_path, broker=BrokerLatency(1.0, 0.0))
    assert slow.per_tree > estimate.per_tree + 10
    # Acknowledgements are more where the trial runs beside other work.
    assert slow.parties["telco"].bytes_sent == pytest.approx(
        estimate.parties["telco"].bytes_sent, rel=0.5
    )


def test_over_a_link_each_byte_takes_its_time_once_and_each_round_the_way_there_and_back(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    own = {"engine": "lattice", "engine_options": {"directions": "all"}}
    per_byte, way = 1e-3, 100.0
    near, slow, distant = (
        estimated(table, tmp_path, **own, broker=BrokerLatency(message, byte, is_far=True))
        for message, byte in ((0.0, 0.0), (0.0, per_byte), (way, 0.0))
    )
    sent = slow.parties["telco"].bytes_sent + slow.parties["telco"].bytes_received
    assert slow.together - near.together == pytest.approx(sent * per_byte, rel=0.05)
    of_hint = slow.together - slow.trees * slow.per_tree
    assert of_hint > 0.3 * sent * per_byte
    rounds = (distant.per_tree - near.per_tree) / way
    assert PARAMS.max_depth <= rounds <= 4 * PARAMS.max_depth


def test_decoys_are_part_of_the_traffic(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    two: dict[str, object] = {"passive": {"telco": [8], "shop": [8]}}
    usual, hidden = (estimated(table, tmp_path, **two, decoys=decoys) for decoys in (False, True))
    for party in ("telco", "shop"):  # whose answers are bitmaps, for which nothing else is sent
        assert hidden.parties[party].bytes_sent > 1.2 * usual.parties[party].bytes_sent
    with pytest.raises(
        ConfigError, match="decoys: engine 'lattice' asks for directions by extra questions"
    ):
        estimated(table, tmp_path, engine="lattice", decoys=True)


def test_trees_of_the_active_party_alone_send_nothing(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    alone = PARAMS.model_copy(update={"active_only_trees": 4})
    assert estimated(table, tmp_path, params=alone).parties["active"].bytes_sent == 0


def test_stores_are_removed(table: tuple[np.ndarray, np.ndarray], tmp_path: Path) -> None:
    estimated(table, tmp_path)
    assert not list(tmp_path.iterdir())


def test_rows_and_splits_are_separated() -> None:
    def of(rows: int, splits: float) -> Measurement:
        seconds, sent = 1e-3 * rows + 0.5 * splits, {"active": 10.0 * rows}
        return measured(
            rows,
            seconds,
            work={("active", "Sum"): 0.5 * splits},
            sent=sent,
            received=sent,
            messages=3 * splits,
            splits=splits,
        )

    whole = estimation._extrapolated(of(1000, 4.0), of(2000, 6.0), 10_000, 7.0, 2)
    truth = of(10_000, 7.0)
    assert whole.seconds == pytest.approx(truth.seconds)
    assert whole.busy("active") == pytest.approx(truth.busy("active"))
    assert whole.sent == pytest.approx(truth.sent)
    assert whole.messages == pytest.approx(truth.messages)
    assert estimation._extrapolated(whole, truth, 10_000, 7.0, 2) is truth


def test_noise_of_long_computations_is_no_growth_with_rows() -> None:
    def of(rows: int, comparing: float) -> Measurement:
        work = {("active", "Compare"): comparing, ("active", "Encrypt"): 1e-4 * rows}
        return measured(rows, work=work)

    whole = estimation._extrapolated(of(1000, 30.0), of(8000, 36.0), 10**8, 14.0, 2)
    assert whole.busy("active") == pytest.approx(1e4 + 2 * 33.0, rel=1e-3)


def test_longer_quotients_of_many_rows_do_not_grow_with_them() -> None:
    def of(rows: int, comparing: float) -> Measurement:
        work = {("active", "Compare"): comparing, ("active", "Encrypt"): 1e-4 * rows}
        return measured(rows, work=work)

    whole = estimation._extrapolated(of(1000, 0.3), of(200_000, 0.8), 10**6, 14.0, 2, 3.0)
    assert whole.busy("active") == pytest.approx(100 + 2 * 0.8)


def test_cores_wait_for_the_bytes_that_event_loops_carry() -> None:
    def of(rows: int) -> Measurement:
        size = 3e7 + 400.0 * rows
        return measured(rows, 0.1 + 1e-8 * size, sent={"active": size})

    whole = estimation._extrapolated(of(1000), of(200_000), 10**6, 7.0, 2, 3.0)
    assert whole.seconds == pytest.approx(of(10**6).seconds)


def test_a_kernel_for_many_rows_grows_with_them() -> None:
    def of(rows: int, work: float) -> Measurement:
        return measured(rows, work={("active", "Sum"): work})

    whole = estimation._extrapolated(of(1000, 0.0), of(8000, 2.0), 16_000, 7.0, 2)
    assert whole.busy("active") == pytest.approx(4.0)


def test_a_party_has_memory_for_its_own_workers_and_for_the_larger_of_table_and_messages() -> None:
    few = measured(1000, grown=50, code=1, in_workers={"active": 2, "telco": 3})
    many = measured(8000, grown=90, code=7, in_workers={"active": 20, "telco": 30})
    whole = measured(10_000, received={"active": 0.0, "telco": 1e9})
    plain = engine_named("plain", {}, "estimate")

    def of(party: str, columns: int) -> float:
        return estimation._memory(party, columns, whole, [few, many], plain)

    alike = estimation._DAEMON + 50 + 7
    assert of("telco", 2) == alike + 30 + 2e9
    table = of("active", 2) - (alike + 20)
    assert 10_000 * 8 < table < of("active", 20) - (alike + 20)


def test_the_second_training_is_larger_and_the_third_fits_the_time_left() -> None:
    first, second = measured(1000, 1.0, first=0.5), measured(8000, 1.7, first=0.5)
    assert estimation._affordable([first], 6.0) == 8000
    assert estimation._affordable([first], 1.0) == 4000
    third = estimation._affordable([first, second], 8.5)
    assert third == pytest.approx(8000 + (8 / 3 - 1.7) / 1e-4, rel=0.01)


async def test_a_whole_table_is_trained_on_where_there_is_time() -> None:
    class Quick:
        async def train(self, rows: int, expected: float | None = None) -> Measurement:
            return measured(rows, 0.018 + 4e-7 * rows)

    seen = await estimation._measure(cast("Calibration", Quick()), 150_000, 150_000, hidden=False)
    assert [trained.rows for trained in seen[::2]] == [1000, 150_000]


def test_a_sample_is_extrapolated_to_the_table_that_it_stands_for(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    values, label = table
    sample = (values[:800], label[:800])
    estimate = estimated(sample, tmp_path, rows=ROWS)
    model = simulate(
        active=values[:, :2],
        label=label,
        passive={"telco": values[:, 2:]},
        params=PARAMS,
        engine="plain",
    )
    sent = sum(volume.bytes for volume in model.traffic["active", "telco"].values())
    assert estimate.parties["active"].bytes_sent == pytest.approx(sent, rel=0.3)


def test_an_engine_that_takes_fewer_rows_says_so(
    table: tuple[np.ndarray, np.ndarray], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"3,000,000 rows are more than engine 'lattice' sums"):
        estimated(table, tmp_path, engine="lattice", rows=3_000_000)


def test_a_price_is_of_core_hours_and_of_gigabytes_that_leave() -> None:
    party = PartyEstimate(7200.0, 3e9, 5e9, 0.0)
    found = Estimate(1, 0.0, 0.0, 0.0, {"a": party, "b": party})
    prices = Prices(core_hour=2.0, gigabyte=10.0)
    assert prices.of_party(party) == 4.0 + 30.0
    assert prices.of_broker(found) == 100.0


def test_made_up_tables_are_no_longer_than_what_is_trained_on() -> None:
    values, label = made_up_table(10**8, 3)
    assert values.shape == (estimation._MOST_ROWS, 3)
    assert set(np.unique(label)) == {0, 1}
    assert len(made_up_table(50, 3)[1]) == 50
