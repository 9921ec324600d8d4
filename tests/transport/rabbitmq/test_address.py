"""Where a broker is, read from its URL, without giving the password away."""

from __future__ import annotations

import pytest

from fedmq.errors import ConfigError
from fedmq.transport.rabbitmq.address import BrokerAddress


def test_a_url_is_taken_apart() -> None:
    address = BrokerAddress.parse("amqp://b%40nk:s3cret@broker.example:5673/our%2Fhost")

    assert (address.host, address.port) == ("broker.example", 5673)
    assert (address.user, address.vhost) == ("b@nk", "our/host")


@pytest.mark.parametrize(("scheme", "port"), [("amqp", 5672), ("amqps", 5671)])
def test_ports_and_virtual_host_have_their_usual_defaults(scheme: str, port: int) -> None:
    address = BrokerAddress.parse(f"{scheme}://bank:s3cret@broker.example")

    assert (address.port, address.vhost) == (port, "/")


def test_the_password_is_never_shown() -> None:
    address = BrokerAddress.parse("amqp://bank:s3cret@broker.example")

    assert "s3cret" not in f"{address} {address!r}"


@pytest.mark.parametrize(
    "url", ["", "broker:5672", "http://broker", "amqp://", "amqp://bank:s3cret@broker:port/"]
)
def test_what_is_no_broker_url_is_refused_without_quoting_it(url: str) -> None:
    with pytest.raises(ConfigError, match="write it as amqp://") as refusal:
        BrokerAddress.parse(url)
    assert "s3cret" not in str(refusal.value)
