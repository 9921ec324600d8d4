"""The terms that an owner is asked to approve, as plain data and in words."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedmq.boosting.model.share import PassiveShare
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.array import unpack_payload
from fedmq.messages.codec import pack_body
from fedmq.messages.online import ModelDeploy
from fedmq.messages.overlap import OverlapOpen
from fedmq.messages.screen import PairOpen, ScreenOpen
from fedmq.messages.training import TrainingOpen
from fedmq.party.configuration.policy import AskedSession, Particular
from fedmq.party.consent.measured_leaks import (
    CORRELATED_IN_WORDS,
    HIDDEN_SCREEN_IN_WORDS,
    PAGE,
    PAIRED_IN_WORDS,
    SCREENED_IN_WORDS,
    measured_leaks,
)
from fedmq.party.consent.person import Person
from fedmq.party.store.database import Database
from fedmq.party.store.journal import AnsweredSumsStore
from fedmq.party.store.screens import OwnChoice
from fedmq.privacy.engine import Engine
from fedmq.privacy.lattice.label_sums import told_bits
from fedmq.protocol.online.options import Mode
from fedmq.protocol.session_records import EarlierSums
from fedmq.protocol.training.terms import terms_digest

__all__ = ["RequestedTerms", "asked_in_words", "spent_sums", "terms_in_words"]


@dataclass(frozen=True, slots=True)
class RequestedTerms:
    """``name``: of the model or alignment. ``digest`` tells these terms from others."""

    peer: str
    kind: AskedSession
    name: str
    digest: str
    details: Mapping[str, Any]

    @property
    def says_all(self) -> bool:
        """Whether all terms are named; an earlier version of fedmq left some out."""
        return self.kind != "training" or "sampled" in self.details

    @classmethod
    def of_alignment(cls, peer: str, opening: AlignmentOpen) -> RequestedTerms:
        """The terms of an alignment that ``peer`` opens."""
        keeps = {} if opening.keeps is None else {"keeps_key": True}
        if keeps:  # what the active party has kept so far is no term
            opening = opening.model_copy(update={"keeps": "", "kept": 0})
        digest = hashlib.blake2b(pack_body(opening), digest_size=16).hexdigest()
        known = {} if opening.known_to is None else {"known_to": list(opening.known_to)}
        agreed = {"parties": list(opening.parties), "normalise": list(opening.normalise)}
        details = {**agreed, **known, **keeps}
        return cls(peer, "alignment", opening.name, digest, details)

    @classmethod
    def of_overlap(cls, peer: str, opening: OverlapOpen) -> RequestedTerms:
        """The terms of a count of shared people that ``peer`` opens."""
        digest = hashlib.blake2b(pack_body(opening), digest_size=16).hexdigest()
        details = {"parties": list(opening.parties), "normalise": list(opening.normalise)}
        return cls(peer, "overlap", opening.name, digest, details)

    @classmethod
    def of_screen(
        cls, peer: str, opening: ScreenOpen, measured: bool, correlates: bool = False
    ) -> RequestedTerms:
        """The terms of a screen that ``peer`` opens; ``measured``: labels are added up by bin.

        ``correlates``: this party tells how its columns are correlated with the peer's.
        """
        details: dict[str, Any] = {
            "alignment": opening.alignment_name,
            "rows": opening.rows,
            "looked_at": min(opening.rows, opening.most_rows),
            "bins": opening.bins,
            "measured": measured,
            **({"correlated": opening.correlated} if correlates else {}),
            **({"classes": opening.classes} if measured and opening.classes != 2 else {}),
            **({"least_steps": opening.least_steps} if measured and opening.least_steps else {}),
        }
        if isinstance(opening, PairOpen):
            details["pair"] = [opening.asks, opening.answers]
        # The key and the salt are others in the next session.
        named = f"{opening.name} {opening.seed} {sorted(details.items())}".encode()
        digest = hashlib.blake2b(named, digest_size=16).hexdigest()
        return cls(peer, "screen", opening.name, digest, details)

    @classmethod
    def of_training(
        cls, peer: str, opening: TrainingOpen, engine: Engine, own: OwnChoice | None = None
    ) -> RequestedTerms:
        """The terms of a training that ``peer`` opens; Refused if ``engine`` cannot meet them.

        ``own``: the columns that take part; None: all that the policy permits.
        """
        learned = engine.on_terms(opening.sums).disclosed
        public = unpack_payload(opening.public)
        evaluation_rows = int(opening.evaluation.numpy().sum())
        details = {
            "alignment": opening.alignment_name,
            "rows": opening.rows,
            "evaluation_rows": evaluation_rows,
            "training_rows": opening.rows - evaluation_rows,
            "sampled": opening.sampled,
            "engine": opening.engine,
            "engine_options": dict(engine.announced(public)),
            "key_bits": engine.key_bits_of(public),
            "sums": opening.sums,
            "chain": list(opening.chain),
            "trees": opening.trees,
            "own_trees": opening.active_only_trees,
            "max_depth": opening.max_depth,
            "max_leaves": opening.max_leaves,
            "max_bin": opening.max_bin,
            "columns_drawn": opening.colsample_bytree
            * opening.colsample_bylevel
            * opening.colsample_bynode,
            "gradient_bits": opening.value_bits + 1,
            "outputs": opening.outputs,
            "folds": opening.folds,
            "fallbacks": list(opening.fallbacks),
            "continues": opening.earlier_model,
            "earlier_trees": opening.earlier_trees,
            "fewest_categories": opening.max_cat_to_onehot,
            "columns_named": sorted({*opening.signs, *itertools.chain(*opening.together)}),
            "constraints": list(_constraints(opening)),
            "particulars": list(_particulars(opening)),
            **(
                {}
                if own is None
                else {
                    "screen": own.screen,
                    "selected": list(own.columns),
                    "columns": len(own.numbered),
                }
            ),
            "label_holder_learns": learned.active,
            "this_party_learns": learned.passive,
            "known_leak": engine.leak,
            "measured": [leak.described() for leak in measured_leaks(engine)],
            "measured_in": PAGE,
        }
        digest = terms_digest(opening)
        if options := engine.announced(public):
            # They travel among the keys, which may be others in the next attempt.
            named = f"{digest} {sorted(options.items())}".encode()
            digest = hashlib.blake2b(named, digest_size=16).hexdigest()
        return cls(peer, "training", opening.model, digest, details)

    @classmethod
    def of_serving(cls, peer: str, deploy: ModelDeploy) -> RequestedTerms:
        """The terms on which ``peer`` asks this party to serve a model."""
        return cls._of_activation(peer, deploy.model, {"name": deploy.alias, "mode": deploy.mode})

    @classmethod
    def of_switch(
        cls, party: str, person: Person, name: str, model: str, mode: Mode, before: str
    ) -> RequestedTerms:
        """The terms of a ``person`` of this ``party`` who gives ``name`` another model."""
        asked_by = {"name": person.name, "behind": person.behind}
        details = {"name": name, "mode": mode, "before": before, "asked_by": asked_by}
        return cls._of_activation(party, model, details)

    @classmethod
    def _of_activation(cls, peer: str, model: str, details: Mapping[str, Any]) -> RequestedTerms:
        named = json.dumps([model, details["name"], details["mode"]]).encode()
        digest = hashlib.blake2b(named, digest_size=16).hexdigest()
        return cls(peer, "activation", model, digest, details)

    @classmethod
    def of_joint_model(cls, peer: str, share: PassiveShare, named: bool) -> RequestedTerms:
        """The terms of ``peer``'s wish for all thresholds of ``share``, with names if ``named``."""
        table = share.lookup_table
        details = {
            "thresholds": len(table),
            "columns": len(np.unique(table.column_of[table.feature])),
            "named": named,
        }
        text = f"{share.model_id} {share.dumps()} {named}"
        digest = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        return cls(peer, "joint model", share.model_id, digest, details)

    @property
    def asked_by(self) -> Person | None:
        """The person of this party who asks; None where another party does."""
        found = self.details.get("asked_by")
        return None if found is None else Person(**found)


