"""``/health/live`` and ``/health/ready``: for supervisors and load balancers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

__all__ = ["health_router"]


def health_router(troubles: Callable[[], Sequence[str]]) -> APIRouter:
    """``troubles`` says, in a line each, why the daemon cannot serve now; none: it can."""
    router = APIRouter(prefix="/health")

    @router.get("/live")
    async def live() -> dict[str, bool]:
        """Answers as long as the event loop turns; if it does not answer, restart the daemon."""
        return {"live": True}

    @router.get("/ready")
    async def ready() -> JSONResponse:
        """200 when sessions can be served, 503 with the reasons when not. No need to restart."""
        reasons = list(troubles())
        return JSONResponse(
            {"ready": not reasons, "reasons": reasons}, status_code=503 if reasons else 200
        )

    return router
