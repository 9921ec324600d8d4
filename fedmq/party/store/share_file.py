"""One party's own share of a model as a file: for a backup, or for a new machine of that party.

Two lines of JSON: a heading with the SHA-256 of the second line, and the share. The file is as
private as the party's state folder: only the party itself may read it, and no other imports it.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from fedmq.boosting.model.share import ActiveShare, PassiveShare, first_fault
from fedmq.errors import ConfigError, DataError
from fedmq.messages.fields import ModelId

__all__ = ["check_owner", "read_share", "write_share"]


class _Heading(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    newest_version: ClassVar[int] = 1

    format: Literal["fedmq.share-file"] = "fedmq.share-file"
    version: Annotated[int, Field(strict=True)] = newest_version
    party: str
    model: ModelId
    sha256: str

    @model_validator(mode="before")
    @classmethod
    def _of_known_version(cls, document: Any) -> Any:
        version = document.get("version") if isinstance(document, dict) else None
        if isinstance(version, int) and version != cls.newest_version:
            raise ValueError(
                f"version {version} is unknown; this fedmq reads version {cls.newest_version}, "
                "so use the fedmq that wrote the file"
            )
        return document


def write_share(share: ActiveShare | PassiveShare, path: Path) -> str:
    """Write ``share`` to the new file ``path``, mode 0600. Returns the SHA-256 of the share.

    Raises:
        ConfigError: the file exists, or cannot be written.
    """
    document = share.dumps().encode()
    digest = hashlib.sha256(document).hexdigest()
    heading = _Heading(party=_owner(share), model=share.model_id, sha256=digest)
    try:
        file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path}: exists already; choose another name") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(file, "wb") as out:
            out.write(heading.model_dump_json().encode() + b"\n" + document + b"\n")
            out.flush()
            os.fsync(out.fileno())
    except OSError as error:
        path.unlink(missing_ok=True)
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
    return digest


def read_share(path: Path, party: str, is_active: bool) -> ActiveShare | PassiveShare:
    """Read the share of ``party`` from ``path``; ``is_active``: the party holds the label.

    Raises:
        DataError: the file is no share file, damaged, of an unknown version, or another party's.
    """
    try:
        first, _, rest = path.read_bytes().partition(b"\n")
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        heading = _Heading.model_validate_json(first)
    except ValidationError as error:
        raise DataError(f"{path}: not a share file: {first_fault(error, 'heading')}") from None
    document = rest.removesuffix(b"\n")
    if hashlib.sha256(document).hexdigest() != heading.sha256:
        raise DataError(f"{path}: damaged: its checksum does not fit; export the share again")
    _check_party(heading.party, party, str(path))
    kind = ActiveShare if is_active else PassiveShare
    share = kind.loads(document, str(path))
    if share.model_id != heading.model:
        raise DataError(f"{path}: the heading names {heading.model}, the share {share.model_id}")
    check_owner(share, party, str(path))
    return share


def check_owner(share: ActiveShare | PassiveShare, party: str, where: str) -> None:
    """Raise DataError, beginning with ``where``, unless ``share`` belongs to ``party``."""
    _check_party(_owner(share), party, where)


def _check_party(owner: str, party: str, where: str) -> None:
    if owner != party:
        raise DataError(
            f"{where}: the share of {owner}, not of {party}; each share stays at its party"
        )


def _owner(share: ActiveShare | PassiveShare) -> str:
    return share.parties[0] if isinstance(share, ActiveShare) else share.party