def _particulars(opening: TrainingOpen) -> Iterator[Particular]:
    if opening.earlier_model:
        yield "continues a model" if opening.trees else "refreshes a model"
    if opening.folds > 1:
        yield "cross-validation"
    if opening.signs:
        yield "monotone constraints"
    if opening.together:
        yield "interaction constraints"
    if opening.max_cat_to_onehot:
        yield "sets of categories"
    if opening.outputs > 1:
        yield "vector leaves"
    if opening.decoys:
        yield "decoys"
    if opening.fallbacks:
        yield "fallback models"


def _constraints(opening: TrainingOpen) -> Iterator[str]:
    """What the active party wants of the columns that it names, each in one text."""
    for column, sign in sorted(opening.signs.items()):
        yield f"{column} {'rises' if sign > 0 else 'falls'}"
    for columns in opening.together:
        yield f"together: {', '.join(sorted(columns))}"


def asked_in_words(request: Mapping[str, Any]) -> str:
    """A request of the daemon's ``inbox`` in one line."""
    if request["kind"] == "alignment":
        if "known_to" in request["terms"]:
            return f"{request['peer']} asks to find which of its people each party holds"
        return f"{request['peer']} asks to find the people that all parties share"
    if request["kind"] == "overlap":
        return f"{request['peer']} asks how many people all parties share"
    if request["kind"] == "screen":
        return f"{request['peer']} asks to see what your columns are like"
    if request["kind"] == "joint model":
        return f"{request['peer']} asks for all your thresholds in model {request['name']}"
    terms = request["terms"]
    if request["kind"] == "activation":
        who = Person(**terms["asked_by"]) if "asked_by" in terms else request["peer"]
        return f"{who} asks to serve model {request['name']} as {terms['name']}"
    what = f"train model {request['name']}" if terms["trees"] else _refresh_in_words(request)
    if terms["folds"] > 1:
        what = "cross-validate a model"
    return f"{request['peer']} asks to {what} on {_rows(terms['rows'])}"


