"""Set intersection: keys commute, hashes lie on the curve, and nothing can be guessed."""

from __future__ import annotations

import os

import numpy as np
import pytest

from fedmq.errors import DataError
from fedmq.privacy.set_intersection import (
    IdList,
    blind,
    blind_ids,
    hash_to_curve,
    intersect,
    sort_points,
)

PRIME = 2**255 - 19


def is_on_curve(point: bytes) -> bool:
    u = int.from_bytes(point, "little")
    right = (u**3 + 486662 * u**2 + u) % PRIME
    return pow(right, (PRIME - 1) // 2, PRIME) == 1


def test_the_order_of_the_keys_does_not_matter() -> None:
    ids = IdList.of(["anna", "böb", ""])
    one, two = os.urandom(32), os.urandom(32)
    assert np.array_equal(blind(two, blind_ids(one, ids)), blind(one, blind_ids(two, ids)))


def test_every_hash_and_every_multiple_of_it_lies_on_the_curve_and_not_on_its_twist() -> None:
    names = [str(number) for number in range(100)]
    blinded = blind_ids(os.urandom(32), IdList.of(names))
    assert all(is_on_curve(hash_to_curve(name.encode())) for name in names)
    assert all(is_on_curve(point.tobytes()) for point in blinded)


def test_the_hash_of_an_id_is_fixed_so_that_parties_of_all_versions_agree() -> None:
    assert hash_to_curve(b"anna").hex() == (
        "d52a20b47e052a0287a7d05637c70319b1df0c15de1e77e2797daaeb8936be4b"
    )


def test_a_long_list_is_blinded_as_its_ids_are_one_by_one() -> None:
    ids, key = IdList.of(f"id-{number}" for number in range(2500)), os.urandom(32)
    long = blind_ids(key, ids)
    for place in (0, 7, 8, 2499):
        assert np.array_equal(long[place : place + 1], blind_ids(key, ids.part(place, place + 1)))


@pytest.mark.parametrize("count", [1, 2500])
def test_one_point_of_small_order_in_a_list_of_any_length_is_refused(count: int) -> None:
    points = np.repeat(blind_ids(os.urandom(32), IdList.of(["anna"])), count, axis=0)
    points[-1] = 0
    with pytest.raises(DataError, match="small order"):
        blind(os.urandom(32), points)


def test_ids_are_found_under_one_key_and_not_under_another() -> None:
    ids = IdList.of(["anna", "bob"])
    one, two = blind_ids(b"\x01" * 32, ids), blind_ids(b"\x02" * 32, ids)
    assert not (one == two).all(axis=1).any()


def test_a_point_of_small_order_is_refused() -> None:
    with pytest.raises(DataError, match="small order"):
        blind(os.urandom(32), np.zeros((1, 32), np.uint8))


def test_a_list_of_ids_is_cut_into_parts_and_read_back() -> None:
    ids = IdList.of(["anna", "", "böb", "c"])
    assert len(ids) == 4
    assert ids.strings() == ["anna", "", "böb", "c"]
    assert ids.part(1, 3).strings() == ["", "böb"]
    assert ids.part(3, 9).strings() == ["c"]
    assert IdList.of([]).strings() == []


def test_sorting_remembers_where_each_point_stood() -> None:
    points = np.random.default_rng(0).integers(0, 256, (1000, 32), dtype=np.uint8)
    ordered = sort_points([points[:300], points[300:]])
    rows = [row.tobytes() for row in ordered.points]
    assert rows == sorted(rows)
    assert np.array_equal(points[ordered.origin], ordered.points)


def test_the_common_rows_are_those_of_all_lists_in_one_order_whatever_the_rows_order() -> None:
    random = np.random.default_rng(0)
    points = random.integers(0, 256, (500, 32), dtype=np.uint8)
    points[:20, 31] = 0  # a value may end in zeros
    chosen = [random.permutation(500)[:400] for _ in range(3)]
    common = intersect([np.array_split(points[rows], 3) for rows in chosen])
    expected = set(chosen[0]) & set(chosen[1]) & set(chosen[2])
    found = [rows[places] for rows, places in zip(chosen, common.places, strict=True)]
    assert set(found[0]) == expected and common.count == len(expected)
    assert np.array_equal(found[0], found[1]) and np.array_equal(found[0], found[2])


def test_lists_without_a_common_row_have_none_and_a_repeated_point_is_refused() -> None:
    points = np.arange(64, dtype=np.uint8).reshape(2, 32)
    assert intersect([[points[:1]], [points[1:]]]).count == 0
    with pytest.raises(DataError, match="twice"):
        intersect([[points, points[:1]], [points]])
