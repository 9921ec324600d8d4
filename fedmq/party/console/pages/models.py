"""Models: description, comparison and serving of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from fedmq.errors import ConfigError
from fedmq.party.console.drawings import charts_of_report, curves, outline
from fedmq.party.console.visit import Change, Changes, Shows, Visit

__all__ = ["ROUTES"]


async def models(visit: Visit) -> Response:
    """The list of models, and the served ones."""
    listed = await visit.ask("models")
    return visit.page("models.html", models=listed[::-1], **await _served(visit))


async def serving(visit: Visit) -> Response:
    """The served models and their current state."""
    return visit.part("models_serving.html", **await _served(visit))


async def model(visit: Visit) -> Response:
    """One model."""
    found = await visit.ask("model", model=visit.parameter("model"))
    served = await visit.ask("serving")
    report, card = found.get("report"), found.get("card")
    return visit.page(
        "model.html",
        found=found,
        names=_names(served, found["model"]),
        curves=json.dumps(_learning_curves(found)),
        report=report,
        charts=json.dumps(charts_of_report(report["charts"])) if report else "[]",
        card=None if card is None else card.get("card"),
        signed=[] if card is None else [one["party"] for one in card.get("endorsements", ())],
    )


async def tree(visit: Visit) -> Response:
    """One tree of a model."""
    name, number = visit.parameter("model"), visit.request.query_params.get("tree", "1")
    if not number.isdecimal() or len(number) > 6:
        raise ConfigError("tree: write the number of a tree, from 1")
    nodes = await visit.ask("tree", model=name, tree=int(number))
    return visit.part("model_tree.html", model=name, number=int(number), nodes=outline(nodes))


async def comparison(visit: Visit) -> Response:
    """The differences of two models."""
    asked = visit.request.query_params
    one, other = asked.get("one", ""), asked.get("other", "")
    rows = await visit.ask("compare", one=one, other=other)
    return visit.page("comparison.html", one=one, other=other, rows=rows)


async def activate(change: Change) -> Response:
    """Make all parties serve a model under a name."""
    name, mode = change.parameter("model"), change.form.get("mode") or None
    under = change.form.get("name", "").strip() or "production"
    if mode not in (None, "hop", "bitmap"):
        raise ConfigError("mode: hop or bitmap is taken")
    done = await change.ask("activate", model=name, name=under, mode=mode)
    return change.done("/models", f"{done['name']} is model {done['model']} from now on.")


async def roll_back(change: Change) -> Response:
    """Return a name to its previous model."""
    done = await change.ask("rollback", name=change.parameter("name"))
    return change.done("/models", f"{done['name']} is model {done['model']} again.")


ROUTES = (
    Shows("/models", models),
    Shows("/serving", serving),
    Shows("/comparison", comparison),
    Shows("/models/{model}", model),
    Shows("/models/{model}/tree", tree),
    Changes("/models/{model}/activate", activate),
    Changes("/serving/{name}/roll-back", roll_back),
)


async def _served(visit: Visit) -> dict[str, Any]:
    status = await visit.ask("status")
    return {"serving": await visit.ask("serving"), "drift": status["drift"]}


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
