"""Screens whose sums are hidden: steps of information values, and no count for anybody."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.screened_columns import Strength
from fedmq.errors import FedmqError
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.hidden_screen.steps import error_in_steps
from tests.how_often import each_seed
from tests.protocol.inspection import Bits, Codes, Numbers, leaks
from tests.protocol.screen.screens import ROWS, columns, label, machines
from tests.protocol.screen.screens import values as values_of_columns
from tests.simulator import Link, Simulation


def ran(made: dict[str, Any], **options: Any) -> Simulation:
    simulation = Simulation(made, **options)
    simulation.run()
    return simulation


def values() -> list[float]:
    """Information values of the columns, in steps."""
    found = [Strength.of(own.counts, own.ones(label())) for own in columns()]
    return [each.iv / 0.02 for each in found if each is not None]


def steps(simulation: Simulation) -> list[int]:
    assert not simulation.errors
    return [shown.steps for shown in simulation.results["bank"].columns]


def test_the_active_party_reads_steps_and_no_count() -> None:
    simulation = ran(machines(least_steps=1))
    error = error_in_steps(6, int(label().sum()), int((~label()).sum()))
    for found, value in zip(steps(simulation), values(), strict=True):
        assert min(63, int(max(0, value - error))) <= found <= min(63, int(value + error))
    for shown in simulation.results["bank"].columns:
        assert shown.by_bin is None
        assert shown.described.counts.numpy().size == 0
    assert simulation.results["telco"] == 2


def test_what_is_below_the_least_steps_is_told_as_none() -> None:
    told = steps(ran(machines(least_steps=1)))
    assert steps(ran(machines(least_steps=max(told)))) == [
        one if one == max(told) else 0 for one in told
    ]


def test_coefficients_are_told_beside_steps() -> None:
    simulation = ran(machines(correlated=True, least_steps=1))
    assert steps(simulation) == steps(ran(machines(least_steps=1)))
    found = simulation.results["bank"].correlations
    expected = ran(machines(correlated=True)).results["bank"].correlations
    assert np.array_equal(found.joint, expected.joint)


def test_an_owner_that_only_describes_garbles_nothing() -> None:
    seen: list[str] = []
    made = machines(measured=False, least_steps=1)
    simulation = ran(made, tap=lambda sent: seen.append(sent.header.kind))
    assert steps(simulation) == [None, None]
    assert not {screen.ScreenLabels.kind, screen.ScreenTables.kind} & set(seen)


@each_seed(4)
def test_a_link_that_loses_repeats_and_delays_changes_nothing(seed: int) -> None:
    link = Link(drop=0.1, repeat=0.1, delay=3.0)
    assert steps(ran(machines(least_steps=1), seed=seed, link=link)) == steps(
        ran(machines(least_steps=1))
    )


def test_no_message_tells_a_label_a_value_a_bin_or_a_count() -> None:
    envelopes: list[Envelope] = []
    ran(machines(least_steps=1), tap=envelopes.append)
    held, own = label(), columns()
    secrets = [
        Bits("labels", ["bank"], np.arange(ROWS), held),
        Codes("labels", ["bank"], held.astype(np.int64)),
        Numbers("values", ["telco"], values_of_columns().ravel()),
        *(Codes("bins", ["telco"], column.bin_of.astype(np.int64)) for column in own),
        *(Codes("counts", ["telco"], column.counts) for column in own if len(column.counts) > 3),
    ]
    assert leaks(envelopes, secrets) == set()


WRONG = [
    screen.ScreenTables(block=0, start=0, tables=Array.of(np.zeros(10, np.uint8))),
    screen.ScreenTables(block=3, start=0, tables=Array.of(np.zeros(10, np.uint8))),
    screen.ScreenChoices(
        block=1,
        offer=Array.of(np.zeros((2, 256), np.uint8)),
        choices=Array.of(np.zeros(10, np.uint8)),
    ),
    screen.ScreenChoices(
        block=0,
        offer=Array.of(np.zeros((2, 256), np.uint8)),
        choices=Array.of(np.zeros(10, np.uint8)),
    ),
    screen.ScreenTransfers(chosen=Array.of(np.zeros((128, 256), np.uint8)), seed=bytes(32)),
]


@pytest.mark.parametrize("wrong", WRONG, ids=range(len(WRONG)))
def test_a_message_that_is_not_due_or_malformed_ends_the_session(wrong: Body) -> None:
    made = machines(least_steps=1)
    machine: Any = made["bank" if isinstance(wrong, screen.ScreenChoices) else "telco"]
    send = machine._send

    def replaced(recipient: str, body: Body) -> None:
        send(recipient, wrong if type(body) is type(wrong) else body)

    # What garbles is made with the opening, and takes the machine's verbs then.
    speaker = machine._steps if machine is made["bank"] else machine
    speaker._send = replaced
    simulation = ran(made)
    assert isinstance(simulation.errors["bank"], FedmqError)
    assert "bank" not in simulation.results
