"""What an owner is asked to agree to, as a person reads it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

__all__ = ["asked_in_words", "terms_in_words"]


def asked_in_words(request: Mapping[str, Any]) -> str:
    """What a request of the daemon's ``inbox`` asks for, in a line."""
    if request["kind"] == "alignment":
        return f"{request['peer']} asks to find the people that all parties share"
    terms = request["terms"]
    what = f"train model {request['name']}"
    if terms["folds"] > 1:
        what = "cross-validate a model"
    return f"{request['peer']} asks to {what} on {_rows(terms['rows'])}"


def terms_in_words(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Its terms: what each is about, and what it is."""
    terms = request["terms"]
    about = _of_alignment if request["kind"] == "alignment" else _of_training
    return [*about(request, terms), *_spent(request["kind"], terms["spent"])]


def _of_alignment(
    request: Mapping[str, Any], terms: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield "alignment", request["name"]
    yield "parties", ", ".join(terms["parties"])
    yield "ids", ", ".join(terms["normalise"]) or "as they stand in the table"
    yield (
        "what is learnt",
        "each party learns which of its people all share, and how many ids each of the others has",
    )


def _of_training(_: Mapping[str, Any], terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    held = terms["evaluation_rows"]
    aside = f", of which {held:,} are only scored" if held else ""
    yield "alignment", terms["alignment"] or "none: rows are matched without one"
    yield "people", f"{_rows(terms['rows'])}{aside}"
    bits = terms["key_bits"]
    yield "engine", terms["engine"] + (f", keys of {bits:,} bits" if bits else "")
    alone = f", the first {terms['own_trees']:,} by its own columns" if terms["own_trees"] else ""
    folds = f" in {terms['folds']} folds together" if terms["folds"] > 1 else ""
    yield "trees", f"{terms['trees']:,}{folds}, at most {terms['max_depth']} deep{alone}"
    yield "cuts of a column", f"at most {terms['max_bin'] - 1:,}"
    yield "gradients", f"{terms['gradient_bits']} bits"
    if terms["continues"]:
        yield "continues", f"model {terms['continues']}"
    others = [found for found in terms["particulars"] if found != "continues a model"]
    if others:
        yield "with", ", ".join(others)
    if terms["columns_named"]:
        yield "names your columns", ", ".join(terms["columns_named"])
    yield "label holder learns", terms["label_holder_learns"]
    yield "you learn", terms["this_party_learns"]
    if terms["known_leak"]:
        yield "known leak", terms["known_leak"]
    for leak in terms["measured"]:
        yield (
            "measured",
            f"{leak['what']}: {leak['measure']} {leak['value']:.3f} for {leak['who']}, where "
            f"guessing reaches {leak['guessing']:.3f}",
        )


def _spent(kind: str, spent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    plural = f"{kind}s"
    yield (
        "spent today",
        f"{spent[plural]:,} of {spent[f'most_{plural}_per_day']:,} {plural}, this one included",
    )
    answered = spent["answered"]
    if kind == "training" and answered:
        yield (
            "spent of all sums",
            f"{answered['sums_per_row']:,} of {answered['most']:,g} sums per row about the "
            f"{answered['rows']:,} rows that were asked about most",
        )


def _rows(rows: int) -> str:
    return f"{rows:,} people"
