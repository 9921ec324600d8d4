"""People and keys: the parties of the federation, their keys, and who may join."""

from __future__ import annotations

from starlette.responses import Response

from fedmq.party.console.page_request import Change, Changes, PageRequest, Shows

__all__ = ["ROUTES"]


async def people(request: PageRequest) -> Response:
    """The page."""
    status = await request.ask("status")
    return request.page(
        "people.html",
        parties=await request.ask("parties"),
        waiting=await request.ask("join_requests"),
        certificate_until=status["certificate_until"],
        sealed=status["sealed"],
        warnings=status["warnings"],
    )


async def admit(change: Change) -> Response:
    """Admit the party of a join request."""
    form = change.form
    done = await change.ask(
        "admit",
        text=form.get("text", ""),
        file=form.get("file", ""),
        fingerprint=form.get("fingerprint", ""),
    )
    return change.done("/people", f"{done['party']} is a party of the federation.")


ROUTES = (Shows("/people", people), Changes("/people/admit", admit))
