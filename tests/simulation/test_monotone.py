"""Monotone constraints: an owner keeps its columns, the active party learns candidates' signs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import fedmq
from fedmq.boosting.binning import BinMatrix, Cuts
from fedmq.boosting.xgboost_comparison.parity import compare, train_reference
from fedmq.computation import Given
from fedmq.errors import ConfigError, FedmqError, Inconsistent, Refused
from fedmq.messages.array import Bitmap
from fedmq.messages.envelope import Envelope
from fedmq.messages.training import HistogramReply, TrainingOpen
from fedmq.protocol.training.claims import CandidateSigns
from fedmq.protocol.training.terms import PassiveTable
from tests.boosting.tables import scattered
from tests.how_often import seldom
from tests.protocol.federation import ACTIVE, Federation, names, shares, small

pytestmark = pytest.mark.usefixtures("threads")

WEAK = {"key_bits": 512, "allow_weak_keys": True}
SIGNS = {"f1": -1, "telco.f0": 1, "telco.f2": -1}
SIGNS_IN_ORDER = (0, -1, 0, 1, 0, -1)
X, Y = scattered(400, 6, seed=5, missing=0.1)


def trained(engine: str = "plain", **params: Any) -> fedmq.SimulatedModel:
    more: dict[str, Any] = {"engine_options": WEAK, "workers": 1} if engine in ("ou",) else {}
    values = {"num_boost_round": 4, "max_depth": 4, "max_bin": 16, **params}
    return fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        params=fedmq.TrainParams(**values),
        engine=engine,
        **more,
    )


def test_constraints_on_columns_of_both_parties_give_xgboosts_model() -> None:
    model = trained(monotone_constraints=SIGNS)
    bins = BinMatrix.of(X, Cuts.of(X, 16))
    signs = {"monotone_constraints": (0, -1, 0, 1, 0, -1)}
    reference = train_reference(bins, Y, model.share.params, constraints=signs)
    parity = compare(reference, model.joined_trees(), bins)
    assert parity.first_difference is None
    assert parity.total > 40
    free = train_reference(bins, Y, model.share.params)
    assert compare(free, model.joined_trees(), bins).first_difference is not None


@pytest.mark.parametrize(
    "signs", [SIGNS_IN_ORDER, [*SIGNS_IN_ORDER], str(SIGNS_IN_ORDER), np.array(SIGNS_IN_ORDER)]
)
def test_signs_in_the_order_of_all_columns_are_those_of_their_names(signs: Any) -> None:
    model = fedmq.simulate(
        active=X[:, :3],
        label=Y,
        passive={"telco": X[:, 3:]},
        engine="plain",
        params={"num_boost_round": 4, "max_depth": 4, "max_bin": 16, "monotone_constraints": signs},
    )
    assert model.share.dumps() == trained(monotone_constraints=SIGNS).share.dumps()


def test_folds_of_signs_in_order_are_those_of_their_names() -> None:
    of_names, in_order = (
        fedmq.cv(
            active=X[:, :3],
            label=Y,
            passive={"telco": X[:, 3:]},
            params={"num_boost_round": 2, "monotone_constraints": signs},
            as_pandas=False,
        )
        for signs in (SIGNS, SIGNS_IN_ORDER)
    )
    assert in_order == of_names


def test_a_column_of_categories_counts_once_among_signs_in_order() -> None:
    pandas = pytest.importorskip("pandas")
    bank = pandas.DataFrame({"town": np.where(X[:, 0] > 0, "A", "B"), "income": X[:, 1]})
    given = {"active": bank, "label": Y, "passive": {"telco": X[:, 3:4]}, "engine": "plain"}
    params = {"num_boost_round": 1, "monotone_constraints": (0, 1, -1)}
    model = fedmq.simulate(**given, params=params)
    assert model.share.params.monotone_constraints == {"income": 1, "telco.f0": -1}
    with pytest.raises(ConfigError, match=r"3 columns, town, income, telco\.f0$"):
        fedmq.simulate(**given, params=params | {"monotone_constraints": (0, 0, 1, -1)})


@pytest.mark.parametrize(
    ("signs", "line"),
    [
        ((1, -1), "monotone_constraints: 2 signs for 6 columns, f0, f1, f2, telco.f0"),
        ((2, 0, 0, 0, 0, 0), "params: monotone_constraints = 2: input should be -1, 0 or 1"),
        ("up", "monotone_constraints = 'up': a sign for each column is needed"),
    ],
)
def test_wrong_signs_are_one_line(signs: Any, line: str) -> None:
    with pytest.raises(ConfigError, match=f"^{line}"):
        fedmq.simulate(
            active=X[:, :3],
            label=Y,
            passive={"telco": X[:, 3:]},
            params={"monotone_constraints": signs},
        )


@pytest.mark.parametrize(("column", "sign"), [(1, -1), (3, 1), (5, -1)])
def test_scores_never_move_the_other_way(column: int, sign: int) -> None:
    model = trained(monotone_constraints=SIGNS)
    rows = np.repeat(X[:60], 9, axis=0)
    rows[:, column] = np.tile(np.linspace(-3, 3, 9), 60)
    scores = model.predict(
        active=rows[:, :3], passive={"telco": rows[:, 3:]}, output_margin=True
    ).reshape(60, 9)
    assert (np.diff(scores, axis=1) * sign >= 0).all()
    assert np.ptp(scores, axis=1).max() > 0.1


@pytest.mark.parametrize("engine", ["lattice", *seldom("ou", "smm1")])
def test_exact_engines_keep_them_alike(engine: str) -> None:
    expected, model = (
        trained(monotone_constraints=SIGNS),
        trained(engine, monotone_constraints=SIGNS),
    )
    assert model.share.dumps() == expected.share.dumps()


@pytest.mark.parametrize(
    ("engine", "params"), [("smm2", {}), ("ldp", {"objective": "binary:logistic"})]
)
def test_engines_that_hide_sums_from_the_active_party_refuse_them(
    engine: str, params: dict[str, Any]
) -> None:
    with pytest.raises(ConfigError, match=f"engine {engine}: monotone_constraints: "):
        trained(engine, monotone_constraints=SIGNS, **params)


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        (
            "f9",
            ConfigError,
            "active has no column 'f9'; write another party's column as party.column",
        ),
        ("shop.f0", ConfigError, "active has no column 'shop.f0'"),
        ("telco.f9", Refused, "telco trains with no column 'f9'"),
    ],
)
def test_a_name_that_no_party_has_is_refused(name: str, error: type[FedmqError], text: str) -> None:
    with pytest.raises(error, match=text):
        trained(monotone_constraints={name: 1})


def own_signs(federation: Federation, signs: dict[str, int]) -> Federation:
    """The same, with signs in the file of telco."""
    values = federation.columns["telco"]
    table = PassiveTable(values, names("telco", values.shape[1]), "the same ids", signs=signs)
    return replace(federation, loads={"telco": Given(table)})


def asked_signs(federation: Federation, signs: dict[str, int]) -> Federation:
    asked = {f"telco.{name}": sign for name, sign in signs.items()}
    return federation.having(monotone_constraints=asked)


SECRET = {"telco_secret_name_1": -1}


def test_signs_of_an_owners_file_and_those_that_are_asked_for_give_the_same_trees() -> None:
    federation = small(rows=200, counts=(2, 2, 1))
    own, asked = (add(federation, SECRET).train() for add in (own_signs, asked_signs))
    kept = [simulation.results["telco"].dumps() for simulation in (own, asked)]
    assert kept[0] == kept[1] != federation.train().results["telco"].dumps()
    trees = [
        [tree.model_dump_json() for tree in simulation.results[ACTIVE].trees]
        for simulation in (own, asked)
    ]
    assert trees[0] == trees[1]


def test_signs_that_contradict_are_refused() -> None:
    federation = asked_signs(own_signs(small(), SECRET), {"telco_secret_name_1": 1})
    error = federation.train().errors[ACTIVE]
    assert "has sign 1, and -1 in the file of telco" in str(error)


def test_only_the_owner_reads_a_name_and_only_the_active_party_reads_signs() -> None:
    heard: list[Envelope] = []
    simulation = asked_signs(small(rows=120, counts=(2, 2, 1)), SECRET).train(tap=heard.append)
    shares(simulation)
    for envelope in heard:
        body, recipient = envelope.body, envelope.header.recipient
        if isinstance(body, TrainingOpen):
            assert body.signs == (SECRET if recipient == "telco" else {})
        elif isinstance(body, HistogramReply):
            told = envelope.header.sender == "telco" and body.piece == 0
            assert (body.rising is not None, body.falling is not None) == (told, told)
        else:
            assert "telco_secret_name_1" not in repr(body)


def reply(**fields: Any) -> HistogramReply:
    return HistogramReply(tree=0, node=1, round=0, piece=0, pieces=1, payload={}, **fields)


RISING = Bitmap.of(np.array([True, False, False]))
FALLING = Bitmap.of(np.array([False, False, True]))


@pytest.mark.parametrize(
    ("signed", "fields", "text"),
    [
        (("telco",), {}, "out of place"),
        (("shop",), {"rising": RISING, "falling": FALLING}, "out of place"),
        (("telco",), {"rising": RISING}, "out of place"),
        (("telco",), {"rising": RISING, "falling": RISING}, "contradict"),
    ],
)
def test_signs_that_were_not_announced_or_make_no_sense_are_illegal(
    signed: tuple[str, ...], fields: dict[str, Any], text: str
) -> None:
    with pytest.raises(FedmqError, match=text):
        CandidateSigns(signed).take("telco", reply(**fields), 3)


@pytest.mark.parametrize("longer", ["rising", "falling"])
def test_more_signs_than_candidates_are_refused_before_they_take_memory(longer: str) -> None:
    fields = {"rising": RISING, "falling": FALLING, longer: Bitmap.of(np.zeros(4, np.bool_))}
    with pytest.raises(Inconsistent, match="4 candidates in a node; the party announced at most 3"):
        CandidateSigns(("telco",)).take("telco", reply(**fields), 3)


def test_signs_are_as_many_as_candidates() -> None:
    signs = CandidateSigns(("telco",))
    signs.take("telco", reply(rising=RISING, falling=FALLING), 3)
    assert signs.of("telco", 1, 3).tolist() == [1, 0, -1]
    with pytest.raises(FedmqError, match="3 signs for 4 candidates of node 1"):
        signs.of("telco", 1, 4)
    assert signs.of("shop", 1, 2).tolist() == [0, 0]
