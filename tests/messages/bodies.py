"""Strategies for every message, drawn from the models' own bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from hypothesis import strategies as st

from fedmq.messages import (
    alignment,
    body,
    inference,
    model_request,
    online,
    overlap,
    screen,
    training,
)
from fedmq.messages.array import Array, Bitmap
from fedmq.messages.body import Body, RecordColumns
from fedmq.messages.codec import KINDS
from fedmq.messages.envelope import Envelope, Header

DTYPES = ("|u1", "|i1", "<u2", "<i2", "<u4", "<i4", "<u8", "<i8", "<f4", "<f8")

naturals = st.integers(0, 2**32 - 1)
trees = naturals
nodes = st.integers(1, 2**24 - 1)
pieces = st.integers(0, 2**20 - 1)
rounds = st.integers(0, 255)
signatures = st.just(b"") | st.binary(min_size=64, max_size=64)
handed_on = st.lists(st.tuples(nodes, st.binary(min_size=32, max_size=32)), max_size=3).map(tuple)
text = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
words = text.filter(bool)
trainings = st.text(max_size=64)
models = st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
names = st.from_regex(r"\A[a-z][a-z0-9_-]{0,31}\Z")


@st.composite
def arrays(draw: st.DrawFn, dtypes: tuple[str, ...] = DTYPES, axes: int = 3) -> Array:
    dtype = draw(st.sampled_from(dtypes))
    shape = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=axes)))
    size = math.prod(shape) * np.dtype(dtype).itemsize
    return Array(dtype=dtype, shape=shape, data=draw(st.binary(min_size=size, max_size=size)))  # type: ignore[arg-type]


uint32s = arrays(("<u4",), axes=1)
record_columns = st.builds(
    RecordColumns, column=uint32s, texts=st.lists(text, max_size=3).map(tuple)
)
bitmaps = st.lists(st.booleans(), max_size=40).map(lambda bits: Bitmap.of(np.array(bits, np.bool_)))
scalars = st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | text
payloads = st.dictionaries(text, arrays() | scalars, max_size=4)


@st.composite
def hops(draw: st.DrawFn) -> inference.InferenceHop:
    counts = np.array(draw(st.lists(st.integers(0, 5), max_size=5)), np.uint32)
    records = draw(st.lists(naturals, min_size=len(counts), max_size=len(counts)))
    total = int(counts.sum())
    rows = draw(st.lists(naturals, min_size=total, max_size=total))
    return inference.InferenceHop(
        hop=draw(naturals),
        records=Array.of(np.array(records, np.uint32)),
        counts=Array.of(counts),
        rows=Array.of(np.array(rows, np.uint32)),
    )


@st.composite
def online_hops(draw: st.DrawFn) -> online.OnlineHop:
    ids = draw(st.lists(text, min_size=1, max_size=5))
    rows = draw(st.lists(st.integers(0, len(ids) - 1), max_size=8))
    records = draw(st.lists(naturals, min_size=len(rows), max_size=len(rows)))
    return online.OnlineHop(
        batch=draw(batches),
        hop=draw(naturals),
        model=draw(models),
        ids=tuple(ids),
        rows=Array.of(np.array(rows, np.uint32)),
        records=Array.of(np.array(records, np.uint32)),
        budget=draw(budgets),
        training=draw(trainings),
    )


batches = st.integers(0, 2**53 - 1)
budgets = st.floats(0, 3600)
successors = arrays(("<i4",), axes=1)


@st.composite
def points(draw: st.DrawFn) -> Array:
    rows = draw(st.integers(0, 4))
    data = draw(st.binary(min_size=32 * rows, max_size=32 * rows))
    return Array(dtype="|u1", shape=(rows, 32), data=data)


seeds = st.binary(min_size=32, max_size=32)
sealed_terms = st.builds(
    inference.SealedTerms,
    slots=st.lists(naturals.map(lambda number: number % 2**24), max_size=4).map(tuple),
    copies=st.integers(1, 2**16 - 1),
    reasons=st.booleans(),
    chain=st.lists(names, max_size=4).map(tuple),
    records=uint32s,
    starts=uint32s,
    middles=uint32s,
    ends=uint32s,
    key_seed=seeds,
    key=st.binary(max_size=40),
)
masks = st.just(b"") | st.binary(min_size=48, max_size=48)
_sequence = st.integers(1, 2**62 - 1)
queries = st.builds(training.NodeQuery, node=nodes, pieces=pieces)
category_splits = st.builds(training.CategorySplit, right=uint32s, default_left=st.booleans())
STRATEGIES: dict[type[Body], st.SearchStrategy[Any]] = {
    body.SessionRefuse: st.builds(body.SessionRefuse, reason=words),
    body.ConsentPendingMessage: st.builds(
        body.ConsentPendingMessage, seconds=st.integers(1, body.LONGEST_CONSENT)
    ),
    body.Abort: st.builds(body.Abort, reason=words),
    body.SessionUnknown: st.builds(body.SessionUnknown),
    body.Probe: st.builds(body.Probe),
    body.Acknowledge: st.builds(
        body.Acknowledge,
        early=st.lists(st.tuples(_sequence, _sequence), max_size=5).map(tuple),
    ),
    training.TrainingOpen: st.builds(
        training.TrainingOpen,
        model=models,
        rows=st.integers(1, 32_000_000 - 1),
        alignment=text,
        alignment_name=st.just("") | models,
        evaluation=bitmaps,
        engine=words,
        public=payloads,
        trees=st.integers(0, 2**32 - 1),
        active_only_trees=naturals,
        max_depth=st.integers(1, 16),
        max_bin=st.integers(2, 65535),
        colsample_bytree=st.floats(0, 1, exclude_min=True),
        seed=st.integers(0, 2**63 - 1),
        value_bits=st.integers(0, 62),
        colsample_bylevel=st.floats(0, 1, exclude_min=True),
        colsample_bynode=st.floats(0, 1, exclude_min=True),
        max_leaves=naturals,
        outputs=st.integers(1, 1000),
        signs=st.dictionaries(words, st.sampled_from([-1, 1]), max_size=3),
        together=st.lists(st.lists(words, max_size=3).map(tuple), max_size=3).map(tuple),
        earlier_model=st.just("") | models,
        earlier_trees=naturals,
        earlier_places=st.just(b"") | st.binary(min_size=32, max_size=32),
        decoys=st.booleans(),
        narrow=st.booleans(),
        folds=st.integers(1, training.MOST_FOLDS),
        max_cat_to_onehot=st.integers(0, 2**31 - 1),
        sums=st.sampled_from(["shown", "hidden"]),
        chain=st.lists(names, max_size=4).map(tuple),
        signed_circuits=st.booleans(),
        fallbacks=st.lists(names, max_size=4).map(tuple),
        fallback_of=st.none()
        | st.builds(
            training.MainTraining,
            session=names,
            model=models,
            chain=st.lists(names, max_size=4).map(tuple),
            fallbacks=st.lists(names, max_size=4).map(tuple),
            without=names,
        ),
        selected=st.none()
        | st.builds(
            training.SelectedColumns,
            screen=models,
            session=names,
            numbers=st.lists(st.integers(1, 100_000), min_size=1, max_size=4).map(tuple),
        ),
    ),
    training.SessionAccept: st.builds(
        training.SessionAccept,
        setup_pieces=pieces,
        trees=naturals,
        candidates=st.integers(0, training.MOST_CANDIDATES),
        signed=st.booleans(),
        smallest_node=naturals,
        smallest_cell=naturals,
        by_sets=st.booleans(),
        commitment=st.just(b"") | st.binary(min_size=32, max_size=32),
    ),
    training.EngineSetup: st.builds(training.EngineSetup, piece=pieces, payload=payloads),
    training.TreeStarted: st.builds(
        training.TreeStarted, tree=trees, pieces=pieces, signature=signatures
    ),
    training.GradientBroadcast: st.builds(
        training.GradientBroadcast,
        tree=trees,
        piece=pieces,
        rows=uint32s,
        payload=payloads,
        in_sequence=st.booleans(),
    ),
    training.HistogramRequest: st.builds(
        training.HistogramRequest,
        tree=trees,
        round=rounds,
        nodes=st.lists(queries, min_size=1, max_size=4).map(tuple),
    ),
    training.QueryPiece: st.builds(
        training.QueryPiece, tree=trees, node=nodes, round=rounds, piece=pieces, payload=payloads
    ),
    training.HistogramReply: st.builds(
        training.HistogramReply,
        tree=trees,
        node=nodes,
        round=rounds,
        piece=pieces,
        pieces=st.integers(1, 2**20 - 1),
        payload=payloads,
        rising=st.none() | bitmaps,
        falling=st.none() | bitmaps,
        constraints=st.lists(bitmaps, max_size=3).map(tuple),
        categories=st.lists(uint32s, max_size=3).map(tuple),
    ),
    training.NodeDeclined: st.builds(training.NodeDeclined, tree=trees, node=nodes),
    training.DirectionsQuery: st.builds(
        training.DirectionsQuery, tree=trees, node=nodes, piece=pieces, payload=payloads
    ),
    training.CircuitPiece: st.builds(
        training.CircuitPiece,
        tree=trees,
        node=nodes,
        parcel=naturals.map(lambda number: number % 2**20),
        piece=pieces,
        pieces=st.integers(1, 2**20 - 1),
        payload=payloads,
        level=st.lists(nodes, max_size=4).map(tuple),
        chain=st.lists(names, max_size=4).map(tuple),
    ),
    training.BestSoFar: st.builds(
        training.BestSoFar,
        tree=trees,
        node=nodes,
        payload=payloads,
        salt=st.sampled_from([b"", b"s" * 16]),
    ),
    training.SplitDecision: st.builds(
        training.SplitDecision,
        tree=trees,
        node=nodes,
        candidates=uint32s,
        sets=st.lists(category_splits, max_size=3).map(tuple),
    ),
    training.SplitOutcome: st.builds(
        training.SplitOutcome,
        tree=trees,
        node=nodes,
        record=st.integers(0, 2**31 - 1),
        left=bitmaps,
        sign=st.integers(-1, 1),
        held_by=st.integers(0, 2**63),
    ),
    training.NodeAssignment: st.builds(
        training.NodeAssignment, tree=trees, node=nodes, left=bitmaps
    ),
    training.TreeFinished: st.builds(training.TreeFinished, tree=trees, lot=naturals),
    training.TreeSaved: st.builds(
        training.TreeSaved,
        tree=trees,
        signature=signatures,
        given=handed_on,
        taken=handed_on,
    ),
    training.SessionFinished: st.builds(
        training.SessionFinished, trees=naturals, signature=signatures
    ),
    inference.InferenceOpen: st.builds(
        inference.InferenceOpen,
        training=trainings,
        model=models,
        rows=st.integers(1, 2**31 - 1),
        id_pieces=pieces,
        partial=st.booleans(),
        explained_records=naturals,
        sealed=st.none() | sealed_terms,
    ),
    inference.SampleIds: st.builds(
        inference.SampleIds, start=naturals, ids=st.lists(text, max_size=5).map(tuple)
    ),
    inference.InferenceAccept: st.builds(
        inference.InferenceAccept,
        unknown_rows=bitmaps,
        columns=st.none() | record_columns,
        offered=st.none() | st.builds(inference.ChangesOffered, column=uint32s, left=bitmaps),
    ),
    inference.ChangeChosen: st.builds(inference.ChangeChosen, numbers=uint32s),
    inference.ChangeTold: st.builds(
        inference.ChangeTold,
        told_columns=st.lists(text, max_size=3).map(tuple),
        told_changes=st.lists(text, max_size=3).map(tuple),
    ),
    inference.InferenceRows: st.builds(inference.InferenceRows, hop=naturals, rows=uint32s),
    inference.InferenceHop: hops(),
    inference.HopReply: st.builds(inference.HopReply, hop=naturals, left=bitmaps),
    inference.SealedLink: st.builds(inference.SealedLink, seed=seeds),
    inference.SealedQuery: st.builds(
        inference.SealedQuery,
        number=naturals,
        piece=pieces,
        rows=uint32s,
        seed=seeds,
        words=arrays(),
    ),
    inference.SealedAnswer: st.builds(
        inference.SealedAnswer,
        number=naturals,
        piece=pieces,
        masks=arrays(),
        numbers=arrays(),
    ),
    inference.InferenceFinished: st.builds(inference.InferenceFinished),
    online.OnlineHop: online_hops(),
    online.OnlineExits: st.builds(
        online.OnlineExits,
        batch=batches,
        hop=naturals,
        exits=uint32s,
        unknown=uint32s,
        drifts=st.booleans(),
    ),
    online.OnlineRows: st.builds(
        online.OnlineRows,
        training=trainings,
        batch=batches,
        hop=naturals,
        model=models,
        ids=st.lists(text, min_size=1, max_size=5).map(tuple),
        budget=budgets,
    ),
    online.OnlineBitmaps: st.builds(
        online.OnlineBitmaps,
        batch=batches,
        hop=naturals,
        records=naturals,
        left=bitmaps,
        unknown=uint32s,
        drifts=st.booleans(),
    ),
    online.OnlineSealed: st.builds(
        online.OnlineSealed,
        batch=batches,
        hop=naturals,
        model=models,
        ids=st.lists(text, min_size=1, max_size=5).map(tuple),
        key=seeds,
        mask=masks,
        seeds=st.lists(seeds, min_size=1, max_size=3).map(tuple),
        words=arrays(),
        budget=budgets,
        reasons=st.booleans(),
    ),
    online.OnlineProducts: st.builds(
        online.OnlineProducts,
        batch=batches,
        hop=naturals,
        mask=masks,
        masks=arrays(),
        numbers=arrays(),
        unknown=uint32s,
        drifts=st.booleans(),
    ),
    online.OnlineMaskAsk: st.builds(online.OnlineMaskAsk, model=models),
    online.OnlineMasks: st.builds(online.OnlineMasks, model=models, seed=seeds),
    online.OnlineRefusal: st.builds(
        online.OnlineRefusal,
        batch=batches,
        hop=naturals,
        cause=st.sampled_from(["policy", "model", "mode", "rate", "records", "data"]),
        reason=words,
    ),
    online.OnlinePing: st.builds(online.OnlinePing),
    online.OnlinePong: st.builds(online.OnlinePong),
    online.ModelDeploy: (st.none() | sealed_terms).flatmap(
        lambda terms: st.builds(
            online.ModelDeploy,
            alias=models,
            model=models,
            mode=st.sampled_from(["hop", "bitmap"]) if terms is None else st.just("sealed"),
            left=successors,
            right=successors,
            sealed=st.just(terms),
            training=trainings,
        )
    ),
    online.ModelReady: st.builds(
        online.ModelReady, explain=st.booleans(), columns=st.none() | record_columns
    ),
    online.ModelSwitch: st.builds(online.ModelSwitch),
    online.ModelDismiss: st.builds(online.ModelDismiss),
    online.ModelDeployed: st.builds(online.ModelDeployed),
    model_request.ModelCardOffer: st.builds(model_request.ModelCardOffer, model=models, card=words),
    model_request.ModelCardSigned: st.builds(model_request.ModelCardSigned, endorsement=words),
    model_request.ModelDelete: st.builds(model_request.ModelDelete, model=models),
    model_request.ModelDeleted: st.builds(model_request.ModelDeleted),
    model_request.ModelColumns: st.builds(model_request.ModelColumns, model=models),
    model_request.ModelColumnNames: st.builds(
        model_request.ModelColumnNames, columns=record_columns
    ),
    model_request.ModelSplits: st.builds(
        model_request.ModelSplits, model=models, only_asks=st.booleans()
    ),
    model_request.ModelThresholds: st.builds(
        model_request.ModelThresholds,
        columns=record_columns,
        thresholds=arrays(("<f4",), axes=1),
        missing_left=bitmaps,
        category_names=st.lists(st.lists(text, max_size=3).map(tuple), max_size=3).map(tuple),
        codes_right=st.lists(st.lists(naturals, max_size=3).map(tuple), max_size=3).map(tuple),
    ),
    model_request.ModelGroups: st.builds(
        model_request.ModelGroups,
        model=models,
        column=words.filter(lambda word: len(word) <= 256),
        people=st.integers(1, 100_000),
        public=st.just({"noise_bits": 5}),
    ),
    model_request.ModelGroupPiece: st.builds(
        model_request.ModelGroupPiece,
        start=naturals,
        ids=st.lists(text, min_size=1, max_size=5).map(tuple),
        ciphertexts=points(),
    ),
    model_request.ModelGroupSums: st.builds(
        model_request.ModelGroupSums,
        groups=st.lists(text, min_size=2, max_size=5).map(tuple),
        counts=uint32s,
        ciphertexts=points(),
    ),
    alignment.AlignmentOpen: st.builds(
        alignment.AlignmentOpen,
        name=models,
        parties=st.lists(names, min_size=2, max_size=4).map(tuple),
        normalise=st.lists(text, max_size=3).map(tuple),
        known_to=st.none() | st.lists(names, max_size=3).map(tuple),
        keeps=st.none() | st.sampled_from(["", "0123456789abcdef"]),
        kept=naturals,
    ),
    alignment.AlignmentAccept: st.builds(
        alignment.AlignmentAccept,
        rows=st.integers(1, 2**28 - 1),
        fewest=naturals,
        keeps=st.sampled_from(["", "0123456789abcdef"]),
        kept=naturals,
    ),
    alignment.AlignmentBegin: st.builds(alignment.AlignmentBegin),
    alignment.BlindedIds: st.builds(
        alignment.BlindedIds,
        owner=names,
        start=naturals,
        rows=st.integers(1, 2**28 - 1),
        points=points(),
    ),
    alignment.CommonRows: st.builds(
        alignment.CommonRows,
        owner=names,
        start=naturals,
        rows=st.integers(1, 2**28 - 1),
        places=uint32s,
    ),
    alignment.AlignmentReady: st.builds(alignment.AlignmentReady),
    alignment.RepeatedRows: st.builds(
        alignment.RepeatedRows, start=naturals, people=st.integers(1, 2**28 - 1), counts=uint32s
    ),
    alignment.StoreAlignment: st.builds(alignment.StoreAlignment),
    alignment.AlignmentStored: st.builds(alignment.AlignmentStored),
    overlap.OverlapOpen: st.builds(
        overlap.OverlapOpen,
        name=models,
        parties=st.lists(names, min_size=2, max_size=4).map(tuple),
        normalise=st.lists(text, max_size=3).map(tuple),
    ),
    overlap.OverlapAccept: st.builds(overlap.OverlapAccept, rows=st.integers(1, 2**28 - 1)),
    overlap.OverlapBegin: st.builds(overlap.OverlapBegin),
    overlap.OverlapLimits: st.builds(overlap.OverlapLimits, exact=st.booleans(), fewest=naturals),
    overlap.ShuffledIds: st.builds(
        overlap.ShuffledIds,
        owner=names,
        start=naturals,
        rows=st.integers(1, 2**28 - 1),
        points=points(),
    ),
    screen.ScreenOpen: st.builds(
        screen.ScreenOpen,
        name=models,
        alignment=text,
        alignment_name=st.just("") | models,
        salt=text,
        rows=st.integers(1, 2**32 - 1),
        most_rows=st.integers(1, screen.MOST_ROWS),
        seed=naturals,
        bins=st.integers(2, screen.MOST_BINS),
        elements=st.just("0f" * 32),
        correlated=st.integers(0, screen.MOST_CORRELATED),
        classes=st.just(0) | st.integers(2, screen.MOST_CLASSES),
    ),
    screen.PairOpen: st.builds(
        screen.PairOpen,
        name=models,
        alignment=text,
        alignment_name=st.just("") | models,
        salt=text,
        rows=st.integers(1, 2**32 - 1),
        most_rows=st.integers(1, screen.MOST_ROWS),
        seed=naturals,
        bins=st.integers(2, screen.MOST_BINS),
        elements=st.just(""),
        correlated=st.integers(0, screen.MOST_CORRELATED),
        asks=names,
        answers=names,
    ),
    screen.PairReady: st.builds(screen.PairReady, columns=naturals),
    screen.PairBegin: st.builds(screen.PairBegin, columns=st.integers(1, screen.MOST_CORRELATED)),
    screen.PairLink: st.builds(
        screen.PairLink, seed=st.binary(min_size=32, max_size=32), marks=points()
    ),
    screen.PairSums: st.builds(screen.PairSums, sums=points()),
    screen.ScreenReady: st.builds(
        screen.ScreenReady, label=st.booleans(), correlates=st.booleans(), among=st.booleans()
    ),
    screen.ScreenNumbers: st.builds(
        screen.ScreenNumbers,
        start=naturals,
        seed=st.binary(min_size=32, max_size=32),
        ciphertexts=points(),
    ),
    screen.ScreenTransfers: st.builds(
        screen.ScreenTransfers, chosen=points(), seed=st.binary(min_size=32, max_size=32)
    ),
    screen.ScreenChoices: st.builds(
        screen.ScreenChoices, block=naturals, offer=points(), choices=points()
    ),
    screen.ScreenTables: st.builds(
        screen.ScreenTables, block=naturals, start=naturals, tables=points()
    ),
    screen.ScreenHints: st.builds(screen.ScreenHints, first=naturals, hints=points()),
    screen.ScreenProducts: st.builds(
        screen.ScreenProducts, columns=uint32s, own=points(), sums=points()
    ),
    screen.ScreenLabels: st.builds(screen.ScreenLabels, start=naturals, numbers=points()),
    screen.ScreenColumns: st.builds(
        screen.ScreenColumns,
        first=naturals,
        of=naturals,
        described=st.lists(
            st.builds(
                screen.DescribedColumn,
                name=text,
                type=st.sampled_from(["number", "categories"]),
                missing=st.integers(0, 100),
                distinct=text,
                counts=uint32s,
                ones=points(),
            ),
            max_size=3,
        ).map(tuple),
    ),
    overlap.OverlapCount: st.builds(
        overlap.OverlapCount, people=st.none() | naturals, exact=st.booleans(), fewest=naturals
    ),
}

bodies = st.sampled_from(list(KINDS.values())).flatmap(lambda model: STRATEGIES[model])


@st.composite
def envelopes(draw: st.DrawFn, body: st.SearchStrategy[Any] = bodies) -> Envelope:
    drawn = draw(body)
    header = Header(
        id=draw(st.from_regex(r"\A[ -~]{1,200}\Z")),
        federation=draw(names),
        session=draw(st.from_regex(r"\A[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")),
        attempt=draw(st.integers(1, 2**31 - 1)),
        sender=draw(names),
        recipient=draw(names),
        sequence=draw(st.integers(0, 2**62 - 1)),
        acknowledged=draw(st.integers(0, 2**62 - 1)),
        kind=drawn.kind,
    )
    return Envelope(header, drawn)


_BITS = Bitmap.of(np.array([True, False]))
_NUMBERS = Array.of(np.array([1], np.uint32))
_RECORDS = Array.of(np.array([-1], np.int32))
_FIELDS: dict[str, Any] = {
    "seconds": 60,
    "model": "model",
    "rows": 1,
    "alignment": "",
    "alignment_name": "",
    "name": "customers",
    "parties": ("bank", "telco"),
    "normalise": ("trim",),
    "known_to": None,
    "keeps": "",
    "kept": 0,
    "fewest": 1,
    "exact": True,
    "most_rows": 10,
    "bins": 10,
    "first": 0,
    "of": 1,
    "described": (),
    "owner": "telco",
    "points": Array.of(np.ones((1, 32), np.uint8)),
    "places": Array.of(np.zeros(1, np.uint32)),
    "evaluation": _BITS,
    "engine": "plain",
    "elements": "0f" * 32,
    "public": {},
    "trees": 1,
    "active_only_trees": 0,
    "max_depth": 1,
    "max_bin": 2,
    "colsample_bytree": 1.0,
    "colsample_bylevel": 1.0,
    "colsample_bynode": 1.0,
    "seed": 0,
    "value_bits": 40,
    "max_leaves": 0,
    "outputs": 1,
    "signs": {"minutes": 1},
    "earlier_model": "",
    "earlier_trees": 0,
    "earlier_places": b"",
    "together": (("minutes",), ()),
    "constraints": (_BITS, _BITS),
    "decoys": True,
    "max_cat_to_onehot": 4,
    "sampled": 0.5,
    "fallbacks": ("retail",),
    "fallback_of": training.MainTraining(
        session="s", model="m", fallbacks=("retail",), without="retail"
    ),
    "selected": training.SelectedColumns(screen="look", session="s", numbers=(1, 3)),
    "sums": "hidden",
    "signed_circuits": True,
    "narrow": True,
    "in_sequence": True,
    "salt": b"s" * 16,
    "given": ((1, b"g" * 32),),
    "taken": ((1, b"t" * 32),),
    "parcel": 0,
    "level": (1,),
    "chain": ("telco",),
    "offered": inference.ChangesOffered(column=_NUMBERS, left=_BITS),
    "told_columns": ("minutes",),
    "told_changes": ("more than 3.0",),
    "by_sets": True,
    "categories": (_NUMBERS,),
    "default_left": True,
    "sets": (training.CategorySplit(right=_NUMBERS, default_left=True),),
    "folds": 5,
    "signed": True,
    "smallest_node": 1,
    "smallest_cell": 10,
    "rising": _BITS,
    "falling": _BITS,
    "reason": "no",
    "setup_pieces": 0,
    "piece": 0,
    "pieces": 1,
    "payload": {},
    "tree": 0,
    "node": 1,
    "nodes": (training.NodeQuery(node=1, pieces=0),),
    "round": 0,
    "candidates": _NUMBERS,
    "commitment": b"",
    "signature": b"",
    "lot": 0,
    "record": 0,
    "records": _NUMBERS,
    "counts": _NUMBERS,
    "left": _BITS,
    "id_pieces": 0,
    "start": 0,
    "ids": ("a", "b"),
    "early": ((3, 4), (7, 7)),
    "hop": 0,
    "batch": 0,
    "budget": 1.0,
    "exits": _NUMBERS,
    "unknown": _NUMBERS,
    "unknown_rows": _BITS,
    "partial": True,
    "asks_changes": False,
    "training": "0123456789abcdef",
    "explained_records": 1,
    "sealed": None,
    "reasons": True,
    "number": 0,
    "words": _NUMBERS,
    "mask": b"",
    "masks": _NUMBERS,
    "key": bytes(32),
    "seeds": (bytes(32),),
    "numbers": _NUMBERS,
    "cause": "rate",
    "alias": "production",
    "mode": "hop",
    "right": _RECORDS,
    "explain": False,
    "thresholds": Array.of(np.ones(1, np.float32)),
    "missing_left": Bitmap.of(np.ones(1, np.bool_)),
    "only_asks": True,
    "category_names": ((),),
    "codes_right": ((0,),),
    "columns": RecordColumns(column=_NUMBERS, texts=("often late",)),
    "card": "{}",
    "drifts": True,
    "endorsement": "{}",
    "column": "gender",
    "people": 1,
    "groups": ("f", "m"),
    "sign": -1,
    "held_by": 5,
    "correlated": 2,
    "classes": 3,
    "least_steps": 0,
    "chosen": Array.of(np.ones((1, 256), np.uint8)),
    "block": 0,
    "offer": Array.of(np.ones((2, 256), np.uint8)),
    "choices": Array.of(np.ones(1, np.uint8)),
    "tables": Array.of(np.ones(1, np.uint8)),
    "label": False,
    "correlates": True,
    "own": Array.of(np.full((1, 1), 100, np.int8)),
    "ciphertexts": Array.of(np.ones((1, 32), np.uint8)),
    "among": True,
    "asks": "telco",
    "answers": "retail",
    "marks": Array.of(np.ones((1, 32), np.uint8)),
    "hints": Array.of(np.ones((1, 4, 5), np.uint16)),
}


def example(kind: type[Body]) -> Body:
    """A body of ``kind``, the same each time."""
    fields = {name: _FIELDS[name] for name in kind.model_fields}
    if "rows" in fields and kind.model_fields["rows"].annotation is not int:
        fields["rows"] = _NUMBERS
    if kind is online.OnlineBitmaps:
        fields["records"] = 1
    if kind in (
        inference.SealedLink,
        inference.SealedQuery,
        online.OnlineMasks,
        screen.ScreenNumbers,
        screen.ScreenTransfers,
        screen.PairLink,
    ):
        fields["seed"] = bytes(32)
    if kind in (screen.ScreenOpen, screen.PairOpen):
        fields["salt"] = "salt"
    if kind in (screen.PairBegin, screen.PairReady):
        fields["columns"] = 3
    if kind is screen.PairSums:
        fields["sums"] = Array.of(np.ones((1, 1, 3), np.uint32))
    if kind is screen.ScreenProducts:
        fields |= {"columns": _NUMBERS, "sums": Array.of(np.ones((1, 1, 32), np.uint8))}
    if kind is training.SessionAccept:
        fields["candidates"] = 1
    if kind is online.ModelDeploy:
        fields["left"] = _RECORDS
    return kind(**fields)
