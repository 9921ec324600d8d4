"""FedXGBoost's engines through the daemons' machines, beside the plain one."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pandas as pd
import pytest

import fedmq
from fedmq.boosting.params import NEWEST, Arithmetic
from fedmq.computation import Given
from fedmq.errors import ConfigError
from fedmq.messages.envelope import Envelope
from fedmq.privacy.registry import engine_named
from fedmq.protocol.training.active import ActiveTraining
from fedmq.protocol.training.passive import PassiveTraining
from fedmq.protocol.training.terms import ActiveTable, PassiveTable
from tests.how_often import seldom, seldom_several
from tests.simulator import Link, Simulation

DATA = Path(__file__).parents[3] / "shared" / "data"
LABELS = {"breast": "y", "credit2": "default.payment.next.month", "credit1": "SeriousDlqin2yrs"}


def table(name: str, rows: int | None = None) -> tuple[Any, Any, Any]:
    if not (DATA / f"{name}_active.csv").exists():
        pytest.skip(f"{DATA} has no {name} data")
    active = pd.read_csv(DATA / f"{name}_active.csv", nrows=rows)
    passive = pd.read_csv(DATA / f"{name}_passive.csv", nrows=rows)
    label = LABELS[name]
    return active.drop(columns=["id", label]), active[label], passive.drop(columns="id")


def trained(
    data: tuple[Any, Any, Any],
    engine: str,
    trees: int = 2,
    arithmetic: Arithmetic = NEWEST,
    **options: Any,
) -> Any:
    active, label, passive = data
    params = fedmq.TrainParams(
        num_boost_round=trees,
        max_depth=3,
        subsample=0.8,
        max_bin=32,
        xgboost_arithmetic=arithmetic,
    )
    return fedmq.simulate(
        active=active,
        label=label,
        passive={"telco": passive},
        params=params,
        engine=engine,
        engine_options=options,
        evaluation=np.arange(len(label)) % 3 == 0,
    )


def model(simulated: Any) -> Any:
    return [tree.model_dump_json() for tree in simulated.share.trees], [
        share.lookup_table.model_dump_json() for share in simulated.passive_shares.values()
    ]


@pytest.mark.parametrize(
    ("name", "rows"), [("breast", None), *seldom_several(("credit2", None), ("credit1", 20000))]
)
def test_smm_grows_the_very_trees_of_plain(name: str, rows: int | None) -> None:
    data = table(name, rows)
    plain = model(trained(data, "plain"))
    assert model(trained(data, "smm1")) == plain
    assert model(trained(data, "smm2")) == plain


def synthetic(rows: int = 900) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(0)
    values = random.normal(size=(rows, 6)).astype(np.float32)
    values[random.random(values.shape) < 0.1] = np.nan
    score = np.nan_to_num(values).sum(axis=1) + random.normal(size=rows)
    return values[:, :3], (score > 0).astype(np.float32), values[:, 3:]


@pytest.mark.parametrize("engine", ["smm1", "smm2"])
@pytest.mark.parametrize("arithmetic", get_args(Arithmetic))
def test_smm_is_exact_with_missing_values(engine: str, arithmetic: Arithmetic) -> None:
    data = synthetic()
    plain = model(trained(data, "plain", arithmetic=arithmetic))
    assert model(trained(data, engine, arithmetic=arithmetic)) == plain


@pytest.mark.parametrize("order", [1, 2])
def test_ldp_counts_its_budget(order: int) -> None:
    assert trained(synthetic(), "ldp", epsilon=3, order=order).epsilon_spent == 3 * order * 2
    assert trained(synthetic(), "plain").epsilon_spent is None


@pytest.mark.parametrize("mechanism", ["laplace", "piecewise", "hybrid"])
def test_ldp_with_a_very_large_budget_predicts_as_plain_does(mechanism: str) -> None:
    data = synthetic()
    plain, noisy = trained(data, "plain"), trained(data, "ldp", epsilon=1e12, mechanism=mechanism)
    rows = {"active": data[0], "passive": {"telco": data[2]}}
    np.testing.assert_array_equal(noisy.predict(**rows), plain.predict(**rows))


def test_ldp_with_its_first_order_prefers_no_party() -> None:
    """All candidates are scored on one scale, so both parties' features are used."""
    data = synthetic()
    split = np.concatenate(
        [tree.owner for tree in trained(data, "ldp", epsilon=1e12, order=1, trees=4).share.trees]
    )
    assert {0, 1} <= set(split.tolist())


@pytest.mark.parametrize("mechanism", ["laplace", *seldom("duchi")])
@pytest.mark.parametrize(("epsilon", "gap"), [(3.0, 0.015), *seldom_several((1.0, 0.025))])
def test_ldp_follows_the_plain_loss_on_credit_2(mechanism: str, epsilon: float, gap: float) -> None:
    data = table("credit2")
    options = {"epsilon": epsilon, "mechanism": mechanism, "noise_seed": 0}
    noisy = trained(data, "ldp", trees=10, **options).evals_result["eval"]["logloss"]
    plain = trained(data, "plain", trees=10).evals_result["eval"]["logloss"]
    assert noisy[-1] - plain[-1] < gap
    assert noisy[-1] < noisy[0] < 0.66


def test_a_regression_without_clip_is_refused_before_anything_is_sent() -> None:
    active, label, passive = synthetic(50)
    with pytest.raises(ConfigError, match="clip"):
        fedmq.simulate(
            active=active,
            label=label,
            passive={"telco": passive},
            params=fedmq.TrainParams(objective="reg:squarederror"),
            engine="ldp",
        )


@pytest.mark.parametrize("engine", ["smm1", "smm2", "ldp"])
def test_a_bad_link_changes_nothing(engine: str) -> None:
    def shares(link: Link) -> Any:
        options = {"noise_seed": 1} if engine == "ldp" else {}
        spec = engine_named(engine, options, "test")
        active, label, passive = synthetic(300)
        own = ActiveTable(active, ("a", "b", "c"), label, np.zeros(300, np.bool_))
        params = fedmq.TrainParams(num_boost_round=2, max_depth=3, max_bin=8)
        load = Given(PassiveTable(passive, ("d", "e", "f")))
        seen: list[Envelope] = []
        simulation = Simulation(
            {
                "bank": ActiveTraining("m", "bank", ("telco",), own, params, spec),
                "telco": PassiveTraining("telco", "bank", load, lambda _: spec, secret=5),
            },
            seed=3,
            link=link,
            tap=seen.append,
        )
        simulation.run()
        assert not simulation.errors
        return {party: share.model_dump_json() for party, share in simulation.results.items()}

    assert shares(Link(drop=0.1, repeat=0.1, delay=0.5)) == shares(Link())
