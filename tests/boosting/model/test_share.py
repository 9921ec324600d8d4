from __future__ import annotations

import json

import numpy as np
import pytest

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.boosting.params import TrainParams
from fedmq.errors import DataError
from tests.boosting.model.test_tree import small_tree
from tests.boosting.pooled import joint_margins


@pytest.fixture
def active() -> ActiveShare:
    return ActiveShare(
        model_id="m1",
        parties=("bank", "shop"),
        params=TrainParams(objective="reg:squarederror", base_score=1.0),
        trees=(small_tree(), small_tree()),
        lookup_table=LookupTable.empty(("age",)).appended(0, 30.0, False),
        history={"rmse": (0.5, 0.25)},
    )


@pytest.fixture
def passive() -> PassiveShare:
    table = LookupTable.empty(("debt",)).appended(0, 5.0, True)
    return PassiveShare(model_id="m1", party="shop", lookup_table=table)


def test_shares_return_through_json(active: ActiveShare, passive: PassiveShare) -> None:
    for share in (active, passive):
        assert type(share).loads(share.dumps(), "model.json").dumps() == share.dumps()


def test_a_document_says_what_it_is(active: ActiveShare) -> None:
    document = json.loads(active.dumps())
    assert (document["format"], document["version"]) == ("fedmq.active-share", 1)


def test_margins_are_the_base_margin_and_a_leaf_of_each_tree(
    active: ActiveShare, passive: PassiveShare
) -> None:
    X = [np.array([[20], [40], [40]], np.float32), np.array([[0], [5], [6]], np.float32)]
    tables = [active.lookup_table, passive.lookup_table]
    assert joint_margins(active, tables, X).tolist() == [-1.0, 2.0, 1.5]
    stopped = active.model_copy(update={"best_iteration": 0})
    assert joint_margins(stopped, tables, X).tolist() == [0.0, 1.5, 1.25]


def test_metrics_and_parties_are_those_of_the_trees_that_are_kept(active: ActiveShare) -> None:
    assert active.metrics == {"rmse": 0.25}
    assert active.asked == ("shop",)
    stopped = active.model_copy(update={"best_iteration": 0})
    assert stopped.metrics == {"rmse": 0.5}
    assert active.model_copy(update={"trees": ()}).asked == ()


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"version": 2}, "version 2 is unknown"),
        ({"format": "fedmq.passive-share"}, "format: "),
        ({"parties": ["bank"]}, "names an owner beyond"),
        ({"best_iteration": 2}, "best_iteration is beyond"),
        ({"params": {"eta": 7}}, "params: eta = 7"),
        ({"trees": 5}, "trees: "),
        ({"surprise": 5}, "surprise: "),
    ],
)
def test_a_wrong_document_is_refused_by_file_and_key(
    active: ActiveShare, changed: dict[str, object], complaint: str
) -> None:
    text = json.dumps(json.loads(active.dumps()) | changed)
    with pytest.raises(DataError, match=rf"^model\.json: .*{complaint}") as raised:
        ActiveShare.loads(text, "model.json")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("text", ["", "[]", '{"version": 1}', "nonsense"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(DataError, match=r"^model\.json: not a model share"):
        PassiveShare.loads(text, "model.json")


def test_a_tree_beyond_the_own_lookup_table_is_refused(active: ActiveShare) -> None:
    document = json.loads(active.dumps())
    document["lookup_table"] |= {"feature": [], "threshold": [], "default_left": []}
    with pytest.raises(DataError, match="tree 0 names a record beyond the lookup table"):
        ActiveShare.loads(json.dumps(document), "model.json")
