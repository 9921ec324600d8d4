"""The dossier of a simulated model: one process knows all columns, and nobody signed or served."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from fedmq.boosting.model.share import ActiveShare
from fedmq.evaluation.bill_of_materials import packages_here
from fedmq.evaluation.card import card_of
from fedmq.evaluation.dossier import Sources, dossier_of
from fedmq.evaluation.dossier_page import Dossier
from fedmq.evaluation.report import Report
from fedmq.leakage.audit import AuditReport
from fedmq.party.card.signed_card import CardFile
from fedmq.party.configuration.online import DriftSection

__all__ = ["simulated_dossier"]


def simulated_dossier(
    share: ActiveShare,
    columns: Mapping[str, Sequence[str]],
    gains: Mapping[str, float],
    purpose: str,
    report: Report | None,
    audits: Sequence[AuditReport],
    label: Sequence[str],
) -> Dossier:
    """The dossier of the model of ``share``.

    ``columns``: all of each party; ``gains``: the total of each ``party.column`` that splits.
    """
    card = card_of(share, "simulation", None, report, {}, DriftSection(rows=0))
    own, *others = share.parties
    strongest = sorted(gains.items(), key=lambda item: -item[1])
    return dossier_of(
        Sources(
            party=own,
            purpose=purpose,
            label=tuple(label),
            file=CardFile(card=card),
            signatures=(),
            report=report,
            columns=None,
            importance=[(*name.partition(".")[::2], gain) for name, gain in strongest],
            packages=packages_here(),
            params=share.params.model_dump(mode="json", exclude_none=True),
            offered=columns[own],
            named={party: columns[party] for party in others},
            history=share.history,
            audits=[("", found.as_dict()) for found in audits],
            no_reasons="model.predict(pred_contribs=True) has them",
            made=datetime.now(UTC).isoformat(timespec="seconds"),
            simulated=True,
        )
    )
