"""``docker-compose.yml`` of a federation that runs on one machine: a broker and every party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["compose_file"]

_HEAD = """\
# A broker, and one daemon per party, to try this federation on one machine:
#
#   docker build --tag fedmq .        (in a checkout of fedmq)
#   docker compose up --detach --wait
#   docker compose exec {active} fedmq train train.toml

services:
  broker:
    image: rabbitmq:4-management
    # The node's name, and so the place of its data, follows from the host's name.
    hostname: broker
    restart: unless-stopped
    volumes:
      - ./broker/rabbitmq.conf:/etc/rabbitmq/rabbitmq.conf:ro
      - ./broker/definitions.json:/etc/rabbitmq/definitions.json:ro
      - ./broker/enabled_plugins:/etc/rabbitmq/enabled_plugins:ro
{tls}      - broker:/var/lib/rabbitmq
    healthcheck:
      test: ["CMD", "rabbitmq-diagnostics", "--quiet", "check_port_connectivity"]
      interval: 5s
      timeout: 15s
      start_period: 60s
      retries: 12
"""

_PARTY = """
  {party}:
    image: fedmq
    # Whoever owns the files here, for the private keys are readable by nobody else.
    user: "${{UID:-1000}}"
    restart: unless-stopped
    command: ["run", "party.toml", "--log-format", "json"]
    environment:
      FEDMQ_BROKER: {url}
    volumes:
      - ./federation.toml:/federation.toml:ro
      - ./{party}:/party
    depends_on:
      broker:
        condition: service_healthy
    healthcheck:
      test: ["CMD", "fedmq", "health", "party.toml"]
      interval: 10s
      timeout: 5s
      start_period: 30s
      retries: 3
    # SIGTERM tells the other parties, and ends the daemon within seconds.
    stop_grace_period: 15s
"""


def compose_file(parties: Sequence[str], passwords: Mapping[str, str] | None) -> str:
    """The file's text; without ``passwords`` the broker's users have certificates."""
    tls = "      - ./broker/tls:/etc/rabbitmq/tls:ro\n" if passwords is None else ""

    def url(party: str) -> str:
        if passwords is None:
            return f"amqps://{party}@broker:5671/"
        return f"amqp://{party}:{passwords[party]}@broker:5672/"

    text = _HEAD.format(active=parties[0], tls=tls)
    text += "".join(_PARTY.format(party=party, url=url(party)) for party in parties)
    return text + "\nvolumes:\n  broker:\n"
