"""A daemon's policy keeps known leaks out unless its owner accepts them."""

from __future__ import annotations

import pytest

from fedmq.party.configuration.policy import PolicySection
from fedmq.privacy.engines.lattice import Lattice


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


def test_shown_sums_of_a_lattice_are_refused_with_what_was_measured() -> None:
    policy = PolicySection(engines=("lattice",), allow_leaky_engines=False)
    refusal = policy.refusal("telco", "lattice", "shown")
    assert refusal is not None
    assert "where it shows sums" in refusal
    assert "99.8 % of the cells" in refusal
    assert "allow_leaky_engines" in refusal
    assert policy.refusal("telco", "lattice", "hidden") is None
    assert not list(policy.warnings())


def test_an_owner_may_accept_shown_sums_of_a_lattice() -> None:
    policy = PolicySection(engines=("lattice",), allow_leaky_engines=True)
    assert policy.refusal("telco", "lattice", "shown") is None
    assert not list(policy.warnings())


def test_a_file_of_before_takes_part_as_it_did_and_its_owner_is_told() -> None:
    policy = PolicySection(engines=("paillier", "lattice"))
    assert policy.refusal("telco", "lattice", "shown") is None
    [warning] = policy.warnings()
    assert "lets paillier and lattice show sums" in warning
    hiding = 'engine_options = { paillier = { sums = "hidden" }, lattice = { sums = "hidden" } }'
    assert hiding in warning
    assert "96.1 % right" in warning
    for decided in ("hidden", "shown"):
        options = {engine: {"sums": decided} for engine in policy.engines}
        says = PolicySection(engines=policy.engines, engine_options=options)
        assert not list(says.warnings())


def test_a_file_that_init_wrote_before_shows_sums_and_its_owner_is_told() -> None:
    policy = PolicySection(engines=("paillier", "ou"), allow_leaky_engines=False)
    for engine in policy.engines:
        assert policy.refusal("telco", engine, "shown") is None
    [warning] = policy.warnings()
    assert "lets paillier and ou show sums" in warning
    [of_defaults] = PolicySection().warnings()
    assert of_defaults == warning


def test_a_lattice_that_hides_sums_has_no_known_leak() -> None:
    assert Lattice(sums="hidden").leak == ""
    assert Lattice().leak == Lattice.leak_of_sums


def test_accepting_leaks_lets_no_other_engine_in() -> None:
    policy = PolicySection(allow_leaky_engines=True)
    assert policy.refusal("telco", "plain") is not None
    assert policy.refusal("telco", "ldp") is not None
    assert policy.refusal("telco", "nonsense") is not None
    assert policy.refusal("telco", "paillier") is None
