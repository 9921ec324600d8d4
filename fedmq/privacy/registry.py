"""All engines by name; a new one is a file in `fedmq.privacy.engines` and a line here.

Listing names imports no arithmetic: an engine's file is imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter, ValidationError

from fedmq.errors import ConfigError

if TYPE_CHECKING:
    from fedmq.boosting.params import TrainParams
    from fedmq.privacy.engine import Engine

__all__ = ["CLASSES", "ENGINES", "cheapest_to_hide_sums", "engine_named"]

CLASSES = {
    "plain": "fedmq.privacy.engines.plain:Plain",
    "paillier": "fedmq.privacy.engines.paillier:Paillier",
    "ou": "fedmq.privacy.engines.okamoto_uchiyama:OkamotoUchiyama",
    "lattice": "fedmq.privacy.engines.lattice:Lattice",
    "smm1": "fedmq.privacy.engines.smm1:Smm1",
    "smm2": "fedmq.privacy.engines.smm2:Smm2",
    "ldp": "fedmq.privacy.engines.ldp:Ldp",
}
"""By name: the module of an engine, and its class there."""


# What sums cost before circuits compare them, with keys of 2048 bits (docs/measured/wide.md).
# Circuits have the same work with both engines.
_BYTES_PER_SECOND = 12_500_000  # of a link with 100 Mbit/s
_QUERY_BYTES = 24  # of a row, for each query
_CIPHER_SECONDS = 50e-6  # to encrypt a row under ou, and to send it
_PRODUCT_SECONDS = 1.2e-6  # to add a row to a column's sums
_SHOW_SECONDS = 0.2e-3  # to pack, mask and decrypt a sum


class _Engines(Mapping[str, "type[Engine]"]):
    """The classes by name, each imported on first access."""

    def __getitem__(self, name: str) -> type[Engine]:
        module, _, kind = CLASSES[name].partition(":")
        engine: type[Engine] = getattr(import_module(module), kind)
        return engine

    def __contains__(self, name: object) -> bool:
        return name in CLASSES

    def __iter__(self) -> Iterator[str]:
        return iter(CLASSES)

    def __len__(self) -> int:
        return len(CLASSES)


ENGINES: Mapping[str, type[Engine]] = _Engines()


def engine_named(name: str, options: Mapping[str, Any], where: str) -> Engine:
    """The engine ``name`` with ``options``.

    Raises:
        ConfigError: there is no such engine or option; the text begins with ``where``.
    """
    if name not in ENGINES:
        raise ConfigError(f"{where}: engine: {name!r} is unknown; use {', '.join(ENGINES)}")
    engine = ENGINES[name]
    unknown = [option for option in options if option not in engine.options()]
    if unknown:
        allowed = ", ".join(engine.options()) or "none"
        raise ConfigError(
            f"{where}: engine_options: engine {name!r} has no {unknown[0]!r}; it has {allowed}"
        )
    try:
        return TypeAdapter(engine).validate_python(dict(options)) if options else engine()
    except ConfigError as error:
        raise ConfigError(f"{where}: engine_options: {error}") from None
    except ValidationError as error:
        first = error.errors()[0]
        raise ConfigError(
            f"{where}: engine_options: {first['loc'][0]} = {first['input']!r}: {first['msg']}"
        ) from None


def cheapest_to_hide_sums(
    rows: int, columns: int, candidates: int, trees: int, params: TrainParams
) -> str:
    """The engine that hides sums in the least time: ``lattice``, or ``ou`` for many candidates.

    ``columns`` and ``candidates`` are the most that one passive party has. A lattice's hints are
    sent once, one for each candidate; `ou` encrypts every row of every tree, and packs, masks and
    decrypts every sum that is asked about. Where hints are longer than a lattice takes, it is `ou`.
    """
    from fedmq.privacy.engines.lattice import Lattice
    from fedmq.privacy.lattice.parameters import MOST_ROWS, Layout

    layout = Layout(min(rows, MOST_ROWS), hidden=True)
    hints = candidates * layout.hint_bytes
    if hints > Lattice.hint_bytes:
        return "ou"
    nodes = (1 << params.depth_limit) - 1  # that are asked about
    if params.max_leaves:
        nodes = min(nodes, 2 * params.max_leaves)
    # One of two siblings is asked about, and added up: half of the rows at most.
    queries = (nodes + 1) // 2
    by_lattice = hints + trees * queries * rows * _QUERY_BYTES
    levels = 1 + (params.depth_limit - 1) / 2
    per_row = _CIPHER_SECONDS + columns * levels * _PRODUCT_SECONDS
    by_ou = trees * (rows * per_row + queries * candidates * _SHOW_SECONDS)
    return "lattice" if by_lattice / _BYTES_PER_SECOND <= by_ou else "ou"
