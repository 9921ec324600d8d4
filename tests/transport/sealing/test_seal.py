"""What a seal keeps: secrecy, integrity, the address, the order of one time only."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import Replayed, Untrusted
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.transport.sealing.seal import SEAL_BYTES, Channel, Incoming, Introduction, Outgoing

BANK, TELCO, RETAIL = (PrivateKeys.generate() for _ in range(3))
CHANNEL = Channel("demo", "s1", 1, "bank", "telco")
HEADER, BODY = b"the header", b"gradients of everybody"


def incoming(seal: bytes, channel: Channel = CHANNEL, own: PrivateKeys = TELCO) -> Incoming:
    return Incoming(channel, [own], [BANK.public], Introduction.from_seal(seal))


def outgoing(channel: Channel = CHANNEL, own: PrivateKeys = BANK) -> Outgoing:
    return Outgoing(channel, own, TELCO.public, now=1000)


def test_what_was_sealed_is_opened() -> None:
    sealed, seal = outgoing().seal(HEADER, BODY)
    assert len(seal) == SEAL_BYTES
    assert BODY not in sealed
    assert incoming(seal).open(HEADER, sealed, seal) == BODY


@given(part=st.sampled_from(["header", "body", "seal"]), data=st.data())
def test_one_altered_bit_anywhere_is_refused(part: str, data: st.DataObject) -> None:
    sealed, seal = outgoing().seal(HEADER, BODY)
    parts = {"header": HEADER, "body": sealed, "seal": seal}
    at = data.draw(st.integers(0, 8 * len(parts[part]) - 1))
    altered = bytearray(parts[part])
    altered[at // 8] ^= 1 << at % 8
    parts[part] = bytes(altered)
    with pytest.raises(Untrusted):
        incoming(parts["seal"]).open(parts["header"], parts["body"], parts["seal"])


@pytest.mark.parametrize(
    "change",
    [
        {"federation": "other"},
        {"session": "s2"},
        {"attempt": 2},
        {"sender": "retail"},
        {"recipient": "retail"},
    ],
)
def test_a_seal_holds_on_its_own_channel_alone(change: dict[str, object]) -> None:
    sealed, seal = outgoing().seal(HEADER, BODY)
    with pytest.raises(Untrusted):
        incoming(seal, replace(CHANNEL, **change)).open(HEADER, sealed, seal)


def test_fields_that_run_together_are_other_fields() -> None:
    assert (
        Channel("demo", "s1", 1, "bank", "telco").to_bytes()
        != Channel("demos", "1", 1, "bank", "telco").to_bytes()
    )


def test_two_bodies_cannot_be_swapped() -> None:
    sender = outgoing()
    first, first_seal = sender.seal(b"header 1", b"body 1")
    second, second_seal = sender.seal(b"header 2", b"body 2")
    reader = incoming(first_seal)
    for header, sealed, seal in (
        (b"header 1", second, second_seal),
        (b"header 2", first, second_seal),
        (b"header 1", second, first_seal),
    ):
        with pytest.raises(Untrusted):
            reader.open(header, sealed, seal)
    assert reader.open(b"header 2", second, second_seal) == b"body 2"
    assert reader.open(b"header 1", first, first_seal) == b"body 1"


def test_nothing_is_taken_twice() -> None:
    sender = outgoing()
    sealed = [sender.seal(HEADER, bytes([number])) for number in range(20)]
    reader = incoming(sealed[0][1])
    shuffled = sealed[::2] + sealed[1::2]
    assert {reader.open(HEADER, *message) for message in shuffled} == {
        bytes([n]) for n in range(20)
    }
    for message in sealed:
        with pytest.raises(Replayed):
            reader.open(HEADER, *message)


def test_what_is_too_old_to_tell_counts_as_taken() -> None:
    sender = outgoing()
    late = sender.seal(HEADER, b"late")
    for _ in range(8200):
        newest = sender.seal(HEADER, b"")
    reader = incoming(late[1])
    reader.open(HEADER, *newest)
    with pytest.raises(Replayed):
        reader.open(HEADER, *late)


def test_a_refused_forgery_does_not_use_up_the_number_of_the_true_one() -> None:
    sealed, seal = outgoing().seal(HEADER, BODY)
    reader = incoming(seal)
    with pytest.raises(Untrusted):
        reader.open(HEADER, bytes(len(sealed)), seal)
    assert reader.open(HEADER, sealed, seal) == BODY


def test_a_key_that_is_not_pinned_signs_nothing() -> None:
    _, seal = outgoing(own=RETAIL).seal(HEADER, BODY)
    with pytest.raises(Untrusted, match="bank signs with a key that is not pinned here"):
        incoming(seal)


def test_a_forged_signature_is_refused() -> None:
    _, seal = outgoing(own=RETAIL).seal(HEADER, BODY)
    forged = replace(Introduction.from_seal(seal), signer=BANK.public.id)
    with pytest.raises(Untrusted, match="the signature of bank does not hold"):
        Incoming(CHANNEL, [TELCO], [BANK.public], forged)


def test_what_is_sealed_to_another_is_not_opened() -> None:
    _, seal = outgoing().seal(HEADER, BODY)
    with pytest.raises(Untrusted, match="a key that telco no longer has"):
        incoming(seal, own=RETAIL)


def test_no_key_is_used_by_two_runs_of_a_process() -> None:
    first, again = outgoing().seal(HEADER, BODY), outgoing().seal(HEADER, BODY)
    assert first[0] != again[0]
    assert Introduction.from_seal(first[1]).ephemeral != Introduction.from_seal(again[1]).ephemeral


@given(st.binary(max_size=300))
def test_no_bytes_are_a_seal_by_accident(seal: bytes) -> None:
    with pytest.raises(Untrusted):
        Incoming(CHANNEL, [TELCO], [BANK.public], Introduction.from_seal(seal)).open(
            HEADER, BODY, seal
        )


def test_public_keys_survive_a_telephone() -> None:
    public = BANK.public
    assert type(public).from_text(str(public)) == public
    assert len(public.fingerprint.split()) == 8
    assert public.fingerprint != TELCO.public.fingerprint
