"""A daemon's policy keeps known leaks out unless its owner accepts them."""

from __future__ import annotations

import pytest

from fedmq.party.configuration.policy import PolicySection


@pytest.mark.parametrize(
    ("engine", "leak"),
    [("smm1", "100 % of the splitting matrix"), ("smm2", "100 % of the labels")],
)
def test_a_leaky_engine_is_refused_with_its_measured_leak(engine: str, leak: str) -> None:
    for policy in (PolicySection(), PolicySection(engines=(engine,))):
        refusal = policy.refusal("telco", engine)
        assert refusal is not None
        assert leak in refusal
        assert "allow_leaky_engines" in refusal


@pytest.mark.parametrize("engine", ["smm1", "smm2"])
def test_an_owner_may_accept_the_leak(engine: str) -> None:
    assert PolicySection(allow_leaky_engines=True).refusal("telco", engine) is None


def test_accepting_leaks_lets_no_other_engine_in() -> None:
    policy = PolicySection(allow_leaky_engines=True)
    assert policy.refusal("telco", "plain") is not None
    assert policy.refusal("telco", "ldp") is not None
    assert policy.refusal("telco", "nonsense") is not None
    assert policy.refusal("telco", "paillier") is None
