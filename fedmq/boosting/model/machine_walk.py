"""Many pairs (row, tree) walk down trees in the processor's own instructions.

`walk` moves pairs down the nodes of their own owner; `OneWay` of `fedmq.protocol.tree_walk` notes
by `ask` and `answer` where each row stands in each tree.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedmq.boosting.model.tree import ACTIVE_PARTY, Forest, LookupTable
from fedmq.machine_code import address, features, translated

__all__ = ["FEWEST_PAIRS", "answer", "ask", "can_note", "can_walk", "walk"]

FEWEST_PAIRS = 2**14
"""Translating the code takes 30 ms, which some dozens of hops of so many pairs save."""


def can_walk(forest: Forest, table: LookupTable, values: NDArray[np.float32]) -> bool:
    """Whether `walk` is there, and finds all that it reads within these arrays."""
    own = forest.record[forest.owner == ACTIVE_PARTY]
    within = not len(own) or 0 <= own.min() <= own.max() < len(table)
    known = not len(table) or 0 <= table.feature.min() <= table.feature.max() < values.shape[1]
    plain = values.dtype == np.float32 and not any(table.category_sets)
    return bool(features()) and plain and bool(within and known)


def walk(
    forest: Forest,
    table: LookupTable,
    values: NDArray[np.float32],
    pairs: NDArray[np.int64],
    nodes: NDArray[np.int32],
    left: NDArray[np.bool_] | None,
) -> NDArray[np.int32]:
    """The nodes where ``pairs`` that stand at ``nodes`` wait for another owner, or arrive.

    They begin with one step of ``left``, if that is given.

    Raises:
        IndexError: a pair or a node does not exist.
    """
    trees = len(forest.roots)
    _check_within(pairs, trees * len(values))
    _check_within(nodes, len(forest.owner))
    nodes = np.array(nodes, np.int32)
    gone = np.empty(0, np.bool_) if left is None else np.ascontiguousarray(left, np.bool_)
    if left is not None and gone.shape != nodes.shape:
        raise IndexError(f"{len(gone)} directions of {len(nodes)} pairs")
    arrays: tuple[NDArray[Any], ...] = (
        nodes,
        np.ascontiguousarray(pairs, np.int64),
        gone,
        np.ascontiguousarray(forest.owner, np.int16),
        np.ascontiguousarray(forest.record, np.int32),
        np.ascontiguousarray(forest.left, np.int32),
        np.ascontiguousarray(forest.right, np.int32),
        np.ascontiguousarray(table.feature, np.int32),
        np.ascontiguousarray(table.threshold, np.float32),
        np.ascontiguousarray(table.default_left, np.bool_),
        values,
    )
    sizes = (len(nodes), max(trees, 1), int(left is not None), *values.strides)
    _walk()(*map(address, arrays), *sizes)
    return nodes


def can_note(standing: NDArray[np.unsignedinteger]) -> bool:
    """Whether `ask` and `answer` are there, and can write into ``standing`` (rows, trees)."""
    return standing.flags.c_contiguous and bool(features())


def ask(
    standing: NDArray[np.unsignedinteger],
    rows: NDArray[np.int64],
    trees: NDArray[np.int32],
    nodes: NDArray[np.int64],
) -> int:
    """Note in ``standing`` that each row goes to its node of its tree.

    Returns the number of the first pair whose node lies beside the row's way, -1 if none does.

    Raises:
        IndexError: a row or a tree does not exist.
    """
    return _noted("ask", standing, rows, trees, nodes)


def answer(
    standing: NDArray[np.unsignedinteger],
    rows: NDArray[np.int64],
    trees: NDArray[np.int32],
    nodes: NDArray[np.int64],
) -> None:
    """Note in ``standing`` that each row goes on to its node, where that is further down.

    Raises:
        IndexError: a row or a tree does not exist.
    """
    _noted("answer", standing, rows, trees, nodes)


def _noted(
    what: str,
    standing: NDArray[np.unsignedinteger],
    rows: NDArray[np.int64],
    trees: NDArray[np.int32],
    nodes: NDArray[np.int64],
) -> int:
    _check_within(rows, standing.shape[0])
    _check_within(trees, standing.shape[1])
    arrays: tuple[NDArray[Any], ...] = (
        standing,
        np.ascontiguousarray(rows, np.int64),
        np.ascontiguousarray(trees, np.int32),
        np.ascontiguousarray(nodes, np.int64),
    )
    return int(
        _note(what, 8 * standing.itemsize)(*map(address, arrays), len(rows), standing.shape[1])
    )


def _check_within(numbers: NDArray[np.integer], count: int) -> None:
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise IndexError(f"a number that is not below {count}")


@lru_cache(maxsize=1)
def _walk() -> Callable[..., None]:
    [address] = translated(_WALK, "walk")
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * 11, *[ctypes.c_int64] * 5)(address)


@lru_cache(maxsize=8)
def _note(what: str, bits: int) -> Callable[..., int]:
    module = _NOTE + (_CHECK if what == "ask" else _NO_CHECK)
    module = module.replace("WIDEN", "zext" if bits < 64 else "bitcast")
    module = module.replace("NARROW", "trunc" if bits < 64 else "bitcast")
    [address] = translated(module.replace("WORD", f"i{bits}"), "note")
    kinds = [ctypes.c_void_p] * 4 + [ctypes.c_int64] * 2
    return ctypes.CFUNCTYPE(ctypes.c_int64, *kinds)(address)


_WALK = """
define void @walk(ptr noalias %nodes, ptr %pairs, ptr %gone, ptr %owner, ptr %record, ptr %left,
    ptr %right, ptr %feature, ptr %threshold, ptr %default, ptr %values, i64 %n, i64 %trees,
    i64 %is_gone, i64 %row_bytes, i64 %column_bytes) {
entry:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %end, label %pair
pair:
  %i = phi i64 [0, %entry], [%next_i, %arrived]
  %node_at = getelementptr i32, ptr %nodes, i64 %i
  %first = load i32, ptr %node_at
  %pair_at = getelementptr i64, ptr %pairs, i64 %i
  %number = load i64, ptr %pair_at
  %row = udiv i64 %number, %trees
  %row_at = mul i64 %row, %row_bytes
  %steps = icmp ne i64 %is_gone, 0
  br i1 %steps, label %step, label %here
step:
  %gone_at = getelementptr i8, ptr %gone, i64 %i
  %gone_byte = load i8, ptr %gone_at
  %gone_left = trunc i8 %gone_byte to i1
  br label %child
here:
  %node = phi i32 [%first, %pair], [%below, %child]
  %wide = sext i32 %node to i64
  %owner_at = getelementptr i16, ptr %owner, i64 %wide
  %held_by = load i16, ptr %owner_at
  %own = icmp eq i16 %held_by, 0
  br i1 %own, label %look, label %arrived
look:
  %record_at = getelementptr i32, ptr %record, i64 %wide
  %short_record = load i32, ptr %record_at
  %its_record = sext i32 %short_record to i64
  %feature_at = getelementptr i32, ptr %feature, i64 %its_record
  %short_feature = load i32, ptr %feature_at
  %its_feature = sext i32 %short_feature to i64
  %column_at = mul i64 %its_feature, %column_bytes
  %place = add i64 %row_at, %column_at
  %value_at = getelementptr i8, ptr %values, i64 %place
  %value = load float, ptr %value_at, align 1
  %threshold_at = getelementptr float, ptr %threshold, i64 %its_record
  %its_threshold = load float, ptr %threshold_at
  %below_it = fcmp ole float %value, %its_threshold
  %missing = fcmp uno float %value, %value
  %default_at = getelementptr i8, ptr %default, i64 %its_record
  %default_byte = load i8, ptr %default_at
  %default_left = trunc i8 %default_byte to i1
  %its_left = select i1 %missing, i1 %default_left, i1 %below_it
  br label %child
child:
  %from = phi i32 [%first, %step], [%node, %look]
  %goes_left = phi i1 [%gone_left, %step], [%its_left, %look]
  %side = select i1 %goes_left, ptr %left, ptr %right
  %wide_from = sext i32 %from to i64
  %below_at = getelementptr i32, ptr %side, i64 %wide_from
  %below = load i32, ptr %below_at
  br label %here
arrived:
  store i32 %node, ptr %node_at
  %next_i = add i64 %i, 1
  %more = icmp slt i64 %next_i, %n
  br i1 %more, label %pair, label %end
end:
  ret void
}
"""

_NOTE = """
declare i64 @llvm.ctlz.i64(i64, i1)
declare i64 @llvm.umax.i64(i64, i64)
declare i64 @llvm.smax.i64(i64, i64)

