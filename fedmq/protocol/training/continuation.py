"""With what may a training go on: trees of an earlier attempt, or of an earlier model?"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from fedmq.boosting.model.continued import places_digest
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.objectives.registry import OBJECTIVES
from fedmq.boosting.params import TrainParams
from fedmq.errors import ConfigError, ProtocolError, Refused
from fedmq.messages.array import pack_payload
from fedmq.messages.codec import pack_body
from fedmq.messages.training import TrainingOpen
from fedmq.protocol.records import PassiveTree
from fedmq.protocol.training.tables import ActiveTable, PassiveTable

__all__ = ["check_earlier", "continuing", "kept_before", "terms_digest"]

_REGROWN = 1
"""No two parties are further apart, so nobody needs more of another's trees grown again."""


def terms_digest(terms: TrainingOpen) -> str:
    """What tells ``terms`` from others: 16 bytes of BLAKE2b (RFC 7693), in hex.

    Keys are not among them: an engine makes new ones for each attempt.
    """
    lasting = {"public": pack_payload({}), "signs": dict(sorted(terms.signs.items()))}
    packed = pack_body(terms.model_copy(update=lasting))
    return hashlib.blake2b(packed, digest_size=16).hexdigest()


def kept_before(
    tree: int, saved: Sequence[PassiveTree], *, finished: bool
) -> tuple[PassiveTree, ...]:
    """Those of ``saved`` before ``tree``, with which the session goes on.

    ``finished``: an earlier attempt has finished at this party, and so all trees are everywhere.
    Raises ProtocolError where more trees would grow again than a crash can cost.
    """
    kept = tuple(earlier for earlier in saved if earlier.number < tree)
    if len(saved) - len(kept) > (0 if finished else _REGROWN):
        raise ProtocolError(
            f"tree {tree} was to grow again after {saved[-1].number + 1} were saved everywhere"
        )
    return kept


def continuing(
    earlier: ActiveShare, params: TrainParams, parties: Sequence[str], table: ActiveTable
) -> TrainParams:
    """``params``, beginning where ``earlier`` does; ``parties`` train on the active party's table.

    Raises:
        ConfigError: the trees of both cannot make one model.
    """
    model = earlier.model_id
    if table.folds:
        raise ConfigError("continue_from: a cross-validation continues no model, as xgb.cv")
    if "dart" in (earlier.params.booster, params.booster):
        raise ConfigError("continue_from: trees of dart are weighed anew, so they end with a model")
    own = OBJECTIVES[params.objective].own_parameters
    same = ("objective", "num_parallel_tree", "multi_strategy", *own)
    for name in same:
        before, now = getattr(earlier.params, name), getattr(params, name)
        if before != now:
            raise ConfigError(f"continue_from: {name} = {now}, model {model!r} has {before}")
    if params.base_score not in (None, earlier.base_score):
        raise ConfigError(
            f"continue_from: base_score = {params.base_score}, model {model!r} has "
            f"{earlier.base_score}; leave it out"
        )
    if params.active_only_trees:
        raise ConfigError(
            "continue_from: active_only_trees are a model's first, and these are not; leave it out"
        )
    away = [party for party in earlier.parties if party not in parties]
    if away:
        raise ConfigError(
            f"continue_from: {', '.join(away)} holds a share of model {model!r}, and takes no part"
        )
    if earlier.lookup_table.feature_names != table.features:
        raise ConfigError(
            f"continue_from: model {model!r} was trained on other columns of {parties[0]}"
        )
    begun = {
        "base_score": earlier.base_score,
        # All trees of a model are of one XGBoost, as its share says.
        "xgboost_arithmetic": earlier.params.xgboost_arithmetic,
    }
    return params.model_copy(update=begun)


def check_earlier(
    party: str, share: PassiveShare, table: PassiveTable, terms: TrainingOpen
) -> None:
    """Raise Refused unless ``share`` is what ``party`` holds of the model that ``terms`` name."""
    model = terms.earlier_model
    if share.lookup_table.feature_names != table.features:
        raise Refused(f"model {model!r} was trained on other columns of {party}")
    whole = len(share.places) == len(share.lookup_table)
    if not whole or places_digest(share.places) != terms.earlier_places:
        raise Refused(
            f"the share of model {model!r} at {party} is of another training of that name, or of "
            "an earlier version of fedmq"
        )
