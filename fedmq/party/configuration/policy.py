"""The ``[policy]`` of a party: what it takes part in, and what it has agreed to once for all."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import AfterValidator, Field

from fedmq.errors import ConfigError
from fedmq.messages.fields import LONGEST_CONSENT, PartyName
from fedmq.party.configuration.toml_file import Section
from fedmq.privacy.registry import ENGINES, engine_named

if TYPE_CHECKING:
    from fedmq.privacy.engine import SumsShown

__all__ = [
    "AllowedSession",
    "AskedSession",
    "Particular",
    "PolicySection",
    "RetentionSection",
    "StandingConsent",
]

Particular = Literal[
    "continues a model",
    "refreshes a model",
    "cross-validation",
    "monotone constraints",
    "interaction constraints",
    "sets of categories",
    "vector leaves",
    "decoys",
    "fallback models",
]
"""What a training may have beside its size."""

Explain = Literal["none", "party", "column"]
"""How much reasons show of a party's part in a score: nothing, the party as a whole, or each of its
columns, by number and without names."""

# Both follow from `fedmq.protocol.kinds`, which no command needs to import; a test compares them.
AllowedSession = Literal["alignment", "training", "inference"]
"""What ``sessions`` may hold: the word with which a kind of session is allowed."""
AskedSession = Literal["alignment", "overlap", "screen", "training", "activation", "joint model"]
"""What an owner may be asked about: kinds of session, and the thresholds for a joint model."""


class StandingConsent(Section):
    """Sessions about which the owner is not asked; what is left out allows the least.

    ``fedmq approve --alike`` writes it, with all that was asked. It covers no session of which
    anything that changes what is told goes beyond it.
    """

    peer: PartyName
    """Who may ask."""
    session: Literal["alignment", "overlap", "screen", "training"]
    """For what."""
    alignment: str = ""
    """The alignment that is made, or that selects the rows; empty where rows are matched without
    one."""
    parties: tuple[PartyName, ...] = ()
    """All parties of an alignment, the active party first; of a training, those that hide sums
    together."""
    normalise: tuple[str, ...] = ()
    """How an alignment changes ids before they are compared."""
    known_to: tuple[PartyName, ...] | None = None
    """The parties that must hold a person of an alignment that keeps people whom others lack;
    left out: all parties hold everybody."""
    engine: str = ""
    """The engine of a training."""
    sums: Literal["shown", "hidden"] = "hidden"
    """Whether its sums may be shown: ``hidden`` covers hidden sums alone."""
    engine_options: Mapping[str, str | int | float] = Field(default_factory=dict)
    """The options of the engine that its opening tells, such as ``directions = "all"``: these, and
    no others."""
    least_key_bits: Annotated[int, Field(ge=0)] = 0
    """Bits of its key at least."""
    most_rows: Annotated[int, Field(ge=0)] = 0
    """Rows of a training."""
    least_training_rows: Annotated[int, Field(ge=0)] = 0
    """Rows at least that trees are grown from, or that a screen looks at: fewer are a part of those
    that were asked about."""
    least_sampled: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of these at least that is drawn for a tree, as it is announced."""
    most_trees: Annotated[int, Field(ge=0)] = 0
    """Its trees."""
    least_own_trees: Annotated[int, Field(ge=0)] = 0
    """Its first trees at least that are from the active party's columns alone."""
    most_depth: Annotated[int, Field(ge=0)] = 0
    """Their depth."""
    most_leaves: Annotated[int, Field(ge=0)] | None = None
    """Their leaves; as many as the depth allows when left out."""
    most_bins: Annotated[int, Field(ge=0)] = 0
    """Its `max_bin`."""
    most_correlated: Annotated[int, Field(ge=0)] = 0
    """Columns of the active party with which a screen correlates this party's."""
    most_classes: Annotated[int, Field(ge=2)] = 2
    """Classes of the label of a screen."""
    number_label: bool = False
    """Whether the label of a screen may be a number."""
    least_steps: Annotated[int, Field(ge=0)] = 0
    """Steps at least of which a screen with hidden sums tells how many an information value has; 0:
    it tells none."""
    least_columns_drawn: Annotated[float, Field(ge=0, le=1)] = 1.0
    """The share of the columns at least that is drawn for a node."""
    most_gradient_bits: Annotated[int, Field(ge=0)] = 0
    """Its `gradient_bits`, as they are announced."""
    most_outputs: Annotated[int, Field(ge=0)] = 1
    """Numbers in a leaf."""
    most_folds: Annotated[int, Field(ge=0)] = 1
    """Models that are trained together, of a cross-validation."""
    most_earlier_trees: Annotated[int, Field(ge=0)] = 0
    """Trees of the model that it continues."""
    least_categories: Annotated[int, Field(ge=0)] = 0
    """Columns of fewer categories are not split by sets of them."""
    fallbacks: tuple[PartyName, ...] = ()
    """The parties without which it may train once more each."""
    constraints: tuple[str, ...] = ()
    """What it may want of columns by name, such as ``age rises`` and ``together: age, calls``."""
    selected: tuple[str, ...] = ()
    """The columns with which it trains, if the active party has selected them: these, and no
    others. Empty where it selects none, so that all of the policy take part."""
    particulars: tuple[Particular, ...] = ()
    """What it may have beside: other trainings are asked about."""


