"""What newcomers get wrong, with files, tables, jobs, keys and members: one line each."""

from __future__ import annotations

import gzip
import sqlite3
from pathlib import Path

from tests.cli.mistake import (
    BANK,
    CHECK,
    TELCO,
    TRAIN,
    Edit,
    Mistake,
    at_top,
    both,
    in_data,
    in_source,
    nothing,
    put,
    remove,
    table,
    write,
)
from tests.cli.mistakes_today import MISTAKES_OF_OWNERS, MISTAKES_TODAY

__all__ = ["MISTAKES"]


def encoded_table(encoding: str) -> Edit:
    return table("id,label,age,town\na,1,3,Köln\nb,0,4,Trier\n".encode(encoding))


def sqlite_table(folder: Path) -> None:
    (folder / "bank" / "data.csv").unlink()
    with sqlite3.connect(folder / "bank" / "data.csv") as database:
        database.execute("CREATE TABLE people (id TEXT)")
    database.close()


GOOD = "id,label,age,town\na,1,3,Bonn\nb,0,4,Trier\n"
WIDE = GOOD + "".join(f"p{row},1,{row},town {row}\n" for row in range(70))

_FILES = [
    Mistake("no such file", nothing, ("data", "check", "no.toml"), 3, ("no.toml: there is no",)),
    Mistake("a folder", nothing, ("data", "check", "bank"), 3, ("bank: cannot be read: Is a dir",)),
    Mistake("no TOML", at_top("age = "), CHECK, 3, (BANK, "not TOML", "line")),
    Mistake(
        "UTF-16",
        lambda folder: (folder / BANK).write_bytes((folder / BANK).read_text().encode("utf-16")),
        CHECK,
        3,
        (BANK, "is not UTF-8"),
    ),
    Mistake("misspelt", put(BANK, "broker =", "brocker ="), CHECK, 3, ("did you mean 'broker'?",)),
    Mistake(
        "left out", put(BANK, "broker =", "# broker ="), CHECK, 3, ("broker: this key is mis",)
    ),
    Mistake("of a table", at_top("workers = 1"), CHECK, 3, ("workers belongs into", "[compute]")),
    Mistake("of the top", in_data('recordings = "r"'), CHECK, 3, ("data.recordings", "at the top")),
    Mistake("a web page", put(BANK, "amqps://", "https://"), CHECK, 3, (BANK, "broker: ")),
    Mistake("a stranger", put(BANK, '"bank"', '"shop"'), CHECK, 3, ("party: 'shop' is not among",)),
    Mistake("capitals", put(BANK, '"bank"', '"Bank"'), CHECK, 3, ("party: 'Bank' is no name",)),
    Mistake(
        "no federation", remove("federation.toml"), CHECK, 3, ("federation.toml: there is no such",)
    ),
    Mistake("a job", nothing, ("data", "check", "bank/train.toml"), 3, ("this is no party file",)),
    Mistake("no job", nothing, ("train", BANK), 3, (BANK, "this is no training job")),
    Mistake("unlabelled", put(BANK, 'label = "label"\n', ""), CHECK, 3, ("data.label", "missing")),
    Mistake(
        "another label",
        put(TELCO, 'id = "id"\n', 'id = "id"\nlabel = "x"\n'),
        ("data", "check", TELCO),
        3,
        (TELCO, "data.label: only bank holds a label"),
    ),
    Mistake(
        "an engine", put(BANK, '"paillier"', '"palier"'), CHECK, 3, ("policy.engines", "'palier'")
    ),
    Mistake(
        "no size",
        put(BANK, "[policy]", '[compute]\nmemory = "2GB"\n[policy]'),
        CHECK,
        3,
        ("compute.memory: '2GB' is no size", "a space, and KB, MB, GB or TB"),
    ),
    Mistake(
        "open to all",
        put(BANK, "[policy]", '[http]\nhost = "0.0.0.0"\n[policy]'),
        CHECK,
        3,
        ("http: 0.0.0.0 can be reached from elsewhere: add tokens",),
    ),
    Mistake(
        "a short token",
        put(BANK, "[policy]", '[http]\ntokens = ["secret"]\n[policy]'),
        CHECK,
        3,
        ("http.tokens.0: a token has at least 16 characters",),
    ),
    Mistake(
        "half a login", put(BANK, "key = ", "# key = "), CHECK, 3, ("certificate and key belong",)
    ),
    Mistake(
        "twice the same",
        put("federation.toml", '["telco"]', '["telco", "telco"]'),
        CHECK,
        3,
        ("federation.toml: passive: a party is named twice",),
    ),
    Mistake(
        "without a key",
        put("federation.toml", "telco = ", "# telco = "),
        CHECK,
        3,
        ("federation.toml: keys.telco: this party has no keys here",),
    ),
]

