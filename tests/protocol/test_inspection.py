"""The inspection finds what it is there to find: deliberate leaks, each of which must be caught."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.boosting.gradients import Gradients
from fedmq.messages import training
from fedmq.messages.array import Array, Bitmap, pack_payload
from fedmq.messages.body import Body
from fedmq.messages.envelope import Envelope
from fedmq.messages.inference import InferenceHop
from fedmq.protocol.training.active_growth import ActiveGrowth
from tests.protocol import hidden_rows_engine
from tests.protocol.federation import ACTIVE, PAILLIER
from tests.protocol.hidden_rows_engine import HiddenRows
from tests.protocol.inspection import Numbers, Secret, leaks
from tests.protocol.wiretap import ROWS, federation, trained

MADE = federation().having(engine=PAILLIER)
BITS = MADE.label > 0
TELCO = MADE.columns["telco"]
FIRST = Gradients.of(np.zeros(ROWS, np.float32), MADE.label, ~MADE.evaluation, MADE.params, 0)

Tapped = tuple[list[Envelope], list[Secret]]


@pytest.fixture(scope="module")
def tapped() -> Tapped:
    """The messages of a training without a leak, and its secrets."""
    envelopes, secrets, _ = trained(MADE)
    assert leaks(envelopes, secrets) == set()
    return envelopes, secrets


def adding(envelopes: list[Envelope], kind: type[Body], value: Any) -> list[Envelope]:
    """The messages of ``kind``, their payloads with ``value`` besides."""
    return [
        Envelope(envelope.header, type(envelope.body)(**{**dict(envelope.body), "payload": {
            **dict(envelope.body)["payload"], **pack_payload({"x": value})}}))
        for envelope in envelopes
        if isinstance(envelope.body, kind)
    ]  # fmt: skip


def first(envelopes: list[Envelope], kind: type[Body]) -> Envelope:
    return next(envelope for envelope in envelopes if isinstance(envelope.body, kind))


# Payloads that hold more than they should


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (BITS.astype(np.uint8), "labels"),
        (np.packbits(BITS), "labels"),
        (np.packbits(~BITS), "labels"),
        (MADE.label, "labels"),
        (np.where(BITS, -1, 1).astype(np.int8), "labels"),
        (FIRST.pairs[FIRST.carried][:, 0], "g"),
        (FIRST.pairs[FIRST.carried][7:8, 1], "h"),
        (FIRST.pairs[FIRST.carried][:, 1].astype(np.float32), "h"),
        (np.array([0.25]), "h"),
        (np.frombuffer(np.array([0.5, 0.25], np.float32).tobytes(), np.uint8), "pairs of g and h"),
        (-0.5, "g"),
        ("bank_secret_name_1", "names of bank"),
        (MADE.columns[ACTIVE][5, :1], "values of bank"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_leaking_broadcast_adds_is_caught(tapped: Tapped, value: Any, what: str) -> None:
    envelopes, secrets = tapped
    found = leaks(adding(envelopes, training.GradientBroadcast, value), secrets)
    assert found >= {f"gradient broadcast to {peer} tells {what}" for peer in ("telco", "shop")}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        (TELCO[5, :1], "values of telco"),
        (TELCO[:4, 0].astype(np.float64), "values of telco"),
        (np.frombuffer(TELCO.tobytes(), np.uint8), "values of telco"),
        (float(TELCO[4, 1]), "values of telco"),
        ("telco_secret_name_0", "names of telco"),
    ],
    ids=lambda value: value if isinstance(value, str) else None,
)
def test_what_a_leaking_reply_adds_is_caught(tapped: Tapped, value: Any, what: str) -> None:
    envelopes, secrets = tapped
    found = leaks(adding(envelopes, training.HistogramReply, value), secrets)
    assert f"histogram reply to bank tells {what}" in found


@pytest.mark.parametrize("what", ["bins of telco", "cuts of telco", "thresholds of telco"])
def test_what_is_derived_from_features_is_caught(tapped: Tapped, what: str) -> None:
    envelopes, secrets = tapped
    values = np.concatenate([secret.values for secret in secrets if secret.what == what])
    sent = values.astype(np.uint8) if what.startswith("bins") else values
    found = leaks(adding(envelopes, training.HistogramReply, sent), secrets)
    assert f"histogram reply to bank tells {what}" in found


@pytest.mark.parametrize("what", ["leaf weights", "gains", "covers", "sums of a node"])
def test_what_is_derived_from_gradients_is_caught(tapped: Tapped, what: str) -> None:
    envelopes, secrets = tapped
    values = next(secret.values for secret in secrets if secret.what == what)
    assert isinstance(values, np.ndarray)
    found = leaks(adding(envelopes, training.GradientBroadcast, values), secrets)
    assert f"gradient broadcast to telco tells {what}" in found


def test_a_secret_told_to_its_reader_is_no_leak(tapped: Tapped) -> None:
    envelopes, secrets = tapped
    assert leaks(adding(envelopes, training.HistogramReply, MADE.label), secrets) == set()


# Messages that disclose what they should not


def test_labels_in_an_assignment_are_caught(tapped: Tapped) -> None:
    envelopes, secrets = tapped
    root = first(envelopes, training.NodeAssignment)
    assert isinstance(root.body, training.NodeAssignment)
    assignment = root.body.model_copy(update={"left": Bitmap.of(BITS)})
    found = leaks([Envelope(root.header, assignment)], secrets)
    assert f"node assignment to {root.header.recipient} tells labels" in found


def test_numbers_in_a_hop_are_caught(tapped: Tapped) -> None:
    envelopes, _ = tapped
    score = np.array([0.3], np.float32).view(np.uint32)
    hop = InferenceHop(
        hop=1,
        records=Array.of(np.array([1], np.uint32)),
        counts=Array.of(np.array([1], np.uint32)),
        rows=Array.of(score),
    )
    header = first(envelopes, training.TreeStarted).header.model_copy(update={"kind": hop.kind})
    secret = Numbers("a score", [ACTIVE], score.astype(np.int64))
    assert leaks([Envelope(header, hop)], [secret]) == {
        f"inference hop to {header.recipient} tells a score"
    }


# Engines and machines that leak


def test_the_plain_engine_is_caught() -> None:
    envelopes, secrets, _ = trained(federation())
    found = leaks(envelopes, secrets)
    assert found >= {"gradient broadcast to telco tells g", "gradient broadcast to shop tells h"}
    assert not any("to bank" in line for line in found)


def test_an_engine_that_forgets_its_mask_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    def unmasked(pieces: Any) -> Any:
        return np.zeros_like(np.concatenate([piece["part"] for piece in pieces]))

    made = federation(num_boost_round=1).having(engine=HiddenRows())
    envelopes, secrets, _ = trained(made)
    assert leaks(envelopes, secrets) == set()
    monkeypatch.setattr(hidden_rows_engine, "_joined", unmasked)
    envelopes, secrets, _ = trained(made)
    assert "query piece to telco tells g" in leaks(envelopes, secrets)


def test_a_machine_that_tells_the_last_partition_is_caught(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    split = ActiveGrowth._split

    def tell_everyone(self: Any, node: int, owner: int, record: int, left: Any, *more: Any) -> None:
        ended = not self._choice.expands_below(node)
        split(self, node, owner, record, left, *more)
        for peer in self._asked:
            if ended and peer != self._terms.parties[owner]:
                assignment = training.NodeAssignment(
                    tree=self.tree, node=node, left=Bitmap.of(left)
                )
                self._send(peer, assignment)

    monkeypatch.setattr(ActiveGrowth, "_split", tell_everyone)
    envelopes, secrets, _ = trained(MADE)
    assert "node assignment to telco tells a partition of the last level" in leaks(
        envelopes, secrets
    )
