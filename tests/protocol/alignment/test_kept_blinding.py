"""Alignments in which one party blinds its ids once: the same rows, less work, and what links."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedmq.errors import ConfigError, DataError, ProtocolError, Refused
from fedmq.messages import alignment
from fedmq.messages.envelope import Envelope
from fedmq.party.data.loading import OthersKeptList
from fedmq.party.store import kept_blindings
from fedmq.party.store.kept_blindings import KeptPoints, OwnBlinding
from fedmq.privacy.kept_blinding import intersect_kept, inverse_key
from fedmq.privacy.set_intersection import Points, blind, blind_ids, intersect
from fedmq.protocol.alignment import blinded_lists as blinded_lists
from fedmq.protocol.events import Received, Start
from tests.how_often import each_seed
from tests.protocol.alignment.alignments import Own, machines, people
from tests.simulator import Link, Simulation


@pytest.fixture
def short_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blinded_lists, "POINTS", 7)
    monkeypatch.setattr("fedmq.protocol.alignment.active.POINTS", 7)
    monkeypatch.setattr(blinded_lists, "IN_ONE_GO", 2)
    monkeypatch.setattr(blinded_lists, "_PLACES", 5)


def aligned(
    folder: Path,
    owners: dict[str, Own],
    seed: int = 0,
    known_to: Sequence[str] | None = None,
    link: Link | None = None,
    days: int = 30,
) -> tuple[int, list[Envelope]]:
    """The points that telco sent of its own list, and all messages."""
    points = KeptPoints(folder, "telco")
    name, kept = points.head()
    owners["telco"].blinding = OwnBlinding(folder, days, name, kept).of(owners["telco"].ids)
    tapped: list[Envelope] = []
    made = machines(
        owners, seed=seed, known_to=known_to, kept_list=OthersKeptList(points, name, kept)
    )
    simulation = Simulation(made, seed, link or Link(), tap=tapped.append)
    simulation.run()
    assert not simulation.errors
    return sum(len(points) for points in lists(tapped, "telco")), tapped


def lists(tapped: Sequence[Envelope], owner: str) -> list[Points]:
    """The pieces of ``owner``'s list, each message once."""
    found = {
        envelope.header.id: envelope.body.points.numpy()
        for envelope in tapped
        if isinstance(envelope.body, alignment.BlindedIds) and envelope.body.owner == owner
    }
    return list(found.values())


@pytest.mark.parametrize("known_to", [None, (), ("telco",)])
def test_the_rows_are_those_of_an_ordinary_alignment_the_first_time_and_later(
    tmp_path: Path, known_to: Sequence[str] | None, short_pieces: None
) -> None:
    ordinary = people(2)
    Simulation(machines(ordinary, known_to=known_to)).run()
    expected = {*zip(ordinary["bank"].stored, ordinary["telco"].stored, strict=True)}
    for turn in range(3):
        owners = people(2)
        sent, _ = aligned(tmp_path, owners, turn, known_to)
        pairs = [*zip(owners["bank"].stored, owners["telco"].stored, strict=True)]
        assert {*pairs} == expected and len(pairs) == len(expected) > 1
        assert sent == (0 if turn else len(owners["telco"].names))
        assert owners["bank"].found is not None and ordinary["bank"].found is not None
        assert owners["bank"].found.inner == ordinary["bank"].found.inner


@each_seed(6)
def test_a_bad_link_changes_nothing(tmp_path: Path, seed: int, short_pieces: None) -> None:
    for _ in range(2):
        owners = people(2, seed)
        aligned(tmp_path, owners, seed, link=Link(drop=0.1, repeat=0.1, delay=3.0))
        both = set(owners["bank"].names) & set(owners["telco"].names)
        assert set(owners["bank"].stored) == both
        assert owners["bank"].stored == owners["telco"].stored


def test_new_ids_are_sent_alone_and_found(tmp_path: Path, short_pieces: None) -> None:
    owners = people(2)
    aligned(tmp_path, owners)
    key = (tmp_path / "kept_blindings" / "own.npz").read_bytes()
    more = {"bank": Own(["new-1", "new-9", "id-3"]), "telco": Own(["new-1", "new-2", "id-3"])}
    more["telco"].names = [*more["telco"].names, *(set(owners["telco"].names) - {"id-3"})]
    added = len(set(more["telco"].names) - set(owners["telco"].names))
    assert aligned(tmp_path, more, 1)[0] == added
    assert set(more["bank"].stored) == {"new-1", "id-3"}
    assert more["bank"].stored == more["telco"].stored
    assert (tmp_path / "kept_blindings" / "own.npz").read_bytes() != key
    assert aligned(tmp_path, more, 2)[0] == 0


def test_where_somebody_is_gone_the_key_changes_and_nobody_finds_the_person(
    tmp_path: Path,
) -> None:
    owners = {"bank": Own(["a", "b", "c"]), "telco": Own(["a", "b", "d"])}
    aligned(tmp_path, owners)
    fewer = {"bank": Own(["a", "b", "c"]), "telco": Own(["b", "d"])}
    sent, tapped = aligned(tmp_path, fewer, 1)
    assert sent == 2 and fewer["bank"].stored == ["b"]
    assert len(list((tmp_path / "kept_blindings").glob("telco.*.npy"))) == 1
    assert lists(tapped, "telco")


def test_a_key_older_than_the_policy_keeps_it_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owners = people(2)
    aligned(tmp_path, owners, days=2)
    now = kept_blindings.time.time()
    monkeypatch.setattr(kept_blindings.time, "time", lambda: now + 1.9 * 86_400)
    assert aligned(tmp_path, people(2), 1, days=2)[0] == 0
    monkeypatch.setattr(kept_blindings.time, "time", lambda: now + 2.1 * 86_400)
    assert aligned(tmp_path, people(2), 2, days=2)[0] == len(owners["telco"].names)