define internal i1 @is_below(i64 %node, i64 %top) alwaysinline {
  %node_zeros = call i64 @llvm.ctlz.i64(i64 %node, i1 false)
  %top_zeros = call i64 @llvm.ctlz.i64(i64 %top, i1 false)
  %levels = sub i64 %top_zeros, %node_zeros
  %deep = icmp sge i64 %levels, 0
  %shift = call i64 @llvm.smax.i64(i64 %levels, i64 0)
  %above = lshr i64 %node, %shift
  %same = icmp eq i64 %above, %top
  %is = and i1 %deep, %same
  ret i1 %is
}

define internal ptr @place(ptr %standing, ptr %rows, ptr %trees, i64 %width, i64 %i) alwaysinline {
  %row_at = getelementptr i64, ptr %rows, i64 %i
  %row = load i64, ptr %row_at
  %tree_at = getelementptr i32, ptr %trees, i64 %i
  %short = load i32, ptr %tree_at
  %tree = sext i32 %short to i64
  %first = mul i64 %row, %width
  %number = add i64 %first, %tree
  %at = getelementptr WORD, ptr %standing, i64 %number
  ret ptr %at
}

define internal i64 @stands(ptr %at) alwaysinline {
  %word = load WORD, ptr %at
  %wide = WIDEN WORD %word to i64
  %node = call i64 @llvm.umax.i64(i64 %wide, i64 1)
  ret i64 %node
}

