"""What convinces others that a party garbled a false circuit? A file in the state folder."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

import msgpack
from pydantic import ConfigDict, TypeAdapter

from fedmq.errors import DataError
from fedmq.party.atomic_file import write_atomically

__all__ = ["Certificate"]

_MAGIC, _VERSION = "fedmq.certificate", 1

_FIELDS: TypeAdapter[tuple[str, int, str, str, str, int, bytes]] = TypeAdapter(
    tuple[str, int, str, str, str, int, bytes], config=ConfigDict(strict=True)
)


@dataclass(frozen=True, slots=True)
class Certificate:
    """The ``proof`` of ``active`` about ``passive`` (`fedmq.privacy.hidden_sums.proof`)."""

    active: str
    passive: str
    session: str
    attempt: int
    proof: bytes

    def keep(self, state: Path) -> Path:
        """Write it into the folder ``state``; returns the file. OSError if the disk refuses."""
        name = f"{self.session}-{self.attempt}-{self.passive}.certificate"
        path = state / "certificates" / name
        write_atomically(path, bytes(msgpack.packb([_MAGIC, _VERSION, *astuple(self)])), 0o600)
        return path

    @classmethod
    def read(cls, path: Path) -> Certificate:
        """Read a file that `keep` wrote; DataError if it is none."""
        try:
            unpacked = msgpack.unpackb(path.read_bytes(), use_list=False)
            fields = _FIELDS.validate_python(unpacked)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError, msgpack.UnpackException):
            raise DataError(f"{path}: not a certificate of this fedmq, or it is damaged") from None
        if fields[0] != _MAGIC:
            raise DataError(f"{path}: not a certificate of this fedmq, or it is damaged")
        if fields[1] != _VERSION:
            raise DataError(
                f"{path}: version {fields[1]} is unknown; this fedmq reads version {_VERSION}, so "
                "use the fedmq that wrote the file"
            )
        return cls(*fields[2:])
