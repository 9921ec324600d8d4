"""``/health/live`` and ``/health/ready``: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import APIRouter, Request
from fastapi.responses import JSONResponse

from fedmq.party.http.guards import is_stranger

__all__ = ["health_router"]


def health_router(troubles: Callable[[], Sequence[str]]) -> APIRouter:
    """``troubles`` says, in a line each, why the daemon cannot serve now; none: it can."""
    router = APIRouter(prefix="/health")

    @router.get("/live")
    async def live() -> dict[str, bool]:
        """Answers as long as the event loop turns; if it does not answer, restart the daemon."""
        return {"live": True}

    @router.get("/ready")
    async def ready(request: Request) -> JSONResponse:
        """200 when sessions can be served, 503 when not. No need to restart.

        The reasons name the broker, so where there are tokens they are for whoever shows one.
        """
        reasons = list(troubles())
        answer = {"ready": not reasons} | ({} if is_stranger(request) else {"reasons": reasons})
        return JSONResponse(answer, status_code=503 if reasons else 200)

    return router
