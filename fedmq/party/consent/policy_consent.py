"""A party's consent by its policy.

Every question and every answer is audited. Quotas count sessions by day and rows by hour.
"""

from __future__ import annotations

import asyncio
import itertools
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from fedmq.errors import Refused
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.array import unpack_payload
from fedmq.messages.envelope import Header
from fedmq.messages.inference import InferenceOpen
from fedmq.messages.overlap import OverlapOpen
from fedmq.messages.screen import PairOpen, ScreenOpen
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.audit_log import AuditLog, audited
from fedmq.party.consent.session_audit import SessionAudit
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import ENGINES, engine_named
from fedmq.protocol.kinds import SESSION_KINDS
from fedmq.protocol.online.options import Mode
from fedmq.protocol.session_records import SumBudget
from fedmq.protocol.training.terms import ALL_COLUMNS, terms_digest

__all__ = ["DAY", "HOUR", "DailyQuota", "PolicyConsent", "RowQuota", "correlates"]

_PARTS_OF_QUOTA = 100
_ALLOWING = {"column_names": "shared", "joint_models": "ask"}
"""The word of each such key of the policy that allows a question about a model."""
DAY = 24 * 3600.0
HOUR = 3600.0
_SECONDS_TOGETHER = 1.0  # seconds whose rows are counted as one entry


