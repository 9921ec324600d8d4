"""How a database is reached, through SQLAlchemy. Needs the extra fedmq[sql]."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedmq.errors import ConfigError

__all__ = ["driver_line", "sql_engine"]


def sql_engine(
    name: str, url: str, connecting: Callable[[Any], dict[str, Any]], **pool: Any
) -> Any:
    """An engine for ``url``; ``name`` begins every message.

    ``connecting`` makes the driver's arguments from the parsed URL; ``pool`` are SQLAlchemy's.

    Raises:
        ConfigError: a package is not installed, or the URL is none.
    """
    try:
        import sqlalchemy
    except ImportError:
        raise ConfigError("sqlalchemy is not installed; run: pip install 'fedmq[sql]'") from None
    try:
        parsed = sqlalchemy.make_url(url)
        return sqlalchemy.create_engine(parsed, connect_args=connecting(parsed), **pool)
    except (sqlalchemy.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            f"{name}: url: its driver is not installed ({driver_line(error)}); "
            "for PostgreSQL: pip install 'fedmq[postgresql]'"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError):  # which may quote a password
        raise ConfigError(f"{name}: url: not a database URL") from None


def driver_line(error: BaseException) -> str:
    """What the driver says, in one line; SQLAlchemy itself would add the whole statement."""
    reason = str(getattr(error, "orig", None) or error).strip()
    return reason.splitlines()[0] if reason else type(error).__name__
