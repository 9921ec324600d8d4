"""Screens between simulated parties: the right counts, over bad links, and nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.standard_columns import standardised
from fedmq.errors import DataError, FedmqError, ProtocolError, Refused
from fedmq.messages import screen
from fedmq.messages.array import Array
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.privacy.column_products import DEGREE, HINT_WORDS
from fedmq.privacy.lattice.label_sums import numbers_of
from fedmq.protocol.events import Received, Start
from fedmq.protocol.machine import run_inline
from fedmq.protocol.screen.passive import PassiveScreen
from tests.how_often import each_seed
from tests.protocol.inspection import Bits, Codes, Numbers, Texts, leaks
from tests.protocol.screen.screens import (
    NAMES,
    ROWS,
    SMALLEST,
    columns,
    label,
    label_of,
    machines,
    numbers,
    opening,
    values,
)
from tests.simulator import Link, Simulation


def ran(made: dict[str, Any], **options: Any) -> Simulation:
    simulation = Simulation(made, **options)
    simulation.run()
    return simulation


def test_the_active_party_reads_how_many_of_each_label_stand_in_each_bin() -> None:
    simulation = ran(machines())
    assert not simulation.errors
    for shown, own in zip(simulation.results["bank"].columns, columns(), strict=True):
        pairs = sorted(zip(own.counts.tolist(), own.ones(label()).tolist(), strict=True))
        counts = shown.described.counts.numpy().tolist()
        assert sorted(zip(counts, shown.by_bin.tolist(), strict=True)) == pairs
        assert min(counts) >= SMALLEST
        assert shown.described.name == ""
        assert shown.described.missing == round(100 * own.missing)


def test_an_owner_that_only_describes_is_sent_no_label_and_tells_no_count() -> None:
    seen: list[str] = []
    simulation = ran(machines(measured=False), tap=lambda sent: seen.append(sent.header.kind))
    assert screen.ScreenLabels.kind not in seen
    for shown in simulation.results["bank"].columns:
        assert shown.by_bin is None
        assert shown.described.counts.numpy().size == shown.described.ones.numpy().size == 0
        assert shown.described.distinct in ("2", "11 to 100")


def test_names_are_told_where_the_owner_shares_them() -> None:
    shown = ran(machines(names=True)).results["bank"].columns
    assert [one.described.name for one in shown] == ["telco_secret_calls", "telco_secret_plan"]


@each_seed(8)
def test_a_link_that_loses_repeats_and_delays_changes_nothing(seed: int) -> None:
    found = ran(machines(), seed=seed, link=Link(drop=0.1, repeat=0.1, delay=3.0))
    assert not found.errors
    expected = ran(machines()).results["bank"].columns
    for one, other in zip(found.results["bank"].columns, expected, strict=True):
        assert one.by_bin.tolist() == other.by_bin.tolist()


def test_no_message_tells_a_label_a_value_a_bin_or_a_name() -> None:
    envelopes: list[Envelope] = []
    ran(machines(), tap=envelopes.append)
    held = label()
    secrets = [
        Bits("labels", ["bank"], np.arange(ROWS), held),
        Codes("labels", ["bank"], held.astype(np.int64)),
        Numbers("values", ["telco"], values().ravel()),
        Texts("names", ["telco"], [*NAMES, "telco_secret_plan", "secret_gold"]),
        *(Codes("bins", ["telco"], column.bin_of.astype(np.int64)) for column in columns()),
        *(
            Bits("bins", ["telco"], np.arange(ROWS), column.bin_of == number)
            for column in columns()
            for number in range(len(column.counts))
        ),
    ]
    assert leaks(envelopes, secrets) == set()


@pytest.mark.parametrize("classes", [0, 4])
def test_a_label_of_classes_or_numbers_is_added_by_bin_and_read_by_nobody(classes: int) -> None:
    envelopes: list[Envelope] = []
    simulation = ran(machines(classes=classes), tap=envelopes.append)
    assert not simulation.errors
    held = label_of(classes)
    for shown, own in zip(simulation.results["bank"].columns, columns(), strict=True):
        counts = shown.described.counts.numpy()
        told, wanted = (
            held.told_by(counts, shown.by_bin),
            held.told_by(own.counts, held.by_bin(own)),
        )
        assert told["p"] == pytest.approx(wanted["p"], rel=1e-3)
        assert counts.min() >= SMALLEST
    whole = held.values.astype(np.int64)
    raw = np.rint(held.mean + held.deviation * held.values)
    secrets = [
        Codes("labels", ["bank"], whole if classes else np.rint(held.values * 2**12).astype(int)),
        Numbers("labels", ["bank"], (held.values if classes else raw).astype(np.float32)),
        Numbers("values", ["telco"], values().ravel()),
        Texts("names", ["telco"], [*NAMES, "telco_secret_plan", "secret_gold"]),
        *(Codes("bins", ["telco"], column.bin_of.astype(np.int64)) for column in columns()),
    ]
    assert leaks(envelopes, secrets) == set()


def test_more_people_of_all_classes_than_rows_are_refused() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, screen.ScreenColumns):
            return body
        fewer = [
            column.model_copy(update={"counts": Array.of(_one_moved(column.counts.numpy()))})
            for column in body.described
        ]
        return body.model_copy(update={"described": tuple(fewer)})

    errors = ran(machines(classes=4), rewrite=rewrite).errors
    assert "more people of all classes than rows in a bin" in str(errors["bank"])


def _one_moved(counts: Any) -> Any:
    """As many people, all of them in one bin."""
    return np.array([counts.sum(), *[0] * (len(counts) - 1)], np.uint32)


def test_two_screens_show_the_bins_in_other_orders() -> None:
    column = max(columns(), key=lambda found: len(found.counts))
    orders = {
        tuple(column.for_others(SMALLEST, np.random.default_rng(seed)).counts) for seed in range(9)
    }
    assert len(orders) > 1


def test_an_owner_that_refuses_says_why_and_a_broken_table_says_nothing() -> None:
    def disagree() -> None:
        raise Refused("telco does not show its columns")

    errors = ran(machines(agree=disagree)).errors
    assert "telco does not show its columns" in str(errors["bank"])

    class Broken:
        label = "Broken"

        def run(self) -> None:
            raise DataError("telco: secret.csv, line 3: the id is empty")

    made = machines()
    made["telco"] = PassiveScreen("bank", Broken(), lambda: None)  # type: ignore[arg-type,return-value]
    errors = ran(made).errors
    assert "could not be read" in str(errors["bank"])
    assert "secret.csv" not in str(errors["bank"])
    assert "secret.csv" in str(errors["telco"])


# Correlations


@pytest.mark.parametrize("measured", [True, False])
def test_columns_of_both_parties_are_correlated_in_hundredths(measured: bool) -> None:
    shown = ran(machines(measured=measured, correlated=True)).results["bank"]
    found = shown.correlations
    assert found.columns == (1,) and found.own.tolist() == [[1.0]]
    exact = standardised(values()[:, :1]).T @ numbers() / ROWS
    np.testing.assert_allclose(found.joint, exact, atol=0.0106)
    assert (shown.columns[0].by_bin is not None) == measured


def test_an_owner_that_shows_no_correlations_is_sent_no_column() -> None:
    seen: list[str] = []
    made = machines(correlated=True, shows_correlations=False)
    simulation = ran(made, tap=lambda sent: seen.append(sent.header.kind))
    assert simulation.results["bank"].correlations is None
    assert not {screen.ScreenNumbers.kind, screen.ScreenProducts.kind} & set(seen)
    simulation = ran(machines(), tap=lambda sent: seen.append(sent.header.kind))
    assert simulation.results["bank"].correlations is None
    assert not {screen.ScreenNumbers.kind, screen.ScreenProducts.kind} & set(seen)


def test_no_message_of_a_correlation_tells_a_column_of_either_side() -> None:
    envelopes: list[Envelope] = []
    ran(machines(correlated=True), tap=envelopes.append)
    assert screen.ScreenProducts.kind in {sent.header.kind for sent in envelopes}
    theirs, own = numbers(), standardised(values()[:, :1])
    secrets = [
        Bits("labels", ["bank"], np.arange(ROWS), label()),
        *(Numbers("the bank's columns", ["bank"], column) for column in theirs.T),
        *(
            Codes("the bank's columns", ["bank"], np.rint(column * 2**12).astype(np.int64))
            for column in theirs.T
        ),
        Numbers("values", ["telco"], values()[:, 0]),
        Numbers("values", ["telco"], own[:, 0]),
        Codes("values", ["telco"], np.rint(own[:, 0] * 2**10).astype(np.int64)),
        Texts("names", ["telco"], [*NAMES, "telco_secret_plan", "secret_gold"]),
    ]
    assert leaks(envelopes, secrets) == set()
    # A tap that is shown a column finds it.
    [sent] = [sent for sent in envelopes if isinstance(sent.body, screen.ScreenProducts)]
    shown = Array.of(own[:, 0].astype(np.float32))
    told = Envelope(sent.header, sent.body.model_copy(update={"sums": shown}))
    assert leaks([told], [Numbers("values", ["telco"], own[:, 0].astype(np.float32))])


@each_seed(4)
def test_correlations_over_a_link_that_loses_repeats_and_delays(seed: int) -> None:
    link = Link(drop=0.1, repeat=0.1, delay=3.0)
    found = ran(machines(correlated=True), seed=seed, link=link)
    assert not found.errors
    exact = standardised(values()[:, :1]).T @ numbers() / ROWS
    np.testing.assert_allclose(found.results["bank"].correlations.joint, exact, atol=0.0106)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"columns": np.array([9], np.uint32)}, "a column that there is not"),
        ({"columns": np.array([0], np.uint32)}, "not in order"),
        ({"own": np.ones((1, 2), np.int8)}, "one coefficient for each pair"),
        ({"own": np.full((1, 1), 101, np.int8)}, "beyond 1"),
        ({"sums": np.ones((2, 3, 3), np.uint32)}, "one sum for each pair"),
        ({"sums": np.ones((1, 3, 3), np.uint8)}, "one sum for each pair"),
        (
            {
                "columns": np.array([], np.uint32),
                "own": np.ones((0, 0), np.int8),
                "sums": np.ones((0, 3, 3), np.uint32),
            },
            "one hint for each column",
        ),
    ],
)
def test_coefficients_of_a_wrong_form_are_refused(change: dict[str, Any], why: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, screen.ScreenProducts):
            return body
        return body.model_copy(update={name: Array.of(of) for name, of in change.items()})

    assert why in str(ran(machines(correlated=True), rewrite=rewrite).errors["bank"])


@pytest.mark.parametrize(
    ("shape", "first", "why"),
    [
        ((1, DEGREE, HINT_WORDS), 1, "hints from 1 on, not from 0"),
        ((1, DEGREE, 4), 0, "another size"),
        ((0, DEGREE, HINT_WORDS), 0, "another size"),
    ],
)
def test_hints_of_a_wrong_form_are_refused(shape: tuple[int, ...], first: int, why: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        if not isinstance(envelope.body, screen.ScreenHints):
            return envelope.body
        return screen.ScreenHints(first=first, hints=Array.of(np.ones(shape, np.uint16)))

    assert why in str(ran(machines(correlated=True), rewrite=rewrite).errors["bank"])


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"ciphertexts": Array.of(np.ones((9, 2), np.uint32))}, "three words each"),
        ({"ciphertexts": Array.of(np.ones((3 * (ROWS + DEGREE) + 1, 3), np.uint32))}, "begin at 0"),
        ({"start": 1}, "begin at 1, not at 0"),
    ],
)
def test_columns_of_a_wrong_form_are_refused(change: dict[str, Any], why: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        return body.model_copy(update=change) if isinstance(body, screen.ScreenNumbers) else body

    assert why in str(ran(machines(correlated=True), rewrite=rewrite).errors["telco"])


def test_a_question_that_is_asked_again_gets_the_same_answer_to_the_last_bit() -> None:
    def answers() -> list[Body]:
        sent: list[Envelope] = []
        ran(machines(correlated=True), tap=sent.append)
        kinds = screen.ScreenHints, screen.ScreenProducts
        return [one.body for one in sent if isinstance(one.body, kinds)]

    first = answers()
    assert len(first) == 2 and answers() == first


def test_columns_that_nobody_wanted_are_refused() -> None:
    machine = machines()["telco"]
    [effect] = machine.handle(Received("bank", opening()))
    machine.handle(run_inline(effect))
    numbers_of = Array.of(np.ones((3, 3), np.uint32))
    body = screen.ScreenNumbers(start=0, seed=b"s" * 32, ciphertexts=numbers_of)
    with pytest.raises(ProtocolError, match="nobody wanted"):
        machine.handle(Received("bank", body))
    machine = machines()["bank"]
    machine.handle(Start())
    with pytest.raises(ProtocolError, match="that nobody offered"):
        machine.handle(Received("telco", screen.ScreenReady(correlates=True)))


# What is not legal


def altered(change: Any) -> dict[str, FedmqError]:
    return ran(machines(), rewrite=change).errors


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"first": 1}, "columns from 1 on"),
        ({"of": 1}, "2 columns, not 1"),
        ({"of": 2**31}, "columns from 0 on of 2147483648"),
    ],
)
def test_columns_come_once_and_as_many_as_were_said(change: dict[str, Any], why: str) -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        return body.model_copy(update=change) if isinstance(body, screen.ScreenColumns) else body

    assert why in str(altered(rewrite)["bank"])


def test_counts_of_other_rows_are_refused() -> None:
    def rewrite(envelope: Envelope) -> Body:
        body = envelope.body
        if not isinstance(body, screen.ScreenColumns):
            return body
        more = [
            column.model_copy(update={"counts": Array.of(column.counts.numpy() + np.uint32(1))})
            for column in body.described
        ]
        return body.model_copy(update={"described": tuple(more)})

    assert "rows, not 90" in str(altered(rewrite)["bank"])


@pytest.mark.parametrize(
    ("shape", "start", "why"),
    [
        ((numbers_of(ROWS, 2) + 1, 12), 0, f"begin at 0, not at 0 of {numbers_of(ROWS, 2)}"),
        ((3, 12), 2, "begin at 2, not at 0"),
        ((0, 12), 0, "numbers of 12 bytes"),
        ((1, 13), 0, "numbers of 12 bytes"),
    ],
)
def test_labels_are_one_number_a_row_in_their_order(
    shape: tuple[int, int], start: int, why: str
) -> None:
    machine = machines()["telco"]
    [effect] = machine.handle(Received("bank", opening()))
    machine.handle(run_inline(effect))
    body = screen.ScreenLabels(start=start, numbers=Array.of(np.ones(shape, np.uint8)))
    with pytest.raises(ProtocolError, match=why):
        machine.handle(Received("bank", body))


def test_columns_before_the_labels_have_left_are_refused() -> None:
    machine = machines()["bank"]
    machine.handle(Start())
    machine.handle(Received("telco", screen.ScreenReady()))
    with pytest.raises(ProtocolError, match="before the labels were sent"):
        machine.handle(Received("telco", screen.ScreenColumns(first=0, of=1, described=())))
