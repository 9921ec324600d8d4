"""Columns of two passive parties: the active party reads coefficients, and nobody else anything."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import ProtocolError, Refused
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.column_products import column_seeds, decrypt_products
from fedmq.protocol.events import Received
from tests.how_often import each_seed
from tests.protocol.inspection import Codes, Numbers, leaks
from tests.protocol.screen.screens import ROWS, numbers, of_retail, pair, pair_opening
from tests.simulator import Link, Simulation

EXACT = of_retail().T @ numbers() / ROWS


def ran(made: dict[str, Any], **options: Any) -> Simulation:
    simulation = Simulation(made, **options)
    simulation.run()
    return simulation


def test_coefficients_are_those_of_the_joined_table_in_hundredths() -> None:
    simulation = ran(pair())
    assert not simulation.errors
    found = simulation.results["bank"]
    np.testing.assert_allclose(found, EXACT, atol=0.0156)
    np.testing.assert_array_equal(found, np.round(found, 2))


@each_seed(4)
def test_a_link_that_loses_repeats_and_delays_changes_nothing(seed: int) -> None:
    simulation = ran(pair(), seed=seed, link=Link(drop=0.1, repeat=0.1, delay=3.0))
    assert not simulation.errors
    np.testing.assert_array_equal(simulation.results["bank"], ran(pair()).results["bank"])


def test_a_pair_that_is_asked_again_tells_the_same() -> None:
    """Ciphertexts, hints and masks are new, and noise is not."""
    first, again = ran(pair()), ran(pair(fresh=b"g" * 32))
    np.testing.assert_array_equal(first.results["bank"], again.results["bank"])


def test_columns_go_past_the_active_party_and_no_message_tells_one() -> None:
    envelopes: list[Envelope] = []
    ran(pair(), tap=envelopes.append)
    kinds = {
        sent.header.kind
        for sent in envelopes
        if "bank" in (sent.header.sender, sent.header.recipient)
    }
    beside = {screen.ScreenNumbers.kind, screen.ScreenHints.kind, screen.PairLink.kind}
    assert not kinds & beside
    assert beside <= {sent.header.kind for sent in envelopes}
    secrets = [
        *(Numbers("telco's columns", ["telco"], column) for column in numbers().T),
        *(Numbers("retail's columns", ["retail"], column) for column in of_retail().T),
        *(
            Codes("telco's columns", ["telco"], np.rint(column * 2**12).astype(np.int64))
            for column in numbers().T
        ),
    ]
    assert leaks(envelopes, secrets) == set()


def test_neither_of_both_sums_tells_anything_without_the_other() -> None:
    """Not even to who knows the asking party's secret, and has seen all that passed by."""
    fresh = b"f" * 32
    bodies: list[tuple[str, Body]] = []
    ran(pair(fresh=fresh), tap=lambda sent: bodies.append((sent.header.sender, sent.body)))
    sums = {party: of.sums.numpy() for party, of in bodies if isinstance(of, screen.PairSums)}
    [hints] = [of.hints.numpy() for _, of in bodies if isinstance(of, screen.ScreenHints)]
    seeds = column_seeds(fresh, numbers())
    assert sums.keys() == {"telco", "retail"}
    # Without masks retail's would be the coefficients, and telco's its noise.
    read = {party: decrypt_products(seeds, hints, sums[party], ROWS) for party in sums}
    assert np.abs(read["retail"] - EXACT).max() > 0.1
    assert np.abs(read["telco"]).max() > 0.1


def test_either_owner_may_refuse() -> None:
    def disagree() -> None:
        raise Refused('correlation is not "all" here')

    errors = ran(pair(agree=disagree)).errors
    assert "correlation is not" in str(errors["bank"])
    assert ran(pair(asked=60), owners={"telco": (5.0, "no, thanks")}).errors.keys() >= {"bank"}
    assert not ran(pair(asked=60), owners={"telco": (5.0, "")}).errors


@pytest.mark.parametrize(
    ("kind", "change", "victim", "why"),
    [
        (screen.PairReady, {"columns": 7}, "bank", "7 columns, and the screen has"),
        (
            screen.PairSums,
            {"sums": Array.of(np.ones((1, 3, 3), np.uint32))},
            "bank",
            "one sum for each pair",
        ),
        (screen.ScreenNumbers, {"start": 1}, "retail", "it begins at 1, not at 0"),
        (screen.ScreenHints, {"first": 1}, "telco", "it begins at 1, not at 0"),
        (
            screen.ScreenHints,
            {"hints": Array.of(np.ones((1, 9, 5), np.uint16))},
            "telco",
            "another size",
        ),
        (
            screen.PairLink,
            {"marks": Array.of(np.ones((9, 32), np.uint8))},
            "telco",
            "one mark for each column",
        ),
        (screen.PairLink, {"marks": Array.of(np.ones((9, 3), np.uint8))}, "telco", "another size"),
    ],
)
def test_what_is_of_a_wrong_form_is_refused(
    kind: type[Body], change: dict[str, Any], victim: str, why: str
) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        return body.model_copy(update=change) if isinstance(body, kind) else body

    assert why in str(ran(pair(), rewrite=rewrite).errors[victim])


def test_a_party_takes_orders_from_the_active_party_and_columns_from_the_other() -> None:
    machine = pair()["retail"]
    with pytest.raises(ProtocolError, match="may not send it"):
        machine.handle(Received("telco", pair_opening()))