def test_lost_and_damaged_files_of_the_active_party_are_sent_once_more(tmp_path: Path) -> None:
    owners = people(2)
    aligned(tmp_path, owners)
    [file] = (tmp_path / "kept_blindings").glob("telco.*.npy")
    file.write_bytes(file.read_bytes()[:200])
    assert aligned(tmp_path, people(2), 1)[0] == len(owners["telco"].names)
    file.unlink()
    assert aligned(tmp_path, people(2), 2)[0] == len(owners["telco"].names)


def test_a_damaged_key_is_refused_in_one_line_that_names_the_file(tmp_path: Path) -> None:
    aligned(tmp_path, people(2))
    file = tmp_path / "kept_blindings" / "own.npz"
    file.write_bytes(file.read_bytes()[:300])
    with pytest.raises(DataError, match=r"own.npz: .*delete it"):
        OwnBlinding(tmp_path, 30, "", 0).of(people(2)["telco"].ids)


def test_a_disk_that_refuses_ends_it_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "kept_blindings").write_text("a file where the folder should be")
    with pytest.raises((ConfigError, DataError), match="kept_blindings"):
        OwnBlinding(tmp_path, 30, "", 0).of(people(2)["telco"].ids)


# What crosses and what is kept


def test_the_short_list_has_a_fresh_key_and_the_long_list_is_linked(tmp_path: Path) -> None:
    owners = people(2)
    _, first = aligned(tmp_path, owners, 1)
    _, second = aligned(tmp_path, people(2), 2)
    sent, again = (
        {row.tobytes() for piece in lists(tapped, "bank") for row in piece}
        for tapped in (first, second)
    )
    assert sent and again and not sent & again  # k·s·H and s·H, of fresh s
    name, kept = KeptPoints(tmp_path, "telco").head()
    points = KeptPoints(tmp_path, "telco").load(name, kept)
    crossed = {row.tobytes() for piece in lists(first, "telco") for row in piece}
    assert crossed == {row.tobytes() for row in points}  # what the active party can follow


def test_no_file_and_no_message_holds_an_id(tmp_path: Path) -> None:
    owners = {"bank": Own(["person-1", "person-2"]), "telco": Own(["person-1", "person-3"])}
    _, tapped = aligned(tmp_path, owners)
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(files) == 2
    for file in files:
        assert b"person" not in file.read_bytes()
        assert file.stat().st_mode & 0o077 == 0
    assert not any("person" in repr(envelope.body) for envelope in tapped)


def test_the_order_of_the_long_list_does_not_depend_on_the_order_of_its_rows(
    tmp_path: Path,
) -> None:
    owners = people(2)
    aligned(tmp_path, owners)
    name, kept = KeptPoints(tmp_path, "telco").head()
    turned = Own(list(reversed(owners["telco"].names)))
    blinding = OwnBlinding(tmp_path, 30, name, 0).of(turned.ids)
    points = KeptPoints(tmp_path, "telco").load(name, kept)
    assert (blind_ids(blinding.key, blinding.fresh) == points).all()


# What is not legal


def opened(keeps: str = "", kept: int = 0) -> alignment.AlignmentAccept:
    return alignment.AlignmentAccept(rows=10, fewest=1, keeps=keeps, kept=kept)


@pytest.mark.parametrize(
    ("accept", "why"),
    [
        (opened(), "does not say which"),
        (opened("00112233445566aa", 5), "counts on 5 kept points"),
        (opened("0123456789abcdef", 11), "counts on 11 kept points"),
    ],
)
def test_an_answer_that_counts_on_other_points_is_refused(
    tmp_path: Path, accept: alignment.AlignmentAccept, why: str
) -> None:
    kept_list = OthersKeptList(KeptPoints(tmp_path, "telco"), "0123456789abcdef", 11)
    machine = machines(people(2), kept_list=kept_list)["bank"]
    machine.handle(Start())
    with pytest.raises(ProtocolError, match=why):
        machine.handle(Received("telco", accept))


def test_a_key_is_kept_for_two_parties_alone() -> None:
    machine = machines(people(3))["telco"]
    opening = alignment.AlignmentOpen(
        name="customers", parties=("bank", "telco", "retail"), normalise=(), keeps=""
    )
    effects = machine.handle(Received("bank", opening))
    assert "alignments of two parties" in str(effects)
    assert any(isinstance(getattr(effect, "error", None), Refused) for effect in effects)


# The arithmetic


def test_a_key_is_taken_off_by_its_inverse() -> None:
    points = blind_ids(b"\x07" * 32, people(2)["bank"].ids)
    for _ in range(20):
        key = os.urandom(32)
        assert (blind(inverse_key(key), blind(key, points)) == points).all()


@each_seed(4)
def test_a_long_list_is_intersected_unsorted_as_any_other(seed: int) -> None:
    random = np.random.default_rng(seed)
    points = random.integers(0, 256, (300, 32), np.uint8)
    own, kept = points[random.permutation(300)[:40]], points[random.permutation(300)[:200]]
    for required in (None, (0,)):
        expected = intersect([[own[:30], own[30:]], [kept]], required)
        found = intersect_kept([own[:30], own[30:]], kept, required)
        assert found.held == expected.held and found.by_all == expected.by_all
        for places, others in zip(found.places, expected.places, strict=True):
            assert (places == others).all()
