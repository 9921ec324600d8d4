"""A model of a federation as one XGBoost booster, where every passive party's owner agrees."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedmq.boosting.model.owner_splits import OwnerSplits
from fedmq.boosting.xgboost_comparison.export import check_objective, joint_booster
from fedmq.errors import ConfigError, Refused
from fedmq.party.operations.control import request_daemon
from fedmq.workbench.own_shares import OwnShares

if TYPE_CHECKING:
    import xgboost

__all__ = ["federated_booster"]


def federated_booster(shares: OwnShares, model: str, wait: float) -> xgboost.Booster:
    """The trees of ``model`` with everybody's thresholds; predicts as the federation does.

    Columns are named ``party.column``: the active party's own by their names, others by name or
    number, as each owner has it. ``wait``: seconds within which each party's daemon answers.

    Raises:
        ConfigError: this is not the active party, or xgboost is not installed.
        Refused: an owner refuses, or has not yet said yes; the text names each.
    """
    if not shares.is_active:
        raise ConfigError(
            f"{shares.party}: only {shares.federation.active} can have a model in one file; "
            f"{shares.party} has its own share alone"
        )
    share = shares.store.active(model)
    check_objective(share.params.objective)  # before anybody's owner is asked
    request = {"do": "joint_model", "model": model, "seconds": wait}
    answers = request_daemon(shares.state, request)
    if refused := [answer["refused"] for answer in answers.values() if "refused" in answer]:
        raise Refused("; ".join(refused))
    told = [OwnerSplits.model_validate(answers[party]["splits"]) for party in share.parties[1:]]
    return joint_booster(share, [OwnerSplits.of(share.lookup_table), *told])
