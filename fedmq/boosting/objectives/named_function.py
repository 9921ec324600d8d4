"""Which function does ``package.module:function`` name?"""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fedmq.errors import ConfigError, DataError, FedmqError

__all__ = ["NamedFunction", "check_reference"]

_REFERENCE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)


def check_reference(reference: str) -> str:
    """``reference``; ValueError where it names no function of a module."""
    if _REFERENCE.fullmatch(reference) is None:
        raise ValueError(f"{reference!r} names no function; write package.module:function")
    return reference


@dataclass(frozen=True, slots=True)
class NamedFunction:
    """The function ``reference``, which ``key`` of a party's file names; called as itself.

    It is imported where it is called: a worker process needs no more than the name.
    """

    key: str
    reference: str

    def __call__(self, *arguments: Any) -> Any:
        """What the function gives.

        Raises:
            ConfigError: there is no such function.
            DataError: it raises an exception.
        """
        function = self.load()
        try:
            return function(*arguments)
        except FedmqError:
            raise
        except Exception as error:
            kind = type(error).__name__
            raise DataError(f"{self.key}: {self.reference} raised {kind}: {error}") from error

    def load(self) -> Callable[..., Any]:
        """The function itself.

        Raises:
            ConfigError: it cannot be imported, or is none.
        """
        module, _, name = self.reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name, None)
        except Exception as error:  # whatever a module does when it is imported
            raise ConfigError(
                f"{self.key}: module {module} cannot be imported where this party computes: {error}"
            ) from error
        if not callable(function):
            raise ConfigError(f"{self.key}: module {module} has no function {name!r}")
        loaded: Callable[..., Any] = function
        return loaded
