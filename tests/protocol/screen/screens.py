"""Two parties of which one looks at the other's columns."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.screened_columns import ScreenedColumn, screened_columns
from fedmq.boosting.screened_label import ScreenedLabel
from fedmq.boosting.standard_columns import standardised
from fedmq.computation import Given
from fedmq.messages.screen import PairOpen, ScreenOpen
from fedmq.privacy.lattice.inner_products import ColumnKey
from fedmq.protocol.machine import Machine
from fedmq.protocol.screen.active import ActiveScreen
from fedmq.protocol.screen.active_pair import ActivePair
from fedmq.protocol.screen.passive import (
    CorrelatedNumbers,
    OwnColumns,
    PassiveScreen,
    ScreenTerms,
)
from fedmq.protocol.screen.passive_pair import PassivePair

ROWS, SMALLEST = 90, 8
KEY = ColumnKey(b"p" * 32, b"s" * 32)
NAMES = ("telco_secret_calls", "telco_secret_plan=secret_gold", "telco_secret_plan=secret_tin")


def label() -> NDArray[np.bool_]:
    return np.random.default_rng(1).random(ROWS) < 0.4


def values() -> NDArray[np.float32]:
    """A number, some of it missing, and a column of two categories."""
    random = np.random.default_rng(2)
    number = random.normal(size=ROWS) + label()
    number[random.random(ROWS) < 0.2] = np.nan
    gold = random.random(ROWS) < 0.5
    return np.column_stack([number, gold, ~gold]).astype(np.float32)


def columns(bins: int = 5, smallest: int = SMALLEST) -> list[ScreenedColumn]:
    of_column = {"telco_secret_plan": NAMES[1:]}
    return list(screened_columns(values(), NAMES, of_column, bins, smallest))


def numbers() -> NDArray[np.float64]:
    """Three columns of the bank, standardised."""
    random = np.random.default_rng(5)
    return standardised(random.normal(size=(ROWS, 3)) + np.nan_to_num(values()[:, :1]))


def label_of(classes: int) -> ScreenedLabel:
    """A label of so many classes, or of numbers for 0."""
    if classes == 2:
        return ScreenedLabel(label())
    random = np.random.default_rng(6)
    if classes:
        return ScreenedLabel(random.integers(classes, size=ROWS).astype(np.uint8), classes)
    numbers = random.gamma(2, 500, ROWS).astype(np.float32)
    return ScreenedLabel.of(numbers, "number", "bank")


def opening(correlated: bool = False, classes: int = 2, least_steps: int = 0) -> ScreenOpen:
    return ScreenOpen(
        name="look",
        alignment="the same ids",
        salt="salt",
        rows=ROWS,
        most_rows=ROWS,
        seed=0,
        bins=5,
        elements=KEY.public.hex(),
        correlated=3 * correlated,
        classes=classes,
        least_steps=least_steps,
    )


def machines(
    measured: bool = True,
    correlated: bool = False,
    shows_correlations: bool = True,
    names: bool = False,
    asked: int = 0,
    classes: int = 2,
    least_steps: int = 0,
    agree: Callable[[], None] = lambda: None,
) -> dict[str, Machine]:
    def terms() -> ScreenTerms:
        agree()
        correlating = correlated and shows_correlations
        return ScreenTerms(names, measured, correlating)

    shown = [column.for_others(SMALLEST, np.random.default_rng(3)) for column in columns()]
    own = OwnColumns(shown, numbers=CorrelatedNumbers((1,), standardised(values()[:, :1])))
    return {
        "bank": ActiveScreen(
            "telco",
            opening(correlated, classes, least_steps),
            label_of(classes),
            KEY,
            numbers(),
            b"b" * 32,
        ),
        "telco": PassiveScreen("bank", Given(own), terms, consent_within=asked, secret=b"t" * 32),
    }


def pair_opening() -> PairOpen:
    fields = opening().model_dump(exclude={"elements", "correlated"})
    return PairOpen(**fields, elements="", correlated=3, asks="telco", answers="retail")


def of_retail() -> NDArray[np.float64]:
    """Two columns of retail, standardised."""
    random = np.random.default_rng(6)
    return standardised(random.normal(size=(ROWS, 2)) + numbers()[:, :2])


def pair(
    asked: int = 0, agree: Callable[[], None] = lambda: None, fresh: bytes = b"f" * 32
) -> dict[str, Machine]:
    """The bank, for which telco's three columns are correlated with two of retail."""
    made: dict[str, Machine] = {"bank": ActivePair(pair_opening(), 2)}
    for party, other, standard in (
        ("telco", "retail", numbers()),
        ("retail", "telco", of_retail()),
    ):
        held = CorrelatedNumbers(tuple(range(1, standard.shape[1] + 1)), standard)
        secret = party[:1].encode() * 32
        load = Given(OwnColumns([], numbers=held))
        waits = asked if party == "telco" else 0
        made[party] = PassivePair("bank", other, load, agree, secret, fresh, waits)
    return made
