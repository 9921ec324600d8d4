"""Alignment among simulated parties: the right rows, over bad links, and nothing given away."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from fedmq.errors import Aborted, DataError, FedmqError, PeerSilent, ProtocolError, Refused
from fedmq.messages import alignment
from fedmq.messages.array import Array
from fedmq.messages.body import Abort
from fedmq.messages.codec import encode
from fedmq.messages.envelope import Envelope
from fedmq.privacy.set_intersection import LACKED, hash_to_curve
from fedmq.protocol.alignment import blinded_lists as blinded_lists
from fedmq.protocol.alignment.passive import PassiveAlignment
from fedmq.protocol.events import Cancelled, Fail, Received, Start
from fedmq.protocol.machine import run_inline
from fedmq.protocol.travelling_list import Pieces, way
from tests.how_often import each_seed
from tests.protocol.alignment.alignments import PARTIES, Own, machines, people
from tests.protocol.inspection import Texts, leaks
from tests.simulator import Link, Simulation


def shared(owners: Mapping[str, Own]) -> set[str]:
    return set.intersection(*(set(own.names) for own in owners.values()))


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blinded_lists, "POINTS", 7)
    monkeypatch.setattr(blinded_lists, "IN_ONE_GO", 2)
    monkeypatch.setattr(blinded_lists, "_PLACES", 5)


def test_lists_pass_all_parties_and_end_at_the_active_one() -> None:
    assert way(PARTIES, "bank") == ("telco", "retail", "insurer", "bank")
    assert way(PARTIES, "retail") == ("insurer", "telco", "bank")
    assert way(PARTIES[:2], "telco") == ("bank",)


@pytest.mark.parametrize("count", [2, 3, 4])
def test_every_party_learns_the_rows_that_all_share_in_the_same_order(
    count: int, short_pieces: None
) -> None:
    owners = people(count)
    Simulation(machines(owners)).run()
    orders = {tuple(own.stored) for own in owners.values()}
    assert len(orders) == 1
    assert set(orders.pop()) == shared(owners) and shared(owners)


@pytest.mark.parametrize("known_to", [(), ("telco",), ("insurer", "retail")])
@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_left_join_keeps_the_active_partys_people_and_shows_each_party_the_places_of_its_own(
    count: int, known_to: tuple[str, ...], short_pieces: None
) -> None:
    owners = people(count)
    asked = [party for party in known_to if party in owners]
    Simulation(machines(owners, known_to=asked)).run()
    wanted = set(owners["bank"].names).intersection(*(owners[party].names for party in asked))
    order = owners["bank"].stored
    assert set(order) == wanted and len(order) == len(wanted)
    for own in owners.values():
        assert own.stored == [name if name in set(own.names) else "" for name in order]
    found = owners["bank"].found
    assert found is not None
    for party, lacks in found.lacking.items():
        assert lacks.tolist() == [name == "" for name in owners[party].stored]
    lacking = {party for party, own in owners.items() if "" in own.stored}
    assert found.lacking.keys() == lacking


def test_an_alignment_counts_the_people_of_each_choice_for_the_active_party_alone() -> None:
    owners = {
        "bank": Own(["a", "b", "c", "d"]),
        "telco": Own(["c", "b", "e"]),
        "retail": Own(["b", "d", "c", "f"]),
    }
    Simulation(machines(owners, known_to=["retail"])).run()
    found = owners["bank"].found
    assert found is not None
    assert (found.left, found.inner, found.known_to) == (4, 2, {"telco": 2, "retail": 3})
    assert found.lacked_at == {"telco": 1}
    assert owners["telco"].found is None and owners["retail"].found is None
    Simulation(machines(owners)).run()
    assert owners["bank"].found is not None and owners["bank"].found.lacking == {}


def test_a_left_join_needs_as_many_people_of_each_party_as_it_wants() -> None:
    owners = {"bank": Own(["a", "b", "c"]), "telco": Own(["c", "b", "d"]), "retail": Own(["a"])}
    for wanting in ("retail", "bank"):
        errors = failed(owners, fewest={wanting: 2}, known_to=())
        assert f"than the 2 that {wanting} wants" in str(errors["bank"])
    simulation = Simulation(machines(owners, known_to=()))
    simulation.run()
    assert not simulation.errors


def test_a_party_that_must_hold_everybody_takes_no_places_of_people_whom_it_lacks() -> None:
    owners = people(2)
    machine = machines(owners)["telco"]
    opening = alignment.AlignmentOpen(name="customers", parties=PARTIES[:2], normalise=())
    [effect] = machine.handle(Received("bank", opening))
    machine.handle(run_inline(effect))
    effects = list(machine.handle(Received("bank", alignment.AlignmentBegin())))
    while effects:
        effect = effects.pop()
        if hasattr(effect, "plan") or hasattr(effect, "computation"):
            effects += machine.handle(run_inline(effect))
    places = Array.of(np.array([0, LACKED], np.uint32))
    with pytest.raises(ProtocolError, match="telco must hold all people"):
        machine.handle(
            Received("bank", alignment.CommonRows(owner="telco", start=0, rows=2, places=places))
        )


def test_an_opening_that_wants_people_known_to_a_stranger_is_refused() -> None:
    machine = machines(people(2))["telco"]
    opening = alignment.AlignmentOpen(
        name="customers", parties=PARTIES[:2], normalise=(), known_to=("retail",)
    )
    effects = machine.handle(Received("bank", opening))
    assert "no passive party of the alignment is called retail" in str(effects)


def test_the_common_order_does_not_depend_on_the_order_of_anyones_rows() -> None:
    owners = people(3)
    turned = {party: Own(list(reversed(own.names))) for party, own in owners.items()}
    Simulation(machines(owners)).run()
    Simulation(machines(turned)).run()
    assert owners["bank"].stored == turned["retail"].stored


@each_seed(12)
def test_a_link_that_loses_repeats_and_delays_changes_nothing(
    seed: int, short_pieces: None
) -> None:
    owners = people(2 + seed % 3, seed)
    simulation = Simulation(machines(owners), seed, Link(drop=0.1, repeat=0.1, delay=3.0))
    simulation.run()
    assert not simulation.errors
    assert {frozenset(own.stored) for own in owners.values()} == {frozenset(shared(owners))}


def test_progress_counts_the_ids_of_all_lists() -> None:
    owners = people(3)
    simulation = Simulation(machines(owners))
    simulation.run()
    ids = sum(len(own.names) for own in owners.values())
    last = [report for party, report in simulation.reports if party == "bank"][-1]
    # Its own list comes back to the active party complete.
    assert (last.done, last.total) == (ids, ids)


def failed(owners: dict[str, Own], **options: Any) -> dict[str, FedmqError]:
    simulation = Simulation(machines(owners, **options))
    simulation.run()
    assert simulation.errors.keys() == owners.keys()
    assert not any(own.stored for own in owners.values())
    return simulation.errors


def test_without_a_common_id_everybody_is_told_and_nothing_is_stored() -> None:
    errors = failed({"bank": Own(["a", "b"]), "telco": Own(["c"]), "retail": Own(["a", "c"])})
    assert isinstance(errors["bank"], DataError)
    assert "no id in common" in str(errors["bank"]) and "no id in common" in str(errors["retail"])


def test_fewer_common_ids_than_a_party_wants_are_counted_for_nobody() -> None:
    owners = {
        "bank": Own(["a", "b", "c"]),
        "telco": Own(["c", "b", "d"]),
        "retail": Own(["b", "c", "e"]),
    }
    errors = failed(owners, fewest={"retail": 3})
    assert (
        str(errors["bank"]) == "the parties have fewer ids in common than the 3 that retail wants; "
        "do all write ids alike (data.normalise)?"
    )
    assert not any("2" in str(error) for error in errors.values())


def test_a_party_that_does_not_agree_says_why() -> None:
    def disagree(_: alignment.AlignmentOpen) -> None:
        raise Refused("telco normalises ids by trim, lower")

    errors = failed(people(2), agree=disagree)
    assert str(errors["bank"]) == "telco refused: telco normalises ids by trim, lower"


def test_a_reason_longer_than_a_message_has_room_for_is_told_as_far_as_it_fits() -> None:
    def disagree(_: alignment.AlignmentOpen) -> None:
        raise Refused("no " * 1000)

    errors = failed(people(2), agree=disagree)
    assert str(errors["bank"]) == "telco refused: " + ("no " * 1000)[:2000]


def test_a_party_that_cannot_read_its_ids_shows_its_error_to_nobody() -> None:
    owners = people(3)
    made = machines(owners)
    made["retail"] = PassiveAlignment(
        "retail", PARTIES[:3], _Broken(), lambda _: None, b"\x05" * 32
    )
    simulation = Simulation(made)
    simulation.run()
    assert "secret" in str(simulation.errors["retail"])
    assert "could not be read" in str(simulation.errors["bank"])
    assert "secret" not in str(simulation.errors["bank"]) + str(simulation.errors["telco"])


class _Broken:
    label = "_Broken"

    def run(self) -> None:
        raise DataError("retail: secret.csv, line 3: the id is empty")


@each_seed(12)
def test_a_party_that_dies_at_any_moment_leaves_nobody_waiting_and_the_active_party_stores_last(
    seed: int, short_pieces: None
) -> None:
    owners = people(3, seed)
    dead = PARTIES[seed % 3]
    died = float(np.random.default_rng(seed).uniform(0, 6))
    simulation = Simulation(machines(owners), seed, Link(delay=1.0), deaths={dead: died})
    simulation.run()
    if owners["bank"].stored:
        assert all(own.stored for own in owners.values())
    else:
        unfinished = {party for party in PARTIES[:3] if not owners[party].stored}
        assert unfinished - {dead} <= simulation.errors.keys()
    if dead != "bank" and simulation.errors:
        assert isinstance(simulation.errors["bank"], PeerSilent | Aborted)
        assert dead in str(simulation.errors["bank"])


def test_a_party_that_cannot_store_is_told_apart_and_the_others_hear_of_it() -> None:
    owners = people(2)
    owners["telco"].keep = lambda rows, **_: _Broken()  # type: ignore[method-assign]
    simulation = Simulation(machines(owners))
    simulation.run()
    assert isinstance(simulation.errors["telco"], DataError)
    assert isinstance(simulation.errors["bank"], Aborted)
    assert not owners["bank"].stored


# What is not legal


def test_a_list_that_comes_from_the_wrong_side_is_refused_and_changes_nothing() -> None:
    owners = people(3)
    machine = machines(owners)["telco"]
    opening = alignment.AlignmentOpen(name="customers", parties=PARTIES[:3], normalise=())
    [effect] = machine.handle(Received("bank", opening))
    machine.handle(run_inline(effect))
    points = Array.of(np.ones((3, 32), np.uint8))
    for sender, owner in (
        ("retail", "bank"),
        ("bank", "retail"),
        ("bank", "nobody"),
        ("bank", "telco"),
    ):
        body = alignment.BlindedIds(owner=owner, start=0, rows=3, points=points)
        with pytest.raises(ProtocolError, match="another route"):
            machine.handle(Received(sender, body))
    with pytest.raises(ProtocolError, match="cannot take CommonRows"):
        places = Array.of(np.zeros(1, np.uint32))
        machine.handle(
            Received("bank", alignment.CommonRows(owner="telco", start=0, rows=1, places=places))
        )


def test_pieces_come_once_and_with_their_own_length() -> None:
    pieces = Pieces(10, 4)
    pieces.add(8, np.arange(2))
    for start, length in ((8, 2), (0, 3), (2, 4), (12, 4), (0, 5)):
        with pytest.raises(ProtocolError):
            pieces.add(start, np.arange(length))
    pieces.add(0, np.arange(4))
    assert not pieces.complete
    pieces.add(4, np.arange(4))
    assert pieces.complete


def test_an_alignment_that_is_cancelled_tells_the_others() -> None:
    machine = machines(people(2))["bank"]
    machine.handle(Start())
    effects = machine.handle(Cancelled("enough"))
    assert [effect.body for effect in effects if hasattr(effect, "body")] == [
        Abort(reason="enough")
    ]
    assert isinstance(effects[-1], Fail)


# What crosses


class Tap:
    def __init__(self) -> None:
        self.bytes = b""
        self.envelopes: list[Envelope] = []
        self.points: dict[tuple[str, str, str], set[bytes]] = {}

    def __call__(self, envelope: Envelope) -> None:
        self.bytes += encode(envelope)
        self.envelopes.append(envelope)
        body = envelope.body
        if isinstance(body, alignment.BlindedIds):
            header = envelope.header
            rows = {row.tobytes() for row in body.points.numpy()}
            self.points.setdefault((body.owner, header.sender, header.recipient), set()).update(
                rows
            )


@pytest.fixture
def tapped(short_pieces: None) -> tuple[dict[str, Own], Tap]:
    owners = people(3)
    tap = Tap()
    Simulation(machines(owners), tap=tap).run()
    return owners, tap


def test_no_id_crosses(tapped: tuple[dict[str, Own], Tap]) -> None:
    owners, tap = tapped
    names = {name for own in owners.values() for name in own.names}
    assert leaks(tap.envelopes, [Texts("ids", (), names)]) == set()


def test_guessing_ids_and_hashing_them_finds_nothing_in_the_recorded_traffic(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    owners, tap = tapped
    names = {name for own in owners.values() for name in own.names}
    hashes = ("md5", "sha1", "sha256", "sha512", "blake2b", "sha3_256")
    for name in names:
        guesses = {hashlib.new(kind, name.encode()).digest() for kind in hashes}
        guesses |= {guess[::-1] for guess in guesses} | {hash_to_curve(name.encode())}
        guesses |= {guess.hex().encode() for guess in guesses}
        assert not any(guess in tap.bytes for guess in guesses)


def test_a_passive_party_never_sees_two_lists_under_the_same_keys(
    tapped: tuple[dict[str, Own], Tap],
) -> None:
    """So that it cannot even count what two others share; the last station, bank, can."""
    _, tap = tapped
    assert len(tap.points) == 7  # the three lists' ways: 3 + 2 + 2
    for party in ("telco", "retail"):
        seen = [points for (_, *ends), points in tap.points.items() if party in ends]
        assert len(seen) == 5
        assert len(set.union(*seen)) == sum(map(len, seen))


def test_two_parties_lists_never_cross_under_the_same_keys() -> None:
    """Who reads the broker's queues cannot count what the two share."""
    tap = Tap()
    Simulation(machines(people(2)), tap=tap).run()
    assert len(tap.points) == 3
    assert len(set.union(*tap.points.values())) == sum(map(len, tap.points.values()))


