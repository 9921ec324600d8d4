"""Rooms that list their files list all of them, and no others."""

from __future__ import annotations

import importlib
import pkgutil
import re

import pytest

import fedmq

ROW = re.compile(r"^``(\w+)``  +\S", re.MULTILINE)

ROOMS = [
    room
    for found in pkgutil.walk_packages(fedmq.__path__, "fedmq.")
    if found.ispkg and ROW.search((room := importlib.import_module(found.name)).__doc__ or "")
]


def test_large_rooms_of_arithmetic_have_a_table() -> None:
    assert {room.__name__ for room in ROOMS} >= {
        "fedmq.boosting",
        "fedmq.leakage.attacks",
        "fedmq.privacy.homomorphic",
        "fedmq.protocol.training",
    }


@pytest.mark.parametrize("room", ROOMS, ids=lambda room: room.__name__)
def test_a_table_names_each_file_of_its_room_once(room) -> None:
    named = ROW.findall(room.__doc__)
    assert sorted(named) == sorted(file.name for file in pkgutil.iter_modules(room.__path__))
