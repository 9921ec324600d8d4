"""Models: description, comparison and serving of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.console.drawings import charts_of_report, curves, outline
from fedmq.party.console.page_request import Change, Changes, PageRequest, Shows, clock

__all__ = ["ROUTES"]


async def models(request: PageRequest) -> Response:
    """The list of models, and the served ones."""
    listed = await request.ask("models")
    return request.page("models.html", models=listed[::-1], **await _served(request))


async def serving(request: PageRequest) -> Response:
    """The served models and their current state."""
    return request.part("models_serving.html", **await _served(request))


async def model(request: PageRequest) -> Response:
    """One model."""
    found = await request.ask("model", model=request.parameter("model"))
    served = await request.ask("serving")
    report, card = found.get("report"), found.get("card")
    return request.page(
        "model.html",
        found=found,
        names=_names(served, found["model"]),
        curves=json.dumps(_learning_curves(found)),
        report=report,
        charts=json.dumps(charts_of_report(report["charts"])) if report else "[]",
        card=None if card is None else card.get("card"),
        signed=[] if card is None else [one["party"] for one in card.get("endorsements", ())],
    )


async def tree(request: PageRequest) -> Response:
    """One tree of a model."""
    name, number = request.parameter("model"), request.http.query_params.get("tree", "1")
    if not number.isdecimal() or len(number) > 6:
        raise ConfigError("tree: write the number of a tree, from 1")
    nodes = await request.ask("tree", model=name, tree=int(number))
    return request.part("model_tree.html", model=name, number=int(number), nodes=outline(nodes))


async def comparison(request: PageRequest) -> Response:
    """The differences of two models."""
    asked = request.http.query_params
    one, other = asked.get("one", ""), asked.get("other", "")
    rows = await request.ask("compare", one=one, other=other)
    return request.page("comparison.html", one=one, other=other, rows=rows)


async def activate(change: Change) -> Response:
    """Make all parties serve a model under a name."""
    name, mode = change.parameter("model"), change.form.get("mode") or None
    under = change.form.get("name", "").strip() or "production"
    if mode not in (None, "hop", "bitmap", "sealed"):
        raise ConfigError("mode: write hop, bitmap or sealed")
    done = await change.ask("activate", model=name, name=under, mode=mode, watch=False)
    return _switched(change, done, "from now on")


async def roll_back(change: Change) -> Response:
    """Return a name to its previous model."""
    done = await change.ask("rollback", name=change.parameter("name"), watch=False)
    return _switched(change, done, "again")


def _switched(change: Change, done: Mapping[str, Any], since: str) -> Response:
    if waits := done.get("waits"):
        until = clock(waits["until"])
        text = f"Another person has to say yes in the Inbox until {until}: {waits['request']}."
        return change.done("/models", text)
    return change.done("/models", f"{done['name']} is model {done['model']} {since}.")


ROUTES = (
    Shows("/models", models),
    Shows("/serving", serving),
    Shows("/comparison", comparison),
    Shows("/models/{model}", model),
    Shows("/models/{model}/tree", tree),
    Changes("/models/{model}/activate", activate),
    Changes("/serving/{name}/roll-back", roll_back),
)


async def _served(request: PageRequest) -> dict[str, Any]:
    status = await request.ask("status")
    return {"serving": await request.ask("serving"), "drift": status["drift"]}


def _names(served: Mapping[str, Any], model: str) -> list[str]:
    """The served names of ``model``; at a passive party, whether it answers for the model."""
    held = served["models"]
    if isinstance(held, Mapping):
        return [name for name, found in held.items() if found["model"] == model]
    return ["online scores"] if model in held else []


def _learning_curves(found: Mapping[str, Any]) -> list[dict[str, Any]]:
    history = found.get("curve", {})
    length = max(map(len, history.values()), default=0)
    return curves([float(number + 1) for number in range(length)], history)
