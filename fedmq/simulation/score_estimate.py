"""An estimate of what scores cost, from scores of the same model with made-up passive parties.

The machines of online scores ask stand-ins for the passive parties. A stand-in's splits send people
left as often as they sent training rows left, by chance; so questions are as many and as long as
they will be, and arithmetic takes as long. People are made up, too: their values lie among the
active party's own thresholds.
"""

from __future__ import annotations

import itertools
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.served_forest import NONE, ServedForest
from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.boosting.model.tree import LookupTable
from fedmq.errors import DataError
from fedmq.messages.body import Body
from fedmq.messages.codec import pack_body
from fedmq.messages.online import OnlineHop, OnlineRows, OnlineSealed
from fedmq.party.operations.broker import BrokerLatency
from fedmq.protocol.events import Answer, Event, Received, RunPlan, Send, Start
from fedmq.protocol.machine import run_inline
from fedmq.protocol.online.active import OnlineBatch
from fedmq.protocol.online.options import AskedRows, Mode, Timeouts
from fedmq.protocol.online.passive import AnsweringShare
from fedmq.protocol.online.sealed_active import MOST_CIPHERTEXTS, SealedBatch
from fedmq.protocol.online.sealed_passive import MaskSeeds, SealedShare
from fedmq.protocol.sealed_sums import SealedModel

__all__ = ["PartyScores", "ScoresEstimate", "estimate_scores", "shares_standing_in"]

_MODES: tuple[Mode, ...] = ("hop", "bitmap", "sealed")
_PEOPLE = 250
"""In a large batch, as many as walk together where nothing else is set."""
_SINGLE = 9  # batches of one person; the median counts
_STAGES = 4  # of a message: sent, kept, fetched, confirmed
_FOREVER = 3600.0
_OVERHEAD_BYTES = 250  # of a sealed message beside its body
_HANDLING_SECONDS = 4e-4  # of a message at a party that sends or receives it
_CALL_SECONDS = 3e-3  # of the HTTP request that asks for a score, there and back


@dataclass(frozen=True, slots=True)
class PartyScores:
    """What a score of one person takes at a party, where many are scored together."""

    core_seconds: float
    bytes_sent: float
    bytes_received: float


@dataclass(frozen=True, slots=True)
class ScoresEstimate:
    """What scores take in one mode.

    ``rounds``: questions after one another, for one person. ``alone``: seconds until a caller by
    HTTP has one person's score. ``per_person``: seconds, where many are scored and each party has a
    machine.
    """

    rounds: int
    alone: float
    per_person: float
    parties: Mapping[str, PartyScores]


def estimate_scores(
    share: ActiveShare, broker: BrokerLatency, seed: int = 0
) -> dict[Mode, ScoresEstimate]:
    """By mode, what scores of the model ``share`` take; without sealed ones if it is too large."""
    random = np.random.default_rng(seed)
    people = _people(share.lookup_table, random)
    standing_in = _StandIns(share, random)
    return {
        mode: _of_mode(standing_in, people, mode, broker)
        for mode in _MODES
        if mode != "sealed" or standing_in.sealed is not None
    }


