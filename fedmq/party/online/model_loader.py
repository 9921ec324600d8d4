"""Which models and rows are in memory, and are they fresh?"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedmq.boosting.model.served_forest import ServedForest
from fedmq.boosting.model.share import ActiveShare
from fedmq.boosting.model.tree import Agreed
from fedmq.computation import Computation
from fedmq.errors import DataError, FedmqError
from fedmq.messages.inference import SealedTerms
from fedmq.party.compute.pool import ComputePool
from fedmq.party.online.answering import Answering, LoadedShare, load_share
from fedmq.party.online.rows import ServingSource
from fedmq.party.online.scoring import Scorer, ServedModel
from fedmq.party.store.documents import (
    Deployment,
    Deployments,
    ModelStore,
    read_column_names,
    sealed_secrets,
    sealed_terms,
)
from fedmq.privacy.sealed_scores.machine_ring import translate
from fedmq.protocol.online.options import Mode
from fedmq.protocol.online.sealed_active import MOST_CIPHERTEXTS
from fedmq.protocol.sealed_sums import SealedModel, prepare_sealed
from fedmq.transport.background_tasks import BackgroundTasks
from fedmq.transport.link import PriorityGate

__all__ = ["ModelLoader", "ReadModel"]

log = logging.getLogger(__name__)

_GRACE = 120.0  # seconds: longer than any deadline
_RETRY = 2.0  # seconds until a failed load is tried again


@dataclass(frozen=True, slots=True, eq=False)
class ReadModel:
    """A model with its rows, and the source's stamp before they were read."""

    served: ServedModel
    stamp: Any


