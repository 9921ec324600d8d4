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
    from fedmq.privacy.engine import Engine

__all__ = ["CLASSES", "ENGINES", "engine_named"]

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