def _of_mode(
    standing_in: _StandIns, people: NDArray[np.float32], mode: Mode, broker: BrokerLatency
) -> ScoresEstimate:
    many = standing_in.scored(people, mode)
    alone = [standing_in.scored(people[[place]], mode) for place in range(_SINGLE)]
    alone.sort(key=lambda run: run.seconds_of(broker))
    single = alone[_SINGLE // 2]
    parties = {
        party: PartyScores(
            many.seconds[party] / len(people),
            many.sent[party] / len(people),
            many.received[party] / len(people),
        )
        for party in (standing_in.active, *standing_in.served.asked.values())
    }
    return ScoresEstimate(
        single.rounds,
        _CALL_SECONDS + single.seconds_of(broker),
        max(cost.core_seconds for cost in parties.values()),
        parties,
    )


def _people(own: LookupTable, random: np.random.Generator) -> NDArray[np.float32]:
    values = np.zeros((_PEOPLE, len(own.feature_names)), np.float32)
    for feature in np.unique(own.feature):
        cuts = own.threshold[own.feature == feature]
        known = cuts[np.isfinite(cuts)]
        if len(known):
            values[:, feature] = random.choice([*known, known.max() + 1], _PEOPLE)
    return values


class _Run:
    """What one batch took, by party."""

    def __init__(self) -> None:
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.sent: Counter[str] = Counter()
        self.received: Counter[str] = Counter()
        self.messages = 0
        self.rounds = 0

    def note(self, sender: str, recipient: str, body: Body) -> None:
        size = len(pack_body(body)) + _OVERHEAD_BYTES
        self.sent[sender] += size
        self.received[recipient] += size
        self.messages += 1
        for party in (sender, recipient):
            self.seconds[party] += _HANDLING_SECONDS

    def seconds_of(self, broker: BrokerLatency) -> float:
        """From the first question to the last answer, one party after the other."""
        ways = 2 * self.rounds * _STAGES * broker.message
        return sum(self.seconds.values()) + ways + broker.byte * sum(self.sent.values())


class _StandIns:
    """The model of ``share``, and passive parties made of its trees alone."""

    def __init__(self, share: ActiveShare, random: np.random.Generator) -> None:
        self.active = share.parties[0]
        self.served = ServedForest.of(share)
        self.sealed = _sealed(share)
        self._random = random
        self._batches = itertools.count()
        self._shares = shares_standing_in(self.served)

    def scored(self, people: NDArray[np.float32], mode: Mode) -> _Run:
        """A batch of ``people`` (rows, own features) in ``mode``."""
        ids = tuple(f"{place:08d}" for place in range(len(people)))
        answering = self._answering(ids, mode)
        requests = [AskedRows(0, len(ids), _FOREVER)]
        number = next(self._batches)
        batch: OnlineBatch | SealedBatch
        if mode == "sealed" and self.sealed is not None:
            batch = SealedBatch(
                number,
                self.served,
                self.sealed,
                ids,
                people,
                requests,
                Timeouts(),
                secrets.token_bytes(32),
            )
        else:
            batch = OnlineBatch(
                number, self.served, ids, people, requests, mode, "fail", Timeouts()
            )
        run = _Run()
        events: deque[Event] = deque([Start()])
        while events:
            event = events.popleft()
            begun = time.thread_time()
            effects = batch.handle(event)
            run.seconds[self.active] += time.thread_time() - begun
            for effect in effects:
                match effect:
                    case RunPlan():
                        begun = time.thread_time()
                        events.append(run_inline(effect))
                        run.seconds[self.active] += time.thread_time() - begun
                    case Send(party, body):
                        run.note(self.active, party, body)
                        begun = time.thread_time()
                        answer = answering[party].answer(body)
                        run.seconds[party] += time.thread_time() - begun
                        run.note(party, self.active, answer)
                        events.append(Received(party, answer))
                    case Answer(_, result) if isinstance(result, Exception):
                        raise result
        run.rounds = batch.rounds
        return run

    def _answering(self, ids: tuple[str, ...], mode: Mode) -> dict[str, _StandIn]:
        row_of = {name: row for row, name in enumerate(ids)}
        links = {party: secrets.token_bytes(32) for party in self._shares}
        found = {}
        for owner, party in self.served.asked.items():
            share = self._shares[party]
            values = self._random.random((len(ids) + 1, len(share.lookup_table))).astype(np.float32)
            values[-1] = np.nan
            about = AnsweringShare(share, self.served.chains(owner), values, row_of)
            sealed = None
            if mode == "sealed" and self.sealed is not None:
                sealed = SealedShare.of(share, self.sealed.terms(party))
            found[party] = _StandIn(about, sealed, links)
        return found


def shares_standing_in(served: ServedForest) -> dict[str, PassiveShare]:
    """A share for each passive party of ``served``, by name, made of the active party's alone.

    It has a column for each split, of values from 0 to 1, and sends as much weight left as the
    split of the training did.
    """
    return {party: _share_standing_in(served, owner) for owner, party in served.asked.items()}


def _share_standing_in(served: ServedForest, owner: int) -> PassiveShare:
    forest, share = served.forest, served.share
    cover = np.concatenate([tree.cover for tree in share.used_trees])
    nodes = served.node_of[owner]
    used = nodes != NONE
    left = np.full(len(nodes), 0.5, np.float32)
    below = cover[forest.left[nodes[used]]], cover[forest.right[nodes[used]]]
    left[used] = below[0] / np.maximum(below[0] + below[1], np.float32(1e-30))
    table = LookupTable.model_validate(
        {
            "feature_names": [f"x{record}" for record in range(len(nodes))],
            "feature": list(range(len(nodes))),
            "threshold": left.tolist(),
            "default_left": [True] * len(nodes),
        }
    )
    common = {"version": share.version, "model_id": share.model_id, "lookup_table": table}
    return PassiveShare.model_validate({**common, "party": served.asked[owner]})


@dataclass(frozen=True, slots=True)
class _StandIn:
    """Answers as a passive party does; ``links``: by party, the seed that the next one shares."""

    about: AnsweringShare
    sealed: SealedShare | None
    links: Mapping[str, bytes]

    def answer(self, body: Body) -> Any:
        match body:
            case OnlineHop():
                return self.about.exits(body)
            case OnlineRows():
                return self.about.bitmaps(body)
            case OnlineSealed() if self.sealed is not None:
                rows = np.array([self.about.row_of[name] for name in body.ids])
                own = self.links[self.about.share.party] if self.sealed.following else None
                seeds = MaskSeeds(b"s" * 32, self.links.get(self.sealed.previous), own)
                unknown = np.zeros(len(rows), np.bool_)
                return self.sealed.products(body, self.about.values[rows], unknown, seeds)
        raise TypeError(f"{body.kind} is no question about scores")


def _sealed(share: ActiveShare) -> SealedModel | None:
    """The model for mode sealed; None where it is too large for online scores."""
    try:
        model = SealedModel.of(share, secrets.token_bytes(32))
    except DataError:
        return None
    return model if model.packing.ciphertexts(1) <= MOST_CIPHERTEXTS else None
