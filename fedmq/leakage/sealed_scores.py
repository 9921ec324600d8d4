"""What do sealed scores tell the active party of the leaves at which people end?

It knows what each leaf adds, and where its own splits lead: a score is one sum of leaves, and with
reasons a sum a party. If it lies, each of them tells 29 leaves of its choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.leaf_slots import LeafSlots
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.errors import ConfigError
from fedmq.leakage.attacks.finding import Finding
from fedmq.leakage.attacks.leaves_from_scores import guessed_leaves, likeliest_leaves
from fedmq.leakage.sealed_reasons import leaves_from_reasons
from fedmq.privacy.sealed_scores.packing import FixedPoint
from fedmq.privacy.sealed_scores.parameters import PRIME

__all__ = ["leaves_from_scores"]

_PEOPLE = 200
_TOLD = PRIME.bit_length() - 1
"""Leaves that one score tells an active party that seals powers of two."""
_SCORES = (1, 10)
"""Of a person; parties answer ten an hour where their owners say nothing else."""


def leaves_from_scores(
    share: ActiveShare,
    values: NDArray[np.float32],
    tables: Mapping[str, NDArray[np.float32]],
    lookup_tables: Mapping[str, LookupTable],
) -> Iterator[Finding]:
    """How many leaves a score tells, of models of the first trees of ``share``, and of all.

    ``values`` (rows, features) are the active party's, ``tables`` those of the others, whose splits
    are in ``lookup_tables``. The first 200 people are attacked.

    Raises:
        ConfigError: a party's table or splits are missing, or scores are of several classes.
    """
    if share.params.outputs > 1:
        raise ConfigError("sealed scores of several classes: audit a model of one against the rest")
    lacking = sorted(set(share.asked) - (tables.keys() & lookup_tables.keys()))
    if lacking:
        raise ConfigError(
            f"sealed scores: the features or the lookup table of {lacking[0]} are missing"
        )
    rounds = len(share.used_trees) // share.params.trees_per_round
    cuts = [count for count in (1, 2, 4, 8, 16, 32, 64, 128) if count < rounds]
    for count in (*cuts, rounds):
        yield from _of_model(share.of_rounds(0, count), values, tables, lookup_tables)
    slots = len(LeafSlots.of(share).roots)
    for scores in _SCORES:
        where = f"{scores} sealed score{'s' * (scores > 1)} of a person, {slots} leaves"
        value = min(1.0, scores * _TOLD / slots) if slots else 0.0
        yield Finding(
            "leaves by lies", "whether others' splits allow a leaf", where, "share", value, 0.0
        )


def _of_model(
    share: ActiveShare,
    values: NDArray[np.float32],
    tables: Mapping[str, NDArray[np.float32]],
    lookup_tables: Mapping[str, LookupTable],
) -> Iterator[Finding]:
    slots = LeafSlots.of(share)
    if not len(slots.roots):
        return
    values = values[:_PEOPLE]
    own = slots.allowed(values)
    allowed = np.stack(
        [
            slots.ranges[share.parties.index(party)].allowed(
                lookup_tables[party].directions_of_all(
                    tables[party][: len(values)],
                    slots.ranges[share.parties.index(party)].record,
                ),
                len(slots.roots),
            )
            for party in share.asked
        ]
    )
    ended = own & allowed.all(axis=0)
    weights, _ = slots.weights(values)
    point = FixedPoint.for_sums(slots.largest, len(share.used_trees))
    numbers = np.rint(np.ldexp(weights, point.bits)).astype(np.int64)
    cover = np.concatenate([tree.cover for tree in share.used_trees])[slots.roots]
    right, chance, judged = 0, 0, 0
    for person in range(len(values)):
        groups = [
            np.flatnonzero(own[person] & (slots.trees == tree)) for tree in np.unique(slots.trees)
        ]
        told = [numbers[person, group][:, np.newaxis] for group in groups]
        covers = [cover[group].astype(np.float64) for group in groups]
        total = numbers[person, ended[person]].sum(keepdims=True)
        truth = [int(np.flatnonzero(ended[person, group])[0]) for group in groups]
        open_trees = [tree for tree, group in enumerate(groups) if len(group) > 1]
        guessed, likely = guessed_leaves(told, covers, total), likeliest_leaves(covers)
        judged += len(open_trees)
        right += sum(guessed[tree] == truth[tree] for tree in open_trees)
        chance += sum(likely[tree] == truth[tree] for tree in open_trees)
    trees = len(share.used_trees)
    where = f"scores of {len(values)} people by {trees} tree{'s' * (trees > 1)}"
    if not judged:
        return
    told_by_score = right / judged
    yield Finding(
        "leaves from scores", "leaves of people", where, "share", told_by_score, chance / judged
    )
    if share.params.vector_outputs < 2:
        found = leaves_from_reasons(share, slots, values, allowed, where)
        if found is not None:  # whoever has reasons has the score, too
            yield replace(found, value=max(found.value, told_by_score))