def _refresh_in_words(request: Mapping[str, Any]) -> str:
    return f"weigh the leaves of model {request['terms']['continues']} anew, as {request['name']},"


def terms_in_words(request: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The request's terms as pairs: a heading, and the value in words."""
    terms = request["terms"]
    if request["kind"] == "activation":
        return [*_of_activation(request, terms)]
    if request["kind"] == "joint model":
        return [*_of_joint_model(terms)]
    return [*_ABOUT[request["kind"]](request, terms), *_spent(request["kind"], terms["spent"])]


def _of_alignment(
    request: Mapping[str, Any], terms: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield "alignment", request["name"]
    yield "parties", ", ".join(terms["parties"])
    yield "ids", ", ".join(terms["normalise"]) or "unchanged, as in the table"
    if terms.get("keeps_key"):
        yield (
            "kept key",
            f"{request['peer']} keeps your blinded ids and can link alignments for as long as "
            "kept_blinding_days of your policy says",
        )
    if (known_to := terms.get("known_to")) is not None:
        whom = f", if {' and '.join(known_to)} hold them" if known_to else ""
        yield (
            "people",
            f"all people of {request['peer']}{whom}; columns of a party that lacks one are missing",
        )
        yield "you learn", "at which places of the list your own people stand, and its length"
        yield (
            "active party learns",
            "which of its own people each party holds, and the number of ids of each other party",
        )
        return
    yield (
        "every party learns",
        "which of its own people all parties share, and the number of ids of each other party",
    )


def _of_overlap(request: Mapping[str, Any], terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    *_, counting = terms["parties"]
    yield "before alignment", request["name"]
    yield "parties", ", ".join(terms["parties"])
    yield "ids", ", ".join(terms["normalise"]) or "unchanged, as in the table"
    yield (
        "active party learns",
        "how many people all parties share, as `overlap` of your policy lets it be told, and the "
        "number of ids of each other party; nobody learns which people",
    )
    among = " and by any of them" if len(terms["parties"]) > 2 else ""
    yield f"{counting} learns", f"the exact number of ids shared by all{among}"


def _of_activation(
    request: Mapping[str, Any], terms: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    yield "mode", terms["mode"]
    if "asked_by" in terms:
        yield "served until now", terms["before"] or "no model"
        yield "who may say yes", f"anybody but {Person(**terms['asked_by'])}"
        return
    on_the_way = " on its way through a tree" if terms["mode"] == "hop" else ""
    yield (
        "active party learns",
        f"of each person whom it scores, the directions at your splits{on_the_way}",
    )


def _of_joint_model(terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    names = "with their names" if terms["named"] else "numbered, without names"
    yield "columns", f"{terms['columns']:,}, {names}"
    yield (
        "active party learns",
        f"all {terms['thresholds']:,} thresholds of this model: by the directions that it has seen "
        "and sees, between which thresholds the values of each person lie",
    )
    yield (
        "active party can",
        "score by itself whoever's values it has, without you, for as long as it keeps the file",
    )


def _of_screen(request: Mapping[str, Any], terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rows, drawn_rows = terms["rows"], terms["looked_at"]
    drawn = f", of whom {drawn_rows:,} are drawn" if drawn_rows < rows else ""
    yield "screen", request["name"]
    yield "alignment", terms["alignment"] or "none: all parties hold the same ids"
    yield "people", f"{_rows(rows)}{drawn}"
    if terms.get("pair"):
        first, second = terms["pair"]
        yield (
            "active party learns",
            f"how {terms['correlated']} columns of numbers of {first} are correlated with those of "
            f"{second}, in hundredths; neither of both reads the other's, or a coefficient",
        )
        yield "told by correlations", PAIRED_IN_WORDS
        return
    what = "of each column its type, missing values in hundredths, how many values in steps"
    if terms.get("correlated"):
        yield (
            "active party learns besides",
            f"how your columns of numbers are correlated with {terms['correlated']} of its own, "
            "which you cannot read, and with one another, in hundredths",
        )
        yield "told by correlations", CORRELATED_IN_WORDS
    if terms["measured"]:
        yield "bins of a column", f"at most {terms['bins']}"
        if steps := terms.get("least_steps"):
            yield (
                "active party learns",
                f"{what}, how many bins, and how well it tells the label: its information value in "
                f"steps of 0.02, from {steps * 0.02:.2f} on; sums stay hidden",
            )
            yield "you learn", "no label"
            yield "measured", HIDDEN_SCREEN_IN_WORDS
            return
        classes = terms.get("classes", 2)
        yield "active party learns", f"{what}, and {_by_bin(classes)} each bin, in no order"
        yield "you learn", "no label"
        yield "measured", SCREENED_IN_WORDS
        if classes != 2:
            yield (
                "such a label",
                f"an active party that lies reads the bins of {told_bits(drawn_rows, classes)} of "
                "the people, in every column",
            )
    else:
        yield "active party learns", what


def _by_bin(classes: int) -> str:
    if not classes:
        return "the sum of a label of numbers over the people of"
    if classes == 2:
        return "how many people with either label stand in"
    return f"how many people of each of {classes} labels stand in"


def _of_training(_: Mapping[str, Any], terms: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    held = terms["evaluation_rows"]
    aside = f", of which {held:,} only evaluate the model" if held else ""
    yield "alignment", terms["alignment"] or "none: all parties hold the same ids"
    yield "people", f"{_rows(terms['rows'])}{aside}"
    if terms.get("sampled", 1) < 1:
        yield "drawn for a tree", f"about {terms['sampled']:.3g} of the people"
    bits = terms["key_bits"]
    options = "".join(f", {name} = {of}" for name, of in terms.get("engine_options", {}).items())
    yield "engine", terms["engine"] + (f", keys of {bits:,} bits" if bits else "") + options
    if terms.get("chain"):
        yield "sums are hidden among", ", ".join(terms["chain"])
    alone = (
        f", the first {terms['own_trees']:,} from the active party's columns alone"
        if terms["own_trees"]
        else ""
    )
    folds = f" in {terms['folds']} folds together" if terms["folds"] > 1 else ""
    leaves = f", at most {most:,} leaves" if (most := terms["max_leaves"]) else ""
    if terms["trees"]:
        size = f"{terms['trees']:,}{folds}, at most {terms['max_depth']} deep{leaves}{alone}"
        yield "trees", size
    if fallbacks := terms.get("fallbacks"):
        times = "once" if len(fallbacks) == 1 else f"{len(fallbacks):,} times"
        yield (
            "fallback models",
            f"trained on the same terms {times} more, each counted as a training, without: "
            + ", ".join(fallbacks),
        )
    yield "cuts of a column", f"at most {terms['max_bin'] - 1:,}"
    if terms.get("columns_drawn", 1) < 1:
        yield "drawn for a node", f"about {terms['columns_drawn']:.3g} of the columns"
    each = f", {outputs:,} of each" if (outputs := terms.get("outputs", 1)) > 1 else ""
    yield "gradients", f"{terms['gradient_bits']} bits{each}"
    if terms["continues"]:
        trees = f", {earlier:,} trees" if (earlier := terms.get("earlier_trees")) else ""
        yield ("continues" if terms["trees"] else "refreshes"), f"model {terms['continues']}{trees}"
    said = ("continues a model", "refreshes a model")
    others = [found for found in terms["particulars"] if found not in said]
    if others:
        yield "with", ", ".join(others)
    if selected := terms.get("selected"):
        yield (
            "columns",
            f"{len(selected):,} of {terms['columns']:,}, which the active party has selected by "
            f"screen {terms['screen']}: {', '.join(selected)}",
        )
    if terms["columns_named"]:
        yield "names your columns", "; ".join(terms.get("constraints", terms["columns_named"]))
    yield "active party learns", terms["label_holder_learns"]
    yield "you learn", terms["this_party_learns"]
    if terms["known_leak"]:
        yield "known leak", terms["known_leak"]
    for leak in terms["measured"]:
        yield (
            "measured",
            f"{leak['what']}: {leak['measure']} {leak['value']:.3f} for {leak['who']}, where "
            f"guessing reaches {leak['guessing']:.3f}",
        )


_ABOUT = {
    "alignment": _of_alignment,
    "overlap": _of_overlap,
    "screen": _of_screen,
    "training": _of_training,
}


def _spent(kind: str, spent: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    plural = {"screen": "screens", "training": "trainings"}.get(kind, "alignments")
    yield (
        "spent today",
        f"{spent[plural]:,} of {spent[f'most_{plural}_per_day']:,} {plural}, this one included",
    )
    answered = spent["answered"]
    if kind == "training" and answered:
        yield (
            "sums answered so far",
            (
                f"{answered['sums_per_row']:,}{_of(answered['most'])} sums per row, about the "
                f"{answered['rows']:,} most queried rows"
            ),
        )


def _of(limit: float | None) -> str:
    return "" if limit is None else f" of {limit:,g}"


def _rows(rows: int) -> str:
    return f"{rows:,} people"


async def spent_sums(database: Database, limit: float) -> dict[str, Any] | None:
    """The number of answered sums about the most queried rows, and the limit, None if infinite.

    None before the first answer.
    """
    found = await AnsweredSumsStore(database).trainings()
    trainings = [replace(training, reserved=0.0) for training in found]
    if not trainings:
        return None
    answered = EarlierSums.of("", 0, limit, trainings)
    row_sets = {training.row_set.sketch.tobytes(): training.row_set for training in trainings}
    sums, rows = max((answered.by_others(found), found.rows) for found in row_sets.values())
    most = None if math.isinf(limit) else limit
    return {"sums_per_row": round(sums, 1), "rows": rows, "most": most}
