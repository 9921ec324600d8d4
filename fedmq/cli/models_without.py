"""``fedmq models without``: what the active party goes on with when a party leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from fedmq.boosting.model.fallbacks import fallback_names
from fedmq.boosting.model.pruned import pruned_to_own
from fedmq.boosting.model.share import ActiveShare, departures_in_words
from fedmq.cli.output import json_option, print_next_step, print_result
from fedmq.cli.party_daemon import PARTY_HELP, noted, party_argument
from fedmq.cli.train import watched
from fedmq.errors import ConfigError
from fedmq.party.configuration.job import TrainingJob
from fedmq.party.store.documents import held_out_rows, training_records
from fedmq.workbench.own_shares import OwnShares

__all__ = ["without"]


@click.command(epilog=PARTY_HELP)
@party_argument
@click.argument("model")
@click.argument("leaving")
@click.option(
    "--prune",
    is_flag=True,
    help="Train nothing: make leaves of all other parties' splits.",
)
@json_option
def without(party: Path, model: str, leaving: str, prune: bool, as_json: bool) -> None:
    """Have MODEL without the party LEAVING: kept, retrained, or pruned, as the end says.

    A fallback model without it is kept as it is. Otherwise the active party trains anew with the
    parties that stay, by the job of MODEL. With --prune it keeps its own splits alone, which takes
    nobody and no training, and scores worse. What is made stands in for MODEL where [online]
    unknown is "fallback".
    """
    shares = OwnShares(party)
    if not shares.is_active:
        raise ConfigError(
            f"{party}: only {shares.federation.active} has the trees; {shares.party} may delete "
            "its share, with: fedmq models delete"
        )
    share = shares.store.active(model)
    if leaving not in share.parties[1:]:
        passive = ", ".join(share.parties[1:]) or "none"
        raise ConfigError(f"{leaving} is no passive party of model {model}; those are: {passive}")
    kept = shares.store.fallbacks(share).get(frozenset((leaving,)))
    if prune:
        how, found = "pruned", _pruned(shares, share)
    elif kept is not None:
        how, found = "kept", kept
    else:
        how, found = "retrained", _retrained(party, shares, share, leaving, as_json)
    result = {
        "model": found.model_id,
        "without": sorted(set(share.parties) - set(found.parties)),
        "how": how,
        "departures": list(found.departures),
        "metrics": found.metrics,
        "metrics_with": share.metrics,
    }
    print_result(result, as_json, _in_words)
    print_next_step(as_json, "evaluate", party, found.model_id, "--output report")


def _pruned(shares: OwnShares, share: ActiveShare) -> ActiveShare:
    name = fallback_names(share.model_id, share.parties[1:])[frozenset(share.parties[1:])]
    _check_new(shares, name)
    made = pruned_to_own(share, name)
    held_out = held_out_rows(shares.state)
    if held_out.path(share.model_id).exists():
        held_out.keep(name, held_out.read(share.model_id))
    shares.store.save(made)
    noted(shares.state, "model pruned", model=name)
    return made


def _retrained(
    party: Path, shares: OwnShares, share: ActiveShare, leaving: str, quiet: bool
) -> ActiveShare:
    record = training_records(shares.state).find(share.model_id)
    if record is None:
        raise ConfigError(
            f"model {share.model_id} cannot be trained again: its training is not recorded; "
            "--prune keeps the own splits of its trees"
        )
    of = record.job.of_fallback(share.model_id, share.parties[1:], {leaving})
    name = fallback_names(share.model_id, share.parties[1:])[frozenset((leaving,))]
    _check_new(shares, name)
    job = TrainingJob(**{key: getattr(of, key) for key in TrainingJob.model_fields})
    watched(party, {"do": "train", "job": job.model_dump(mode="json")}, quiet, job)
    made = shares.store.active(name).model_copy(update={"fallback_of": share.model_id})
    shares.store.save(made)
    return made


def _check_new(shares: OwnShares, name: str) -> None:
    if shares.store.path(name).exists():
        raise ConfigError(
            f"there is a model {name} already; delete it with: fedmq models delete PARTY {name}"
        )


def _in_words(done: Any) -> str:
    figures = "".join(
        f"; {name} {value:.5f}, and {done['metrics_with'][name]:.5f} with all"
        for name, value in done["metrics"].items()
        if name in done["metrics_with"]
    )
    return (
        f"{done['model']}, without {', '.join(done['without'])}: {done['how']}{figures}\n"
        f"as XGBoost: {departures_in_words(done['departures'])}"
    )
