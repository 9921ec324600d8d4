"""A pure piece of arithmetic that any process can run.

A function of a module becomes one by its label; ``bind`` gives it its arguments::

    @computation("AddLeaves")
    def add_leaves(forest: Forest, leaves: NDArray[np.int32]) -> NDArray[np.float32]: ...

    margins = yield from single(add_leaves.bind(forest, leaves))

Called directly, it stays what it is: a function. A class with ``label`` and ``run()`` is needed
only by a computation that is asked for more than its result, or that has to detach its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, ParamSpec, Protocol, TypeVar, cast

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["Bound", "Computation", "Given", "Labelled", "Parts", "Rows", "computation"]

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Computation(Protocol):
    """A pure piece of arithmetic; it is picklable, so any process can run it.

    ``urgency`` is 0 when left out; a computation below 0 lets all others go first. An optional
    method ``detached()`` returns a copy for another machine, with only the rows that the
    computation reads. ``brief`` (false when left out) says that the way to another process takes
    longer. An optional method ``parted(parts)`` returns `Parts`, or None if they are not worth it.
    """

    @property
    def label(self) -> str:
        """The name in metrics and traces; it stays when code is renamed: dashboards use it."""

    def run(self) -> Any:
        """The result; the same on every machine."""


class Bound(partial[_T]):
    """A labelled function with its arguments; it is pickled as the function's name and them.

    It is shown as its label alone, for arguments may be large, and secret.
    """

    label = cast("str", property(attrgetter("func.label")))
    urgency = cast("int", property(attrgetter("func.urgency")))
    brief = cast("bool", property(attrgetter("func.brief")))
    run = partial.__call__

    def parted(self, parts: int) -> Parts | None:
        """The same in ``parts`` of its rows; None if that is not worth it."""
        in_parts = cast("Any", self.func).parted
        return None if in_parts is None else in_parts(parts, *self.args, **self.keywords)

    def __repr__(self) -> str:
        return self.label


class Labelled(Protocol[_P, _T]):
    """A function of a module that is a computation once its arguments are bound."""

    label: str
    urgency: int

    def __call__(self, *args: _P.args, **kwargs: _P.kwargs) -> _T: ...

    def bind(self, *args: _P.args, **kwargs: _P.kwargs) -> Bound[_T]:
        """The computation of these arguments."""


def computation(
    label: str,
    *,
    urgency: int = 0,
    brief: bool = False,
    parted: Callable[..., Parts | None] | None = None,
) -> Callable[[Callable[_P, _T]], Labelled[_P, _T]]:
    """Make a function of a module a computation; the rest is as in :class:`Computation`.

    ``parted`` takes the number of parts before the function's own arguments.
    """

    def labelled(function: Callable[_P, _T]) -> Labelled[_P, _T]:
        made = cast("Any", function)
        made.label, made.urgency, made.bind = label, urgency, partial(Bound, function)
        made.brief, made.parted = brief, parted
        return cast("Labelled[_P, _T]", made)

    return labelled


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """The rows of ``array`` from ``first`` to before ``stop``: an array once it is unpickled."""

    array: NDArray[Any]
    first: int
    stop: int

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.array[self.first : self.stop].copy("K").__reduce_ex__(protocol)


@dataclass(frozen=True, slots=True)
class Parts:
    """A computation in parts: part i reads the same rows of a table in all of them.

    ``join`` makes of the parts' results that of the whole, the same to the last bit.
    """

    computations: Sequence[Computation]
    join: Callable[[Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Given:
    """A computation that returns a constant."""

    label: ClassVar[str] = "Given"
    value: Any

    def run(self) -> Any:
        return self.value
