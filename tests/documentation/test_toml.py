"""Pieces of configuration are pieces of a file that fedmq reads."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import BaseModel

from fedmq.errors import ConfigError
from fedmq.party.configuration.federation import Federation
from fedmq.party.configuration.job import AlignmentJob, ScreenJob, TrainingJob
from fedmq.party.configuration.party import PartyFile
from fedmq.party.configuration.schedule import Schedule
from tests.documentation.fences import Fence, pages_with, to_run

WHOLE: Mapping[type[BaseModel], Mapping[str, Any]] = {
    PartyFile: {
        "party": "bank",
        "federation": "federation.toml",
        "broker": "amqp://bank:secret@127.0.0.1/",
        "data": {"path": "data.csv", "id": "id"},
    },
    TrainingJob: {"party": "party.toml"},
    AlignmentJob: {"party": "party.toml", "name": "customers"},
    ScreenJob: {"party": "party.toml", "name": "look"},
    Schedule: {},
    Federation: {"federation": "demo", "active": "bank", "passive": ["telco"]},
}
"""Each file with all that it must have."""

PIECES = [fence for page in pages_with("toml") for fence in to_run("toml", page)]


def refusals(text: str) -> list[str]:
    """Why no file takes this piece; empty if one does."""
    piece = tomllib.loads(text)
    reasons = []
    for model, whole in WHOLE.items():
        try:
            model.model_validate(merged(whole, piece))
        except (ConfigError, ValueError) as error:
            reasons.append(f"{model.__name__}: {error}")
        else:
            return []
    return reasons


def merged(whole: Mapping[str, Any], piece: Mapping[str, Any]) -> dict[str, Any]:
    """The file with the piece in it; a source that is no CSV file has no path."""
    data = piece.get("data", {})
    place = {} if "query" in data else whole.get("data", {})
    return {**whole, **piece, **({"data": {**place, **data}} if "data" in whole | piece else {})}


@pytest.mark.parametrize("fence", PIECES, ids=str)
def test_a_piece_of_configuration_belongs_to_a_file(fence: Fence) -> None:
    assert not refusals(fence.text)


@pytest.mark.parametrize("text", ["[polici]\n", "[policy]\nengine = ['ou']\n", "data.pat = 'x'\n"])
def test_a_misspelt_key_belongs_to_none(text: str) -> None:
    assert len(refusals(text)) == len(WHOLE)
