"""The shares of a party, read from its state folder."""

from __future__ import annotations

from pathlib import Path

from fedmq.boosting.model.share import ActiveShare, PassiveShare
from fedmq.errors import DataError
from fedmq.party.card.model_card import Worth
from fedmq.party.configuration.party import PartyFile
from fedmq.party.store.documents import ModelStore
from fedmq.party.store.share_file import check_owner

__all__ = ["OwnShares"]


class OwnShares:
    """The shares of the party configured in the file ``path``."""

    def __init__(self, path: Path) -> None:
        config, federation = PartyFile.read(path)
        self.config, self.federation = config, federation
        self.party = config.party
        self.is_active = config.party == federation.active
        self.state = config.state
        self.store = ModelStore(config.state)

    def share(self, model: str | None) -> ActiveShare | PassiveShare:
        """The share of ``model``, or of the newest one; DataError if there is none."""
        return self.checked(self.store.newest() if model is None else model)

    def checked(self, model: str) -> ActiveShare | PassiveShare:
        """The share of ``model``; DataError if it is missing, damaged or another party's."""
        share = self.store.active(model) if self.is_active else self.store.passive(model)
        where = str(self.store.path(model))
        if share.model_id != model:
            raise DataError(f"{where}: the share of model {share.model_id}")
        check_owner(share, self.party, where)
        return share

    def worths(self, share: ActiveShare) -> dict[str, Worth]:
        """The last metric of a model without each partner of which it has a fallback model."""
        if not share.metrics:
            return {}
        found = self.store.fallbacks(share)
        without = {partner: found.get(frozenset((partner,))) for partner in share.parties[1:]}
        return {
            partner: Worth.of(share, model)
            for partner, model in without.items()
            if model is not None
        }
