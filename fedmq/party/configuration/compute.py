"""``[compute]`` of a party's file: which workers run its arithmetic, in how much memory."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from fedmq.party.configuration.toml_file import Section

__all__ = ["ComputeSection", "dask_address"]

_SCHEME = "dask://"
_UNITS = {"KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def _bytes(text: str) -> str:
    number, _, unit = text.partition(" ")
    if unit not in _UNITS or not number.replace(".", "", 1).isdigit():
        raise ValueError(f"{text!r} is no size; write a number, a space, and KB, MB, GB or TB")
    return text


def dask_address(url: str) -> str:
    """``dask://host:port`` as Dask's own address; ``dask://tls://host:port`` keeps its scheme.

    Raises:
        ValueError: the URL is none.
    """
    rest = url.removeprefix(_SCHEME)
    if rest == url or ":" not in rest:
        raise ValueError(f"{url!r} is no address of a Dask scheduler; write dask://host:8786")
    return rest if "://" in rest else f"tcp://{rest}"


def _dask(url: str) -> str:
    dask_address(url)
    return url


class ComputeSection(Section):
    """Worker processes for the arithmetic, and the memory for what they share.

    All cores and all memory when left out. Ciphertexts beyond ``memory`` ("2 GB") lie in files in
    the party's state folder while a tree grows.
    """

    workers: Annotated[int, Field(ge=1)] | None = None
    """Worker processes; one per core when left out."""
    dask: Annotated[str, AfterValidator(_dask)] | None = None
    """A Dask scheduler, whose workers compute instead: written ``compute = "dask://…"``."""
    memory: Annotated[str, AfterValidator(_bytes)] | None = None
    """Memory for what they share, such as "2 GB"; what goes beyond lies in the state folder."""

    @property
    def memory_bytes(self) -> int | None:
        """``memory`` as a number."""
        if self.memory is None:
            return None
        number, _, unit = self.memory.partition(" ")
        return int(float(number) * _UNITS[unit])
