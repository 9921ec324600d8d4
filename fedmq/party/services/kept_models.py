"""What the owner asks about the models that this party has a share of. No session is opened."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from fedmq.errors import ConfigError
from fedmq.party.data.model_description import (
    CompareModels,
    DescribeModel,
    DescribeTree,
    ListModels,
)
from fedmq.party.services.service import Command, Service
from fedmq.party.sessions.running import OnProgress

__all__ = ["KeptModelsService"]


class KeptModelsService(Service):
    """Describes models, as far as this party may see them."""

    @property
    def commands(self) -> Mapping[str, Command]:
        return {
            "models": self._models,
            "model": self._model,
            "tree": self._tree,
            "compare": self._compare,
        }

    async def _models(self, _: Mapping[str, Any], __: OnProgress) -> Any:
        listing = ListModels(self.context.config.state, self.context.is_active)
        return await self.context.pool.run(listing)

    async def _model(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        state, active = self.context.config.state, self.context.is_active
        describe = DescribeModel(state, active, self._known(request["model"]))
        return await self.context.pool.run(describe)

    async def _tree(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        self.context.require_active("show a tree")
        model, number = self._known(request["model"]), int(request["tree"])
        return await self.context.pool.run(DescribeTree(self.context.config.state, model, number))

    async def _compare(self, request: Mapping[str, Any], _: OnProgress) -> Any:
        one, other = self._known(request["one"]), self._known(request["other"])
        state, active = self.context.config.state, self.context.is_active
        return await self.context.pool.run(CompareModels(state, active, one, other))

    def _known(self, model: object) -> str:
        """``model``, if it is one: what is no model's id never becomes part of a path."""
        if model not in self.context.model_store.ids():
            raise ConfigError(
                f"model {str(model)[:64]!r} has no share here; see: fedmq models list"
            )
        return str(model)
