"""What splits brought, as the active party sees it."""

from __future__ import annotations

from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.shown_model import owned_importance
from fedmq.boosting.model.tree import LookupTable, TreeArrays
from fedmq.boosting.params import TrainParams


def test_an_active_party_without_splits_sees_what_others_brought() -> None:
    """Others' records are no places in its own table, which may be shorter, or empty."""
    tree = TreeArrays()
    left, right = tree.split(0, 1, 1, gain=3, cover=4)
    low, high = tree.split(left, 1, 0, gain=2, cover=2)
    for leaf in (right, low, high):
        tree.leaf(leaf, 0.1, cover=1)
    share = ActiveShare(
        model_id="m",
        lookup_table=LookupTable.empty(("balance",)),
        parties=("bank", "telco"),
        params=TrainParams(base_score=0.5),
        trees=(tree.finished(),),
    )
    assert owned_importance(share, "total_gain") == {("telco", ""): 5.0}
