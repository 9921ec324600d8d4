"""The dossier of a simulated model: one process knows all columns, and nobody signed or served."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from fedmq.evaluation.bill_of_materials import packages_here
from fedmq.evaluation.card import card_of
from fedmq.evaluation.dossier import Dossier, Sources, dossier_of
from fedmq.evaluation.report import Report
from fedmq.leakage.audit import AuditReport
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.online import DriftSection

if TYPE_CHECKING:
    from fedmq.simulation.model import SimulatedModel

__all__ = ["simulated_dossier"]


def simulated_dossier(
    model: SimulatedModel,
    purpose: str,
    report: Report | None,
    audits: Sequence[AuditReport],
    label: Sequence[str],
) -> Dossier:
    """The dossier of ``model``, as its method says."""
    share = model.share
    card = card_of(share, "simulation", None, report, {}, DriftSection(rows=0))
    own, *others = share.parties
    gains = sorted(model.get_score("total_gain").items(), key=lambda item: -item[1])
    columns = [(*name.partition(".")[::2], gain) for name, gain in gains]
    return dossier_of(
        Sources(
            party=own,
            purpose=purpose,
            label=tuple(label),
            file=CardFile(card=card),
            signatures=(),
            report=report,
            columns=None,
            importance=columns,
            packages=packages_here(),
            params=share.params.model_dump(mode="json", exclude_none=True),
            offered=model.columns[own],
            named={party: model.columns[party] for party in others},
            history=share.history,
            audits=[("", found.as_dict()) for found in audits],
            no_reasons="model.predict(pred_contribs=True) has them",
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            simulated=True,
        )
    )