_TABLES = [
    Mistake("no table", remove("bank/data.csv"), CHECK, 4, ("data.csv: there is no such file",)),
    Mistake("an empty table", table(""), CHECK, 4, ("data.csv: the file is empty",)),
    Mistake("semicolons", table(GOOD.replace(",", ";")), CHECK, 4, ("data.csv", 'separator = ";"')),
    Mistake("tabs", table(GOOD.replace(",", "\t")), CHECK, 4, ("data.csv", r'separator = "\t"')),
    Mistake(
        "commas",
        both(table(GOOD), in_data('separator = ";"')),
        CHECK,
        4,
        ("data.csv", 'separator = ","'),
    ),
    Mistake("Latin 1", encoded_table("latin-1"), CHECK, 4, ("is not UTF-8", 'encoding = "cp1252"')),
    Mistake("UTF-16 table", encoded_table("utf-16"), CHECK, 4, ('encoding = "utf-16"',)),
    Mistake("Excel", table(b"PK\x03\x04 xl/workbook.xml"), CHECK, 4, ("Excel", "as CSV")),
    Mistake("old Excel", table(b"\xd0\xcf\x11\xe0" + bytes(9)), CHECK, 4, ("an old Excel file",)),
    Mistake("Parquet", table(b"PAR1" + bytes(20)), CHECK, 4, ('write type = "parquet"',)),
    Mistake("SQLite", sqlite_table, CHECK, 4, ("a SQLite database", 'type = "sql"')),
    Mistake("compressed", table(gzip.compress(GOOD.encode())), CHECK, 4, ("compressed; unpack",)),
    Mistake("no Parquet", in_data('type = "parquet"'), CHECK, 4, ("looks like text", '"csv"')),
    Mistake(
        "another id",
        both(table(GOOD), put(BANK, 'id = "id"', 'id = "ID "')),
        CHECK,
        4,
        ("there is no column 'ID ' (id)", "there are 'id', 'label'", "did you mean 'id'?"),
    ),
    Mistake(
        "another label column",
        both(table(GOOD), put(BANK, '"label"', '"lable"')),
        CHECK,
        4,
        ("there is no column 'lable' (label)", "did you mean 'label'?"),
    ),
    Mistake(
        "a column twice",
        table("id,label,a,a\np,1,2,3\n"),
        CHECK,
        4,
        ("'a' appears more than once",),
    ),
    Mistake(
        "a short row", table(GOOD + "c,1,2\n"), CHECK, 4, ("line 4: 3 cells, the header has 4",)
    ),
    Mistake(
        "a word",
        table(GOOD + "c,1,old,Bonn\n"),
        CHECK,
        4,
        ("line 4, column 'age': 'old' is no number", "ignore"),
    ),
    Mistake("infinite", table(GOOD + "c,1,inf,Bonn\n"), CHECK, 4, ("line 4, column 'age' is inf",)),
    Mistake("no id", table(GOOD + ",1,3,Bonn\n"), CHECK, 4, ("line 4: the id is empty",)),
    Mistake(
        "ids twice", table(GOOD + "a,1,3,Bonn\n"), CHECK, 4, ("'a' in line 4", 'duplicates = "')
    ),
    Mistake(
        "no label", table(GOOD + "c,,3,Bonn\n"), CHECK, 4, ("line 4, column 'label' is empty",)
    ),
    Mistake(
        "a decimal comma",
        both(table("id;label;age\na;1;3,5\nb;0;4.5\n"), in_data('separator = ";"\ndecimal = ","')),
        CHECK,
        4,
        ("line 3, column 'age': '4.5' is no number",),
    ),
    Mistake("towns", table(WIDE), CHECK, 4, ("column 'town': more than 64 categories", "group")),
    Mistake("ignored", in_data('ignore = ["nmae"]'), CHECK, 4, ("there is no column 'nmae'",)),
    Mistake("the id", in_data('features = ["id"]'), CHECK, 3, ("data: column 'id' cannot be a f",)),
    Mistake(
        "no URL",
        in_source('type = "sql"\nurl = "people.sqlite"\nquery = "SELECT 1"'),
        CHECK,
        3,
        (BANK, "data.url", "sqlite:///people.sqlite"),
    ),
    Mistake(
        "a path", in_data('type = "sql"'), CHECK, 3, ("data: path does not go with type = 'sql'",)
    ),
    Mistake("an encoding", in_data('encoding = "ansi2"'), CHECK, 3, ("data.encoding: 'ansi2'",)),
    Mistake("two commas", in_data('decimal = ","'), CHECK, 3, ('separator = ";"',)),
    Mistake(
        "no date",
        both(
            table("id,label,since\na,1,2024-02-30\n"),
            put(BANK, "[policy]", '[data.columns.since]\nkind = "date"\n[policy]'),
        ),
        CHECK,
        4,
        ("line 2, column 'since': '2024-02-30' is no date as YYYY-MM-DD",),
    ),
    Mistake(
        "no age",
        put(BANK, "[policy]", '[data.columns.b]\nkind = "date"\nparts = ["age"]\n[policy]'),
        CHECK,
        3,
        ("data.columns.b: an age needs a reference day", "reference ="),
    ),
    Mistake(
        "no form",
        put(BANK, "[policy]", '[data.columns.b]\nkind = "date"\nformat = "DD.MM"\n[policy]'),
        CHECK,
        3,
        ("data.columns.b", "'DD.MM' is no form of dates"),
    ),
    Mistake(
        "hashed first", in_data('normalise = ["sha256", "trim"]'), CHECK, 3, ("sha256 comes last",)
    ),
]