def _known_engines(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if name not in ENGINES]
    if unknown:
        raise ValueError(f"engine {unknown[0]!r} is unknown; use {', '.join(ENGINES)}")
    return names


def _options_of_engines(options: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
    for name, own in options.items():
        try:
            engine_named(name, own, name)
        except ConfigError as error:
            raise ValueError(str(error)) from None
    return options


_PERIOD = re.compile(r"([1-9][0-9]{0,4})([dwy])")
_DAYS = {"d": 1, "w": 7, "y": 365}


def _period(text: str) -> str:
    if _PERIOD.fullmatch(text) is None:
        raise ValueError(
            f'{text!r} is no period; write days, weeks or years, such as "90d", "12w" or "1y"'
        )
    return text


Period = Annotated[str, AfterValidator(_period)]


class RetentionSection(Section):
    """How long files are kept that name people, from when each was last written, such as ``"90d"``,
    ``"12w"`` or ``"1y"`` (365 days). The daemon deletes older ones at its start and every hour, and
    notes that in the audit log. What is left out is kept as before. What a training under way holds
    stays until it has ended."""

    recordings: Period | None = None
    """Of the sessions, for ``fedmq audit``."""
    held_out: Period | None = None
    """The rows that trainings held out, and the folds of cross-validations: the active party's."""
    question_logs: Period | None = None
    """Who asked online about whom, as keyed hashes; ``audit_days`` in ``[online]`` holds as
    well."""
    transcripts: Period | None = None
    """Of trainings, with which an auditor replays answers; of these the ten newest are kept
    anyhow."""
    alignments: Period | None = None
    """The lists of common ids. A training, and scores by ``--alignment``, need one."""

    @property
    def days(self) -> dict[str, int]:
        """The periods that are given, by key, in days."""
        return {key: int(period[:-1]) * _DAYS[period[-1]] for key, period in self.periods.items()}

    @property
    def periods(self) -> dict[str, str]:
        """The periods that are given, by key, as they are written."""
        return dict(self.model_dump(exclude_none=True))


class PolicySection(Section):
    """What this party takes part in; asked when a session opens, and while it runs."""

    peers: tuple[PartyName, ...] | None = None
    """Whose sessions it joins; those of the active party when left out."""
    sessions: tuple[AllowedSession, ...] = ("alignment", "training", "inference")
    """What it takes part in at all."""
    consent: Literal["policy", "ask"] = "policy"
    """Who says yes to an alignment or training that this policy allows: the policy (``policy``), or
    this party's owner, who is asked each time (``ask``) and answers with ``fedmq approve`` or
    ``fedmq refuse``. Predictions and online scores follow the policy alone."""
    consent_within: Annotated[float, Field(gt=0, le=LONGEST_CONSENT / 3600)] = 24
    """Hours within which the owner answers; a session that waits for longer is refused."""
    activate: Literal["one", "two"] = "one"
    """How many people say yes to an activation or a rollback: who asks for it (``one``), or another
    person of this party as well (``two``). At a passive party who asks is the active party's."""
    approved: tuple[StandingConsent, ...] = ()
    """To what the owner has said yes for all times: about these it is not asked."""
    features: tuple[str, ...] | None = None
    """The columns a passive party trains with; all but id and ``ignore`` when left out. The active
    party names its own in ``[data]``."""
    agreed_columns: tuple[str, ...] = ()
    """The columns that the active party's job may name, in ``monotone_constraints`` and
    ``interaction_constraints``; there also groups of columns."""
    interaction_constraints: bool = False
    """Whether the active party's job may have them: it learns which of them hold the column of each
    opaque candidate."""
    category_sets: bool = False
    """Whether columns are split by sets of categories where the active party's job asks for it: it
    learns which opaque candidates are categories of one column."""
    engines: Annotated[tuple[str, ...], AfterValidator(_known_engines)] = ("paillier", "ou")
    """The engines that this party takes part with."""
    engine_options: Annotated[
        Mapping[str, Mapping[str, Any]], AfterValidator(_options_of_engines)
    ] = Field(default_factory=dict)
    """This party's own options of an engine, such as ``lattice = { hint_bytes = 100000000 }``; the
    active party's job says nothing about them."""
    smallest_key: Annotated[int, Field(ge=0)] | None = None
    """Bits of the shortest key of an engine; the engine's own least when left out."""
    allow_weak_keys: bool = False
    """Whether keys below 2048 bits are accepted: for trials only."""
    smallest_alignment: Annotated[int, Field(ge=1)] = 100
    """With fewer common ids this party takes part in no alignment, nor with a shorter list of
    anybody's."""
    most_alignment_ids: Annotated[int, Field(ge=1)] = 10_000_000
    """Ids of the longest list that this party aligns with."""
    most_alignments_per_day: Annotated[int, Field(ge=0)] = 50
    """Alignments and counts of shared people within any day, each attempt counted."""
    kept_blinding_days: Annotated[int, Field(ge=0)] = 0
    """For how many days this party keeps one key for alignments that ask for it (`fedmq align
    --prepare`): it then blinds its ids once, and values of two such alignments can be linked. 0:
    each alignment has a fresh key."""
    overlap: Literal["exact", "rounded", "refuse"] = "refuse"
    """Whether the active party may have the people counted whom all parties share, without a list
    for anybody: it reads the number (``exact``), or one with noise, rounded to tens (``rounded``).
    The limits on alignments hold for counts, too."""
    smallest_node: Annotated[int, Field(ge=0)] = 0
    """Sums of nodes where fewer rows carry a gradient are not answered; the model is then no longer
    the one that all the data would give."""
    smallest_cell: Annotated[int, Field(ge=0)] = 0
    """Cells of a column, between two of its cuts, with fewer rows of a node are merged before sums
    are shown; 0: none are, as in files of earlier versions. A model of merged cells is not
    XGBoost's, node by node. Engines that hide rows have cells of the whole table merged only."""
    smallest_difference: Annotated[int, Field(ge=0)] = 0
    """It answers about people who differ by so many from those of earlier answers, or by nobody:
    when a training opens, and in the folds and drawn rows of its trees. 0: people are neither kept
    nor compared, as in files of earlier versions."""
    most_folds: Annotated[int, Field(ge=1)] = 10
    """Folds of a cross-validation that it joins."""
    most_trees: Annotated[int, Field(ge=1)] = 1000
    """Trees of the longest training it joins."""
    most_depth: Annotated[int, Field(ge=1)] = 10
    """Depth of the deepest trees it joins; each level may double what is summed and shown."""
    most_bins: Annotated[int, Field(ge=2)] = 256
    """The largest `max_bin` of a training it joins: between so many cuts people can be placed."""
    most_sums_bytes: Annotated[int, Field(ge=1)] = 4_000_000_000
    """Memory for the sums of a tree; it follows from depth, bins and key when a training opens."""
    most_trainings_per_day: Annotated[int, Field(ge=0)] = 100
    """Trainings within any day; one that goes on after a crash, on the same terms, is not counted
    again."""
    most_idle_days: Annotated[float, Field(gt=0)] = 30
    """A training with which the active party has not gone on for so many days is given up, and what
    it reserved of `most_equations_per_row` is free again. Days count while the daemon runs."""
    most_equations_per_row: Annotated[float, Field(gt=0)] | None = None
    """Sums that it answers about the same rows in all trainings together, divided by these rows; a
    candidate's g and h in one node count as one sum. No bound when left out: shown sums tell the
    columns before there are enough of them for a model."""
    most_gradient_bits: Annotated[int, Field(ge=2, le=16)] | None = None
    """It joins a training only with `gradient_bits` of at most so many; it sees what is announced,
    and cannot verify what is encrypted."""
    most_rows_per_hour: Annotated[int, Field(ge=0)] | None = None
    """Rows that may be scored within any hour, in batches and online together."""
    explain: Explain = "party"
    """What reasons for a score may say of this party: ``none``, its part as a whole (``party``), or
    that of each of its columns, which have numbers and no names; the active party then learns which
    splits share a column. Asked when a model is activated."""
    changes: Literal["refuse", "told"] = "refuse"
    """Whether the active party may learn, for one person at a time, which smallest change of this
    party's own columns would have moved the person's score far enough. With ``told`` it learns
    which splits share a column and the order of their thresholds, without their values; and of the
    change that it chooses the column, by its text in ``reasons`` or its name, and the threshold.
    ``changes`` in ``[data]`` leaves columns out. ``explain`` must allow reasons."""
    most_changes_per_day: Annotated[int, Field(ge=0)] = 20
    """People for whom that is told within any day; each shows three thresholds at most."""
    transcript_bytes: Annotated[int, Field(ge=0)] = 2**30
    """Of each training, for the transcript with which an auditor can replay what this party
    answered; a party that takes part with 0 commits to nothing and signs nothing."""
    transcripts: Literal["kept", "required"] = "kept"
    """With ``required`` a training waits while the disk refuses its transcript, and ends if
    `transcript_bytes` are full; otherwise the transcript breaks off, and the training goes on."""
    column_names: Literal["private", "shared"] = "private"
    """Whether the active party may learn which splits of a model are by which column, and the
    columns' names; what it has learned it keeps."""
    joint_models: Literal["refuse", "ask"] = "refuse"
    """Whether the active party may have all thresholds of this party in a model, so that it
    scores by one XGBoost file, without this party and out of its sight: never, or with a yes of
    this party's owner to each model (``ask``). The answer stands for ``consent_within``; with
    ``column_names = "shared"`` columns and categories have their names there."""
    screen: Literal["refuse", "described", "hidden", "measured"] = "refuse"
    """What the active party may see of this party's columns before a training: nothing; what each
    is like (``described``: its type, missing values, how many distinct ones); how well it tells a
    label of 0 or 1 as well, in steps of 0.02 of its information value (``hidden``: circuits find
    them, and nobody sees a sum); or how well it tells any label (``measured``), by how many people
    of each label stand in each of its bins, or by what a label of numbers adds up to there: sums
    that are shown whatever ``engine_options`` hide, unless the job hides them."""
    correlation: Literal["refuse", "shown", "all"] = "refuse"
    """Whether the active party may see in a screen how this party's columns of numbers are
    correlated with its own, which stay encrypted, and with one another: in hundredths, of columns
    whose variance ``smallest_group`` people carry. ``screen`` must allow the screen. ``all``: also
    with those of other passive parties whose policy says so, which the active party alone reads."""
    most_screens_per_day: Annotated[int, Field(ge=0)] = 5
    """Such looks within any day."""
    smallest_selection: Annotated[int, Field(ge=1)] = 3
    """With fewer columns, selected by such a look, this party does not train unless it has no more:
    the active party would know whose sums it sees."""
    groups: tuple[str, ...] = ()
    """Columns by whose groups the active party may have encrypted numbers of people added, such as
    how many of them its model selects: for reports of whether it treats groups alike."""
    smallest_group: Annotated[int, Field(ge=2)] = 50
    """Groups of fewer people, and bins of a screened column, are joined with others before sums are
    shown, and rows are refused that differ from those of an earlier question by fewer people of a
    group."""
    group_names: Literal["private", "shared"] = "private"
    """Whether the active party sees the names of groups, or a number for each."""
    most_group_questions_per_day: Annotated[int, Field(ge=0)] = 5
    """Questions about the groups of a column within any day, those that were refused included."""
    sign_cards: bool = False
    """Whether a model card that the active party sends is signed at once, if it fits this party's
    share. Otherwise its owner signs with ``fedmq models card --sign``."""
    delete_models: bool = False
    """Whether this party's share of a model is deleted when the active party asks for it."""
    retention: RetentionSection = RetentionSection()
    """How long files are kept that name people, such as ``{ recordings = "90d" }``; the table below
    has the keys."""
    allow_unsealed: bool = False
    """Talk without seals in a federation without keys: its broker can read and forge all."""
    allow_leaky_engines: bool | None = None
    """Whether it also takes part with engines that are known to give data away: smm1, smm2, and
    lattice where it shows sums. When left out, as in files of earlier versions, lattice shows sums
    if ``engines`` names it. ``ou`` and ``paillier`` show them unless ``engine_options`` hides
    them."""

    @property
    def sums_bound(self) -> float:
        """`most_equations_per_row`, without one infinite."""
        return math.inf if self.most_equations_per_row is None else self.most_equations_per_row

    def refusal(self, party: str, engine: str, sums: SumsShown = "shown") -> str | None:
        """Why ``party`` does not take part with the engine of this name; None if it does.

        ``sums``: whether the training shows them.
        """
        known = ENGINES.get(engine)
        if known is not None and known.known_leak:
            if self.allow_leaky_engines:
                return None
            return _not_with(party, f"engine {engine!r}", known.known_leak)
        if engine not in self.engines:
            allowed = ", ".join(self.engines)
            return f"{party} does not take part with engine {engine!r}, only {allowed}"
        assert known is not None
        if sums == "shown" and self._refuses_shown_sums(engine):
            return _not_with(party, f"engine {engine!r} where it shows sums", known.leak_of_sums)
        return None

    def warnings(self) -> Iterator[str]:
        """What an owner should know whose policy does not say whether sums may be shown.

        One line for all engines. Files that were written before the leak was measured say nothing.
        """
        if self.allow_leaky_engines:
            return
        showing = [
            engine
            for engine in self.engines
            if ENGINES[engine].leak_of_sums
            and "sums" not in self.engine_options.get(engine, {})
            and not self._refuses_shown_sums(engine)
        ]
        if showing:
            hidden = ", ".join(f'{engine} = {{ sums = "hidden" }}' for engine in showing)
            yield (
                f"the [policy] lets {' and '.join(showing)} show sums: "
                f"{ENGINES[showing[0]].leak_of_sums}; write engine_options = {{ {hidden} }} to "
                'hide them, or "shown" to accept that'
            )

    def _refuses_shown_sums(self, engine: str) -> bool:
        """Whether ``allow_leaky_engines`` forbids to show sums of candidates that keep numbers."""
        return (
            self.allow_leaky_engines is False
            and ENGINES[engine].traits.keeps_numbers
            and bool(ENGINES[engine].leak_of_sums)
            and self.engine_options.get(engine, {}).get("sums") != "hidden"
        )


def _not_with(party: str, engine: str, leak: str) -> str:
    return (
        f"{party} does not take part with {engine}: {leak}; "
        "allow_leaky_engines = true in its [policy] accepts that"
    )
