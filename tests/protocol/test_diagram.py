from __future__ import annotations

import re
from pathlib import Path

import pytest

from fedmq.messages.body import SessionUnknown
from fedmq.protocol.diagram import MACHINES, Drawing, page

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "state-machines.md"


def test_the_page_in_the_documentation_is_drawn_from_the_tables() -> None:
    assert PAGE.read_text() == page(), (
        "run: python -m fedmq.protocol.diagram > docs/reference/state-machines.md"
    )


@pytest.mark.parametrize("drawing", MACHINES, ids=lambda drawing: drawing.name)
def test_the_page_explains_every_state(drawing: Drawing) -> None:
    shown = page()
    for state in drawing.states:
        assert f"| `{state.name}` | {state.value} |" in shown


@pytest.mark.parametrize("drawing", MACHINES, ids=lambda drawing: drawing.name)
def test_every_edge_of_a_diagram_stands_in_its_table_and_the_other_way_round(
    drawing: Drawing,
) -> None:
    drawn = set(re.findall(r"^    (\w+) --> (\w+):", drawing.diagram(), re.MULTILINE))
    *_, finished, failed = drawing.states
    tabled = {
        (state.name, transition.to.name)
        for (state, event), transition in drawing.table.items()
        if state not in (finished, failed)
        and transition.to is not failed
        and not transition.ignored
        and event is not SessionUnknown
    }
    assert {edge for edge in drawn if edge[1] != failed.name} == tabled


def test_what_always_fails_is_one_note_and_no_edge() -> None:
    for drawing in MACHINES:
        assert "Cancelled" not in re.sub(r"note left.*end note", "", drawing.diagram(), flags=re.S)
        assert drawing.diagram().count("note left of FAILED") == 1
