"""All engines by name; a new one is a file in this room and a line here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmq.errors import ConfigError
from fedmq.privacy.engine import Engine
from fedmq.privacy.okamoto_uchiyama import OkamotoUchiyama
from fedmq.privacy.paillier import Paillier
from fedmq.privacy.plain import Plain

__all__ = ["ENGINES", "engine_named"]

ENGINES: Mapping[str, type[Engine]] = {
    engine.name: engine for engine in (Plain, Paillier, OkamotoUchiyama)
}


def engine_named(name: str, options: Mapping[str, Any], where: str) -> Engine:
    """The engine ``name`` with ``options``.

    Raises:
        ConfigError: there is no such engine or option; the text begins with ``where``.
    """
    engine = ENGINES.get(name)
    if engine is None:
        raise ConfigError(f"{where}: engine: {name!r} is unknown; use {', '.join(ENGINES)}")
    try:
        return engine(**options)
    except TypeError:
        allowed = ", ".join(engine.options()) or "none"
        given = ", ".join(options)
        raise ConfigError(
            f"{where}: engine {name!r} has no such options ({given}); it has {allowed}"
        ) from None
