"""An owner said yes to like sessions: what else does the yes cover? Each field of each opening."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedmq.errors import DaemonError, Refused
from fedmq.messages.alignment import AlignmentOpen
from fedmq.messages.array import Bitmap, pack_payload
from fedmq.messages.body import Body
from fedmq.messages.inference import InferenceOpen
from fedmq.messages.model_request import (
    ModelCardOffer,
    ModelColumns,
    ModelDelete,
    ModelGroups,
    ModelQuestion,
    ModelSplits,
)
from fedmq.messages.online import ModelDeploy
from fedmq.messages.overlap import OverlapOpen
from fedmq.messages.screen import PairOpen, ScreenOpen
from fedmq.messages.training import MainTraining, SelectedColumns, TrainingOpen
from fedmq.party.assembly import SERVICES
from fedmq.party.configuration.online import OnlineSection
from fedmq.party.configuration.policy import PolicySection, StandingConsent
from fedmq.party.configuration.toml_file import parse_toml
from fedmq.party.consent.owner_consent import covers, standing_consent, toml_of
from fedmq.party.consent.terms import RequestedTerms, terms_in_words
from fedmq.party.services.deployment import DeploymentService
from fedmq.party.services.model_request import QUESTIONS
from fedmq.party.services.service import Service
from fedmq.party.services.training import TrainingService
from fedmq.party.store.screens import OwnChoice
from fedmq.privacy.lattice.parameters import VERSION
from fedmq.privacy.registry import engine_named
from tests.party.consent.test_policy_consent import HEADER, consent, terms

OPTIONS = {"lattice": {"directions": "all"}}


def held_out(rows: int, of: int = 100) -> Bitmap:
    return Bitmap.of(np.arange(of) < rows)


def offering(**more: Any) -> Any:
    """The public values of `lattice`; with an ``offer`` directions of other rows stay hidden."""
    return pack_payload(
        {"hint_bytes": 5, "version": VERSION, "seed": np.zeros(32, np.uint8), **more}
    )


OBLIVIOUS = {"engine": "lattice", "public": offering(offer=np.zeros((2, 256), np.uint8))}
CONTINUES = {"earlier_model": "a", "earlier_trees": 3}
VECTORS = {"outputs": 3}

NUMBERED = tuple((name, (name,)) for name in ("age", "calls", "sms"))


def selecting(*numbers: int) -> dict[str, Any]:
    return {"selected": SelectedColumns(screen="look", session="s", numbers=numbers)}


TOLD: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "rows": ({}, {"rows": 101, "evaluation": held_out(1, 101)}),
    "evaluation": ({}, {"evaluation": held_out(1)}),
    "sampled": ({}, {"sampled": 0.05}),
    "alignment_name": ({"alignment_name": "people"}, {"alignment_name": "others"}),
    "engine": ({}, {"engine": "ou"}),
    "public": (OBLIVIOUS, OBLIVIOUS | {"public": offering()}),
    "sums": ({"sums": "hidden"}, {"sums": "shown"}),
    "chain": ({"chain": ("telco", "retail")}, {"chain": ("telco", "stranger")}),
    "trees": ({}, {"trees": 11}),
    "active_only_trees": ({"active_only_trees": 9}, {"active_only_trees": 0}),
    "max_depth": ({}, {"max_depth": 4}),
    "max_leaves": ({"max_leaves": 3}, {"max_leaves": 0}),
    "max_bin": ({}, {"max_bin": 33}),
    "colsample_bytree": ({}, {"colsample_bytree": 0.1}),
    "colsample_bylevel": ({}, {"colsample_bylevel": 0.1}),
    "colsample_bynode": ({}, {"colsample_bynode": 0.1}),
    "value_bits": ({"value_bits": 3}, {"value_bits": 4}),
    "outputs": (VECTORS, {"outputs": 4}),
    "signs": ({"signs": {"age": 1}}, {"signs": {"age": -1}}),
    "together": ({"together": (("age", "calls"),)}, {"together": (("age",), ("calls",))}),
    "earlier_trees": (CONTINUES, CONTINUES | {"earlier_trees": 4}),
    "decoys": ({}, {"decoys": True}),
    "folds": ({"folds": 5}, {"folds": 40}),
    "max_cat_to_onehot": ({"max_cat_to_onehot": 8}, {"max_cat_to_onehot": 4}),
    "fallbacks": ({"fallbacks": ("retail",)}, {"fallbacks": ("retail", "power")}),
    "selected": (selecting(1, 2), {}),
}
"""The terms that the owner is told: what was agreed to, and what goes beyond it."""

FREE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "model": ({}, {"model": "other"}),  # a name
    "alignment": ({}, {"alignment": "other"}),  # another run of the alignment that is named
    "seed": ({}, {"seed": 7}),  # which rows and columns are drawn, not how many
    "earlier_model": (CONTINUES, CONTINUES | {"earlier_model": "b"}),  # its trees are counted
    "earlier_places": (CONTINUES, CONTINUES | {"earlier_places": bytes(32)}),  # a check
    "signed_circuits": ({}, {"signed_circuits": True}),  # what both sides sign
    "narrow": ({}, {"narrow": True}),  # the same gradients in fewer bytes
    # It is taken only beside the training that was agreed to, once for each of its `fallbacks`.
    "fallback_of": (
        {},
        {
            "fallback_of": MainTraining(
                session="s", model="m", fallbacks=("retail",), without="retail"
            )
        },
    ),
}
"""The terms that change nothing of what is told."""

ALIGNED = {"name": "people", "parties": ("bank", "telco"), "normalise": ("lower",)}
TOLD_OF_ALIGNMENTS: dict[str, Any] = {
    "name": "others",
    "parties": ("bank", "telco", "retail"),
    "normalise": ("lower", "strip"),
    "known_to": ("telco",),  # a left join: who is missing at the others is told
    "keeps": "0123456789abcdef",  # a key that is kept links alignments
}
FREE_OF_ALIGNMENTS = {"kept": 5}  # what the active party has of a list already

COUNTED = {name: ALIGNED[name] for name in ("name", "parties", "normalise")}
TOLD_OF_COUNTS: dict[str, Any] = {name: TOLD_OF_ALIGNMENTS[name] for name in COUNTED}

SCREENED: dict[str, Any] = {
    **{"name": "look", "alignment": "12ab/1", "alignment_name": "people", "salt": "s"},
    **{"rows": 100, "most_rows": 90, "seed": 0, "bins": 10},
    **{"correlated": 3, "elements": "0f" * 32},
}
TOLD_OF_SCREENS: dict[str, Any] = {
    "alignment_name": "others",
    "rows": 101,
    "most_rows": 89,  # fewer people are a part of those that were asked about
    "bins": 11,
    "correlated": 4,
    "classes": 3,
}
FREE_OF_SCREENS: dict[str, Any] = {
    "name": "other",
    "alignment": "34cd/1",  # another run of the alignment that is named
    "salt": "t",
    "seed": 7,  # which people are drawn, not how many
    "elements": "1e" * 32,  # of this session alone
    "least_steps": 1,  # counts tell more than steps
}

BY_POLICY: dict[type[Body], dict[str, str]] = {
    InferenceOpen: {
        "rows": "most_rows_per_hour",
        "explained_records": "explain",
        "sealed": "modes",
        "asks_changes": "changes",
    },
    ModelDeploy: {"mode": "modes", "sealed": "modes"},
    ModelCardOffer: {"card": "sign_cards"},
    ModelDelete: {"model": "delete_models"},
    ModelColumns: {"model": "column_names"},
    ModelGroups: {"column": "groups", "people": "smallest_group"},
    ModelSplits: {"model": "joint_models"},  # and the owner is asked about each, never alike
}
"""Openings that no yes to like sessions covers: the key of the policy that refuses, by field."""

FREE_BY_POLICY: dict[type[Body], set[str]] = {
    InferenceOpen: {"model", "training", "id_pieces", "partial"},
    ModelDeploy: {"alias", "model", "training", "left", "right"},
    ModelCardOffer: {"model"},
    ModelGroups: {"model", "public"},
    ModelSplits: {"only_asks"},
}


def asked(**changes: Any) -> RequestedTerms:
    opening = terms(**changes)
    engine = engine_named(opening.engine, OPTIONS.get(opening.engine, {}), "telco")
    chosen = opening.selected
    own = chosen and OwnChoice(screen="look", numbered=NUMBERED, numbers=chosen.numbers)
    return RequestedTerms.of_training("bank", opening, engine, own)


def aligned(**changes: Any) -> RequestedTerms:
    opening = AlignmentOpen.model_validate(ALIGNED | changes)
    return RequestedTerms.of_alignment("bank", opening)


def counted(**changes: Any) -> RequestedTerms:
    return RequestedTerms.of_overlap("bank", OverlapOpen.model_validate(COUNTED | changes))


def screened(measured: bool = True, **changes: Any) -> RequestedTerms:
    opening = ScreenOpen.model_validate(SCREENED | changes)
    return RequestedTerms.of_screen("bank", opening, measured, opening.correlated > 0)


def openings() -> set[type[Body]]:
    """Every body that opens a session at a passive party."""
    services = [TrainingService, DeploymentService, *SERVICES]
    made = [service.__new__(service) for service in services if isinstance(service, type)]
    return {body for one in made if isinstance(one, Service) for body in one.opened_sessions}


def test_every_field_of_every_opening_is_told_free_or_refused() -> None:
    asked_about = {TrainingOpen, AlignmentOpen, OverlapOpen, ScreenOpen, PairOpen}
    assert openings() == asked_about | set(BY_POLICY)
    assert TOLD.keys() | FREE.keys() == TrainingOpen.model_fields.keys()
    assert not TOLD.keys() & FREE.keys()
    assert (
        TOLD_OF_ALIGNMENTS.keys() | FREE_OF_ALIGNMENTS.keys() == AlignmentOpen.model_fields.keys()
    )
    assert TOLD_OF_COUNTS.keys() == OverlapOpen.model_fields.keys()
    assert TOLD_OF_SCREENS.keys() | FREE_OF_SCREENS.keys() == ScreenOpen.model_fields.keys()
    assert not TOLD_OF_SCREENS.keys() & FREE_OF_SCREENS.keys()
    for opening, refused in BY_POLICY.items():
        free = FREE_BY_POLICY.get(opening, set())
        assert refused.keys() | free == opening.model_fields.keys(), opening.kind
        known = PolicySection.model_fields | OnlineSection.model_fields
        assert set(refused.values()) <= known.keys()
        if issubclass(opening, ModelQuestion):
            assert QUESTIONS[opening].policy in refused.values()


@pytest.mark.parametrize("field", TOLD)
def test_a_yes_covers_nothing_that_tells_more(field: str) -> None:
    before, beyond = TOLD[field]
    agreed, more = asked(**before), asked(**beyond)
    assert dict(agreed.details) != dict(more.details)
    assert not covers(standing_consent(agreed), more)
    assert covers(standing_consent(agreed), agreed)
    assert covers(standing_consent(more), more)


@pytest.mark.parametrize("numbers", [(1,), (1, 3), (1, 2, 3)])
def test_a_yes_to_selected_columns_covers_no_others(numbers: tuple[int, ...]) -> None:
    agreed = standing_consent(asked(**selecting(1, 2)))
    assert covers(agreed, asked(**selecting(1, 2)))
    assert not covers(agreed, asked(**selecting(*numbers)))
    assert not covers(standing_consent(asked()), asked(**selecting(*numbers)))


@pytest.mark.parametrize("field", FREE)
def test_a_yes_covers_another_name(field: str) -> None:
    before, after = FREE[field]
    assert covers(standing_consent(asked(**before)), asked(**after))


@pytest.mark.parametrize("field", TOLD_OF_ALIGNMENTS)
def test_a_yes_to_an_alignment_covers_no_other(field: str) -> None:
    agreed = standing_consent(aligned())
    assert covers(agreed, aligned())
    assert not covers(agreed, aligned(**{field: TOLD_OF_ALIGNMENTS[field]}))


@pytest.mark.parametrize("kept", FREE_OF_ALIGNMENTS.values())
def test_a_yes_to_an_alignment_covers_another_number_of_kept_points(kept: int) -> None:
    assert covers(standing_consent(aligned()), aligned(kept=kept))


def test_an_alignment_with_a_kept_key_has_no_standing_yes() -> None:
    with pytest.raises(DaemonError, match=r"each alignment with a kept key is asked about"):
        standing_consent(aligned(keeps=""))


@pytest.mark.parametrize("field", TOLD_OF_COUNTS)
def test_a_yes_to_a_count_covers_no_other_and_no_alignment(field: str) -> None:
    agreed = standing_consent(counted())
    assert covers(agreed, counted())
    assert not covers(agreed, counted(**{field: TOLD_OF_COUNTS[field]}))
    assert not covers(agreed, aligned()) and not covers(standing_consent(aligned()), counted())


@pytest.mark.parametrize("field", TOLD_OF_SCREENS)
def test_a_yes_to_a_screen_covers_none_that_tells_more(field: str) -> None:
    agreed = standing_consent(screened())
    assert covers(agreed, screened())
    assert not covers(agreed, screened(**{field: TOLD_OF_SCREENS[field]}))


def test_a_yes_to_descriptions_covers_no_counts() -> None:
    assert covers(standing_consent(screened(measured=True)), screened(measured=False))
    assert not covers(standing_consent(screened(measured=False)), screened(measured=True))
    assert covers(standing_consent(screened()), screened(correlated=0))
    assert not covers(standing_consent(screened(correlated=0)), screened())


def test_a_yes_to_a_screen_that_hides_sums_covers_none_that_tells_more() -> None:
    agreed = standing_consent(screened(least_steps=3))
    for covered in (3, 5):
        assert covers(agreed, screened(least_steps=covered))
    assert covers(agreed, screened(measured=False))
    for beyond in (0, 2):
        assert not covers(agreed, screened(least_steps=beyond))
    assert not covers(standing_consent(screened(measured=False)), screened(least_steps=63))


def test_a_yes_to_a_screen_covers_no_pair_and_a_pair_has_no_standing_yes() -> None:
    pair = PairOpen.model_validate(SCREENED | {"asks": "telco", "answers": "retail"})
    asked = RequestedTerms.of_screen("bank", pair, False, True)
    assert not covers(standing_consent(screened()), asked)
    with pytest.raises(DaemonError, match="another passive party's columns is asked about"):
        standing_consent(asked)


@pytest.mark.parametrize("field", FREE_OF_SCREENS)
def test_a_yes_to_a_screen_covers_another_name_and_key(field: str) -> None:
    changes = {field: FREE_OF_SCREENS[field]}
    assert covers(standing_consent(screened()), screened(**changes))


@pytest.mark.parametrize(
    "tells_less",
    [{"trees": 9}, {"max_depth": 2}, {"max_leaves": 3}, {"sums": "hidden"}, {"value_bits": 3}],
)
def test_a_yes_covers_what_tells_less(tells_less: dict[str, Any]) -> None:
    assert covers(standing_consent(asked()), asked(**tells_less))


@pytest.mark.parametrize("field", TOLD)
def test_what_is_written_reads_as_it_was_agreed_to(field: str, tmp_path: Any) -> None:
    for changes in TOLD[field]:
        agreed = standing_consent(asked(**changes))
        text = toml_of(agreed).replace("[[policy.approved]]", "[[approved]]")
        [read] = parse_toml(text, tmp_path / "party.toml", PolicySection).approved
        assert read == agreed


@pytest.mark.parametrize("told", ["sampled", "public", "chain", "max_leaves", "outputs"])
def test_the_owner_reads_what_goes_beyond(told: str) -> None:
    before, beyond = (
        terms_in_words(
            {"kind": "training", "name": "m", "terms": {**asked(**changes).details, "spent": SPENT}}
        )
        for changes in TOLD[told]
    )
    assert before != beyond


SPENT = {"trainings": 1, "most_trainings_per_day": 100, "answered": None}


def test_directions_of_all_rows_are_other_terms_of_the_next_attempt() -> None:
    assert asked(**OBLIVIOUS).digest != asked(**OBLIVIOUS | {"public": offering()}).digest
    other_keys = offering(offer=np.ones((2, 256), np.uint8))
    assert asked(**OBLIVIOUS).digest == asked(**OBLIVIOUS | {"public": other_keys}).digest


def test_what_an_earlier_version_wrote_down_covers_no_sums_that_are_shown() -> None:
    sizes = {"most_rows": 100, "most_trees": 10, "most_depth": 3, "most_bins": 32}
    written = StandingConsent(
        peer="bank", session="training", engine="paillier", most_gradient_bits=41, **sizes
    )
    assert covers(written, asked(sums="hidden"))
    assert not covers(written, asked())


def test_what_an_earlier_version_asked_is_answered_one_by_one() -> None:
    details = {key: of for key, of in asked().details.items() if key not in ("sampled", "sums")}
    request = RequestedTerms("bank", "training", "m", "digest", details)
    assert not covers(standing_consent(asked()), request)
    with pytest.raises(DaemonError, match="approve it alone, without --alike"):
        standing_consent(request)
    assert terms_in_words({"kind": "training", "name": "m", "terms": {**details, "spent": SPENT}})


@pytest.mark.parametrize(
    ("policy", "opening"),
    [
        ({"most_rows_per_hour": 9}, {"rows": 10}),
        ({"explain": "none"}, {"rows": 1, "explained_records": 3}),
    ],
)
async def test_scores_follow_the_policy_alone(
    policy: dict[str, Any], opening: dict[str, Any], tmp_path: Any
) -> None:
    asks = InferenceOpen(model="m", id_pieces=1, **opening)
    with pytest.raises(Refused):
        await consent(tmp_path, **policy).inference(HEADER, asks)
