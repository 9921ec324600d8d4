"""Counts among simulated parties: the right number, over bad links, and no list for anybody."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedmq.errors import Aborted, DataError, FedmqError, PeerSilent, ProtocolError, Refused
from fedmq.messages import overlap
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.privacy.set_intersection import hash_to_curve
from fedmq.protocol.events import Received, Start
from fedmq.protocol.machine import Machine, run_inline
from fedmq.protocol.overlap import passing_lists as passing_lists
from fedmq.protocol.overlap.active import SharedPeople
from fedmq.protocol.overlap.passive import OverlapLimits
from tests.how_often import each_seed
from tests.protocol.alignment.alignments import PARTIES, Own, people
from tests.protocol.inspection import Texts, leaks
from tests.protocol.overlap.counts import machines
from tests.simulator import Link, Simulation


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(passing_lists, "POINTS", 7)
    monkeypatch.setattr(passing_lists, "IN_ONE_GO", 2)


def shared(owners: Mapping[str, Own]) -> int:
    return len(set.intersection(*(set(own.names) for own in owners.values())))


def counted(owners: Mapping[str, Own], **options: Any) -> Any:
    simulation = Simulation(machines(owners, **options))
    simulation.run()
    assert not simulation.errors
    return simulation.results["bank"]


@pytest.mark.parametrize("count", [2, 3, 4])
def test_the_active_party_reads_how_many_people_all_share(count: int, short_pieces: None) -> None:
    owners = people(count)
    simulation = Simulation(machines(owners))
    simulation.run()
    expected = SharedPeople(shared(owners), exact=True, fewest=1)
    assert shared(owners) > 0
    assert simulation.results == {"bank": expected} | dict.fromkeys(list(owners)[1:])


def test_nobody_shared_is_a_number_as_well() -> None:
    owners = {"bank": Own(["a", "b"]), "telco": Own(["c"])}
    assert counted(owners, limits={"telco": OverlapLimits(True, 0)}).people == 0


def test_one_party_that_wants_it_rounded_is_enough() -> None:
    owners = people(3)
    found = counted(owners, limits={"telco": OverlapLimits(exact=False)}, noise=4)
    assert found == SharedPeople(10 * round((shared(owners) + 4) / 10), exact=False, fewest=1)


def test_below_the_largest_limit_no_number_is_told_and_the_limit_is_held_against_what_is_told() -> (
    None
):
    owners = {"bank": Own(list("abcdefgh")), "telco": Own(list("abcxyzuv"))}
    limits = {"telco": OverlapLimits(exact=True, fewest=4)}
    assert counted(owners, limits=limits) == SharedPeople(None, exact=True, fewest=4)
    noisy = {"telco": OverlapLimits(exact=False, fewest=4)}
    assert counted(owners, limits=noisy, noise=7).people == 10
    assert counted(owners, limits=noisy, noise=-1).people is None


@each_seed(12)
def test_a_link_that_loses_repeats_and_delays_changes_nothing(
    seed: int, short_pieces: None
) -> None:
    owners = people(2 + seed % 3, seed)
    simulation = Simulation(machines(owners), seed, Link(drop=0.1, repeat=0.1, delay=3.0))
    simulation.run()
    assert not simulation.errors
    assert simulation.results["bank"].people == shared(owners)


@each_seed(12)
def test_a_party_that_dies_at_any_moment_leaves_nobody_waiting(
    seed: int, short_pieces: None
) -> None:
    dead = PARTIES[seed % 3]
    died = float(np.random.default_rng(seed).uniform(0, 6))
    simulation = Simulation(machines(people(3, seed)), seed, Link(delay=1.0), deaths={dead: died})
    simulation.run()
    if dead != "bank" and "bank" not in simulation.results:
        assert isinstance(simulation.errors["bank"], PeerSilent | Aborted)
        assert dead in str(simulation.errors["bank"])


def failed(owners: dict[str, Own], **options: Any) -> dict[str, FedmqError]:
    simulation = Simulation(machines(owners, **options))
    simulation.run()
    assert simulation.errors.keys() == owners.keys()
    return simulation.errors


def test_a_party_that_does_not_agree_says_why() -> None:
    def disagree(_: overlap.OverlapOpen) -> None:
        raise Refused("telco does not count shared people")

    errors = failed(people(2), agree=disagree)
    assert str(errors["bank"]) == "telco refused: telco does not count shared people"


def test_a_list_that_is_too_short_is_not_blinded() -> None:
    owners = {"bank": Own(["a"]), "telco": Own(list("abc"))}
    errors = failed(owners, limits={"telco": OverlapLimits(exact=True, fewest=2, longest=9)})
    assert str(errors["telco"]) == "bank's list holds 1 ids; telco counts with 2 to 9"
    assert "telco counts with lists of 2 to 9 ids" in str(errors["bank"])


def test_an_id_held_twice_is_no_honest_list() -> None:
    errors = failed({"bank": Own(["a", "a"]), "telco": Own(["a", "b"])})
    assert isinstance(errors["telco"], DataError)


# What is not legal


def altered(owners: Mapping[str, Own], change: Any) -> dict[str, FedmqError]:
    """The errors of a count of which ``change`` makes what arrives from what is sent."""
    simulation = Simulation(machines(owners), rewrite=change)
    simulation.run()
    return simulation.errors


def test_a_list_that_comes_back_longer_than_it_left_ends_the_count() -> None:
    def longer(envelope: Envelope) -> Body:
        body = envelope.body
        if isinstance(body, overlap.ShuffledIds) and envelope.header.sender == "bank":
            points = np.concatenate([body.points.numpy(), body.points.numpy()[:1]])
            if body.owner == "telco":
                return body.model_copy(update={"rows": body.rows + 1, "points": Array.of(points)})
        return body

    errors = altered(people(2), longer)
    assert "its own list of 42 ids comes back with 43" in str(errors["telco"])


def test_only_the_party_that_counts_tells_a_number_and_only_passive_ones_send_it_limits() -> None:
    made = started(people(3))
    number = overlap.OverlapCount(people=3, exact=True, fewest=1)
    with pytest.raises(ProtocolError, match="retail counts, not telco"):
        made["bank"].handle(Received("telco", number))
    limits = overlap.OverlapLimits(exact=True, fewest=1)
    with pytest.raises(ProtocolError, match="unrequested limits of bank"):
        made["retail"].handle(Received("bank", limits))
    with pytest.raises(ProtocolError, match="unrequested limits of retail"):
        made["telco"].handle(Received("retail", limits))


def test_a_list_that_comes_from_the_wrong_side_is_refused() -> None:
    made = started(people(3))
    points = Array.of(np.ones((3, 32), np.uint8))
    for recipient, sender, owner in (
        ("telco", "retail", "bank"),
        ("telco", "bank", "telco"),
        ("bank", "retail", "telco"),
        ("bank", "telco", "bank"),
        ("retail", "bank", "nobody"),
    ):
        body = overlap.ShuffledIds(owner=owner, start=0, rows=3, points=points)
        with pytest.raises(ProtocolError, match="another route"):
            made[recipient].handle(Received(sender, body))


def started(owners: Mapping[str, Own]) -> dict[str, Machine]:
    """Machines in the midst of a count: all have agreed, no list has arrived."""
    made = machines(owners)
    opening = overlap.OverlapOpen(name="customers", parties=tuple(owners), normalise=())
    for party in list(owners)[1:]:
        [effect] = made[party].handle(Received("bank", opening))
        made[party].handle(run_inline(effect))
        made[party].handle(Received("bank", overlap.OverlapBegin()))
    made["bank"].handle(Start())
    for party in list(owners)[1:]:
        made["bank"].handle(Received(party, overlap.OverlapAccept(rows=3)))
    return made


# What crosses


class Tap:
    def __init__(self) -> None:
        self.envelopes: list[Envelope] = []
        self.points: dict[tuple[str, str, str], list[bytes]] = {}

    def __call__(self, envelope: Envelope) -> None:
        self.envelopes.append(envelope)
        body, header = envelope.body, envelope.header
        if isinstance(body, overlap.ShuffledIds):
            rows = [row.tobytes() for row in body.points.numpy()]
            self.points.setdefault((body.owner, header.sender, header.recipient), []).extend(rows)


@pytest.fixture
def tapped(short_pieces: None) -> tuple[dict[str, Own], Tap]:
    owners, tap = people(4), Tap()
    Simulation(machines(owners), tap=tap).run()
    return owners, tap


def test_no_id_nor_a_hash_of_one_crosses(tapped: tuple[dict[str, Own], Tap]) -> None:
    owners, tap = tapped
    names = {name for own in owners.values() for name in own.names}
    assert leaks(tap.envelopes, [Texts("ids", (), names)]) == set()
    sent = b"".join(encode(envelope) for envelope in tap.envelopes)
    for name in names:
        guesses = {hashlib.new(kind, name.encode()).digest() for kind in ("sha256", "blake2b")}
        guesses |= {guess[::-1] for guess in guesses} | {hash_to_curve(name.encode())}
        assert not any(guess in sent for guess in guesses)


def test_the_active_party_receives_no_list_that_two_keys_tell_apart_and_never_its_own(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    owners, tap = tapped
    arrives = [owner for owner, _, recipient in tap.points if recipient == "bank"]
    assert sorted(arrives) == sorted(set(owners) - {"bank"})
    lists = [set(points) for (_, _, recipient), points in tap.points.items() if recipient == "bank"]
    assert all(not one & other for one in lists for other in lists if one is not other)


def test_only_the_party_that_counts_sees_two_lists_under_the_same_keys(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    owners, tap = tapped
    for party in list(owners)[:-1]:
        keys = []
        for owner, _, recipient in tap.points:
            if recipient == party:
                before = {owner}
                while (step := _next(tap, owner, before)) != party:
                    before.add(step)
                keys.append(frozenset(before))
        assert len(set(keys)) == len(keys) == len(owners) - 1


def _next(tap: Tap, owner: str, before: set[str]) -> str:
    """The party that ``owner``'s list reaches after those in ``before``."""
    [after] = {
        recipient
        for listed, sender, recipient in tap.points
        if listed == owner and sender in before and recipient not in before
    }
    return after


def test_every_list_leaves_a_party_in_the_order_of_its_new_values(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    _, tap = tapped
    for points in tap.points.values():
        assert points == sorted(points)


def test_two_counts_of_the_same_ids_share_no_value() -> None:
    seen: set[bytes] = set()
    for seed in (1, 2):
        tap = Tap()
        Simulation(machines(people(2), seed=seed), tap=tap).run()
        points = {point for held in tap.points.values() for point in held}
        assert not points & seen
        seen |= points


def test_the_number_is_told_to_the_active_party_alone(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    _, tap = tapped
    told = [
        (envelope.header.sender, envelope.header.recipient)
        for envelope in tap.envelopes
        if isinstance(envelope.body, overlap.OverlapCount)
    ]
    assert set(told) == {("insurer", "bank")}
