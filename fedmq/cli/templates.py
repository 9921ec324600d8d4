"""The files that ``fedmq init`` and ``join`` write: federation, parties, jobs, containers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from fedmq.transport.sealing.keys import PublicKeys

__all__ = [
    "align_toml",
    "compose_file",
    "federation_toml",
    "party_toml",
    "screen_toml",
    "train_toml",
]

_FEDERATION = """\
# The same file at every party.
name = "{name}"
active = "{active}"
# Their order decides which of two equally good splits is taken.
passive = {passive}

# The parties' public keys. Compare the fingerprints (fedmq keys show) by telephone.
[keys]
{keys}"""

_PARTY_FILE = """\
# This file stays at home, and so does keys.json beside it.
party = "{party}"
federation = "{federation}"
broker = "{url}"
state = "state"
keys = "keys.json"

"""

_TLS = """\
# The broker's authority, and the certificate with which this party logs in.
[tls]
ca = "tls/ca.pem"
certificate = "tls/party.pem"
key = "tls/party.key"

"""

_DATA = """\
# A CSV file with a header. Every column but these is a feature. Parquet, SQL, other
# separators, dates and more: docs/how-to/describe-your-data.md
[data]
path = "data.csv"
id = "id"
"""

_SERVING = """
# Where the people to score are looked up; the data above when left out.
[serving]
path = "serving.csv"
id = "id"
"""

_ONLINE = {
    True: """
# Scores, online and in files: the active party learns the score, and nobody the way to it.
[online]
mode = "sealed"
""",
    False: """
# It answers in mode sealed alone: scores, and no direction at any of its splits. In mode hop
# the active party sees each person's way through the trees, in mode bitmap all directions
# (docs/explanation/online-scores.md).
[online]
modes = ["sealed"]
""",
}

_POLICY = """
# What this party takes part in. The encrypting engines:
# lattice   the quickest, and shows this party no node's rows; young, and without
#           a way to decline small nodes
# ou        for tables of hundreds of columns
# paillier  the best known scheme, and the slowest
[policy]
engines = ["lattice", "ou", "paillier"]
# The active party sees no sum. Sums that are shown tell it the columns: with engine lattice
# and 50 trees it read the cells of 24,033 people, 71 % of them right, where guessing reaches
# 15 %; with ou on which side of a cut each stands, 96 %, where guessing reaches 73 %
# (docs/measured/leakage.md). Without an engine's entry here its sums may be shown.
engine_options.lattice = { sums = "hidden" }
engine_options.ou = { sums = "hidden" }
engine_options.paillier = { sums = "hidden" }
# With fewer common people, or shorter lists, no alignment: a list of one id would
# ask whether this person is known here.
smallest_alignment = 100
# The active party may have shared people counted before anybody aligns: it reads a
# number with noise, rounded; nobody learns which people. "exact", "refuse".
overlap = "rounded"
# It may look at columns before a training (docs/how-to/screen-columns.md): "described",
# what they are like; "hidden", and in steps how well each tells the label; "measured", and
# how many people of each label stand in its bins. Without this line it may not.
# screen = "hidden"
# The largest training it joins, and how many a day.
most_trees = 1000
most_depth = 10
most_bins = 256
most_trainings_per_day = 100
# It answers about people who differ by so many from those of earlier trainings, or by
# nobody: of two trainings on nearly the same people, the difference tells of the few.
# 0: they are not compared.
smallest_difference = 50
# Folds of a cross-validation.
most_folds = 10
# Engines that give data away are refused: smm1, smm2, and lattice where it shows sums.
allow_leaky_engines = false
"""

_ALIGN = """\
# Finds the people that all parties hold, without showing the others: fedmq align align.toml
party = "party.toml"
name = "{name}"
# join = "left" keeps the people whom a partner lacks: so that such people can be scored
"""

_ALIGNMENT = """\
# The people that fedmq align found; without it, all tables must hold exactly the same ids.
alignment = "{name}"
"""

_SCREEN = """\
# Looks at the columns of all parties before a training: fedmq screen screen.toml
# A party whose policy has no line screen is named, and shows nothing.
party = "party.toml"
name = "first-look"
{alignment}# In steps how well a column tells the label; nobody sees how many people stand in a bin.
sums = "hidden"
"""

_TRAIN = """\
party = "party.toml"
{alignment}engine = "lattice"
# The active party sees no sum, as the parties' policies ask for.
engine_options = {{ sums = "hidden" }}
# The share of the people that is scored after each tree, but not learned from.
evaluation = 0.2

# XGBoost's parameters, under XGBoost's names.
[params]
objective = "binary:logistic"
num_boost_round = {trees}
max_depth = 3
max_bin = 32
eta = 0.3
eval_metric = ["logloss", "auc"]
"""


def federation_toml(
    name: str, active: str, passive: Sequence[str], keys: Mapping[str, PublicKeys]
) -> str:
    """``federation.toml``, which every party has; ``keys`` are the public ones by party."""
    pinned = "".join(f'{party} = ["{key}"]\n' for party, key in keys.items())
    return _FEDERATION.format(
        name=name, active=active, passive=json.dumps(list(passive)), keys=pinned
    )


def party_toml(
    party: str,
    url: str,
    *,
    labelled: bool,
    serving: bool,
    federation: str = "../federation.toml",
) -> str:
    """``party.toml`` of one party.

    ``url`` of the broker; over ``amqps:`` the party logs in with a certificate. ``labelled``: its
    table has the label. ``serving``: another table holds the people to score.
    """
    sections = [_PARTY_FILE.format(party=party, url=url, federation=federation)]
    if url.startswith("amqps:"):
        sections.append(_TLS)
    sections.append(_DATA)
    if labelled:
        sections.append('label = "label"\n')
    if serving:
        sections.append(_SERVING)
        if labelled:
            sections.append('ignore = ["label"]\n')
    return "".join([*sections, _ONLINE[labelled], _POLICY])


def align_toml(name: str) -> str:
    """``align.toml`` of the active party: the alignment ``name``."""
    return _ALIGN.format(name=name)


def screen_toml(alignment: str | None) -> str:
    """``screen.toml`` of the active party, over the people of the ``alignment``."""
    return _SCREEN.format(alignment=_of_people(alignment))


def train_toml(trees: int, alignment: str | None) -> str:
    """``train.toml`` of the active party: the number of trees, and the ``alignment``."""
    return _TRAIN.format(trees=trees, alignment=_of_people(alignment))


def _of_people(alignment: str | None) -> str:
    return "" if alignment is None else _ALIGNMENT.format(name=alignment)


# ``docker-compose.yml`` of a federation that runs on one machine: a broker and every party.


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

_PARTY_SERVICE = """
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
    text += "".join(_PARTY_SERVICE.format(party=party, url=url(party)) for party in parties)
    return text + "\nvolumes:\n  broker:\n"
