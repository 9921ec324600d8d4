"""What an owner is asked to agree to, in plain data: who asks for what, and how much of it."""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.array import unpack_payload
from fedmq.messages.codec import pack_body
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.standing_consent import Particular
from fedmq.party.consent.measured_leaks import PAGE, measured_leaks
from fedmq.privacy.engine import Engine
from fedmq.protocol.training.continuation import terms_digest

__all__ = ["RequestedTerms"]


@dataclass(frozen=True, slots=True)
class RequestedTerms:
    """``name``: of the model or alignment. ``digest`` tells these terms from others."""

    peer: str
    kind: Literal["alignment", "training"]
    name: str
    digest: str
    details: Mapping[str, Any]

    @classmethod
    def of_alignment(cls, peer: str, opening: AlignmentOpen) -> RequestedTerms:
        """Those of an alignment that ``peer`` opens."""
        digest = hashlib.blake2b(pack_body(opening), digest_size=16).hexdigest()
        details = {"parties": list(opening.parties), "normalise": list(opening.normalise)}
        return cls(peer, "alignment", opening.name, digest, details)

    @classmethod
    def of_training(cls, peer: str, opening: TrainingOpen, engine: Engine) -> RequestedTerms:
        """Those of a training that ``peer`` opens; Refused where ``engine`` cannot meet them."""
        learned = engine.on_terms(opening.sums).disclosed
        details = {
            "alignment": opening.alignment_name,
            "rows": opening.rows,
            "evaluation_rows": int(opening.evaluation.numpy().sum()),
            "engine": opening.engine,
            "key_bits": engine.key_bits_of(unpack_payload(opening.public)),
            "trees": opening.trees,
            "own_trees": opening.active_only_trees,
            "max_depth": opening.max_depth,
            "max_leaves": opening.max_leaves,
            "max_bin": opening.max_bin,
            "gradient_bits": opening.value_bits + 1,
            "folds": opening.folds,
            "continues": opening.earlier_model,
            "columns_named": sorted({*opening.signs, *itertools.chain(*opening.together)}),
            "particulars": list(_particulars(opening)),
            "label_holder_learns": learned.active,
            "this_party_learns": learned.passive,
            "known_leak": engine.known_leak,
            "measured": [leak.described() for leak in measured_leaks(engine)],
            "measured_in": PAGE,
        }
        return cls(peer, "training", opening.model, terms_digest(opening), details)


def _particulars(opening: TrainingOpen) -> Iterator[Particular]:
    if opening.earlier_model:
        yield "continues a model"
    if opening.folds > 1:
        yield "cross-validation"
    if opening.signs:
        yield "monotone constraints"
    if opening.together:
        yield "interaction constraints"
    if opening.max_cat_to_onehot:
        yield "sets of categories"
    if opening.outputs > 1:
        yield "vector leaves"
    if opening.decoys:
        yield "decoys"
