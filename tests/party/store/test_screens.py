"""What is kept of screens and selections: whole, of known versions, and not without end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedmq.errors import DataError, Refused
from fedmq.party.store.documents import (
    keep_shown_screen,
    made_screens,
    selections,
    shown_screen,
)
from fedmq.party.store.screens import ColumnSelection, MadeScreen, OwnChoice, ShownScreen

NUMBERED = (("age", ("age",)), ("town", ("town=a", "town=b")), ("calls", ("calls",)))
SHOWN = ShownScreen(name="look", made="2026-11-27", numbered=NUMBERED)
OWN = OwnChoice(screen="look", numbered=NUMBERED, numbers=(2, 3))
MADE = MadeScreen(
    **{"name": "look", "made": "2026-11-27", "alignment": "", "rows": 9, "looked_at": 9},
    **{"numbered": NUMBERED, "sessions": {}, "parties": {"bank": {"columns": []}}},
)


def test_chosen_columns_are_named_with_all_their_categories() -> None:
    assert OWN.columns == ("town", "calls")
    assert OWN.features_of("telco", NUMBERED) == ("town=a", "town=b", "calls")
    for now in (NUMBERED[:2], (*NUMBERED, ("new", ("new",))), (("age", ("age",)),) * 3):
        with pytest.raises(Refused, match="telco: its columns, or those that its policy lets"):
            OWN.features_of("telco", now)


def test_what_was_shown_is_found_by_its_session_alone_and_the_oldest_is_forgotten(
    tmp_path: Path,
) -> None:
    for number in range(102):
        keep_shown_screen(tmp_path, f"../{number}", SHOWN)
    assert shown_screen(tmp_path, "look", "../101") == SHOWN
    assert shown_screen(tmp_path, "look", "../0") is None
    assert shown_screen(tmp_path, "other", "../101") is None
    assert len([*tmp_path.rglob("*.json")]) == len([*(tmp_path / "shown-screens").iterdir()]) == 100


def test_a_file_of_a_later_version_names_it(tmp_path: Path) -> None:
    made_screens(tmp_path).keep("look", MADE)
    selections(tmp_path).keep("few", ColumnSelection(screen="look", made="2026-11-27", own=OWN))
    keep_shown_screen(tmp_path, "s", SHOWN)
    assert made_screens(tmp_path).read("look") == MADE
    assert selections(tmp_path).read("few").counts("telco") == {"telco": (2, 3)}
    for path in tmp_path.rglob("*.json"):
        assert path.stat().st_mode & 0o777 == 0o600
        path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 99}))
    for read in (
        lambda: made_screens(tmp_path).read("look"),
        lambda: selections(tmp_path).read("few"),
        lambda: shown_screen(tmp_path, "look", "s"),
    ):
        with pytest.raises(DataError, match="version 99 is unknown; this fedmq reads version 1"):
            read()
