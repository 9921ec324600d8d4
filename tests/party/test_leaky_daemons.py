"""Daemons that were not told otherwise refuse engines that are known to leak."""

from __future__ import annotations

import pytest

from tests.cli.command import fedmq as command
from tests.party.daemons import ExampleFederation

pytestmark = pytest.mark.xdist_group("broker")


@pytest.mark.parametrize("engine", ["smm1", "smm2"])
def test_a_careful_federation_refuses_leaky_engines_and_says_why(
    demo: ExampleFederation, engine: str
) -> None:
    outcome = command("train", demo.job(f'engine = "{engine}"'))
    assert outcome.code == 6
    assert "100 %" in outcome.error
    assert "allow_leaky_engines = true" in outcome.error
