"""FedXGBoost's engines between daemons, over a real broker: training, and the audit of it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedmq.messages.training import BestSoFar, CircuitPiece
from fedmq.party.sessions.observe import Recording
from tests.cli.command import fedmq as command
from tests.party.daemons import ACTIVE, PARTIES, PASSIVE, ExampleFederation
from tests.rabbitmq_node import RabbitNode

pytestmark = pytest.mark.xdist_group("broker")

PARAMS = """
evaluation = 0.2
[params]
num_boost_round = 2
max_depth = 3
max_bin = 16
xgboost_arithmetic = "3.2"
"""


@pytest.fixture(scope="module")
def bold(tmp_path_factory: pytest.TempPathFactory, node: RabbitNode) -> Iterator[ExampleFederation]:
    """Three daemons that take part in everything, and record it."""
    federation = ExampleFederation(tmp_path_factory.mktemp("bold"), node)
    for party in PARTIES:
        config = federation.config(party)
        text = config.read_text().replace(
            "allow_weak_keys = true", "allow_weak_keys = true\nallow_leaky_engines = true"
        )
        text = text.replace('engines = ["paillier", "ou"]', 'engines = ["plain", "ldp", "lattice"]')
        config.write_text('recordings = "recordings"\n' + text)
    try:
        federation.start(*PARTIES)
        yield federation
    finally:
        federation.discard()


def trained(
    federation: ExampleFederation, engine: str, options: str = "{}", name: str = ""
) -> dict[str, Any]:
    job = f'model = "{name or engine}"\nengine = "{engine}"\nengine_options = {options}\n{PARAMS}'
    return command("train", federation.job(job), "--json").result


@pytest.fixture(scope="module")
def plain(bold: ExampleFederation) -> dict[str, float]:
    """The metrics of the plain engine's model."""
    metrics: dict[str, float] = trained(bold, "plain")["metrics"]
    return metrics


@pytest.mark.long
def test_the_engines_train_and_what_was_seen_can_be_audited(
    bold: ExampleFederation, plain: dict[str, float]
) -> None:
    assert trained(bold, "smm1", "{ r = 12, r_used = 6 }")["metrics"] == plain
    assert trained(bold, "smm2", "{ l1 = 4 }")["metrics"] == plain
    assert trained(bold, "ldp", "{ epsilon = 3.0 }")["epsilon_spent"] == 12
    for party in PASSIVE:
        labels = ["--labels", bold.table(ACTIVE), "--label-column", "label"]
        engines = set()
        for recording in (bold.config(party).parent / "recordings").glob("*.recording"):
            report = command("audit", recording, *labels, "--json").result
            assert report["party"] == party
            engines.add(report["engine"])
        assert engines == {"plain", "smm1", "smm2", "ldp"}


@pytest.mark.long
def test_a_lattice_trains_the_plain_model_over_a_real_broker(
    bold: ExampleFederation, plain: dict[str, float]
) -> None:
    assert trained(bold, "lattice")["metrics"] == plain


@pytest.mark.long
def test_several_parties_find_winners_of_hidden_sums_record_no_share_and_prove_their_circuits(
    bold: ExampleFederation, plain: dict[str, float]
) -> None:
    before = {path for party in PARTIES for path in recordings(bold, party)}
    earlier = set(transcripts(bold))
    hidden = trained(bold, "lattice", '{ sums = "hidden" }', "hidden")
    [session] = set(transcripts(bold)) - earlier
    assert hidden["metrics"] == plain
    for party in PARTIES:
        [recorded] = set(recordings(bold, party)) - before
        kinds = {message.header.kind for message in Recording.read(recorded).envelopes}
        assert not kinds & {CircuitPiece.kind, BestSoFar.kind}
        file = bold.folder / f"{party}.transcript"
        command("transcript", "export", bold.config(party), session, "--output", file)
    held = bold.folder / f"{ACTIVE}.transcript"
    for party in PASSIVE:
        shown, federation = bold.folder / f"{party}.transcript", bold.folder / "federation.toml"
        verdict = command(
            *("transcript", "verify", shown, "--signed", held, "--federation", federation, "--json")
        ).result
        assert (verdict["trees"], verdict["thin_trees"]) == (2, 0)


@pytest.mark.long
def test_hidden_sums_train_the_plain_model_of_two_parties_and_no_circuit_is_recorded(
    bold: ExampleFederation,
) -> None:
    two = f'parties = ["{PASSIVE[0]}"]\n{PARAMS}'
    plain = command("train", bold.job(f'engine = "plain"\n{two}'), "--json").result
    hidden = f'engine = "lattice"\nengine_options = {{ sums = "hidden" }}\n{two}'
    before = {path for party in PARTIES for path in recordings(bold, party)}
    made = command("train", bold.job(hidden), "--json").result
    assert made["metrics"] == plain["metrics"]
    for party in (ACTIVE, PASSIVE[0]):
        [recorded] = set(recordings(bold, party)) - before
        kinds = {message.header.kind for message in Recording.read(recorded).envelopes}
        assert "split decision" in kinds
        assert CircuitPiece.kind not in kinds


def transcripts(federation: ExampleFederation) -> list[str]:
    """The sessions of which the active party keeps what was signed."""
    return [path.name for path in (federation.state(ACTIVE) / "transcripts").iterdir()]


def recordings(federation: ExampleFederation, party: str) -> list[Path]:
    return sorted((federation.config(party).parent / "recordings").glob("*.recording"))


@pytest.mark.long
def test_a_party_shows_directions_of_all_rows_only_if_its_owner_says_so(
    bold: ExampleFederation,
) -> None:
    options = 'engine_options = { directions = "all" }'
    outcome = command("train", bold.job(f'engine = "lattice"\n{options}\n{PARAMS}'))
    assert outcome.code == 6
    assert 'directions = "all"' in outcome.error
