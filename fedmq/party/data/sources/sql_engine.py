"""Access to a database through SQLAlchemy. Needs the extra fedmq[sql]."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from fedmq.errors import ConfigError, SourceAway

__all__ = ["driver_line", "sql_engine", "sqlite_file"]


def sql_engine(
    name: str, url: str, connecting: Callable[[Any], dict[str, Any]], **pool: Any
) -> Any:
    """An engine for ``url``; ``name`` begins every message. Connecting makes no SQLite file.

    ``connecting`` makes the driver's arguments from the parsed URL; ``pool`` are SQLAlchemy's.

    Raises:
        ConfigError: a package is not installed, or ``url`` is not a database URL.
    """
    try:
        import sqlalchemy
    except ImportError:
        raise ConfigError("sqlalchemy is not installed; run: pip install 'fedmq[sql]'") from None
    try:
        parsed = sqlalchemy.make_url(url)
        engine = sqlalchemy.create_engine(parsed, connect_args=connecting(parsed), **pool)
    except (sqlalchemy.exc.NoSuchModuleError, ImportError) as error:
        raise ConfigError(
            f"{name}: url: its driver is not installed ({driver_line(error)}); "
            "for PostgreSQL: pip install 'fedmq[postgresql]'"
        ) from None
    except (sqlalchemy.exc.ArgumentError, ValueError):  # which may quote a password
        raise ConfigError(f"{name}: url: not a database URL") from None
    file = sqlite_file(engine)
    if file is not None:

        @sqlalchemy.event.listens_for(engine, "do_connect")
        def check(*_: Any) -> None:
            if not file.exists():
                raise SourceAway(f"{name}: there is no such file")

    return engine


def sqlite_file(engine: Any) -> Path | None:
    """The file of a SQLite database; None for one in memory, and for any other database."""
    url = engine.url
    named = url.database and not url.database.startswith((":", "file:"))
    return Path(url.database) if url.get_backend_name() == "sqlite" and named else None


def driver_line(error: BaseException) -> str:
    """The driver's own message, in one line; SQLAlchemy would add the whole statement."""
    reason = str(getattr(error, "orig", None) or error).strip()
    return reason.splitlines()[0] if reason else type(error).__name__