def test_lists_leave_their_owner_and_pass_others_in_an_order_that_tells_nothing() -> None:
    owners = people(2)
    lists: dict[str, list[bytes]] = {"bank": [], "telco": []}

    def tap(envelope: Envelope) -> None:
        if isinstance(envelope.body, alignment.BlindedIds):
            rows = [row.tobytes() for row in envelope.body.points.numpy()]
            assert rows == sorted(rows)
            lists[envelope.header.sender] += rows

    Simulation(machines(owners), tap=tap).run()
    assert all(lists.values())


def test_a_second_alignment_shares_no_value_with_the_first() -> None:
    taps = [Tap(), Tap()]
    for seed, tap in enumerate(taps):
        Simulation(machines(people(2), seed=seed), tap=tap).run()
    first, second = (set.union(*tap.points.values()) for tap in taps)
    assert not first & second


# Several rows of a person


def test_other_parties_hear_how_many_rows_each_shared_person_has(short_pieces: None) -> None:
    owners = people(3)
    bank = owners["bank"]
    bank.rows_of = np.arange(1, len(bank.names) + 1, dtype=np.uint32) % 4 + 1
    tapped: list[Envelope] = []
    Simulation(machines(owners), tap=tapped.append).run()
    rows = dict(zip(bank.names, bank.rows_of.tolist(), strict=True))
    expected = {name: rows[name] for name in shared(owners)}
    for own in owners.values():
        assert own.stored == bank.stored
        assert {name: own.stored.count(name) for name in own.stored} == expected
        beside = [
            name for name, after in zip(own.stored, own.stored[1:], strict=False) if name != after
        ]
        assert len(beside) == len(expected) - 1  # rows of a person stand side by side
    told = [
        envelope.body for envelope in tapped if isinstance(envelope.body, alignment.RepeatedRows)
    ]
    assert sum(len(body.counts.values) for body in told) == 2 * len(expected)


def test_where_each_person_has_one_row_nothing_is_counted() -> None:
    owners, tapped = people(2), list[Envelope]()
    Simulation(machines(owners), tap=tapped.append).run()
    assert not [e for e in tapped if isinstance(e.body, alignment.RepeatedRows)]


@pytest.mark.parametrize("counts", [[1, 0], [2**28, 1]])
def test_counts_that_cannot_be_end_the_session(counts: list[int]) -> None:
    owners = people(2, share=1.0, of=2)
    owners["bank"].rows_of = np.array(counts, np.uint32)
    simulation = Simulation(machines(owners))
    simulation.run()
    assert "a person has no row, or all have more than 268435456" in str(simulation.errors["telco"])
    assert not owners["bank"].stored and not owners["telco"].stored
