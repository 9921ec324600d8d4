"""What does the client library raise when a connection fails, and what is it called here?"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager

from aio_pika.exceptions import CONNECTION_EXCEPTIONS, ChannelInvalidStateError

from fedmq.errors import LinkError
from fedmq.transport.background_tasks import being_cancelled

__all__ = ["link_errors"]


@contextmanager
def link_errors(doing: str) -> Iterator[None]:
    """Turn whatever the client library raises into a `LinkError` that names what failed."""
    try:
        yield
    except TimeoutError as error:
        raise LinkError(f"{doing}: no answer in time") from error
    except asyncio.CancelledError as error:
        if being_cancelled():
            raise
        raise LinkError(f"{doing}: the connection was lost") from error
    except ChannelInvalidStateError as error:
        raise LinkError(f"{doing}: the connection was closed") from error
    except CONNECTION_EXCEPTIONS as error:
        raise LinkError(f"{doing}: {str(error) or type(error).__name__}") from error
    except Exception as error:
        # When a channel closes, aiormq raises a plain Exception from calls that are under way.
        if type(error) is not Exception:
            raise
        raise LinkError(f"{doing}: the connection was closed") from error
