"""What does a party keep so that later alignments blind the shorter list alone?

The owner of a list keeps its key and the hashes of whom it has blinded, ``own.npz``; the active
party keeps the other party's points, ``PARTY.NAME.npy``. No file holds an id.
"""

from __future__ import annotations

import contextlib
import io
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from fedmq.errors import DataError
from fedmq.party.atomic_file import write_whole
from fedmq.privacy.kept_blinding import TAG_BYTES, Blinding, KeptBlinding, blinding_of
from fedmq.privacy.set_intersection import POINT_BYTES, IdList, Points

__all__ = ["KeptPoints", "OwnBlinding", "blinded_list_holds", "kept_points", "key_file"]

_VERSION = 1
_FOLDER = "kept_blindings"
_DAY = 86_400
_KEY_BYTES = 32


@dataclass(frozen=True, slots=True)
class OwnBlinding:
    """This party's own list: the other party ``held`` so many ``points`` of the list of that name.

    A key is kept for ``days``.
    """

    state: Path
    days: int
    held: str
    points: int

    @property
    def path(self) -> Path:
        """The file of the key."""
        return key_file(self.state)

    def of(self, ids: IdList) -> Blinding:
        """How ``ids`` are blinded; what is kept is on the disk before anybody hears of it.

        Raises:
            DataError: the file is damaged, or of another version.
            ConfigError: the disk refuses.
        """
        now = time.time()
        earlier = _read(self.path)
        if earlier is not None and not 0 <= now - earlier.made < self.days * _DAY:
            earlier = None
        anew = KeptBlinding(
            secrets.token_hex(8),
            secrets.token_bytes(_KEY_BYTES),
            now,
            np.empty((0, TAG_BYTES), np.uint8),
        )
        kept, blinding = blinding_of(ids, earlier, anew, self.held, self.points)
        if earlier is None or kept.name != earlier.name or len(kept.tags) > len(earlier.tags):
            self._write(kept)
        return blinding

    def _write(self, kept: KeptBlinding) -> None:
        file = io.BytesIO()
        np.savez(
            file,
            version=np.int64(_VERSION),
            name=np.array(kept.name),
            key=np.frombuffer(kept.key, np.uint8),
            made=np.float64(kept.made),
            tags=kept.tags,
        )
        write_whole(self.path, file.getvalue(), 0o600)


def key_file(state: Path) -> Path:
    """Where a party's own key lies, if it keeps one."""
    return state / _FOLDER / "own.npz"


def blinded_list_holds(state: Path, name: str) -> bool:
    """Whether the list whose key is kept has the id ``name``; DataError if the file is damaged."""
    kept = _read(key_file(state))
    return kept is not None and kept.holds(name)


def kept_points(state: Path) -> tuple[str, ...]:
    """The parties of whose lists points are kept here."""
    files = (state / _FOLDER).glob("*.*.npy")
    return tuple(sorted({path.stem.rpartition(".")[0] for path in files}))


def _read(path: Path) -> KeptBlinding | None:
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            version = int(file["version"])
            if version == _VERSION:
                return KeptBlinding(
                    str(file["name"]), bytes(file["key"]), float(file["made"]), file["tags"]
                )
    except Exception:  # NumPy and zipfile have many words for a damaged file
        raise DataError(
            f"{path}: not the key of an alignment; delete it, and all ids are blinded anew"
        ) from None
    raise DataError(
        f"{path}: version {version} is unknown; this fedmq reads version {_VERSION}, so "
        "use the fedmq that wrote the file"
    )


@dataclass(frozen=True, slots=True)
class KeptPoints:
    """The points of ``party``'s list that lie in the folder ``state`` of the active party."""

    state: Path
    party: str

    def path(self, name: str) -> Path:
        """The file of the list ``name``."""
        return self.state / _FOLDER / f"{self.party}.{name}.npy"

    def head(self) -> tuple[str, int]:
        """The name of the list and the number of its points; "" and 0 if there is none.

        A damaged file is none: the other party sends its list once more.
        """
        for path in sorted(self.path("x").parent.glob(f"{self.party}.*.npy")):
            with contextlib.suppress(OSError, ValueError):
                name = path.name.removeprefix(f"{self.party}.").removesuffix(".npy")
                if len(name) == 16 and (points := _mapped(path)).shape[1:] == (POINT_BYTES,):
                    return name, len(points)
        return "", 0

    def load(self, name: str, points: int) -> Points:
        """The list ``name``, as it lies on the disk; DataError if it is not there."""
        path = self.path(name)
        try:
            found = _mapped(path)
        except (OSError, ValueError):
            raise DataError(f"{path}: it was here and cannot be read now; align again") from None
        if found.shape != (points, POINT_BYTES):
            raise DataError(f"{path}: it has changed since the alignment began; align again")
        return found

    def keep(self, name: str, points: Points) -> None:
        """Write the list ``name`` in place of all others of this party."""
        file = io.BytesIO()
        np.save(file, points, allow_pickle=False)
        write_whole(self.path(name), file.getvalue(), 0o600)
        for path in self.path("x").parent.glob(f"{self.party}.*.npy"):
            if path != self.path(name):
                path.unlink(missing_ok=True)


def _mapped(path: Path) -> Points:
    found = np.load(path, mmap_mode="r", allow_pickle=False)
    if found.dtype != np.uint8:
        raise ValueError(f"no points, but {found.dtype}")
    points: Points = found
    return points
