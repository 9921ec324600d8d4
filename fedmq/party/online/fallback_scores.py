"""Who scores a person of whom a party says nothing?

A party does not know the person, does not answer, or has left the federation. Then the fallback
model without this party scores, and the answer says so.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.fallbacks import chosen_fallback, fallback_names
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import AnswerRefused, PeerSilent
from fedmq.party.online.scoring import AskedScores, ScoredRequest, Scorer, ServedModel

__all__ = ["FallbackScores", "with_rows"]

log = logging.getLogger(__name__)


class FallbackScores:
    """Answers for ``scorer`` by a model, or by its served fallback models."""

    def __init__(self, scorer: Scorer) -> None:
        self._scorer = scorer

    async def answer(self, main: ServedModel, asked: AskedScores) -> ScoredRequest:
        """The scores of a request to ``main``; raises as `Scorer.score`."""
        fallbacks = self._fallbacks(main)
        if not fallbacks:
            return await self._scorer.by(main, asked)
        needed = frozenset(main.forest.asked.values())
        absent = frozenset(self._scorer.gone(main)) | (needed & set(self._scorer.away))
        scored = await self._scored(main, fallbacks, absent, replace(asked, falls_back=True))
        return replace(scored, model=main.id)

    def _fallbacks(self, main: ServedModel) -> dict[frozenset[str], ServedModel]:
        """The served fallback models of ``main`` that need nobody who has left."""
        share, found = main.forest.share, {}
        for absent, name in fallback_names(main.id, share.parties[1:]).items():
            served = self._scorer.models.get(name)
            if served is None or self._scorer.gone(served):
                continue
            if served.forest.share.is_fallback_of(share):
                found[absent] = served
        return found

    async def _scored(
        self,
        main: ServedModel,
        fallbacks: Mapping[frozenset[str], ServedModel],
        absent: frozenset[str],
        asked: AskedScores,
        unknown: frozenset[str] = frozenset(),
    ) -> ScoredRequest:
        """The scores by ``main``, or by its fallback model without the ``absent`` parties.

        To those of them that are ``unknown`` nobody of the rows is known. Parties that turn out to
        say nothing, of all rows or of some, are done without in turn.
        """
        while True:
            model = (chosen_fallback(fallbacks, absent) if absent else None) or main
            try:
                scored = await self._scorer.by(model, _begun(asked, main, model, unknown))
                break
            except (PeerSilent, AnswerRefused) as error:
                more = absent | error.parties
                if more == absent or chosen_fallback(fallbacks, more) is None:
                    raise
                log.debug("%s is scored without %s: %s", main.id, ", ".join(sorted(more)), error)
                absent = more
        if model is not main:
            scored = replace(
                scored,
                degraded={**scored.degraded, **dict.fromkeys(absent, 1.0)},
                fallback={model.id: np.ones(len(scored.blank), np.bool_)},
            )
        for more, rows in _unknown(scored, absent, known=set(main.forest.share.parties[1:])):
            if chosen_fallback(fallbacks, more) is not None:
                lacking = unknown | (more - absent)
                part = await self._scored(main, fallbacks, more, _taken(asked, rows), lacking)
                scored = with_rows(scored, rows, part)
        return scored


def _unknown(
    scored: ScoredRequest, absent: frozenset[str], known: set[str]
) -> list[tuple[frozenset[str], NDArray[np.int64]]]:
    """The rows without a score, by the passive parties that say nothing of them, with ``absent``.

    Rows that the active party does not know itself are left out; ``known``: the passive parties.
    """
    unknown, blank = scored.scores.unknown, scored.blank
    for party, rows in unknown.items():
        if party not in known:
            blank = blank & ~rows
    found: dict[frozenset[str], list[int]] = {}
    for row in np.flatnonzero(blank).tolist():
        lacking = absent | {party for party, rows in unknown.items() if rows[row]}
        found.setdefault(lacking, []).append(row)
    return [(lacking, np.array(rows, np.int64)) for lacking, rows in found.items()]


def _begun(
    asked: AskedScores, main: ServedModel, model: ServedModel, unknown: frozenset[str]
) -> AskedScores:
    """The rows begin a shift further if just those do not know them whom ``model`` lacks."""
    share = model.forest.share
    if not share.shift or unknown != frozenset(main.forest.share.parties) - set(share.parties):
        return asked
    first = asked.first
    if first is None:
        start = objective_of(share.params).first_margin(share.base_score)
        first = np.full(len(asked.ids), start, np.float32)
    return replace(asked, first=first + np.float32(share.shift))


def _taken(asked: AskedScores, rows: NDArray[np.int64]) -> AskedScores:
    """These ``rows`` (n,) of a request alone, without reasons."""
    return replace(
        asked,
        ids=[asked.ids[row] for row in rows.tolist()],
        features=None if asked.features is None else [asked.features[row] for row in rows],
        explain=False,
        first=None if asked.first is None else asked.first[rows],
    )


def with_rows(whole: ScoredRequest, rows: NDArray[np.int64], part: ScoredRequest) -> ScoredRequest:
    """The ``whole`` request with the scores of its ``rows`` (n,) from ``part``.

    They are another model's, and have no contributions.
    """
    count, scores = len(whole.blank), whole.scores
    margins, predictions = scores.margins.copy(), scores.predictions.copy()
    margins[rows], predictions[rows] = part.scores.margins, part.scores.predictions
    blank, contributions = whole.blank.copy(), whole.contributions
    blank[rows] = part.blank
    if contributions is not None:
        contributions = contributions.copy()
        contributions[rows] = np.nan
    unknown = _placed(scores.unknown, part.scores.unknown, rows, count)
    lacked = {party: float(mask.mean()) for party, mask in unknown.items()}
    degraded = {
        party: max(whole.degraded.get(party, 0.0), lacked.get(party, share * len(rows) / count))
        for party, share in part.degraded.items()
    }
    waited = {
        party: scores.waited.get(party, 0.0) + seconds
        for party, seconds in part.scores.waited.items()
    }
    return replace(
        whole,
        scores=replace(
            scores,
            margins=margins,
            predictions=predictions,
            unknown=unknown,
            waited={**scores.waited, **waited},
        ),
        blank=blank,
        degraded={**whole.degraded, **degraded},
        contributions=contributions,
        fallback=_placed(whole.fallback, part.fallback, rows, count),
    )


def _placed(
    whole: Mapping[str, NDArray[np.bool_]],
    part: Mapping[str, NDArray[np.bool_]],
    rows: NDArray[np.int64],
    count: int,
) -> dict[str, NDArray[np.bool_]]:
    """The masks (count,) of ``whole``, and those of ``part`` at ``rows``."""
    placed = dict(whole)
    for name, mask in part.items():
        placed[name] = placed.get(name, np.zeros(count, np.bool_)).copy()
        placed[name][rows[mask]] = True
    return placed
