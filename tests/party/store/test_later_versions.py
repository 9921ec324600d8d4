"""What a later fedmq has written is left to it: each kind of file names its version."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import pytest

from fedmq.accountability.transcript_file import TranscriptFile, export
from fedmq.errors import FedmqError
from fedmq.party.card.signed_card import CardFile
from fedmq.party.identity import private_keys
from fedmq.party.identity.joining import JoinRequest, SignedCertificate
from fedmq.party.store.alignments import AlignmentStore
from fedmq.party.store.database import Database
from fedmq.party.store.documents import (
    Deployments,
    ModelStore,
    column_names,
    cross_validations,
    trained_counts,
    training_records,
)
from fedmq.party.store.share_file import read_share
from tests.party.store.test_version_0_1 import FINISHED, WRITTEN

LATER = "version 99 is unknown; this fedmq reads versions? .*so use the fedmq that wrote the file"

FILES: dict[str, Callable[[Path], Any]] = {
    "state/alignments/shared.json": lambda bank: AlignmentStore(bank / "state").load("shared"),
    "state/columns/credit.json": lambda bank: column_names(bank / "state").read("credit"),
    "state/cross-validations/folds-cv.json": lambda bank: cross_validations(bank / "state").read(
        "folds-cv"
    ),
    "state/deployments.json": lambda bank: Deployments.read(bank / "state"),
    "state/drift/credit.trained": lambda bank: trained_counts(bank / "state").read("credit"),
    "state/models/credit.json": lambda bank: ModelStore(bank / "state").active("credit"),
    "state/trained/credit.json": lambda bank: training_records(bank / "state").read("credit"),
    "credit.share": lambda bank: read_share(bank / "credit.share", "bank", is_active=True),
}
"""By file: how it is read."""


@pytest.fixture
def bank(tmp_path: Path) -> Path:
    shutil.copytree(WRITTEN / "bank", tmp_path / "bank")
    (tmp_path / "bank" / "keys.json").chmod(0o600)
    return tmp_path / "bank"


@pytest.mark.parametrize("file", FILES)
def test_a_file_of_a_later_version_names_it_and_one_of_today_is_read(bank: Path, file: str) -> None:
    FILES[file](bank)
    head, *rest = (bank / file).read_text().splitlines()
    later = json.loads(head) | {"version": 99, "of_later_versions": [1]}
    (bank / file).write_text("\n".join([json.dumps(later), *rest]))
    with pytest.raises(FedmqError, match=LATER):
        FILES[file](bank)


def test_every_versioned_file_of_the_state_folder_is_tried() -> None:
    versioned = {
        str(path.relative_to(WRITTEN / "bank"))
        for path in (WRITTEN / "bank").rglob("*")
        if path.is_file() and b'"version":' in path.read_bytes()[:200]
    }
    assert versioned <= FILES.keys()
    assert len(versioned) >= 5


def test_a_transcript_of_a_later_version_names_it(bank: Path, tmp_path: Path) -> None:
    path = tmp_path / "bank.transcript"
    export(bank / "state", "bank", FINISHED, path)
    unpacker = msgpack.Unpacker(max_buffer_size=0)
    unpacker.feed(path.read_bytes())
    head, *records = unpacker
    later = [head[0], 99, *head[2:], "more"]
    path.write_bytes(b"".join(msgpack.packb(record) for record in (later, *records)))
    with pytest.raises(FedmqError, match=LATER):
        TranscriptFile.read(path)


def test_keys_of_a_later_format_name_it(bank: Path) -> None:
    path = bank / "keys.json"
    private_keys.read(path, "bank")
    later = {**json.loads(path.read_text()), "format": "fedmq keys 99"}
    path.write_text(json.dumps(later))
    with pytest.raises(FedmqError, match=r"'fedmq keys 99' is unknown; .*so use the fedmq that"):
        private_keys.read(path, "bank")


async def test_a_store_of_a_later_schema_names_it(bank: Path) -> None:
    path = bank / "state" / "fedmq.sqlite"
    with sqlite3.connect(path) as store:
        store.execute("PRAGMA user_version = 99")
    store.close()
    database = Database(path)
    with pytest.raises(FedmqError, match=r"a newer fedmq has made it .schema 99, this one knows"):
        await database.open()
    await database.close()


@pytest.mark.parametrize(
    ("read", "form"),
    [
        (JoinRequest.read, "fedmq join request"),
        (SignedCertificate.read, "fedmq signed certificate"),
    ],
)
def test_what_a_newcomer_and_the_operator_exchange_names_a_later_format(
    tmp_path: Path, read: Callable[[Path], Any], form: str
) -> None:
    path = tmp_path / "shop.json"
    path.write_text(json.dumps({"format": f"{form} 99"}))
    expected = f"^{path}: the format '{form} 99' is unknown; .*so use the fedmq that wrote the file"
    with pytest.raises(FedmqError, match=expected):
        read(path)


def test_a_model_card_of_a_later_version_names_it(tmp_path: Path) -> None:
    path = tmp_path / "credit.card.json"
    path.write_text(json.dumps({"card": {"version": 99, "of_later_versions": [1]}}))
    with pytest.raises(FedmqError, match=f"^{path}: {LATER}"):
        CardFile.read(path)
