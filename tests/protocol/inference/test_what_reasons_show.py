"""What the messages of reasons for scores show: which records share a column."""

from __future__ import annotations

from typing import Any

import numpy as np

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.tree import DisclosedColumns
from fedmq.computation import Given
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import InferenceAccept
from fedmq.messages.online import ModelReady
from fedmq.protocol.deployment.active import ActiveDeployment
from fedmq.protocol.deployment.passive import PassiveDeployment
from fedmq.protocol.inference.active import ExplainedInference
from fedmq.protocol.inference.passive import PassiveInference, PassiveRows
from fedmq.protocol.machine import Machine
from fedmq.protocol.record_columns import record_columns
from tests.protocol.federation import ACTIVE, names, ran
from tests.protocol.inspection import Numbers, leaks
from tests.protocol.wiretap import federation, trained


def test_no_message_of_reasons_tells_a_secret_but_which_records_share_a_column() -> None:
    made = federation()
    _, secrets, simulation = trained(made)
    shares = simulation.results
    machines = made.scoring(shares)
    machines[ACTIVE] = active = ExplainedInference(shares[ACTIVE], made.columns[ACTIVE])
    texts = {"telco": dict.fromkeys(names("telco", 9), "often late")}
    for peer in active.peers:
        rows = PassiveRows(shares[peer], made.columns[peer], None)

        def shown(share: Any, records: int, peer: str = peer) -> Any:
            known = texts.get(peer, {})
            return record_columns(DisclosedColumns.of(share.lookup_table, records, known))

        machines[peer] = PassiveInference(ACTIVE, Given(rows), lambda _: None, shown)
    envelopes: list[Envelope] = []
    scores = ran(machines, tap=envelopes.append).results[ACTIVE]
    own = [
        Numbers("scores", [ACTIVE], scores.margins),
        Numbers("contributions", [ACTIVE], scores.contributions[:, 0, :-1]),
    ]
    assert leaks(envelopes, [*secrets, *own]) == set()
    fields = {
        (envelope.header.kind, name)
        for envelope in envelopes
        for name, value in dict(envelope.body).items()
        if value != type(envelope.body).model_fields[name].default
    }
    assert fields == {
        ("inference open", "model"), ("inference open", "rows"), ("inference open", "id_pieces"),
        ("inference open", "explained_records"), ("inference accept", "columns"),
        ("inference rows", "hop"), ("inference rows", "rows"),
        ("hop reply", "hop"), ("hop reply", "left"),
    }  # fmt: skip
    said = {
        text
        for envelope in envelopes
        if isinstance(envelope.body, InferenceAccept) and envelope.body.columns is not None
        for text in envelope.body.columns.texts
    }
    assert said == {"often late", ""}


def test_no_message_of_an_activation_tells_more_than_which_records_share_a_column() -> None:
    made = federation()
    _, secrets, simulation = trained(made)
    shares = simulation.results
    served = ServedForest.of(shares[ACTIVE])
    machines: dict[str, Machine] = {ACTIVE: ActiveDeployment("production", served, "bitmap")}
    for owner, peer in served.asked.items():
        table, records = shares[peer].lookup_table, len(served.node_of[owner])
        columns = DisclosedColumns.of(table, records, {})
        ready = ModelReady(columns=record_columns(columns))
        machines[peer] = PassiveDeployment(ACTIVE, Given(None), "", lambda _, held=ready: held)
    envelopes: list[Envelope] = []
    agreed = ran(machines, tap=envelopes.append).results[ACTIVE]
    assert leaks(envelopes, secrets) == set()
    disclosed = [
        (envelope.header.kind, name)
        for envelope in envelopes
        if envelope.header.recipient == ACTIVE
        for name, value in dict(envelope.body).items()
        if value != type(envelope.body).model_fields[name].default
    ]
    assert set(disclosed) == {("model ready", "columns")}
    for peer, columns in agreed.columns.items():
        features = shares[peer].lookup_table.feature[: len(columns.column)]
        one, other = np.triu_indices(len(features), k=1)
        same = columns.column[one] == columns.column[other]
        np.testing.assert_array_equal(same, features[one] == features[other])
