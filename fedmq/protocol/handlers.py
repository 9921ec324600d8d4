"""Which method of a machine handles an event?"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fedmq.messages.body import Body

__all__ = ["Handler", "handlers_of", "on", "on_message"]

M = TypeVar("M")
E = TypeVar("E")
B = TypeVar("B", bound=Body)

Handler = Callable[..., None]

_EVENTS: dict[Handler, type] = {}


def on(event: type[E]) -> Callable[[Callable[[M, E], None]], Callable[[M, E], None]]:
    """Mark the method that handles events of this class, wherever the table allows them."""

    def mark(handler: Callable[[M, E], None]) -> Callable[[M, E], None]:
        _EVENTS[handler] = event
        return handler

    return mark


def on_message(
    body: type[B],
) -> Callable[[Callable[[M, str, B], None]], Callable[[M, str, B], None]]:
    """Mark the method that takes the sender and the body of messages of this class."""

    def mark(handler: Callable[[M, str, B], None]) -> Callable[[M, str, B], None]:
        _EVENTS[handler] = body
        return handler

    return mark


def handlers_of(machine: type[Any]) -> Mapping[type, Handler]:
    """The handlers of ``machine`` by event; a method that is overridden handles what it did."""
    names = {
        _EVENTS[method]: name
        for base in reversed(machine.__mro__)
        for name, method in vars(base).items()
        if callable(method) and method in _EVENTS
    }
    return {event: getattr(machine, name) for event, name in names.items()}
