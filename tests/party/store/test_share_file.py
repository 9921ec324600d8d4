"""A party's share leaves its state folder as a file and comes back, to that party alone."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedmq.boosting.model.share import PassiveShare
from fedmq.errors import ConfigError, DataError
from fedmq.party.store.share_file import read_share, write_share
from tests.party.store.test_models import active_share, passive_share

EXPORTED = Path(__file__).parents[2] / "boosting" / "shares" / "version-1-telco.share"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "credit.share"
    write_share(passive_share(), path)
    return path


def with_heading(file: Path, **changes: object) -> None:
    """Write ``file`` anew with a changed heading."""
    heading, document = file.read_text().splitlines()
    file.write_text(f"{json.dumps({**json.loads(heading), **changes})}\n{document}\n")


def forged(file: Path, change: Callable[[str], str]) -> None:
    """Change the share in ``file``, and the checksum with it."""
    document = change(file.read_text().splitlines()[1])
    file.write_text(f"{file.read_text().splitlines()[0]}\n{document}\n")
    with_heading(file, sha256=hashlib.sha256(document.encode()).hexdigest())


def test_a_share_comes_back_as_it_was(tmp_path: Path, file: Path) -> None:
    write_share(active_share(), tmp_path / "active")

    assert read_share(file, "telco", False).dumps() == passive_share().dumps()
    assert read_share(tmp_path / "active", "bank", True).dumps() == active_share().dumps()


def test_a_file_that_an_earlier_version_exported_is_read() -> None:
    share = read_share(EXPORTED, "telco", False)
    assert isinstance(share, PassiveShare)
    names = share.lookup_table.feature_names
    assert names == ("city=bern", "city=oslo", "city=rome", "age")
    oslo, nowhere = [0, 1, 0, 30], [np.nan, np.nan, np.nan, np.nan]
    rows = np.array([oslo, nowhere], dtype=np.float32)
    ids = np.arange(len(share.lookup_table.threshold), dtype=np.int32)
    ways = [share.lookup_table.directions(rows, np.full_like(ids, row), ids) for row in (0, 1)]
    # Thirty years are below both thresholds, and who lives in Oslo does not live in Rome.
    assert ways[0].all()
    assert ways[1].tolist() == share.lookup_table.default_left.tolist()


def test_the_heading_says_whose_share_follows_and_with_which_checksum(file: Path) -> None:
    heading, document = file.read_text().splitlines()

    assert json.loads(heading) == {
        "format": "fedmq.share-file",
        "version": 1,
        "party": "telco",
        "model": "credit",
        "sha256": hashlib.sha256(document.encode()).hexdigest(),
    }
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_file_that_exists_is_not_written_over(file: Path) -> None:
    before = file.read_text()
    with pytest.raises(ConfigError, match=r"credit\.share: exists already"):
        write_share(passive_share("other"), file)
    assert file.read_text() == before


def test_a_full_disk_leaves_no_half_of_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ConfigError, match="cannot be written: No space"):
        write_share(passive_share(), tmp_path / "share")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("party", "is_active"), [("retail", False), ("bank", True)])
def test_another_partys_share_is_refused(file: Path, party: str, is_active: bool) -> None:
    with pytest.raises(DataError, match=f"the share of telco, not of {party}; each share stays"):
        read_share(file, party, is_active)


def test_another_partys_share_is_refused_whatever_the_heading_says(file: Path) -> None:
    with_heading(file, party="retail")
    with pytest.raises(DataError, match="the share of telco, not of retail"):
        read_share(file, "retail", False)


def test_a_share_of_another_model_than_the_headings_is_refused(file: Path) -> None:
    with_heading(file, model="debit")
    with pytest.raises(DataError, match="the heading names debit, the share credit"):
        read_share(file, "telco", False)


def test_the_active_partys_share_is_none_of_a_passive_party(file: Path) -> None:
    with pytest.raises(DataError, match="not a model share"):
        read_share(file, "telco", True)


@pytest.mark.parametrize("version", [0, 2, 99])
def test_an_unknown_version_says_what_to_use(file: Path, version: int) -> None:
    with_heading(file, version=version)
    with pytest.raises(DataError, match=rf"version {version} is unknown.*reads version 1"):
        read_share(file, "telco", False)


def test_an_unknown_version_of_the_share_says_what_to_use(file: Path) -> None:
    forged(file, lambda document: document.replace('"version":1', '"version":7'))
    with pytest.raises(DataError, match=r"version 7 is unknown"):
        read_share(file, "telco", False)


def test_any_changed_byte_of_the_share_is_noticed(file: Path) -> None:
    whole = file.read_bytes()
    begin = whole.index(b"\n") + 1
    for place in range(begin, len(whole) - 1):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(DataError, match="damaged: its checksum does not fit"):
            read_share(file, "telco", False)


@pytest.mark.parametrize("kept", [0.0, 0.2, 0.7, 0.99])
def test_a_file_that_was_cut_off_is_refused(file: Path, kept: float) -> None:
    whole = file.read_bytes()
    file.write_bytes(whole[: int(kept * (len(whole) - 1))])
    with pytest.raises(DataError, match=r"not a share file|damaged"):
        read_share(file, "telco", False)


@pytest.mark.parametrize("model", ["../../keys", "", "a/b"])
def test_a_model_that_is_no_name_is_refused(file: Path, model: str) -> None:
    with_heading(file, model=model)
    with pytest.raises(DataError, match="not a share file: model"):
        read_share(file, "telco", False)


@pytest.mark.parametrize("text", ["", "{}", "[]", "\x00\xff", '{"format":"zip"}'])
def test_another_kind_of_file_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "data.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(DataError, match=r"data\.csv: not a share file"):
        read_share(path, "telco", False)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere: cannot be read: No such file"):
        read_share(tmp_path / "nowhere", "telco", False)
