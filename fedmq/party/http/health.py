"""``/health/live`` and ``/health/ready``: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Callable

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from fedmq.party.http.guards import is_stranger
from fedmq.party.operations.health import Health

__all__ = ["health_router"]


def health_router(health: Callable[[], Health]) -> APIRouter:
    """The endpoints that show the ``health`` of this moment."""
    router = APIRouter(prefix="/health")

    @router.get("/live")
    async def live() -> dict[str, bool]:
        """Answers as long as the event loop turns; if it does not answer, restart the daemon."""
        return {"live": True}

    @router.get("/ready")
    async def ready(request: Request) -> JSONResponse:
        """200 when sessions can be served, 503 when not. No need to restart.

        The reasons name the broker and parties; where tokens are needed, only a caller that shows
        one sees them.
        """
        now = health()
        answer = {"ready": now.ready} if is_stranger(request) else now.described()
        return JSONResponse(answer, status_code=200 if now.ready else 503)

    return router
