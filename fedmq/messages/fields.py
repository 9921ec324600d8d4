"""Fields that messages share, among themselves and with the files that people write.

Every command reads a party's file, so nothing heavy is imported here.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

__all__ = [
    "LONGEST_CONSENT",
    "NAME_OF_MODEL",
    "NAME_OF_PARTY",
    "Count",
    "Index",
    "ModelId",
    "PartyName",
    "Reason",
    "Text",
    "TrainingId",
]

NAME_OF_PARTY = r"^[a-z][a-z0-9_-]{0,31}$"
PartyName = Annotated[str, Field(pattern=NAME_OF_PARTY)]
NAME_OF_MODEL = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ModelId = Annotated[str, Field(pattern=NAME_OF_MODEL)]
"""Safe as a file name: parties store their shares under it."""
Count = Annotated[int, Field(ge=0, lt=2**32)]
Index = Annotated[int, Field(ge=0, lt=2**32)]
Text = Annotated[str, Field(max_length=200)]
TrainingId = Annotated[str, Field(max_length=64)]
"""The session of a training; empty where a share says nothing of it."""
Reason = Annotated[str, Field(min_length=1, max_length=2000)]
LONGEST_CONSENT = 30 * 24 * 3600
"""Seconds for which a session waits for an owner's consent, at most."""
