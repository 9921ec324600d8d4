"""The names of a federation's parties, exchanges and queues."""

from __future__ import annotations

import pytest

from fedmq.errors import ConfigError
from fedmq.transport.rabbitmq.topology import check_name, is_name, topology


@pytest.mark.parametrize("name", ["bank", "a", "bank-2_b", "x" * 32])
def test_names_are_lower_case_words(name: str) -> None:
    assert is_name(name)


@pytest.mark.parametrize("name", ["", "Bank", "2bank", "a.b", "a*", "x" * 33, "bänk", "bank\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(ConfigError, match=r"party .* a name starts with a letter"):
        check_name("party", name)


def test_a_party_named_twice_is_refused() -> None:
    with pytest.raises(ConfigError, match="'demo': party 'bank' is named twice"):
        topology("demo", ["bank", "telco", "bank"])
