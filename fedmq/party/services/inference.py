"""Batch predictions: the active party's owner asks for them, passive parties answer."""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.gradients import first_margins
from fedmq.boosting.model.changes import ChangeRules, TargetScore
from fedmq.boosting.model.fallbacks import chosen_fallback
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import DisclosedColumns
from fedmq.boosting.objectives.registry import objective_of
from fedmq.errors import ConfigError, DataError, PeerSilent
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import InferenceOpen
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.id_column import check_lengths, comparable
from fedmq.party.data.loading import ActiveRows, load_active_rows, load_passive_rows, read_margins
from fedmq.party.data.repeated_ids import has_several, people_of
from fedmq.party.services.service import Command, Service, answered
from fedmq.party.sessions.recovery import Opening
from fedmq.party.sessions.sessions import AttemptLoop, OnChange, OnProgress, RunningSession
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.documents import chosen_model
from fedmq.privacy.random_stream import fresh_seed
from fedmq.protocol.inference.active import ActiveInference, ExplainedInference
from fedmq.protocol.inference.computations import Scores
from fedmq.protocol.inference.passive import PassiveInference
from fedmq.protocol.inference.sought_changes import PersonChanges, WantedChanges
from fedmq.protocol.record_columns import record_columns

__all__ = ["InferenceService"]


@dataclass(frozen=True, slots=True, eq=False)
class Models:
    """A model and its ``fallbacks`` by the parties that these do without."""

    share: ActiveShare
    fallbacks: Mapping[frozenset[str], ActiveShare]
    need_not_know: frozenset[str]
    """The parties that need not know a person who gets a score."""

    def without(self, absent: frozenset[str]) -> ActiveShare | None:
        """The model that scores without the ``absent`` parties; None if there is none."""
        return chosen_fallback(self.fallbacks, absent) if absent else self.share

    def done_without(self, fallback: ActiveShare) -> frozenset[str]:
        """The parties of the model that ``fallback`` does without."""
        return frozenset(self.share.parties) - set(fallback.parties)

    def unknown(
        self, scores: Scores, absent: frozenset[str]
    ) -> dict[frozenset[str], NDArray[np.int64]]:
        """The rows without a score, by the parties that do not know them, with ``absent``."""
        found: dict[frozenset[str], list[int]] = {}
        needed = {
            party: rows for party, rows in scores.unknown.items() if party not in self.need_not_know
        }
        for row in np.flatnonzero(np.any([*needed.values()], axis=0)).tolist():
            lacking = absent | {party for party, rows in needed.items() if rows[row]}
            found.setdefault(lacking, []).append(row)
        return {lacking: np.array(rows, np.int64) for lacking, rows in found.items()}


@dataclass(frozen=True, slots=True, eq=False)
class AskedRows:
    """Rows by ``names``: the active party's ``values``, (rows, features), and where they start."""

    values: NDArray[np.float32]
    names: tuple[str, ...]
    first: NDArray[np.float32] | None
    partial: bool
    explain: bool
    sealed: bool = False

    def shifted(self, share: ActiveShare) -> Self:
        """The rows begin ``share.shift`` further: nobody of them is known to those it lacks."""
        first = self.first
        if first is None:
            start = objective_of(share.params).first_margin(share.base_score)
            first = np.full(len(self.names), start, np.float32)
        return replace(self, first=first + np.float32(share.shift))

    def taken(self, rows: NDArray[np.int64]) -> Self:
        """These ``rows`` alone, without reasons."""
        return replace(
            self,
            values=self.values[rows],
            names=tuple(self.names[row] for row in rows.tolist()),
            first=None if self.first is None else self.first[rows],
            explain=False,
        )


