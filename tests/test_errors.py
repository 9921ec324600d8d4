"""The tree of errors: as it is drawn, as it ends commands, and as it travels over HTTP."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import re
from dataclasses import dataclass

import pytest

import fedmq
from fedmq import errors
from fedmq.errors import (
    AnswerRefused,
    ConfigError,
    DaemonError,
    DataError,
    FedmqError,
    LinkError,
    Overloaded,
    PeerAway,
    PeerSilent,
    Refused,
    SourceAway,
    TooManyRows,
    error_of_status,
)

LINE = re.compile(r"    (?P<branch>[ │├└─]*)(?P<name>\w+)(?P<rest> .*)")
EXIT_COLUMN, HTTP_COLUMN, TEXT_COLUMN = 36, 39, 45


@dataclass(frozen=True)
class DrawnError:
    parent: str | None
    exit_code: int | None
    http_status: int | None
    text: str


def drawn_tree() -> dict[str, DrawnError]:
    """The lines of the drawing in the module's docstring, by name of the class."""
    tree: dict[str, DrawnError] = {}
    path: list[str] = []
    drawing = (errors.__doc__ or "").partition("HTTP\n")[2].partition("\n\n")[0]
    for line in drawing.splitlines():
        match = LINE.fullmatch(line)
        assert match is not None, line
        depth = len(match["branch"]) // 4
        path = [*path[:depth], match["name"]]
        figures = [line[EXIT_COLUMN:HTTP_COLUMN], line[HTTP_COLUMN:TEXT_COLUMN]]
        exit_code, http_status = (int(figure) if figure.strip() else None for figure in figures)
        parent = path[depth - 1] if depth else None
        tree[match["name"]] = DrawnError(parent, exit_code, http_status, line[TEXT_COLUMN:].strip())
    return tree


def classes_of_fedmq() -> list[type[FedmqError]]:
    for module in pkgutil.walk_packages(fedmq.__path__, "fedmq."):
        importlib.import_module(module.name)
    found: list[type[FedmqError]] = [FedmqError]
    for error in found:
        found.extend(below for below in error.__subclasses__() if below.__module__[:5] == "fedmq")
    return found


def test_every_error_of_fedmq_is_declared_in_the_one_tree() -> None:
    assert {error.__module__ for error in classes_of_fedmq()} == {"fedmq.errors"}


def test_the_drawing_has_every_class_below_its_parent() -> None:
    drawn = {name: error.parent for name, error in drawn_tree().items()}
    declared = {
        error.__name__: None if error is FedmqError else error.__bases__[0].__name__
        for error in classes_of_fedmq()
    }
    assert drawn == declared
    assert all(error.text for error in drawn_tree().values())


def test_the_drawing_has_the_exit_code_and_the_status_that_a_class_sets() -> None:
    for error in classes_of_fedmq():
        drawn = drawn_tree()[error.__name__]
        own = vars(error)
        assert (drawn.exit_code, drawn.http_status) == (
            own.get("exit_code"),
            own.get("http_status"),
        ), error


def test_the_module_shows_every_class() -> None:
    declared = {name for name, _ in inspect.getmembers(errors, inspect.isclass)}
    assert {error.__name__ for error in classes_of_fedmq()} <= declared & set(errors.__all__)


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (FedmqError, 500),
        (ConfigError, 400),
        (DataError, 422),
        (SourceAway, 422),
        (TooManyRows, 413),
        (Refused, 403),
        (AnswerRefused, 503),
        (PeerAway, 503),
        (LinkError, 503),
        (PeerSilent, 504),
        (Overloaded, 429),
        (DaemonError, 409),
    ],
)
def test_an_error_has_its_status_in_http(error: type[FedmqError], status: int) -> None:
    assert error.http_status == status


@pytest.mark.parametrize(
    ("statuses", "error"),
    [
        ((400, 404, 413, 415, 422), DataError),
        ((429,), Overloaded),
        ((503, 504), PeerSilent),
        ((401, 403, 409, 421, 500, 502), DaemonError),
    ],
)
def test_a_client_raises_what_says_what_to_do(
    statuses: tuple[int, ...], error: type[FedmqError]
) -> None:
    assert {error_of_status(status) for status in statuses} == {error}


@pytest.mark.parametrize("error", [DataError, TooManyRows, Overloaded, PeerSilent, PeerAway])
def test_an_error_of_a_request_for_scores_comes_back_as_itself_or_its_parent(
    error: type[FedmqError],
) -> None:
    assert issubclass(error, error_of_status(error.http_status))
