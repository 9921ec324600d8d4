"""An owner adds up by groups of its column, and shows no sum of few people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from fedmq.errors import Refused
from fedmq.party.configuration.data import DataSection
from fedmq.party.data.group_sums import AddGroups, check_new, joined_groups
from fedmq.party.store.answered_people import GroupQuestion, GroupQuestions
from fedmq.privacy.homomorphic.group_sums import decrypting
from fedmq.privacy.homomorphic.paillier import PrivateKey, generate
from fedmq.privacy.homomorphic.residues import from_wire, to_wire
from fedmq.protocol.session_records import hashed_ids

IDS = tuple(f"p{row:03}" for row in range(60))
GENDERS = ["f"] * 24 + ["m"] * 24 + [""] * 12

Ask = Callable[..., tuple[tuple[str, ...], list[int], list[int]]]


@pytest.fixture(scope="module")
def key() -> PrivateKey:
    return generate(512)


@pytest.fixture
def ask(tmp_path: Path, key: PrivateKey) -> Ask:
    """Has a one for each of some people added: groups, how many people each has, and its sum."""
    path = tmp_path / "data.csv"
    rows = [f"{name},{gender}" for name, gender in zip(IDS, GENDERS, strict=True)]
    path.write_text("\n".join(["id,gender", *rows]) + "\n")
    data = DataSection(path=path, id="id")
    times = iter(range(1, 1000))

    def asked(
        ids: tuple[str, ...] = IDS,
        smallest: int = 10,
        most: int = 5,
        at: float = 1e9,
        shows: bool = True,
    ) -> tuple[tuple[str, ...], list[int], list[int]]:
        modulus = key.public.modulus
        names, counts, sums, people = AddGroups(
            "telco",
            data,
            "gender",
            ids,
            key.public,
            to_wire(key.encrypt([1] * len(ids)), modulus),
            f"s{next(times)}",
            GroupQuestions(tmp_path / "state", lambda: at),
            smallest,
            most,
            shows,
        ).run()
        np.testing.assert_array_equal(people.people, hashed_ids(ids))
        decrypted = decrypting(key).decrypt(from_wire(sums, modulus))
        return names, counts.tolist(), [int(s % key.public.n) % 64 for s in decrypted]

    return asked


def joined(texts: Sequence[str], smallest: int) -> dict[str, int]:
    names, group_of = joined_groups(list(texts), smallest)
    return dict(zip(names, np.bincount(group_of).tolist(), strict=True))


@pytest.mark.parametrize(
    ("texts", "shown"),
    [
        ("aaaabbb", {"a": 4, "b": 3}),
        ("aaaabbbcd", {"a": 4, "other": 5}),  # c and d alone would be the total less a and b
        ("aaaabbbcccdde", {"a": 4, "c": 3, "b": 3, "other": 3}),
        ("aaaab", {"other": 5}),
        (["a"] * 4 + ["other"] * 3 + ["c"], {"a": 4, "other": 4}),
    ],
    ids=["large", "complement", "joined", "all", "named other"],
)
def test_small_groups_join_until_what_is_left_is_large(
    texts: Sequence[str], shown: dict[str, int]
) -> None:
    assert joined(texts, 3) == shown


def test_people_without_a_value_are_a_group(ask: Ask) -> None:
    assert ask() == (("m", "f", "(none)"), [24, 24, 12], [24, 24, 12])


def test_an_owner_may_show_numbers_in_place_of_names(ask: Ask) -> None:
    assert ask(shows=False)[0] == ("group 1", "group 2", "group 3")


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        ((*IDS, IDS[0]), "an id is repeated"),
        ((*IDS, "nobody"), "does not know all of these ids"),
        (IDS[:24], "no two groups of 10 people"),
    ],
    ids=["repeated", "unknown", "one group"],
)
def test_people_who_make_a_group_seem_larger_are_refused(
    ask: Ask, ids: tuple[str, ...], words: str
) -> None:
    with pytest.raises(Refused, match=words):
        ask(ids)


def test_people_nearly_those_of_an_earlier_question_are_refused(ask: Ask) -> None:
    ask(IDS[:48])
    ask(IDS[:48])
    with pytest.raises(Refused, match="nearly those of an earlier question"):
        ask(IDS[1:48])
    ask(IDS[12:48])  # twelve people less, all of one group
    with pytest.raises(Refused, match="nearly those"):
        ask(IDS[3:45])


def test_a_difference_that_is_large_in_all_may_be_small_in_a_group() -> None:
    people = hashed_ids(IDS)
    group_of = dict(zip(people.tolist(), GENDERS, strict=True))
    earlier = [GroupQuestion(people)]
    check_new("telco", people[12:], earlier, group_of, 10)
    with pytest.raises(Refused):
        check_new("telco", people[13:25], earlier, group_of, 14)
    with pytest.raises(Refused):
        check_new("telco", np.delete(people, [*range(12), 30]), earlier, group_of, 10)


def test_a_day_has_so_many_questions(ask: Ask) -> None:
    ask(most=2)
    with pytest.raises(Refused, match="no two groups"):  # which says something, so it counts
        ask(IDS[:24], most=2)
    with pytest.raises(Refused, match="2 questions about groups of a column a day"):
        ask(most=2)
    ask(most=2, at=1e9 + 25 * 3600)


def test_what_is_refused_is_not_kept(ask: Ask, tmp_path: Path) -> None:
    ask(IDS[:48])
    with pytest.raises(Refused):
        ask(IDS[1:48])
    assert len(list(GroupQuestions(tmp_path / "state").about("gender"))) == 1