_INIT = ("init", "new", "--active", "bank", "--passive")
_JOBS = [
    Mistake("not empty", nothing, ("init", "bank", *_INIT[2:], "telco"), 3, ("is not empty",)),
    Mistake("named twice", nothing, (*_INIT, "bank"), 3, ("a party is named twice",)),
    Mistake("a broker", nothing, (*_INIT, "broker"), 3, ("a party may not be named broker",)),
    Mistake("no port", nothing, (*_INIT, "telco", "--broker", "mq"), 3, ("HOST:PORT",)),
    Mistake("a name", nothing, (*_INIT, "Telco Ltd"), 3, ("party 'Telco Ltd': a name starts",)),
    Mistake(
        "a parameter",
        put("bank/train.toml", "max_depth", "max_dept"),
        TRAIN,
        3,
        ("bank/train.toml: params: max_dept", "did you mean max_depth?"),
    ),
    Mistake(
        "out of place",
        put("bank/train.toml", "max_depth = 3", 'engine = "ou"'),
        TRAIN,
        3,
        ("params.engine: engine belongs at the top",),
    ),
    Mistake(
        "no depth",
        put("bank/train.toml", "max_depth = 3", "max_depth = 0"),
        TRAIN,
        3,
        ("max_depth",),
    ),
    Mistake("magic", put("bank/train.toml", '"lattice"', '"magic"'), TRAIN, 3, ("'magic' is unk",)),
    Mistake(
        "an objective",
        put("bank/train.toml", "binary:logistic", "binary:logit"),
        TRAIN,
        3,
        ("params: objective", "binary:logistic"),
    ),
    Mistake(
        "all", put("bank/train.toml", "= 0.2", "= 2"), TRAIN, 3, ("bank/train.toml: evaluation",)
    ),
    Mistake(
        "an option",
        put("bank/train.toml", 'sums = "hidden"', "bits = 9"),
        TRAIN,
        3,
        ("bank/train.toml", "bits"),
    ),
    Mistake(
        "no name",
        put("bank/align.toml", "name", "# name"),
        ("align", "bank/align.toml"),
        3,
        ("bank/align.toml: name: this key is missing",),
    ),
    Mistake("no daemon", nothing, ("status", BANK), 7, (f"start it with: fedmq run {BANK}",)),
    Mistake("nobody trains", nothing, TRAIN, 7, (f"start it with: fedmq run {BANK}",)),
    Mistake("a guess", nothing, ("estimate", "bank/nothing.toml"), 3, ("there is no such file",)),
    Mistake(
        "not the label",
        write("telco/train.toml", 'party = "party.toml"\n'),
        ("estimate", "telco/train.toml"),
        3,
        ("telco holds no label: bank can estimate",),
    ),
    Mistake(
        "no header",
        write("ids.csv", "P0001\nP0002\n"),
        ("predict", BANK, "ids.csv", "-o", "scores.csv"),
        4,
        ("ids.csv: there is no column 'id' in line 1",),
    ),
    Mistake(
        "no folder",
        nothing,
        ("predict", BANK, "bank/ids.csv", "-o", "out/scores.csv"),
        3,
        ("there is no folder out; make it first",),
    ),
]