class ModelLoader:
    """Loads the models of ``deployments``, and reloads those whose rows may be out of date.

    The active party's models go to ``scorer``, a passive party's shares to ``answering``.
    ``max_age``: seconds after which rows are compared with their source. From the first model on,
    ``gate`` makes the computations of ``pool`` give way to scores. ``reasons``: what this party
    publishes of its columns, by name.
    """

    def __init__(
        self,
        *,
        is_active: bool,
        model_store: ModelStore,
        deployments: Deployments,
        source: ServingSource,
        scorer: Scorer,
        answering: Answering,
        pool: ComputePool,
        gate: PriorityGate,
        max_age: float,
        reasons: Mapping[str, str],
    ) -> None:
        self._is_active = is_active
        self._model_store = model_store
        self._deployments = deployments
        self._source = source
        self._scorer = scorer
        self._answering = answering
        self._pool = pool
        self._gate = gate
        self._max_age = max_age
        self._reasons = reasons
        self._state = deployments.path.parent
        self._stamps: dict[str, Any] = {}
        """The source's stamps at the time when the rows of each served model were read."""
        self._tasks = BackgroundTasks()

    async def start(self) -> None:
        """Load the models that were served before; a model that cannot be loaded is logged."""
        for deployment in self._deployments.kept():
            await self._load(deployment)
        self._tasks.spawn(self._refresh())

    async def close(self) -> None:
        """Stop loading."""
        await self._tasks.close()

    async def stamp(self) -> Any:
        """The source's present stamp; it changes when rows are replaced."""
        return await asyncio.to_thread(self._source.stamp)

    def is_fresh(self, model: str) -> bool:
        """Whether the rows of ``model`` in memory match the source."""
        return bool(self._stamps.get(model) == self._source.stamp())

    # The active party's side

    async def read(self, model: str, mode: Mode) -> ReadModel:
        """Read the model and its rows, without serving it.

        Raises:
            DataError: the share or the rows cannot be read, or the model is too large for the mode.
            ConfigError: the disk refuses the secret of sealed scores.
        """
        stamp = await self.stamp()
        share = await asyncio.to_thread(self._model_store.active, model)
        forest = await asyncio.to_thread(ServedForest.of, share)
        load = self._source.reading.of(share.lookup_table.feature_names, model)
        rows = self._source.served(await self._pool.run(load))
        sealed = await self._sealed(share) if mode == "sealed" and share.asked else None
        return ReadModel(ServedModel(forest, rows, mode, sealed), stamp)

    async def _sealed(self, share: ActiveShare) -> SealedModel:
        """The model as it is sealed, under the secret that it has had since it was first served."""
        kept = sealed_secrets(self._state)
        secret = await asyncio.to_thread(kept.find, share.model_id)
        if secret is None:
            secret = secrets.token_bytes(32)
            await asyncio.to_thread(kept.keep, share.model_id, secret)
        model: SealedModel = await self._pool.run(prepare_sealed.bind(share, secret))
        if model.packing.ciphertexts(1) > MOST_CIPHERTEXTS:
            raise DataError(
                f"model {share.model_id} has {model.packing.slots:,} leaves; online, mode 'sealed' "
                f"takes {MOST_CIPHERTEXTS} ciphertexts of a row: use mode 'hop'"
            )
        return model

    async def explained(self, read: ReadModel, agreed: Agreed) -> ReadModel:
        """The model with the reasons for its scores to which the other owners ``agreed``."""
        names = await asyncio.to_thread(read_column_names, self._state, read.served.id)
        named = agreed.named(names)
        served = await asyncio.to_thread(read.served.explained, named, self._reasons)
        return ReadModel(served, read.stamp)

    def serve(self, name: str, read: ReadModel) -> None:
        """Score with the model from now on, by its id and by ``name``."""
        # One assignment: a request sees the old model or the new one, and keeps it.
        self._scorer.models[name] = self._scorer.models[read.served.id] = read.served
        self._loaded(read.served.id, read.stamp, read.served.sealed is not None)
        self._forget_later()

    # A passive party's side

    def computation(
        self,
        model: str,
        left: tuple[int, ...],
        right: tuple[int, ...],
        terms: SealedTerms | None = None,
    ) -> Computation:
        """Load this party's share with chains ``left`` and ``right``, and its rows.

        ``terms`` are given in mode sealed.
        """
        return load_share.bind(self._model_store, self._source.reading, model, left, right, terms)

    def host(self, model: str, share: LoadedShare, stamp: Any) -> None:
        """Answer with the share from now on; ``stamp`` dates from before its rows were read."""
        self._answering.shares[model] = share.hosted(self._source)
        self._loaded(model, stamp, share.sealed is not None)
        self._forget_later()

    # Both sides

    def _loaded(self, model: str, stamp: Any, is_sealed: bool) -> None:
        self._stamps[model] = stamp
        self._pool.give_way(self._gate)
        if is_sealed:  # before somebody waits for a score
            self._tasks.spawn(asyncio.to_thread(translate))

    def _forget_later(self) -> None:
        # Running batches may still ask for a model without a name.
        asyncio.get_running_loop().call_later(_GRACE, self._forget)

    def _forget(self) -> None:
        """Drop the models that have no name now and had none just before."""
        kept = {deployment.model for deployment in self._deployments.kept()}
        self._answering.forget_all_but(kept)
        self._scorer.forget_all_but(kept)

    async def _load(self, deployment: Deployment, level: int = logging.ERROR) -> None:
        model = deployment.model
        try:
            if self._is_active:
                read = await self.read(model, deployment.mode)
                read = await self.explained(read, deployment.agreed)
                self._scorer.models[model] = read.served
                for name, named in self._deployments.names().items():
                    if named == deployment:
                        self._scorer.models[name] = read.served
                self._loaded(model, read.stamp, read.served.sealed is not None)
            else:
                stamp = await self.stamp()
                terms = None
                if deployment.mode == "sealed":
                    kept = sealed_terms(self._state)
                    terms = await asyncio.to_thread(kept.read, model)
                load = self.computation(model, deployment.left, deployment.right, terms)
                share: LoadedShare = await self._pool.run(load)
                self._answering.shares[model] = share.hosted(self._source)
                self._loaded(model, stamp, share.sealed is not None)
        except FedmqError as error:
            log.log(level, "model %s is not served: %s", model, error)

    async def _refresh(self) -> None:
        """Reread rows that may be out of date, and retry failed loads."""
        tried: Any = None
        while True:
            served = self._scorer.models if self._is_active else self._answering.shares
            lacking = {deployment.model for deployment in self._deployments.kept()} - served.keys()
            await asyncio.sleep(min(self._max_age, _RETRY) if lacking else self._max_age)
            now = await self.stamp()
            level = logging.DEBUG if now == tried else logging.ERROR
            for deployment in self._deployments.kept():
                old = now is not None and self._stamps.get(deployment.model) != now
                if old or deployment.model in lacking:
                    await self._load(deployment, level)
            tried = now
