"""What secret does a party keep for as long as its state folder lasts?

From it follows what must be the same whenever the same is asked, as the noise of a screen's
coefficients. Whoever reads it can take that noise off.
"""

from __future__ import annotations

import secrets
import threading
from pathlib import Path

from fedmq.errors import DataError
from fedmq.party.atomic_file import write_whole

__all__ = ["kept_secret"]

_BYTES = 32
_ONE_AT_A_TIME = threading.Lock()


def kept_secret(state: Path) -> bytes:
    """The 32 bytes in the folder ``state``, which are drawn when they are first asked for.

    Raises:
        DataError: the file is damaged, or cannot be read.
        ConfigError: the disk refuses.
    """
    path = state / "kept.secret"
    with _ONE_AT_A_TIME:
        try:
            secret = path.read_bytes()
        except FileNotFoundError:
            secret = secrets.token_bytes(_BYTES)
            write_whole(path, secret, 0o600)
        except OSError as error:
            raise DataError(f"{path}: cannot be read: {error.strerror}") from None
    if len(secret) != _BYTES:
        raise DataError(f"{path}: not a secret of {_BYTES} bytes; delete it, and one is drawn anew")
    return secret
