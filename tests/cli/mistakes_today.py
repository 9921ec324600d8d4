"""More of what newcomers get wrong: tables as a spreadsheet writes them, and jobs of every kind."""

from __future__ import annotations

from pathlib import Path

from tests.cli.mistake import (
    BANK,
    CHECK,
    TELCO,
    TRAIN,
    Edit,
    Mistake,
    both,
    in_data,
    in_source,
    nothing,
    put,
    table,
    write,
)

__all__ = ["MISTAKES_OF_OWNERS", "MISTAKES_TODAY"]

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

_SEPARATED = in_data('separator = ";"\ndecimal = ","')
_SQL = 'type = "sql"\nurl = "sqlite:///people.sqlite"\n'
_PREDICT = ("predict", BANK)
_BINARY = bytes(range(1, 32)) * 40


def in_policy(text: str) -> Edit:
    """Write ``text`` above ``[policy]`` of the bank."""
    return put(BANK, "[policy]", f"{text}\n[policy]")


def in_params(line: str) -> Edit:
    """Write ``line`` among the parameters of the job."""
    return put("bank/train.toml", "max_depth = 3", f"max_depth = 3\n{line}")


def damaged_log(folder: Path) -> None:
    (folder / "telco/state").mkdir()
    (folder / "telco/state/audit.jsonl").write_text("x\n")


