"""What a seal keeps: secrecy, integrity, the place of a message, the order of one time only."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import Replayed, Untrusted
from fedmq.transport.sealing.connection import (
    SEAL_BYTES,
    Connection,
    Seal,
    pad,
    padded_length,
    unpad,
)
from fedmq.transport.sealing.keys import PrivateKeys
from fedmq.transport.sealing.noise import Initiator, respond

BANK, TELCO = (PrivateKeys.generate() for _ in range(2))
HEADER, BODY, SESSION = b"the header", b"gradients of everybody", ("s1", 1)


def connections() -> tuple[Connection, Connection]:
    """The bank's and telco's ends after a handshake."""
    initiator = Initiator(b"", BANK.agree, TELCO.public.agree)
    theirs, answer = respond(b"", TELCO.agree, BANK.public.agree, initiator.offer())
    ours, _ = initiator.finish(answer)
    return Connection(ours, TELCO.public, 0), Connection(theirs, BANK.public, 0)


def opened(end: Connection, sealed: bytes, seal: bytes, header: bytes = HEADER) -> bytes:
    return end.open(header, sealed, Seal.from_bytes(seal), SESSION)


def test_what_was_sealed_is_opened_both_ways_on_both_streams() -> None:
    bank, telco = connections()
    for stream in (0, 1):
        for sender, recipient in ((bank, telco), (telco, bank)):
            sealed, seal = sender.seal(HEADER, BODY, stream, SESSION)
            assert len(seal) == SEAL_BYTES
            assert BODY not in sealed
            assert opened(recipient, sealed, seal) == BODY


@given(part=st.sampled_from(["header", "body", "seal"]), data=st.data())
def test_one_altered_bit_is_untrusted_also_of_what_was_taken_before(
    part: str, data: st.DataObject
) -> None:
    bank, telco = connections()
    sealed, seal = bank.seal(HEADER, BODY, 1, SESSION)
    if data.draw(st.booleans()):
        opened(telco, sealed, seal)
    parts = {"header": HEADER, "body": sealed, "seal": seal}
    bit = data.draw(st.integers(0, 8 * len(parts[part]) - 1))
    altered = bytearray(parts[part])
    altered[bit // 8] ^= 1 << bit % 8
    parts[part] = bytes(altered)
    with pytest.raises(Untrusted):
        opened(telco, parts["body"], parts["seal"], parts["header"])


def test_two_bodies_cannot_be_swapped() -> None:
    bank, telco = connections()
    first, first_seal = bank.seal(b"header 1", b"body 1", 1, SESSION)
    second, second_seal = bank.seal(b"header 2", b"body 2", 1, SESSION)
    for header, sealed, seal in (
        (b"header 1", second, second_seal),
        (b"header 2", first, second_seal),
        (b"header 1", second, first_seal),
    ):
        with pytest.raises(Untrusted):
            opened(telco, sealed, seal, header)
    assert opened(telco, second, second_seal, b"header 2") == b"body 2"
    assert opened(telco, first, first_seal, b"header 1") == b"body 1"


@given(order=st.permutations(range(20)), repeated=st.lists(st.integers(0, 19)))
def test_nothing_is_taken_twice_in_whatever_order_it_comes(
    order: list[int], repeated: list[int]
) -> None:
    bank, telco = connections()
    sent = [bank.seal(HEADER, bytes([number]), 1, SESSION) for number in range(20)]
    assert [opened(telco, *sent[number]) for number in order] == [bytes([n]) for n in order]
    for number in repeated:
        with pytest.raises(Replayed):
            opened(telco, *sent[number])


def test_what_is_too_old_to_tell_counts_as_taken_and_the_other_stream_is_none_the_older() -> None:
    bank, telco = connections()
    late = bank.seal(HEADER, b"late", 1, SESSION)
    held_up = bank.seal(HEADER, b"held up", 0, SESSION)
    for _ in range(8200):
        newest = bank.seal(HEADER, b"", 1, SESSION)
    opened(telco, *newest)
    with pytest.raises(Replayed):
        opened(telco, *late)
    assert opened(telco, *held_up) == b"held up"


def test_a_refused_forgery_does_not_use_up_the_number_of_the_true_one() -> None:
    bank, telco = connections()
    sealed, seal = bank.seal(HEADER, BODY, 1, SESSION)
    with pytest.raises(Untrusted):
        opened(telco, bytes(len(sealed)), seal)
    assert opened(telco, sealed, seal) == BODY


def test_under_a_key_that_is_not_pinned_any_more_no_session_begins() -> None:
    bank, telco = connections()
    opened(telco, *bank.seal(HEADER, BODY, 1, SESSION))
    telco.unpinned = True
    assert opened(telco, *bank.seal(HEADER, BODY, 1, SESSION)) == BODY
    sealed, seal = bank.seal(HEADER, BODY, 1, ("s2", 1))
    with pytest.raises(Untrusted, match="not pinned"):
        telco.open(HEADER, sealed, Seal.from_bytes(seal), ("s2", 1))
    telco.unpinned = False
    assert telco.open(HEADER, sealed, Seal.from_bytes(seal), ("s2", 1)) == BODY


def test_under_own_keys_that_were_replaced_no_session_begins() -> None:
    bank, telco = connections()
    telco.outdated = True
    sealed, seal = bank.seal(HEADER, BODY, 1, SESSION)
    with pytest.raises(Untrusted, match="was replaced here"):
        opened(telco, sealed, seal)


@given(st.integers(0, 1 << 20))
def test_lengths_come_in_steps_of_little_cost(length: int) -> None:
    total = padded_length(length)
    assert total >= length + 4
    assert total - length <= max(260, length / 16 + 4)
    assert total - length <= 8 * 1024 + 4
    assert total % 256 == 0


@given(st.binary(max_size=2000))
def test_padding_comes_off_again(body: bytes) -> None:
    assert unpad(pad(body)) == body


@pytest.mark.parametrize("data", [b"", b"\0\0\0", b"\0\0\0\5abcd", b"\xff" * 16])
def test_what_was_never_padded_is_no_body(data: bytes) -> None:
    with pytest.raises(ValueError, match="the body is not padded"):
        unpad(data)


def test_bodies_of_nearly_the_same_length_look_alike() -> None:
    bank, _ = connections()
    lengths = {len(bank.seal(HEADER, bytes(n), 1, SESSION)[0]) for n in range(1000, 1020)}
    assert len(lengths) == 1