_RUN = ("run", BANK)
_KEYS = [
    Mistake("keys again", nothing, ("keys", "new", BANK), 3, ("there are keys already", "rotate")),
    Mistake("no key", nothing, ("keys", "trust", BANK, "telco", "abc"), 3, ("key",)),
    Mistake("a peer", nothing, ("keys", "rotate", TELCO, "--finish"), 3, ("fedmq keys rotate",)),
    Mistake(
        "open keys",
        lambda folder: (folder / "bank/keys.json").chmod(0o644),
        _RUN,
        3,
        ("bank/keys.json: others may read these private keys; chmod 600",),
    ),
    Mistake("lost keys", remove("bank/keys.json"), _RUN, 3, ("bank/keys.json: there is no such",)),
    Mistake(
        "another's keys",
        lambda folder: (folder / "bank/keys.json").write_bytes(
            (folder / "telco/keys.json").read_bytes()
        ),
        _RUN,
        3,
        ("these are the keys of telco, not of bank",),
    ),
    Mistake(
        "another's certificate",
        lambda folder: [
            (folder / "bank/tls" / name).write_bytes((folder / "telco/tls" / name).read_bytes())
            for name in ("party.pem", "party.key")
        ],
        _RUN,
        3,
        ("tls.certificate", "is the certificate of 'telco', not of bank"),
    ),
    Mistake("no certificate", remove("bank/tls/party.pem"), _RUN, 3, ("tls: ", "no such file")),
    Mistake(
        "no state",
        put(BANK, '"state"', '"data.csv"'),
        _RUN,
        3,
        ("state: ", "data.csv is no folder"),
    ),
]

_MEMBERS = [
    Mistake(
        "no request",
        write("x.json", "{}"),
        ("party", "add", BANK, "x.json"),
        3,
        ("x.json: this is no request of fedmq join",),
    ),
    Mistake(
        "oneself", nothing, ("party", "remove", BANK, "bank"), 3, ("bank is this party itself",)
    ),
    Mistake(
        "nobody",
        nothing,
        ("party", "remove", BANK, "shop"),
        3,
        ("federation.toml: shop is no passive party; there are: telco",),
    ),
    Mistake(
        "no answer",
        write("x.json", "{}"),
        ("join", "bank", "--signed", "x.json"),
        3,
        ("x.json: this is no file of fedmq broker sign",),
    ),
    Mistake(
        "no members yet",
        write("x.toml", 'name = "demo"\nactive = "telco"\npassive = []\n'),
        ("join", "bank", "--members", "x.toml"),
        3,
        ("x.toml: bank is not among the parties: telco", "fedmq party add"),
    ),
    Mistake(
        "no broker's folder",
        nothing,
        ("broker", "renew", "bank"),
        3,
        ("bank: is no broker's folder",),
    ),
    Mistake(
        "no certificate of theirs",
        nothing,
        ("broker", "renew", "broker", "shop"),
        3,
        ("broker/issued/shop.pem: there is no such file", "fedmq join"),
    ),
]

MISTAKES = [*_FILES, *_TABLES, *_JOBS, *_KEYS, *_MEMBERS, *MISTAKES_TODAY, *MISTAKES_OF_OWNERS]
