"""All engines by name; a new one is a file in this room and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError

from fedmq.errors import ConfigError
from fedmq.privacy.engine import Engine
from fedmq.privacy.engines.lattice import Lattice
from fedmq.privacy.engines.ldp import Ldp
from fedmq.privacy.engines.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.engines.paillier import Paillier
from fedmq.privacy.engines.plain import Plain
from fedmq.privacy.engines.smm1 import Smm1
from fedmq.privacy.engines.smm2 import Smm2

__all__ = ["ENGINES", "engine_named"]

ENGINES: Mapping[str, type[Engine]] = {
    engine.name: engine for engine in (Plain, Paillier, OkamotoUchiyama, Lattice, Smm1, Smm2, Ldp)
}


def engine_named(name: str, options: Mapping[str, Any], where: str) -> Engine:
    """The engine ``name`` with ``options``.

    Raises:
        ConfigError: there is no such engine or option; the text begins with ``where``.
    """
    engine = ENGINES.get(name)
    if engine is None:
        raise ConfigError(f"{where}: engine: {name!r} is unknown; use {', '.join(ENGINES)}")
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
