"""A false copy is proved to others by what its party signed; nobody proves that of a true one."""

from __future__ import annotations

import os
from dataclasses import astuple, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedmq.errors import DataError, Inconsistent
from fedmq.party.store.certificates import Certificate
from fedmq.privacy.hidden_sums import copies as module
from fedmq.privacy.hidden_sums import talks
from fedmq.privacy.hidden_sums.proof import CopyProof
from fedmq.protocol.session_records import signer_statement
from tests.accountability.audited import KEYS
from tests.accountability.test_certificates import (
    FEDERATION,
    assert_it_is_about_this_session_alone,
)
from tests.how_often import examples
from tests.privacy.hidden_sums.copied_level import SIGNER, CopiedLevels
from tests.privacy.hidden_sums.test_copies import Lie, another_share, lying
from tests.privacy.hidden_sums.test_level import drawn, own_gains


def same(_: str, result: Any) -> Any:
    return result


def flipped_table() -> Lie:
    """The first tables of the first copy differ by one bit."""
    seen = []

    def lie(label: str, result: Any) -> Any:
        if label == "GarbleLevel":
            seen.append(result[0])
            if len(seen) == 1:
                result[0].tables[0] ^= np.uint64(1)
        return result

    return lie


def caught(lie: Lie = same) -> Inconsistent:
    """How a session ends whose first copy is a ``lie``, which the active party opens."""
    level = drawn(2, 9)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "secrets", SimpleNamespace(randbelow=lambda _: 1))
        with pytest.raises(Inconsistent) as found:
            CopiedLevels().run(level, own_gains(level, 0.5), lying=lying(lie))
    return found.value


@pytest.fixture
def proof() -> CopyProof:
    return CopyProof.from_bytes(found())


@cache
def found() -> bytes:
    return caught(another_share(0)).proof


@pytest.fixture
def slander() -> CopyProof:
    """What an active party shows of a party that kept the protocol."""
    return CopyProof.from_bytes(made_up())


@cache
def made_up() -> bytes:
    parted = talks.parted_parcel

    def accuses(*parcels: Any) -> Any:
        real, hashes, signature, _ = parted(*parcels)
        return real, hashes, signature, [0]

    accuses.bind = lambda *parcels: _Accusing(accuses, parcels)  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(talks, "parted_parcel", accuses)
        return caught().proof


class _Accusing:
    label = "PartCopies"

    def __init__(self, accuses: Any, parcels: Any) -> None:
        self.run = lambda: accuses(*parcels)


def test_a_false_copy_is_proved_to_whoever_has_the_file(proof: CopyProof) -> None:
    proof.check()
    assert proof.signer == SIGNER.public_key().public_bytes_raw()
    assert CopyProof.from_bytes(proof.to_bytes()) == proof


def test_a_bit_of_a_table_is_proved_too() -> None:
    error = caught(flipped_table())
    assert error.evidence["copy"] == 0
    CopyProof.from_bytes(error.proof).check()


def test_what_is_not_the_sum_of_its_hashes_is_no_proof() -> None:
    def flipped(label: str, result: Any) -> Any:
        if label == "JoinCopies":
            result[0] ^= 1
        return result

    assert caught(flipped).proof == b""


def test_nothing_is_proved_of_a_party_that_kept_the_protocol(slander: CopyProof) -> None:
    with pytest.raises(DataError, match="an honest party says the same"):
        slander.check()


def other(data: bytes) -> bytes:
    return bytes([data[0] ^ 1]) + data[1:]


@pytest.mark.parametrize("name", ["copy", "begun", "chooser", "chosen", "heard", "said", "level"])
def test_no_word_of_a_proof_can_be_changed(name: str, proof: CopyProof, slander: CopyProof) -> None:
    """Neither to prove a lie of an honest party, nor by whoever passes a proof on."""
    for shown in (proof, slander):
        [(part, hashes), *later] = shown.heard
        changed = {
            "copy": {"copy": 1},
            "begun": {"begun": (*shown.begun[:2], other(shown.begun[2]))},
            "chooser": {"chooser": other(shown.chooser)},
            "chosen": {"chosen": other(shown.chosen)},
            "heard": {"heard": ((other(part), hashes), *later)},
            "said": {"said": (*shown.said[:-1], tuple(map(other, shown.said[-1])))},
            "level": {"level": replace(shown.level, nodes=3)},
        }[name]
        with pytest.raises(DataError, match="it proves nothing"):
            replace(shown, **changed).check()


@pytest.mark.parametrize("shape", [(2**16 + 1, 1), (2**12, 2**12 + 1)])
def test_a_level_that_no_tree_has_is_not_replayed(shape: tuple[int, int], proof: CopyProof) -> None:
    nodes, candidates = shape
    level = replace(proof.level, nodes=nodes, candidates=candidates)
    with pytest.raises(DataError, match="more candidates than any level has"):
        replace(proof, level=level).check()


def test_another_key_proves_nothing(proof: CopyProof) -> None:
    with pytest.raises(DataError, match="has not signed it"):
        replace(proof, signer=bytes(32)).check()


def test_a_proof_does_not_hold_what_the_active_party_entered(proof: CopyProof) -> None:
    """What it shows of the real copy, and of its choices, are hashes and what was sent."""
    level = drawn(2, 9)
    own = level.inputs(own_gains(level, 0.5))
    data = proof.to_bytes()
    assert level.left.tobytes()[:16] not in data
    assert own.totals.tobytes()[:8] not in data


@examples(25)
@given(st.data())
def test_what_is_no_proof_is_refused(data: st.DataObject) -> None:
    whole, proof = found(), CopyProof.from_bytes(found())
    cut = data.draw(st.integers(0, len(whole) - 1))
    with pytest.raises(DataError, match="cannot be read"):
        CopyProof.from_bytes(whole[:cut])
    fields = list(astuple(proof))
    place = data.draw(st.integers(0, len(fields) - 1))
    fields[place] = data.draw(st.none() | st.floats(allow_nan=False) | st.text(max_size=2))
    with pytest.raises(DataError, match="cannot be read"):
        CopyProof.from_bytes(msgpack.packb(fields))


def test_bytes_of_something_else_are_no_proof() -> None:
    for found in (b"", b"\x90", os.urandom(100), msgpack.packb([1] * 10), b"\xc1"):
        with pytest.raises(DataError, match="cannot be read"):
            CopyProof.from_bytes(found)


def test_a_certificate_is_about_one_attempt_of_one_party(tmp_path: Path) -> None:
    proof = CopyProof.from_bytes(found())
    signed = signer_statement("5e55", 1, "bank", "telco", proof.signer)
    proof = replace(proof, endorsement=KEYS["telco"].sign.sign(signed))
    certificate = Certificate("bank", "telco", "5e55", 1, proof.to_bytes())
    assert Certificate.read(certificate.keep(tmp_path)) == certificate
    assert_it_is_about_this_session_alone(certificate, FEDERATION)
