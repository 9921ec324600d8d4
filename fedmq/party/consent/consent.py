"""What a party agrees to, by its policy; every question and every answer is audited."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from fedmq.errors import FedmqError, Inconsistent, Refused
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.array import unpack_payload
from fedmq.messages.envelope import Header
from fedmq.messages.inference import InferenceOpen
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.policy import PolicySection
from fedmq.party.consent.alignment_quota import DAY, AlignmentQuota
from fedmq.party.consent.audit_log import AuditLog
from fedmq.party.consent.row_quota import HOUR, RowQuota
from fedmq.party.store.disk import until_taken
from fedmq.party.telemetry.traffic import Traffic
from fedmq.privacy.engine import Engine
from fedmq.privacy.registry import ENGINES, engine_named

__all__ = ["Consent"]

log = logging.getLogger(__name__)

_PARTS_OF_QUOTA = 100


class Consent:
    """Decides for ``party`` by ``policy``. What cannot be audited is refused."""

    def __init__(self, party: str, policy: PolicySection, audit: AuditLog) -> None:
        self.audit = audit
        self.quota = RowQuota(policy.most_rows_per_hour)
        self._alignments = AlignmentQuota(policy.most_alignments_per_day)
        self._alignments_remembered = False
        self._party = party
        self._policy = policy
        self._remembered = False
        self._began = time.time()
        self._written_ahead = 0

    def reload(self, policy: PolicySection) -> None:
        """Decide by ``policy`` from now on; sessions that run keep what they were granted."""
        self._policy = policy
        self.quota.most = policy.most_rows_per_hour
        self._alignments.most = policy.most_alignments_per_day

    async def until_recordable(self, on_trouble: Callable[[str], None] = lambda _: None) -> None:
        """Wait for a disk that takes the audit log; ``on_trouble`` as in ``until_taken``."""

        async def check() -> None:
            self.audit.check()  # not in a thread, where another entry could be recorded meanwhile

        await until_taken(check, on_trouble=on_trouble)

    def training(self, header: Header, terms: TrainingOpen) -> Engine:
        """The engine with which this party trains on ``terms``; Refused if it does not."""
        self._ask(
            header,
            model=terms.model,
            engine=terms.engine,
            rows=terms.rows,
            trees=terms.trees,
            max_depth=terms.max_depth,
            max_bin=terms.max_bin,
            gradient_bits=terms.value_bits + 1,
        )
        self._check_peer(header, "training")
        policy = self._policy
        refusal = policy.refusal(self._party, terms.engine)
        if refusal is not None:
            raise Refused(refusal)
        options = dict(policy.engine_options.get(terms.engine, {}))
        if "allow_weak_keys" in ENGINES[terms.engine].options():
            options["allow_weak_keys"] = policy.allow_weak_keys
        engine = engine_named(terms.engine, options, self._party)
        bits = engine.key_bits_of(unpack_payload(terms.public))
        if policy.smallest_key and bits is not None and bits < policy.smallest_key:
            raise self._refusal(f"take keys of {bits} bits, only from {policy.smallest_key} on")
        if policy.most_trees is not None and terms.trees > policy.most_trees:
            raise self._refusal(f"train {terms.trees} trees, at most {policy.most_trees}")
        bits_announced = terms.value_bits + 1  # and the sign
        if policy.most_gradient_bits is not None and bits_announced > policy.most_gradient_bits:
            raise self._refusal(
                f"take gradients of {bits_announced} bits, at most {policy.most_gradient_bits}: "
                "set gradient_bits in the training's params"
            )
        if policy.smallest_node and engine.hides_rows:
            raise self._refusal(
                f"answer engine {terms.engine!r}: it hides how many rows stand in a node, and "
                f"nodes below {policy.smallest_node} rows are not answered here"
            )
        return engine

    def alignment(self, header: Header, terms: AlignmentOpen) -> None:
        """Raises Refused if this party does not look for common ids with its peers."""
        self._ask(header, name=terms.name, parties=list(terms.parties))
        self._check_peer(header, "alignment")
        self._remember_alignments()
        self._alignments.take()
        self._record("agreed", header, name=terms.name)

    def inference(self, header: Header, terms: InferenceOpen) -> None:
        """Raises Refused if this party does not score on ``terms``."""
        self._ask(header, model=terms.model, rows=terms.rows)
        self._check_peer(header, "inference")
        self._remember()
        self.quota.take(terms.rows)
        self._record("agreed", header, rows=terms.rows)

    def serving(self, header: Header, model: str, mode: str) -> None:
        """Raises Refused if this party does not serve ``model`` online in ``mode``."""
        self._ask(header, model=model, mode=mode)
        self._check_peer(header, "inference")

    def answering(self, header: Header) -> None:
        """Raises Refused if policy no longer allows answers to questions for scores; not audited.

        The policy may have changed since the party agreed to serve the model.
        """
        self._check_peer(header, "inference")

    def scoring(self, header: Header, rows: int) -> None:
        """Raises Refused if ``rows`` more, asked for online, exceed the quota of the hour."""
        self._remember()
        self.quota.take(rows)
        if self.quota.most is None:
            return
        if rows > self._written_ahead:
            # Recorded before they are answered, so that a crash forgets next to none of them; many
            # at once, because a caller waits while the disk takes the record.
            ahead = max(rows, self.quota.most // _PARTS_OF_QUOTA)
            self._record("agreed", header, rows=ahead)
            self._written_ahead += ahead
        self._written_ahead -= rows

    def follow(self, header: Header, outcome: asyncio.Future[Any], traffic: Traffic) -> None:
        """Audit how a session ended, and how many messages of each kind were answered."""

        def ended(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            answers = traffic.volumes[self._party, header.sender]
            with contextlib.suppress(Refused):  # too late to refuse; the reason is in the log
                self._record(
                    "ended",
                    header,
                    outcome="interrupted" if done.cancelled() else str(error or "finished"),
                    answered={kind: volume.messages for kind, volume in answers.items()},
                )

        outcome.add_done_callback(ended)

    def accuse(self, session: str, attempt: int, model: str, outcome: asyncio.Future[Any]) -> None:
        """Keep the evidence where a session of this party's own ends by what cannot be true."""

        def ended(done: asyncio.Future[Any]) -> None:
            error = None if done.cancelled() else done.exception()
            if not isinstance(error, Inconsistent):
                return
            try:
                self.audit.record(
                    "inconsistent",
                    peer=error.party,
                    session=session,
                    attempt=attempt,
                    model=model,
                    what=error.what,
                    evidence=dict(error.evidence),
                )
            except FedmqError as trouble:
                log.error("%s: %s", self._party, trouble)

        outcome.add_done_callback(ended)

    def _ask(self, header: Header, **terms: Any) -> None:
        self._record("asked", header, kind=header.kind, **terms)

    def _record(self, event: str, header: Header, **details: Any) -> None:
        try:
            self.audit.record(
                event,
                peer=header.sender,
                session=header.session,
                attempt=header.attempt,
                **details,
            )
        except FedmqError as error:
            log.error("%s: %s", self._party, error)
            raise Refused(f"{self._party} cannot write its audit log") from error

    def _check_peer(self, header: Header, what: str) -> None:
        policy = self._policy
        if policy.peers is not None and header.sender not in policy.peers:
            raise self._refusal(f"join sessions of {header.sender}")
        if what not in policy.sessions:
            raise self._refusal(f"take part in {what}")

    def _refusal(self, what: str) -> Refused:
        return Refused(f"{self._party} does not {what}")

    def _remember(self) -> None:
        """Count the rows that were answered within the last hour, before a restart."""
        if self._remembered or self.quota.most is None:
            return
        self._remembered = True
        for entry in self.audit.latest():
            at = datetime.fromisoformat(entry["at"]).timestamp()
            if at < self._began - HOUR:
                break
            if entry["event"] == "agreed" and "rows" in entry and at < self._began:
                self.quota.remember(at, entry["rows"])

    def _remember_alignments(self) -> None:
        """Count the alignments of the last day, before a restart."""
        if self._alignments_remembered:
            return
        self._alignments_remembered = True
        for entry in self.audit.latest():
            at = datetime.fromisoformat(entry["at"]).timestamp()
            if at < self._began - DAY:
                break
            if entry["event"] == "agreed" and "name" in entry and at < self._began:
                self._alignments.remember(at)
