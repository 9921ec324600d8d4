"""Names that an owner has shared stand in for reasons that it does not publish."""

from __future__ import annotations

import numpy as np

from fedmq.boosting.model.tree import Agreed, DisclosedColumns


def columns(numbers: list[int], *texts: str) -> DisclosedColumns:
    return DisclosedColumns(column=np.array(numbers, np.int32), texts=texts)


def test_shared_names_fill_what_has_no_text_of_its_own() -> None:
    agreed = Agreed(
        columns={"telco": columns([0, 1, 0], "", "short tenure"), "shop": columns([0], "")}
    )
    shared = {"telco": columns([0, 1, 0, 2], "calls", "tenure", "town")}
    named = agreed.named(shared)
    assert named.columns["telco"].texts == ("calls", "short tenure")
    assert named.columns["shop"].texts == ("",)


def test_names_of_other_records_are_not_taken() -> None:
    agreed = Agreed(columns={"telco": columns([0, 1], "", "")})
    assert agreed.named({"telco": columns([0, 0, 1], "calls", "tenure")}) == agreed