MISTAKES_OF_OWNERS = [
    Mistake(
        "thousands beside decimals",
        both(table("id;label;pay\na;1;1.234,50\nb;0;12,5\n"), _SEPARATED),
        CHECK,
        4,
        ("line 2, column 'pay': '1.234,50'", 'decimal = "," and thousands = "."'),
    ),
    Mistake(
        "an umlaut",
        table(f"id,label,Kontoeröffnung\n{_SINCE}"),
        CHECK,
        4,
        ('[data.columns."Kontoeröffnung"] with kind = "date"',),
    ),
    Mistake(
        "a name of two words",
        table(f"id,label,opened on\n{_SINCE}"),
        CHECK,
        4,
        ('[data.columns."opened on"]',),
    ),
    Mistake(
        "a DELETE",
        in_source(f'{_SQL}query = "DELETE FROM people"'),
        CHECK,
        3,
        ("data.query: it begins with DELETE, which changes the database; write the SELECT",),
    ),
    Mistake(
        "a DROP below a comment",
        in_source(f'{_SQL}query = "-- all\\ndrop table people"'),
        CHECK,
        3,
        ("data.query: it begins with drop",),
    ),
    Mistake("no query", in_source(_SQL), CHECK, 3, ("data: query is missing; type = 'sql'",)),
    Mistake(
        "no database", in_source(f'{_SQL}query = "SELECT 1"'), CHECK, 4, ("there is no such file",)
    ),
    Mistake("binary", table(_BINARY), CHECK, 4, ("no CSV file: it is binary, no text",)),
    Mistake(
        "an open quotation mark",
        table('id,label,town\na,1,"Bonn\nb,0,Trier\n'),
        CHECK,
        4,
        ("line 3: cannot be read", "a quotation mark is not closed"),
    ),
    Mistake("a header alone", table("id,label,age\n"), CHECK, 4, ("data.csv: there are no rows",)),
    Mistake(
        "yes", table("id,label\na,yes\nb,no\n"), CHECK, 4, ("'yes' is no number; write the l",)
    ),
    Mistake("no weight", in_data('weight = "w"'), CHECK, 4, ("there is no column 'w' (weight)",)),
    Mistake("an integer", in_data('types = { a = "int" }'), CHECK, 3, ("data.types.a: ", "'numb")),
    Mistake("no list", in_data('ignore = "town"'), CHECK, 3, ("data.ignore: this is a list, suc",)),
    Mistake(
        "two signs", in_data("monotone = { a = 2 }"), CHECK, 3, ("data.monotone.a: ", "-1 or 1")
    ),
    Mistake(
        "two separators", in_data('separator = ";;"'), CHECK, 3, ("data.separator: ", "1 char")
    ),
    Mistake("hashed", in_data("hashed = true"), CHECK, 3, ("need sha256 among the steps",)),
    Mistake("strip", in_data('normalise = ["strip"]'), CHECK, 3, ("data.normalise.0", "'trim'")),
    Mistake(
        "binary ids",
        write("ids.csv", _BINARY),
        (*_PREDICT, "ids.csv", "-o", "scores.csv"),
        4,
        ("ids.csv: no CSV file: it is binary, no text",),
    ),
    Mistake(
        "no ids", write("ids.csv", "id\n"), (*_PREDICT, "ids.csv", "-o", "s.csv"), 4, ("no ids",)
    ),
    Mistake(
        "ids of Excel",
        write("ids.csv", b"PK\x03\x04 xl/workbook.xml"),
        (*_PREDICT, "ids.csv", "-o", "s.csv"),
        4,
        ("ids.csv: no CSV file: it is an Excel file",),
    ),
    Mistake(
        "into a folder",
        nothing,
        (*_PREDICT, "bank/ids.csv", "-o", "bank"),
        3,
        ("bank: is a folder; name a file in it",),
    ),
    Mistake(
        "over a file",
        nothing,
        (*_PREDICT, "bank/ids.csv", "-o", BANK),
        3,
        (f"{BANK}: exists already and holds no scores; choose another",),
    ),
    Mistake(
        "no labels there", nothing, ("evaluate", TELCO, "-o", "r"), 3, ("only bank, which holds",)
    ),
    Mistake(
        "nothing to evaluate", nothing, ("evaluate", BANK, "-o", "r"), 4, ("there is no model yet",)
    ),
    Mistake(
        "no such model",
        nothing,
        ("models", "export", BANK, "x", "x.share"),
        4,
        ("model 'x' has no share here; there are: none",),
    ),
    Mistake(
        "no share", nothing, ("models", "import", BANK, "bank/data.csv"), 4, ("not a share file",)
    ),
    Mistake(
        "a card of theirs",
        nothing,
        ("models", "card", TELCO),
        3,
        ("only bank writes cards; telco",),
    ),
    Mistake(
        "a feature", nothing, ("score", BANK, "1", "--feature", "a:3"), 3, ("write COLUMN=VALUE",)
    ),
    Mistake("nobody serves", nothing, ("activate", BANK), 7, (f"start it with: fedmq run {BANK}",)),
    Mistake(
        "a graphics card",
        in_params('device = "cuda"'),
        TRAIN,
        3,
        ("device = 'cuda': fedmq computes on processors alone; leave it out",),
    ),
    Mistake("no tree", in_params("num_parallel_tree = 0"), TRAIN, 3, ("num_parallel_tree = 0",)),
    Mistake(
        "linear", in_params('booster = "gblinear"'), TRAIN, 3, ("booster = 'gblinear'", "'gbtree'")
    ),
    Mistake("all rows", in_params("subsample = 1.5"), TRAIN, 3, ("subsample = 1.5: input should",)),
    Mistake(
        "another party's job",
        put("bank/train.toml", '"party.toml"', '"nobody.toml"'),
        TRAIN,
        3,
        ("bank/nobody.toml: there is no such file",),
    ),
    Mistake(
        "an outer join",
        put("bank/align.toml", "name =", 'join = "outer"\nname ='),
        ("align", "bank/align.toml"),
        3,
        ("bank/align.toml: join: ", "'inner' or 'left'"),
    ),
    Mistake(
        "a training to align",
        nothing,
        ("align", "bank/train.toml"),
        3,
        ("bank/train.toml: this is no alignment job",),
    ),
    Mistake(
        "a rule for strangers",
        put(BANK, "[online]", '[online]\nunknown = "none"'),
        CHECK,
        3,
        ("online.unknown: ", "'null'"),
    ),
    Mistake("a port", in_policy("[http]\nport = 99999"), CHECK, 3, ("http.port: ", "65536")),
    Mistake(
        "one token",
        in_policy('[http]\ntokens = "a-long-random-token"'),
        CHECK,
        3,
        ('http.tokens: this is a list, such as ["a-long-random-token"]',),
    ),
    Mistake("no workers", in_policy("[compute]\nworkers = 0"), CHECK, 3, ("compute.workers: ",)),
    Mistake(
        "one passive party",
        put("federation.toml", '["telco"]', '"telco"'),
        CHECK,
        3,
        ('federation.toml: passive: this is a list, such as ["telco"]',),
    ),
    Mistake(
        "no session",
        nothing,
        ("transcript", "export", TELCO, "12ab"),
        3,
        ("nothing is kept of session '12ab'",),
    ),
    Mistake(
        "no transcript",
        nothing,
        ("transcript", "verify", "bank/data.csv", "--federation", "federation.toml"),
        4,
        ("bank/data.csv: not a transcript", "have it exported anew with: fedmq transcript export"),
    ),
    Mistake(
        "a changed log", damaged_log, ("audit-log", "list", TELCO), 4, ("the log was changed",)
    ),
    Mistake(
        "no recording", nothing, ("audit", "bank/data.csv"), 4, ("data.csv: not a recording of",)
    ),
]
