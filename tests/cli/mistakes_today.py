"""More of what newcomers get wrong: tables as a spreadsheet writes them, and jobs of every kind."""

from __future__ import annotations

from tests.cli.mistake import CHECK, TRAIN, Mistake, both, in_data, put, table

__all__ = ["MISTAKES_TODAY"]

_PEOPLE = range(80)
_PAY = "".join(f'p{row},{row % 2},"1.{row:03},50"\n' for row in _PEOPLE)
_SINCE = "".join(f"p{row},{row % 2},{row % 28 + 1:02}.{row // 28 + 1:02}.2024\n" for row in _PEOPLE)

MISTAKES_TODAY = [
    Mistake(
        "German numbers",
        table(f"id,label,pay\n{_PAY}"),
        CHECK,
        4,
        ("column 'pay'", 'look like numbers with decimal = "," and thousands = "."'),
    ),
    Mistake(
        "dates as words",
        table(f"id,label,since\n{_SINCE}"),
        CHECK,
        4,
        ("column 'since'", "[data.columns.since]", 'format = "%d.%m.%Y"'),
    ),
    Mistake(
        "one comma",
        table('id,label,age\na,1,3\nb,0,"3,5"\n'),
        CHECK,
        4,
        ("'3,5' is no number", 'decimal = ","'),
    ),
    Mistake(
        "an id by its half",
        table("customer_id,label\na,1\nb,0\n"),
        CHECK,
        4,
        ("did you mean 'customer_id'?",),
    ),
    Mistake(
        "a weight below 0",
        both(table("id,label,w\na,1,1\nb,0,-1\n"), in_data('weight = "w"')),
        CHECK,
        4,
        ("column 'w'", "-1"),
    ),
    Mistake(
        "no classes",
        put("bank/train.toml", "binary:logistic", "multi:softprob"),
        TRAIN,
        3,
        ("params: num_class is missing",),
    ),
    Mistake(
        "another's metric",
        put("bank/train.toml", '"binary:logistic"', '"multi:softprob"\nnum_class = 3'),
        TRAIN,
        3,
        ("eval_metric = 'logloss' does not fit multi:softprob", "mlogloss"),
    ),
    Mistake(
        "a sign",
        put(
            "bank/train.toml", "max_depth = 3", "max_depth = 3\nmonotone_constraints = { age = 2 }"
        ),
        TRAIN,
        3,
        ("monotone_constraints",),
    ),
    Mistake(
        "leaves without end",
        put("bank/train.toml", "max_depth = 3", 'max_depth = 0\ngrow_policy = "lossguide"'),
        TRAIN,
        3,
        ("max_depth = 0: without a limit on depth max_leaves is needed",),
    ),
]
