"""Gains of the circuit are XGBoost's, bit for bit."""

from __future__ import annotations

import pytest

from fedmq.boosting.gain import GainRule
from fedmq.boosting.params import MOST_CONSTRAINTS
from fedmq.privacy.hidden_sums.circuits import GainCircuit
from fedmq.privacy.hidden_sums.shares import Field
from tests.how_often import seldom, seldom_several
from tests.privacy.hidden_sums.gains import ARITHMETICS, KINDS, RULES, different_gains

EVERY = [(kind, arithmetic) for kind in KINDS | RULES for arithmetic in ARITHMETICS]

OFTEN = [(kind, "3.2") for kind in KINDS]


@pytest.mark.parametrize(
    "case", [*OFTEN, *seldom(*(case for case in EVERY if case not in OFTEN))], ids=", ".join
)
def test_no_bit_of_a_gain_differs(case: tuple[str, str]) -> None:
    kind, arithmetic = case
    chosen = {**KINDS, **RULES}[kind]
    nodes = 20 if arithmetic == "3.2" else 8
    different, positive = different_gains(5, nodes, 1000, xgboost_arithmetic=arithmetic, **chosen)
    assert different == 0
    assert positive > 50 * nodes


@pytest.mark.parametrize(
    ("rule", "ands"),
    [
        (GainRule("3.2"), 4819),
        *seldom_several(
            (GainRule("3.2", shrinks=True), 13_382),
            (GainRule("3.2", limits=True), 17_255),
            (GainRule("3.4"), 21_882),
            (GainRule("3.4", shrinks=True), 28_664),
            (GainRule("3.4", bounds=True), 22_266),
        ),
    ],
    ids=str,
)
def test_how_many_ands_a_gain_takes(rule: GainRule, ands: int) -> None:
    circuit = GainCircuit(Field(57), rule)
    assert circuit.schedule().ands == ands <= circuit.most_ands


@pytest.mark.parametrize("rule", [GainRule("3.2"), *seldom(GainRule("3.4", *[True] * 3))], ids=str)
def test_the_longest_sums_take_no_more_ands_than_a_limit_counts(rule: GainRule) -> None:
    for interactions in (0, 0 if rule.is_oldest else MOST_CONSTRAINTS):
        circuit = GainCircuit(Field(64), rule, interactions=interactions)
        assert circuit.schedule().ands <= circuit.most_ands