class PolicyConsent:
    """Decides for ``party`` by ``policy``. A question that cannot be audited is refused."""

    def __init__(self, party: str, policy: PolicySection, audit_log: AuditLog) -> None:
        self.audit = SessionAudit(party, audit_log)
        self.quota = RowQuota(policy.most_rows_per_hour)
        self._alignments = DailyQuota(policy.most_alignments_per_day, "alignments")
        self._trainings = DailyQuota(policy.most_trainings_per_day, "trainings")
        self._screens = DailyQuota(policy.most_screens_per_day, "screens")
        self._changes = DailyQuota(policy.most_changes_per_day, "changes")
        self._party = party
        self._policy = policy
        self._began = time.time()
        self._days_remembered = False
        self._rows_remembered = False
        self._written_ahead = 0
        self._writing_ahead = asyncio.Lock()

    def reload(self, policy: PolicySection) -> None:
        """Decide by ``policy`` from now on; running sessions keep their grants."""
        self._policy = policy
        self.quota.limit = policy.most_rows_per_hour
        self._alignments.limit = policy.most_alignments_per_day
        self._trainings.limit = policy.most_trainings_per_day
        self._screens.limit = policy.most_screens_per_day
        self._changes.limit = policy.most_changes_per_day

    @property
    def policy(self) -> PolicySection:
        """The current policy."""
        return self._policy

    @property
    def used_today(self) -> dict[str, int]:
        """Sessions of each kind begun within the last day, and their limits."""
        return {
            "alignments": self._alignments.used,
            "most_alignments_per_day": self._alignments.limit,
            "screens": self._screens.used,
            "most_screens_per_day": self._screens.limit,
            "trainings": self._trainings.used,
            "most_trainings_per_day": self._trainings.limit,
        }

    async def training(
        self, header: Header, terms: TrainingOpen, *, begins: bool = False, terms_before: str = ""
    ) -> Engine:
        """The engine with which this party trains on ``terms``; Refused if it declines.

        ``begins``: the session is new to this party, so it counts under any name. ``terms_before``
        is the digest of the terms of its first attempt, empty if it was not kept.
        """
        await self._ask(
            header,
            model=terms.model,
            engine=terms.engine,
            rows=terms.rows,
            trees=terms.trees,
            max_depth=terms.max_depth,
            max_bin=terms.max_bin,
            gradient_bits=terms.value_bits + 1,
            **({"sums": terms.sums} if terms.sums != "shown" else {}),
            **({"outputs": terms.outputs} if terms.outputs > 1 else {}),
            **({"signs": dict(terms.signs)} if terms.signs else {}),
            **({"continues": terms.earlier_model} if terms.earlier_model else {}),
            **({"cross_validation": terms.folds} if terms.folds > 1 else {}),
            **({"fallbacks": list(terms.fallbacks)} if terms.fallbacks else {}),
            **({"fallback_of": terms.fallback_of.model} if terms.fallback_of else {}),
            **({"together": terms.together} if terms.together else {}),
            **(
                {"screen_selected_by": selected.screen, "selected": list(selected.numbers)}
                if (selected := terms.selected)
                else {}
            ),
            **({"max_cat_to_onehot": fewest} if (fewest := terms.max_cat_to_onehot) else {}),
        )
        self._check_peer(header, "training")
        before_sampled = terms.model_copy(update={"sampled": 1.0})  # as 0.1.0 said nothing of it
        if terms_before not in ("", terms_digest(terms), terms_digest(before_sampled)):
            raise self._refusal(f"continue session {header.session} on other terms")
        self._check_columns(terms)
        engine = self._engine(terms)
        self._check_size(terms)
        await self._remember_days()
        self._trainings.take(header.session, anew=begins)
        await self.audit.record("agreed", header, training=terms.model, begins=begins)
        return engine

    async def budgeted_sums(self, header: Header, budget: SumBudget) -> None:
        """Reserve the training's disclosure budget of each row; Refused if that fails."""
        await self.audit.record(
            "foretold",
            header,
            sums_per_row=round(budget.expected, 1),
            before=round(budget.answered, 1),
            **({} if math.isinf(budget.limit) else {"most": budget.limit}),
        )

    def _engine(self, terms: TrainingOpen) -> Engine:
        policy = self._policy
        refusal = policy.refusal(self._party, terms.engine, terms.sums)
        if refusal is not None:
            raise Refused(refusal)
        options = dict(policy.engine_options.get(terms.engine, {}))
        if "allow_weak_keys" in ENGINES[terms.engine].options():
            options["allow_weak_keys"] = policy.allow_weak_keys
        engine = engine_named(terms.engine, options, self._party)
        bits = engine.key_bits_of(unpack_payload(terms.public))
        if policy.smallest_key and bits is not None and bits < policy.smallest_key:
            raise self._refusal(f"take keys of {bits} bits, only from {policy.smallest_key} on")
        if policy.smallest_node and engine.traits.hides_rows:
            raise self._refusal(
                f"answer engine {terms.engine!r}: it hides the size of nodes, and this party "
                f"answers no node below {policy.smallest_node} rows"
            )
        return engine

    def _check_size(self, terms: TrainingOpen) -> None:
        policy = self._policy
        if terms.trees > policy.most_trees:
            raise self._refusal(f"train {terms.trees} trees, at most {policy.most_trees}")
        if terms.folds > policy.most_folds:
            raise self._refusal(
                f"cross-validate in {terms.folds} folds, at most {policy.most_folds} (most_folds)"
            )
        learning = int((~terms.evaluation.numpy()).sum()) if terms.folds > 1 else 0
        if learning < terms.folds * policy.smallest_difference and terms.folds > 1:
            raise self._refusal(
                f"cross-validate {learning:,} people in {terms.folds} folds: folds differ by "
                f"{policy.smallest_difference} people or more (smallest_difference)"
            )
        if terms.max_depth > policy.most_depth:
            # Without max_depth, a path may have max_leaves - 1 splits.
            unbounded = terms.max_depth == terms.max_leaves - 1
            remedy = f": set max_depth = {policy.most_depth} beside max_leaves" * unbounded
            raise self._refusal(
                f"train trees of depth {terms.max_depth}, at most {policy.most_depth}{remedy}"
            )
        if terms.max_bin > policy.most_bins:
            raise self._refusal(f"train with max_bin = {terms.max_bin}, at most {policy.most_bins}")
        bits = terms.value_bits + 1  # and the sign
        if policy.most_gradient_bits is not None and bits > policy.most_gradient_bits:
            raise self._refusal(
                f"take gradients of {bits} bits, at most {policy.most_gradient_bits}: "
                "set gradient_bits in the training's params"
            )

    async def alignment(self, header: Header, terms: AlignmentOpen) -> None:
        """Raise Refused if this party does not align ids with its peers."""
        left = {} if terms.known_to is None else {"known_to": list(terms.known_to)}
        await self._ask(header, name=terms.name, parties=list(terms.parties), **left)
        self._check_peer(header, "alignment")
        if terms.keeps is not None and not self._policy.kept_blinding_days:
            raise self._refusal(
                "keep a key for alignments; kept_blinding_days = 30 in its [policy] would allow it"
            )
        await self._remember_days()
        self._alignments.take()
        keeps = {} if terms.keeps is None else {"keeps_key": True}
        await self.audit.record("agreed", header, name=terms.name, **keeps)

    async def overlap(self, header: Header, terms: OverlapOpen) -> None:
        """Raise Refused if this party does not help to count shared people.

        A count is one of the day's alignments: in the hands of a liar it tells as much.
        """
        await self._ask(header, name=terms.name, parties=list(terms.parties))
        self._check_peer(header, "overlap")
        if self._policy.overlap == "refuse":
            raise self._refusal(
                'count shared people; overlap = "rounded" in its [policy] would allow it'
            )
        await self._remember_days()
        self._alignments.take()
        await self.audit.record("agreed", header, name=terms.name, told=self._policy.overlap)

    async def screen(self, header: Header, terms: ScreenOpen) -> bool:
        """Whether this party shows how its columns tell the label; Refused if it shows nothing."""
        await self._ask(header, screen=terms.name, alignment=terms.alignment_name, rows=terms.rows)
        self._check_peer(header, "screen")
        if self._policy.screen == "refuse":
            raise self._refusal(
                'show its columns before a training; screen = "described", "hidden" or "measured" '
                "in its [policy] would allow it"
            )
        is_pair = isinstance(terms, PairOpen)
        if self._policy.screen == "hidden" and not terms.least_steps and not is_pair:
            raise self._refusal(
                'show sums of a label; a screen with sums = "hidden", of a label of 0 or 1, would '
                "be allowed"
            )
        pair: dict[str, Any] = {}
        if isinstance(terms, PairOpen):
            pair["pair"] = [terms.asks, terms.answers]
            if self._policy.correlation != "all":
                raise self._refusal(
                    "correlate its columns with those of other passive parties; correlation = "
                    '"all" in its [policy] would allow it'
                )
        await self._remember_days()
        self._screens.take()
        shown = self._policy.screen
        correlated = {"correlated": terms.correlated} if correlates(self._policy, terms) else {}
        if pair:
            details = {**pair, **correlated}
        else:
            other = {"classes": terms.classes} if shown == "measured" and terms.classes != 2 else {}
            if terms.least_steps and shown == "measured":
                shown = "hidden"
            details = {"shown": shown, **correlated, **other}
        await self.audit.record("agreed", header, screen=terms.name, **details)
        return shown != "described" and not pair

    async def inference(
        self,
        header: Header,
        terms: InferenceOpen,
        modes: Collection[Mode] = ("hop", "bitmap", "sealed"),
    ) -> bool:
        """Whether this party tells changes of its columns; Refused if it does not score on
        ``terms``, or answers in other ``modes``."""
        in_parts = terms.sealed is not None and terms.sealed.reasons
        explains = in_parts or terms.explained_records > 0
        explained = {"explain": self._policy.explain} if explains else {}
        changes = {"changes": self._policy.changes} if terms.asks_changes else {}
        await self._ask(header, model=terms.model, rows=terms.rows, **explained, **changes)
        self._check_peer(header, "inference")
        if explained and self._policy.explain == "none":
            raise self._refusal('contribute to reasons for scores (explain = "none")')
        if terms.explained_records and "bitmap" not in modes:
            raise self._refusal(
                "show all directions, which reasons need: modes of its [online] lack bitmap"
            )
        if terms.sealed is not None and "sealed" not in modes:
            raise self._refusal("answer sealed scores: modes of its [online] lack sealed")
        if terms.sealed is None and not {"hop", "bitmap"} & set(modes):
            raise self._refusal(
                "show directions: modes of its [online] are sealed alone (predict --mode sealed)"
            )
        if not self._rows_remembered:
            self._remember_rows(await asyncio.to_thread(lambda: list(self._agreed_before(HOUR))))
        sums = 1 + len(terms.sealed.chain) if in_parts and terms.sealed else 1
        self.quota.take(terms.rows * sums)
        if terms.asks_changes and self._policy.changes == "told":
            await self._remember_days()
            self._changes.take()
        sealed = {"mode": "sealed"} if terms.sealed is not None else {}
        await self.audit.record("agreed", header, rows=terms.rows, **sealed, **changes)
        return changes.get("changes") == "told"

    async def record(self, entry: Mapping[str, Any]) -> None:
        """Write ``entry`` into the audit log; Refused if it cannot be written."""
        details = dict(entry)
        await audited(self.audit.log, self._party, details.pop("event"), **details)

    async def serving(self, header: Header, model: str, mode: str) -> None:
        """Raise Refused if this party does not serve ``model`` online in ``mode``."""
        await self._ask(header, model=model, mode=mode, explain=self._policy.explain)
        self._check_peer(header, "activation")

    async def question(
        self,
        header: Header,
        key: str,
        does: str,
        terms: Mapping[str, Any],
        agreed: Mapping[str, Any],
        owner: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Raise Refused unless ``key`` of the policy allows a question about a model.

        ``does``: the action that the key allows, in words; ``terms`` and ``agreed``: the audit
        log's details of the question and of the consent. ``owner`` raises Refused where the owner
        has to say yes as well, and has not.
        """
        await self._ask(header, **terms)
        self._check_peer(header, "model request")
        setting = getattr(self._policy, key)
        if isinstance(setting, bool):
            allowed, remedy = setting, f"{key} = true in its [policy]"
        elif isinstance(setting, str):
            allowing = _ALLOWING[key]
            allowed, remedy = setting == allowing, f'{key} = "{allowing}" in its [policy]'
        else:  # columns; the same words whether or not the column exists
            allowed, remedy = terms["column"] in setting, f"{key} of its [policy]"
        if not allowed:
            raise self._refusal(f"{does}; {remedy} would allow it")
        if owner is not None:
            await owner()
        await self.audit.record("agreed", header, **agreed)

    def answering(self, header: Header) -> None:
        """Raise Refused if policy no longer allows answers to scoring requests; not audited.

        The policy may have changed since the party agreed to serve the model.
        """
        self._check_peer(header, "online scores")

    def scoring(self, rows: int) -> bool:
        """Raise Refused if ``rows`` more online rows exceed the hourly quota.

        Returns whether the answer must wait for :meth:`until_written`.
        """
        limited = self.quota.limit is not None
        if limited and not self._rows_remembered:
            self._remember_rows(self._agreed_before(HOUR))
        self.quota.take(rows)
        if limited:
            self._written_ahead -= rows
        return self._written_ahead < 0

    async def until_written(self, header: Header) -> None:
        """Wait until all rows granted online are recorded; Refused if recording fails.

        Record many rows in advance, because callers wait for the disk.
        """
        if self._written_ahead >= 0:
            return
        async with self._writing_ahead:
            limit, owed = self.quota.limit, -self._written_ahead
            if limit is None or owed <= 0:
                return
            ahead = max(owed, limit // _PARTS_OF_QUOTA)
            await self.audit.record("agreed", header, rows=ahead)
            self._written_ahead += ahead

    async def _ask(self, header: Header, **terms: Any) -> None:
        await self.audit.record("asked", header, kind=header.kind, **terms)

    def _check_peer(self, header: Header, kind: str) -> None:
        peers, word = self._policy.peers, SESSION_KINDS[kind].policy
        if peers is not None and header.sender not in peers:
            raise self._refusal(f"join sessions of {header.sender}")
        if word is not None and word not in self._policy.sessions:
            raise self._refusal(f"take part in {word}")

    def _check_columns(self, terms: TrainingOpen) -> None:
        if terms.together and not self._policy.interaction_constraints:
            raise self._refusal(
                "train with interaction_constraints; interaction_constraints = true in its "
                "[policy] would allow it"
            )
        if terms.selected is not None and self._policy.screen == "refuse":
            raise self._refusal(
                'train with columns that a screen has selected; screen = "described", "hidden" or '
                '"measured" in its [policy] would allow it'
            )
        together = itertools.chain.from_iterable(terms.together)
        named = (column for column in together if column != ALL_COLUMNS)
        for column in (*terms.signs, *named):
            if column not in self._policy.agreed_columns:
                # The answer does not depend on whether the column exists, so it discloses no name.
                raise self._refusal(
                    f"train with column {column!r} that another party named; agreed_columns of "
                    "its [policy] would allow it"
                )

    def _refusal(self, what: str) -> Refused:
        return Refused(f"{self._party} does not {what}")

    # Agreements from before a restart

    def _remember_rows(self, agreed: Iterable[tuple[float, dict[str, Any]]]) -> None:
        """Count the rows answered within the last hour."""
        if self._rows_remembered or self.quota.limit is None:
            return
        self._rows_remembered = True
        for at, entry in agreed:
            if "rows" in entry:
                self.quota.remember(at, entry["rows"])

    async def _remember_days(self) -> None:
        """Count the alignments, screens, changes and trainings of the last day."""
        if not self._days_remembered:
            entries = await asyncio.to_thread(lambda: list(self._agreed_before(DAY)))
            if self._days_remembered:  # by another opening, meanwhile
                return
            self._days_remembered = True
            for at, entry in reversed(entries):
                if "name" in entry:
                    self._alignments.remember(at)
                if "screen" in entry:
                    self._screens.remember(at)
                if entry.get("changes") == "told":
                    self._changes.remember(at)
                if "training" in entry:
                    begins = entry.get("begins", False)
                    self._trainings.remember(at, entry["session"], anew=begins)

    def _agreed_before(self, seconds: float) -> Iterator[tuple[float, dict[str, Any]]]:
        """Agreements within ``seconds`` before this party started, the newest first."""
        for entry in self.audit.log.latest():
            at = datetime.fromisoformat(entry["at"]).timestamp()
            if at < self._began - seconds:
                return
            if entry["event"] == "agreed" and at < self._began:
                yield at, entry


def correlates(policy: PolicySection, terms: ScreenOpen) -> bool:
    """Whether ``policy`` shows how columns are correlated, if ``terms`` ask for that."""
    return terms.correlated > 0 and policy.correlation != "refuse"


class DailyQuota:
    """Sessions within the last day, at most ``limit``.

    ``what`` names the sessions: "alignments". A repeated name counts once, unless taken ``anew``.
    """

    def __init__(self, limit: int, what: str, clock: Callable[[], float] = time.time) -> None:
        self.limit = limit
        self._what = what
        self._clock = clock
        self._taken: list[tuple[float, str]] = []

    def remember(self, at: float, name: str = "", *, anew: bool = False) -> None:
        """Count a session taken at ``at`` (Unix seconds)."""
        if anew or not self._counts(name):
            self._taken.append((at, name))

    @property
    def used(self) -> int:
        """The number of sessions taken within the last day."""
        since = self._clock() - DAY
        return sum(at > since for at, _ in self._taken)

    def take(self, name: str = "", *, anew: bool = False) -> None:
        """Count one more; raise Refused, and count nothing, above the limit."""
        now = self._clock()
        self._taken = [(at, taken) for at, taken in self._taken if at > now - DAY]
        if not anew and self._counts(name):
            return
        if len(self._taken) >= self.limit:
            raise Refused(f"it takes part in {self.limit} {self._what} a day at most")
        self._taken.append((now, name))

    def _counts(self, name: str) -> bool:
        """Whether a session of this name is counted; False for an empty name."""
        return bool(name) and any(taken == name for _, taken in self._taken)


class RowQuota:
    """Rows of the last hour, at most ``limit``; any number where it is None."""

    def __init__(self, limit: int | None, clock: Callable[[], float] = time.time) -> None:
        self.limit = limit
        self._clock = clock
        self._taken: deque[tuple[float, float, int]] = deque()  # from, until, rows
        self._used = 0

    def remember(self, at: float, rows: int) -> None:
        """Count ``rows`` scored at ``at`` (Unix seconds), earlier than all counted so far."""
        self._taken.appendleft((at, at, rows))
        self._used += rows

    def take(self, rows: int) -> None:
        """Use up ``rows``; raise Refused, and use none, above the limit."""
        now = self._clock()
        while self._taken and self._taken[0][1] <= now - HOUR:
            self._used -= self._taken.popleft()[2]
        if self.limit is not None and self._used + rows > self.limit:
            raise Refused(
                f"it answers for {self.limit} rows an hour; {self._used} were asked for within the "
                f"last hour, and {rows} more are too many"
            )
        since, before = now, 0
        if self._taken and now - self._taken[-1][0] < _SECONDS_TOGETHER:
            since, _, before = self._taken.pop()
        self._taken.append((since, now, before + rows))
        self._used += rows
