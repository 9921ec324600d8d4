"""Columns of words that are numbers or dates in another spelling: what to write is proposed."""

from __future__ import annotations

import pytest

from fedmq.party.data.columns import likely_meaning


@pytest.mark.parametrize(
    ("cells", "keys"),
    [
        (["3,5", "12,25"], 'numbers with decimal = ","'),
        (["3.360,47", "999,00"], 'numbers with decimal = "," and thousands = "."'),
        (["1,234.50", "2,000,000"], 'numbers with thousands = ","'),
        (["1'000", "12"], 'numbers with thousands = "\'"'),
        (["2026-01-31", "2025-12-01"], 'dates: [data.columns.x] with kind = "date"'),
        (["31.01.2026", "01.12.2025"], 'kind = "date" and format = "%d.%m.%Y"'),
        (["31/01/2026", "01/12/2025"], 'format = "%d/%m/%Y"'),
        (["01/31/2026", "12/01/2025"], 'format = "%m/%d/%Y"'),
    ],
    ids=[
        "comma",
        "German",
        "English",
        "Swiss",
        "ISO",
        "dots",
        "day first",
        "month first",
    ],
)
def test_another_spelling_is_proposed(cells: list[str], keys: str) -> None:
    assert keys in likely_meaning("x", cells)


@pytest.mark.parametrize(
    "cells",
    [[], ["Bonn", "Köln"], ["3,5", "Bonn"], ["2026-02-30"], ["a,b"], ["1,5", "2026-01-01"]],
    ids=str,
)
def test_nothing_is_proposed_for_words(cells: list[str]) -> None:
    assert likely_meaning("x", cells) == ""