define i64 @note(ptr %standing, ptr %rows, ptr %trees, ptr %nodes, i64 %n, i64 %width) {
entry:
  %none = icmp eq i64 %n, 0
  br i1 %none, label %clear, label %pair
pair:
  %i = phi i64 [0, %entry], [%next_i, %noted]
  %at = call ptr @place(ptr %standing, ptr %rows, ptr %trees, i64 %width, i64 %i)
  %stands = call i64 @stands(ptr %at)
  %node_at = getelementptr i64, ptr %nodes, i64 %i
  %node = load i64, ptr %node_at
  %further = call i1 @is_below(i64 %node, i64 %stands)
  br i1 %further, label %goes, label %noted
goes:
  %word = NARROW i64 %node to WORD
  store WORD %word, ptr %at
  br label %noted
noted:
  %next_i = add i64 %i, 1
  %more = icmp slt i64 %next_i, %n
  br i1 %more, label %pair, label %check
"""

_NO_CHECK = """
check:
  br label %clear
clear:
  ret i64 -1
}
"""

_CHECK = """
check:
  %j = phi i64 [0, %noted], [%next_j, %on_its_way]
  %checked = call ptr @place(ptr %standing, ptr %rows, ptr %trees, i64 %width, i64 %j)
  %now = call i64 @stands(ptr %checked)
  %asked_at = getelementptr i64, ptr %nodes, i64 %j
  %asked = load i64, ptr %asked_at
  %fits = call i1 @is_below(i64 %now, i64 %asked)
  br i1 %fits, label %on_its_way, label %beside
on_its_way:
  %next_j = add i64 %j, 1
  %unchecked = icmp slt i64 %next_j, %n
  br i1 %unchecked, label %check, label %clear
beside:
  ret i64 %j
clear:
  ret i64 -1
}
"""
