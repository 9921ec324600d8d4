"""A model card for people: the same facts as its JSON, in Markdown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from fedmq.party.card.card_file import CardFile, Signature
from fedmq.party.card.model_card import ModelCard

__all__ = ["markdown_of"]


def markdown_of(file: CardFile, signatures: Sequence[Signature]) -> str:
    """The page of a card; ``signatures`` as the federation's keys have verified them."""
    card = file.card
    parts = [
        f"# {card.model}",
        f"A model of federation {card.federation}, described on {card.made}.",
        _table(("", ""), _facts(card)),
        "## How good it is",
        *_quality(card),
        "## What each party's columns brought",
        _table(
            ("party", "splits", "total gain"),
            (
                (party, f"{card.splits.get(party, 0):,}", _number(gain))
                for party, gain in card.total_gain.items()
            ),
        ),
        *_worth(card),
        "## What was disclosed",
        *_disclosed(card),
        "## Parameters",
        _table(("parameter", "value"), ((name, _value(value)) for name, value in _params(card))),
        "## Who has signed",
        _table(("party", "share (SHA-256)", "agreed", "signature"), _signed(file, signatures)),
    ]
    return "\n\n".join(parts) + "\n"


def _facts(card: ModelCard) -> Iterator[Sequence[str]]:
    yield "parties", f"{card.parties[0]} (holds the label), {', '.join(card.parties[1:])}"
    yield "objective", card.objective
    yield "trees", f"{card.trees:,}"
    yield "as XGBoost", "; ".join(card.departures) or "yes, node by node"
    if card.drift is not None:
        yield (
            "drift",
            f"an alarm above a population stability index of {card.drift.threshold:g}, over the "
            f"{card.drift.rows:,} people scored last, from {card.drift.least_rows:,} on",
        )
    training = card.training
    if training is None:
        yield "training", "not recorded"
        return
    yield "trained", f"{training.began} to {training.ended}, session {training.session}"
    yield "rows learned from", f"{training.rows:,}"
    yield "rows held out", f"{training.held_out:,}"
    yield "people in common", f"{training.rows + training.held_out:,}"
    yield "alignment", training.alignment or "none: all parties hold the same ids"


def _quality(card: ModelCard) -> Iterator[str]:
    evaluation = card.evaluation
    if evaluation is not None:
        yield f"On {evaluation.rows}, which it did not learn from ({evaluation.made}):"
        yield _table(
            ("metric", "value", "95 % interval"),
            (
                (
                    name,
                    _number(figure.value),
                    f"{_number(figure.low)} to {_number(figure.high)}"
                    if figure.low is not None
                    else "",
                )
                for name, figure in evaluation.metrics.items()
            ),
        )
        if evaluation.calibration:
            yield _table(
                ("mean score", "share of ones", "rows"),
                (
                    (_number(mean), _number(rate), f"{rows:,.0f}")
                    for mean, rate, rows in evaluation.calibration
                ),
            )
    if card.metrics:
        yield "After the last tree of the training:"
        yield _table(
            ("metric", "value"), ((name, _number(value)) for name, value in card.metrics.items())
        )
    if evaluation is None and not card.metrics:
        yield "No rows were held out: it is not known."


def _worth(card: ModelCard) -> Iterator[str]:
    if card.worth:
        yield "Trained again without one party, on the same rows:"
        yield _table(
            ("without", "metric", "with", "without", "difference"),
            (
                (
                    party,
                    worth.metric,
                    _number(worth.value),
                    _number(worth.without),
                    _number(worth.difference),
                )
                for party, worth in card.worth.items()
            ),
        )


def _disclosed(card: ModelCard) -> Iterator[str]:
    if card.training is not None:
        engine = card.training.engine
        yield _table(
            ("engine", engine.name),
            (
                ("exact", "yes" if engine.exact else "no"),
                (f"{card.parties[0]} learned beyond the model", engine.active_learns),
                ("the others learned beyond the model", engine.passive_learns),
                *([("known leak", engine.known_leak)] if engine.known_leak else []),
            ),
        )
    held = [words for party, held in card.withheld.items() for words in held.in_words(party)]
    yield "Withheld: " + ("; ".join(held) if held else "nothing") + "."


def _params(card: ModelCard) -> Iterator[tuple[str, object]]:
    return ((name, value) for name, value in card.params.items() if value != [])


def _signed(file: CardFile, signatures: Sequence[Signature]) -> Iterator[Sequence[str]]:
    for signature in signatures:
        endorsement = file.of(signature.party)
        if endorsement is None:
            yield signature.party, "", "", "not signed"
            continue
        agreed = "asked for the training"
        if signature.party != file.card.parties[0]:
            agreed = "not recorded"
        if endorsement.agreed is not None:
            agreed = f"{endorsement.agreed.at}, entry {endorsement.agreed.number} of its audit log"
        key = f"by key {signature.fingerprint}" * bool(signature.fingerprint)
        yield signature.party, f"`{endorsement.share}`", agreed, f"{signature.state} {key}".strip()


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:,.6g}"


def _value(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)