class InferenceService(Service):
    """Scores people with finished models."""

    @property
    def opened_sessions(self) -> Mapping[type[Body], Opening]:
        return {InferenceOpen: self._join}

    @property
    def commands(self) -> Mapping[str, Command]:
        return {"predict": self._predict, "changes": self._find_changes}

    @property
    def _serving(self) -> DataSection:
        return self.context.config.serving or self.context.config.data

    async def _join(self, envelope: Envelope) -> RunningSession:
        header, terms = envelope.header, envelope.body
        assert isinstance(terms, InferenceOpen)
        load = load_passive_rows.bind(
            self.context.party, self._serving, self.context.model_store, terms.model
        )
        consent = self.context.consent
        modes = self.context.config.online.modes
        agreed = await answered(consent.inference(header, terms, modes))
        explain = consent.policy.explain

        def columns(share: PassiveShare, records: int) -> RecordColumns | None:
            if explain != "column":
                return None
            texts = self.context.config.data.reasons
            return record_columns(DisclosedColumns.of(share.lookup_table, records, texts))

        def consented(_: InferenceOpen) -> None:
            agreed.result()

        machine = PassiveInference(
            header.sender,
            load,
            consented,
            columns,
            others=self._neighbours(terms),
            seed=fresh_seed(),
            changes=lambda: self._rules if agreed.result() else None,
        )
        running = self.context.sessions.open(
            header.session, header.attempt, "inference", terms.model, machine
        )
        consent.audit.follow(header, running.runner.outcome, running.traffic)
        return running

    def _neighbours(self, terms: InferenceOpen) -> tuple[str, ...]:
        """The parties before and after this one where scores are sealed, if it knows them."""
        federation = self.context.federation
        chain = () if terms.sealed is None else terms.sealed.chain
        if self.context.party not in chain or not federation.are_members(
            (federation.active, *chain)
        ):
            return ()
        place = chain.index(self.context.party)
        return (*chain[max(0, place - 1) : place], *chain[place + 1 : place + 2])

    async def _predict(self, request: Mapping[str, Any], on_progress: OnProgress) -> dict[str, Any]:
        self.context.require_active("predict")
        state, strict = self.context.config.state, bool(request.get("strict", True))
        chosen = await asyncio.to_thread(chosen_model, state, request.get("model") or None)
        share = self.context.model_store.active(chosen.model)
        models = await self._models(share)
        gone = frozenset(share.asked) - set(self.context.federation.parties)
        if models.without(gone) is None:
            self.context.require_parties(share)
        ids, alignment = self._ids(request)
        if request.get("explain") and share.params.vector_outputs > 1:
            raise ConfigError("explain: trees of vector leaves have no contributions")
        is_sealed = self.context.config.online.mode == "sealed"
        mode = request.get("mode") or ("sealed" if is_sealed else "hop")
        if mode not in ("hop", "sealed"):
            raise ConfigError(f"mode {mode!r} is unknown; a file is scored in mode hop or sealed")
        rows: ActiveRows = await self.context.pool.run(
            load_active_rows.bind(
                self.context.party,
                self._serving,
                share,
                ids,
                not strict,
                alignment is not None and self._serving.duplicates == "hidden",
            )
        )
        ids, people = rows.ids, people_of(self._serving, rows.ids)
        if mode == "hop" and not request.get("explain") and has_several(people):
            raise ConfigError(
                "mode 'hop' asks about one way of a person, and some have several rows here; use "
                "mode 'sealed', or --explain"
            )
        margins = await self._margins(request, share, ids)
        asked = AskedRows(
            rows.values,
            tuple(itertools.compress(people, rows.known)),
            None if margins is None else margins[rows.known],
            not strict,
            bool(request.get("explain")),
            mode == "sealed",
        )
        absent, scores, fallback = await self._scored(models, gone, asked, on_progress)
        wanted = scores.margins if request.get("output_margin") else scores.predictions
        values = np.full((len(ids), *wanted.shape[1:]), np.nan)
        values[rows.known] = wanted
        unknown_at = _unknown_at(self.context.party, rows.known, scores)
        by = np.full(len(ids), None, object)
        by[rows.known] = fallback
        return {
            **chosen.described(),
            "mode": mode,
            "alignment": alignment,
            "ids": list(ids) if alignment else None,
            "scores": [
                None if np.isnan(score).any() or (fallback is None and blank) else score
                for score, fallback, blank in zip(
                    values.tolist(),
                    by.tolist(),
                    ({*parties} - models.need_not_know for parties in unknown_at),
                    strict=True,
                )
            ],
            "unknown_at": unknown_at,
            "without": sorted(absent),
            "fallback": by.tolist(),
            "degraded": {
                **{
                    peer: float(found.sum() / len(ids))
                    for peer, found in scores.unknown.items()
                    if found.any()
                },
                **dict.fromkeys(sorted(absent), 1.0),
            },
            "learned_at": sorted(share.lacked_at),
            **(_contributions(rows.known, scores) if asked.explain else {}),
        }

    @property
    def _rules(self) -> ChangeRules:
        """What this party's owner says of changes of its columns."""
        data = self.context.config.data
        dates = {name for name, column in data.columns.items() if column.kind == "date"}
        return ChangeRules(
            fixed=frozenset(data.changes.fixed) | dates,
            increase=frozenset(data.changes.increase),
            decrease=frozenset(data.changes.decrease),
            texts=data.reasons,
        )

    async def _find_changes(
        self, request: Mapping[str, Any], on_progress: OnProgress
    ) -> dict[str, Any]:
        """By party, the smallest change of its columns that moves a person's score far enough."""
        context = self.context
        context.require_active("look for changes")
        above, below = request.get("above"), request.get("below")
        if (above is None) == (below is None):
            raise ConfigError("changes: say either above or below which score")
        target = TargetScore(float(request["above" if below is None else "below"]), below is None)
        chosen = await asyncio.to_thread(
            chosen_model, context.config.state, request.get("model") or None
        )
        share = context.model_store.active(chosen.model)
        context.require_parties(share)
        if share.params.outputs > 1:
            raise ConfigError("changes: the score of several classes or targets is no one number")
        ids, _ = self._ids({"ids": [request["id"]]})
        rows: ActiveRows = await context.pool.run(
            load_active_rows.bind(context.party, self._serving, share, ids, False, False)
        )
        wanted = WantedChanges(target, self._rules)
        found = await self._driven(
            share.model_id,
            lambda: ExplainedInference(
                share, rows.values, people_of(self._serving, rows.ids), wanted=wanted
            ),
            on_progress,
        )
        assert isinstance(found, PersonChanges)
        return {
            **chosen.described(),
            "id": request["id"],
            "score": found.score,
            "above": above,
            "below": below,
            "reached": found.reached,
            "parties": [
                {
                    "party": party.party,
                    "tells": party.tells,
                    "changes": [
                        {"column": column, "change": change} for column, change in party.changes
                    ],
                    "score": party.score,
                }
                for party in found.parties
            ],
        }

    async def _models(self, share: ActiveShare) -> Models:
        """The model of ``share``, with its fallback models where they are wanted."""
        unknown = self.context.config.online.unknown
        fallbacks: Mapping[frozenset[str], ActiveShare] = {}
        if unknown == "fallback":
            fallbacks = await asyncio.to_thread(self.context.model_store.fallbacks, share)
        return Models(share, fallbacks, share.need_not_know(unknown))

    async def _scored(
        self,
        models: Models,
        absent: frozenset[str],
        asked: AskedRows,
        on_progress: OnProgress,
        unknown: frozenset[str] = frozenset(),
    ) -> tuple[frozenset[str], Scores, NDArray[np.object_]]:
        """The scores without the ``absent`` parties; and by row its fallback model, or None.

        Rows that a party does not know follow, by the fallback model without it. First the parties
        without which all rows are scored: the ``absent``, and those that stayed silent. To those
        of them that are ``unknown`` nobody of the rows is known.
        """
        while True:
            share = models.without(absent)
            assert share is not None
            try:
                shifts = share.shift and unknown == models.done_without(share)
                start = asked.shifted(share) if shifts else asked
                scores = await self._by(share, models.need_not_know, start, on_progress)
                break
            except PeerSilent as error:
                more = absent | error.parties
                if more == absent or models.without(more) is None:
                    raise
                absent = more
        fallback = np.full(len(asked.names), share.model_id if absent else None, object)
        for lacking, rows in models.unknown(scores, absent).items():
            if models.without(lacking) is not None:
                taken = asked.taken(rows)
                more = unknown | (lacking - absent)
                _, part, by = await self._scored(models, lacking, taken, on_progress, more)
                scores, fallback[rows] = scores.with_rows(rows, part), by
        return absent, scores, fallback

    async def _by(
        self,
        share: ActiveShare,
        need_not_know: Collection[str],
        asked: AskedRows,
        on_progress: OnProgress,
    ) -> Scores:
        texts = self.context.config.data.reasons

        def machine(**terms: Any) -> ActiveInference:
            if asked.sealed and share.asked:
                return ActiveInference(**terms, sealed=fresh_seed(), reasons=asked.explain)
            return (
                ExplainedInference(**terms, texts=texts)
                if asked.explain
                else ActiveInference(**terms)
            )

        scores: Scores = await self._driven(
            share.model_id,
            lambda: machine(
                share=share,
                values=asked.values,
                ids=asked.names,
                partial=asked.partial,
                base_margin=asked.first,
                need_not_know=need_not_know,
            ),
            on_progress,
        )
        return scores

    async def _driven(
        self, model: str, machine: Callable[[], ActiveInference], on_progress: OnProgress
    ) -> Any:
        """The result of a session with a fresh machine for each attempt."""
        session = secrets.token_hex(8)

        async def attempt(number: int, on_change: OnChange) -> RunningSession:
            return self.context.sessions.open(
                session, number, "inference", model, machine(), on_change=on_change
            )

        return await self.context.sessions.drive(AttemptLoop(attempt)).followed(on_progress)

    async def _margins(
        self, request: Mapping[str, Any], share: ActiveShare, ids: tuple[str, ...]
    ) -> NDArray[np.float32] | None:
        """The start of the rows, if not the base score: float32 (ids,), or (ids, classes)."""
        given = request.get("base_margin")
        if columns := request.get("base_margin_columns"):
            given = await self.context.pool.run(
                read_margins.bind(self.context.party, self._serving, tuple(columns), ids)
            )
        if given is None:
            return None
        return first_margins(given, len(ids), share.params.outputs, self.context.party)

    def _ids(self, request: Mapping[str, Any]) -> tuple[tuple[str, ...], str | None]:
        """The normalised ids to score, and the alignment that they come from."""
        if request.get("ids") is not None:
            ids = tuple(comparable(request["ids"], self._serving))
            check_lengths(ids, lambda place: f"ids, row {place + 1}")
            return ids, None
        store = AlignmentStore(self.context.config.state)
        names = store.names()
        if not names:
            raise DataError("there is no alignment yet; make one with: fedmq align JOB.toml")
        name = request.get("alignment") or names[-1]
        found = store.load(name).ids
        return tuple(person for person in found if person is not None), name


def _contributions(known: NDArray[np.bool_], scores: Scores) -> dict[str, Any]:
    """The players with the bias, and each one's contribution by id and output; NaN is None."""
    assert scores.contributions is not None
    found: list[Any] = [None] * len(known)
    for row, values in zip(
        np.flatnonzero(known).tolist(), scores.contributions.tolist(), strict=True
    ):
        found[row] = None if np.isnan(values[0][-1]) else values
    return {"players": [*map(str, scores.players), "bias"], "contributions": found}


def _unknown_at(party: str, known: NDArray[np.bool_], scores: Scores) -> list[list[str]]:
    """By id, the parties that do not know it; ``known`` at ``party``, the others by ``scores``."""
    found: list[list[str]] = [[] if here else [party] for here in known.tolist()]
    asked = np.flatnonzero(known)
    for peer, rows in scores.unknown.items():
        for row in asked[rows].tolist():
            found[row].append(peer)
    return found
