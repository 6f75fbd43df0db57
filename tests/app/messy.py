"""Everyday files, kind by kind, and what a reasonable user expects of each.

The kinds of ``BEFORE`` were written down before the reader's code was looked at; those of ``AFTER`` with the
code in view. A kind is either right, and then the clusters must be those of scikit-learn on the pooled table,
or ``error``, and then the command must end with one line that matches, exit code 1 and nothing written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

SITES = ("north", "south", "west")
NAMES = ("age", "weight", "income")
Cells = dict[str, list[str]]  # the text of every cell, by column


def numbers() -> dict[str, np.ndarray]:
    """The true table: 24 rows a site, three blobs of age (years), weight (kg) and income (two decimals)."""
    rng = np.random.default_rng(7)
    centres = np.array([[30, 60, 900], [50, 90, 2600], [72, 68, 5200]])
    tables = {}
    for site in SITES:
        rows = np.repeat(centres, 8, axis=0) + rng.normal(size=(24, 3)) * [3, 3, 150]
        tables[site] = np.column_stack([rows[:, 0].round(), rows[:, 1].round(1), rows[:, 2].round(2)])
    return tables


TRUE = numbers()


def german(number: float, digits: int, thousands: str = "") -> str:
    return f"{number:,.{digits}f}".replace(",", "\0").replace(".", ",").replace("\0", thousands)


def cells(site: str, **more: list[str]) -> Cells:
    """The true table of a site as text, and columns beside it."""
    X = TRUE[site]
    return {
        "age": [f"{v:.0f}" for v in X[:, 0]],
        "weight": [f"{v:.1f}" for v in X[:, 1]],
        "income": [f"{v:.2f}" for v in X[:, 2]],
    } | more


def text(columns: Cells, sep: str = ",", end: str = "\n", header: bool = True) -> str:
    rows = [[*columns]] * header + [list(row) for row in zip(*columns.values(), strict=True)]
    return "".join(sep.join(row) + end for row in rows)


def files(make: Callable[[str], str | bytes], ending: str = "csv") -> dict[str, bytes]:
    """One file a site."""
    made = {f"{site}.{ending}": make(site) for site in SITES}
    return {name: one if isinstance(one, bytes) else one.encode() for name, one in made.items()}


def one_site(other: Callable[[str], str | bytes], at: str = "south") -> dict[str, bytes]:
    """One file a site, and one of them is another."""
    return files(lambda site: other(site) if site == at else text(cells(site)))


def column(name: str, make: Callable[[str, np.ndarray], list[str]], sep: str = ",") -> dict[str, bytes]:
    """The true table with one column more, or in place of one."""
    return files(lambda site: text(cells(site) | {name: make(site, TRUE[site])}, sep))


def changed(site: str, name: str, make: Callable[[float], float]) -> Callable[[], dict[str, np.ndarray]]:
    """The true tables with the numbers of one column at one site changed."""

    def tables() -> dict[str, np.ndarray]:
        made = {at: X.copy() for at, X in TRUE.items()}
        j = NAMES.index(name)
        made[site][:, j] = [make(v) for v in made[site][:, j]]
        return made

    return tables


def of_numbers(tables: Mapping[str, np.ndarray], digits: int = 2) -> dict[str, bytes]:
    return {
        f"{site}.csv": text({n: [f"{v:.{digits}f}" for v in X[:, j]] for j, n in enumerate(NAMES)}).encode()
        for site, X in tables.items()
    }


@dataclass(frozen=True)
class Kind:
    """One kind of messy input, and what is expected of it."""

    name: str
    files: Mapping[str, bytes]
    options: tuple[str, ...] = ()
    error: str = ""  # a pattern of the line on stderr; empty if the clusters must be right
    notices: tuple[str, ...] = ()  # each a pattern of a warning, or of an item that is left out
    left_out: tuple[str, ...] = ()  # columns and sites that are left out, by name
    used: tuple[str, ...] = NAMES  # the columns that are clustered by
    truth: Callable[[], Mapping[str, np.ndarray]] = field(default=lambda: TRUE)
    quiet: bool = False  # no warning at all


def spellings(**categories: tuple[str, str]) -> dict[str, bytes]:
    return column("sex", lambda site, X: [categories[site][i % 2] for i in range(len(X))])


def pounds(at: str, factor: float, shift: float = 0.0, name: str = "weight") -> Kind:
    truth = changed(at, name, lambda v: round(v * factor + shift, 2))
    return Kind(
        f"{name} at {at} times {factor} plus {shift}",
        of_numbers(truth()),
        notices=(f"{name} at {at}: .*another unit",),
        truth=truth,
    )


def dates(form: Callable[[int, int, int], str]) -> dict[str, bytes]:
    return column(
        "admitted", lambda site, X: [form(2019 + i % 3, 1 + i % 12, 13 + i % 15) for i in range(len(X))]
    )


GERMAN = {"sep": ";"}


def german_cells(site: str, thousands: str = "") -> Cells:
    X = TRUE[site]
    return {
        "age": [f"{v:.0f}" for v in X[:, 0]],
        "weight": [german(v, 1) for v in X[:, 1]],
        "income": [german(v, 2, thousands) for v in X[:, 2]],
    }


def single_person() -> dict[str, bytes]:
    one = text({n: [v[0]] for n, v in cells("west").items()})
    return one_site(lambda site: one, "west")


def single_person_truth() -> dict[str, np.ndarray]:
    return TRUE | {"west": TRUE["west"][:1]}


BEFORE = [
    Kind(
        "German: semicolon, decimal comma, byte order mark",
        files(lambda s: ("\ufeff" + text(german_cells(s), ";")).encode()),
    ),
    Kind("German thousands 1.234,56", files(lambda s: text(german_cells(s, "."), ";"))),
    Kind(
        "German thousands with --decimal ,",
        files(lambda s: text(german_cells(s, "."), ";")),
        ("--decimal", ","),
    ),
    Kind("English thousands in quotes", column("income", lambda s, X: [f'"{v:,.2f}"' for v in X[:, 2]])),
    Kind(
        "Swiss thousands 1'234.56",
        column("income", lambda s, X: [f"{v:,.2f}".replace(",", "'") for v in X[:, 2]], ";"),
    ),
    Kind("French thousands with a no-break space", files(lambda s: text(german_cells(s, "\u00a0"), ";"))),
    Kind("thousands with a narrow no-break space", files(lambda s: text(german_cells(s, "\u202f"), ";"))),
    Kind(
        "one site German, the others English",
        one_site(lambda s: text(german_cells(s), ";")),
    ),
    Kind(
        "a name with an umlaut, cp1252 at one site",
        files(
            lambda s: text({"größe" if n == "weight" else n: v for n, v in cells(s).items()}).encode(
                "cp1252" if s == "south" else "utf-8"
            )
        ),
        used=("age", "größe", "income"),
    ),
    Kind(
        "cp1252 with --encoding",
        files(
            lambda s: text({"größe" if n == "weight" else n: v for n, v in cells(s).items()}).encode("cp1252")
        ),
        ("--encoding", "cp1252"),
        used=("age", "größe", "income"),
    ),
    Kind(
        "UTF-16 with tabs, as Excel writes Unicode text",
        files(lambda s: text(cells(s), "\t").encode("utf-16"), "txt"),
    ),
    Kind(
        "1,234 or 1.234: every number has three digits behind one mark",
        files(
            lambda s: text(
                {
                    "age": cells(s)["age"],
                    "income": [f"{v / 1000 + 1:.3f}".replace(".", ",") for v in TRUE[s][:, 2]],
                },
                ";",
            )
        ),
        error="income.*--decimal",
    ),
    Kind("percent signs", column("weight", lambda s, X: [f"{v:.1f} %" for v in X[:, 1]])),
    Kind(
        "euro signs",
        files(
            lambda s: text(
                german_cells(s, ".") | {"income": [german(v, 2, ".") + " €" for v in TRUE[s][:, 2]]}, ";"
            )
        ),
    ),
    Kind("dollar signs", column("income", lambda s, X: [f'"${v:,.2f}"' for v in X[:, 2]])),
    Kind(
        "dates as 2020-12-31",
        dates(lambda y, m, d: f"{y}-{m:02}-{d:02}"),
        left_out=("admitted",),
        notices=("admitted.*date",),
    ),
    Kind(
        "dates as 31.12.2020",
        dates(lambda y, m, d: f"{d:02}.{m:02}.{y}"),
        left_out=("admitted",),
        notices=("admitted.*date",),
    ),
    Kind(
        "dates as 12/31/2020",
        dates(lambda y, m, d: f"{m}/{d}/{y}"),
        left_out=("admitted",),
        notices=("admitted.*date",),
    ),
    Kind(
        "dates with times",
        dates(lambda y, m, d: f"{y}-{m:02}-{d:02} 08:30:00"),
        left_out=("admitted",),
        notices=("admitted.*date",),
    ),
    Kind(
        "a patient's number as a column",
        column("patient_id", lambda s, X: [str(10_000 + 37 * i) for i in range(len(X))]),
        left_out=("patient_id",),
        notices=("patient_id.*--numbers patient_id",),
    ),
    Kind(
        "an id as text",
        column("patient", lambda s, X: [f"{s[0].upper()}-{i:04}" for i in range(len(X))]),
        left_out=("patient",),
    ),
    Kind(
        "the row numbers that pandas writes, without a name",
        files(lambda s: text({"": [str(i) for i in range(24)]} | cells(s))),
        left_out=("column 1",),
        notices=("row number",),
    ),
    Kind(
        "spellings m/f, M/F and male/female",
        spellings(north=("m", "f"), south=("M", "F"), west=("male", "female")),
        error="sex.*--recode",
    ),
    Kind(
        "spellings that differ by capitals",
        spellings(north=("Yes", "No"), south=("yes", "no"), west=("YES", "NO")),
        error="sex.*--recode",
    ),
    pounds("south", 2.2046),
    pounds("west", 1 / 2.54),
    pounds("west", 2.54),
    pounds("north", 9 / 5, 32.0, name="age"),
    Kind("a site of one person", single_person(), truth=single_person_truth, quiet=True),
    Kind(
        "another order of columns at one site",
        one_site(lambda s: text({n: cells(s)[n] for n in reversed(NAMES)})),
    ),
    Kind(
        "blanks around names and numbers",
        one_site(lambda s: text({f" {n} ": [f" {v} " for v in c] for n, c in cells(s).items()})),
    ),
    Kind(
        "names with other capitals at one site",
        one_site(lambda s: text({n.upper(): c for n, c in cells(s).items()})),
        error="AGE.*WEIGHT.*INCOME",
    ),
    Kind(
        "two columns missing at one site",
        one_site(lambda s: text({"age": cells(s)["age"]})),
        error="(?s)weight.*income.*--columns common",
    ),
    Kind(
        "two columns asked for that are nowhere",
        files(lambda s: text(cells(s))),
        ("--columns", "age,size,pulse"),
        error="size.*pulse",
    ),
    Kind("the same name twice", files(lambda s: text(cells(s)).replace("weight", "age", 1)), error="age"),
    Kind(
        "a cell too many",
        one_site(lambda s: text(cells(s)) + "1,2,3,4\n"),
        error="south.csv.*26",
    ),
    Kind("a delimiter at the end of every line", files(lambda s: text(cells(s), end=",\n"))),
    Kind(
        "blank lines between rows and at the end",
        one_site(lambda s: text(cells(s)).replace("\n", "\n\n") + "\n\n"),
    ),
    Kind(
        "a title above the header",
        one_site(lambda s: "Export of the clinic\n\n" + text(cells(s))),
        error="south.csv",
    ),
    Kind(
        "a line of totals at the end",
        one_site(lambda s: text(cells(s)) + "Total,,64000.00\n"),
        error="south.csv.*26.*Total",
    ),
    Kind("an empty file", one_site(lambda s: ""), error="south.csv.*empty"),
    Kind(
        "a header without rows",
        one_site(lambda s: "age,weight,income\n"),
        left_out=("south",),
        truth=lambda: {k: v for k, v in TRUE.items() if k != "south"},
    ),
    Kind(
        "an old workbook of Excel",
        {"north.xls": b"\xd0\xcf\x11\xe0", "south.csv": b"age\n1\n"},
        error="north.xls.*CSV",
    ),
    Kind(
        "everything in quotes",
        files(lambda s: text({f'"{n}"': [f'"{v}"' for v in c] for n, c in cells(s).items()})),
    ),
    Kind(
        "numbers with a unit in the cell",
        one_site(lambda s: text(cells(s) | {"weight": [v + " kg" for v in cells(s)["weight"]]})),
        error="weight",
    ),
    Kind("lines that end as on Windows", files(lambda s: text(cells(s), end="\r\n"))),
    Kind("lines that end as on an old Mac", one_site(lambda s: text(cells(s), end="\r"))),
    Kind("powers of ten", column("income", lambda s, X: [f"+{v:.8e}" for v in X[:, 2]])),
    Kind(
        "values below a limit of detection",
        one_site(lambda s: text(cells(s) | {"weight": ["<55.0", *cells(s)["weight"][1:]]})),
        error="south.csv.*weight.*<55.0",
    ),
    Kind("a constant column", column("country", lambda s, X: ["7"] * len(X)), left_out=("country",)),
    Kind(
        "infinite numbers",
        one_site(lambda s: text(cells(s) | {"weight": ["inf", *cells(s)["weight"][1:]]})),
        error="south.csv.*weight.*inf",
    ),
    Kind(
        "post codes with leading zeros",
        column("postcode", lambda s, X: [f"0{1000 + 7 * (i % 9)}" for i in range(len(X))]),
        left_out=("postcode",),
    ),
    Kind(
        "-999 for missing in one column",
        one_site(lambda s: text(cells(s) | {"weight": ["-999"] * 3 + cells(s)["weight"][3:]})),
        error="weight.*-999.*--na",
    ),
    Kind(
        "a column without values at one site",
        one_site(lambda s: text(cells(s, pulse=[""] * 24)), "south")
        | {
            f"{s}.csv": text(cells(s, pulse=[str(60 + i % 20) for i in range(24)])).encode()
            for s in ("north", "west")
        },
        options=("--missing", "fill"),
        notices=("pulse at south: no value",),
        used=(*NAMES, "pulse"),
        truth=lambda: {
            s: np.column_stack([X, np.full(24, 68 + 1 / 6) if s == "south" else 60.0 + np.arange(24) % 20])
            for s, X in TRUE.items()
        },
    ),
    Kind("an image", {"north.csv": bytes(range(256)) * 8, "south.csv": b"age\n1\n"}, error="north.csv"),
    Kind("cut by gzip", {"north.csv.gz": b"\x1f\x8b\x08", "south.csv": b"age\n1\n"}, error="north.csv.gz"),
]


def with_column(name: str, make: Callable[[str], np.ndarray]) -> Callable[[], dict[str, np.ndarray]]:
    """The true tables with one column more."""
    return lambda: {s: np.column_stack([X, make(s)]) for s, X in TRUE.items()}


def two(site: str) -> np.ndarray:
    """0, 1, 0, 1, ...: a column of two categories. A category of two weighs as much as the number 0 or 1."""
    return np.arange(len(TRUE[site])) % 2.0


def few(n: int) -> dict[str, np.ndarray]:
    return {site: X[:: 24 // n] for site, X in TRUE.items()}


def filled(at: str, name: str, rows: int) -> Callable[[], dict[str, np.ndarray]]:
    """The true tables where the first cells of a column are missing at one site, filled with the mean."""

    def tables() -> dict[str, np.ndarray]:
        made = {site: X.copy() for site, X in TRUE.items()}
        j = NAMES.index(name)
        made[at][:rows, j] = np.nan
        mean = np.nanmean(np.concatenate([X[:, j] for X in made.values()]))
        made[at][:rows, j] = mean
        return made

    return tables


def thermometer() -> dict[str, np.ndarray]:
    made = {}
    for i, (site, X) in enumerate(TRUE.items()):
        warm = 37 + 0.6 * np.random.default_rng(i).normal(size=len(X))
        made[site] = np.column_stack([X, np.round(warm * 1.8 + 32 if site == "west" else warm, 1)])
    return made


def tailed() -> dict[str, np.ndarray]:
    made = {}
    for i, (site, X) in enumerate(TRUE.items()):
        crp = np.round(np.exp(0.2 * np.random.default_rng(i).normal(size=len(X))), 2)
        made[site] = np.column_stack([X, np.where(np.arange(len(X)) == 5, 60.0, crp)])
    return made


def children() -> dict[str, np.ndarray]:
    made = {site: X.copy() for site, X in TRUE.items()}
    made["west"][:, 1] = np.round(24 + 0.7 * (made["west"][:, 1] - 73), 1)
    return made


def named_numbers(
    tables: Mapping[str, np.ndarray], names: tuple[str, ...], sep: str = ","
) -> dict[str, bytes]:
    return {
        f"{site}.csv": text({n: [f"{v:.2f}" for v in X[:, j]] for j, n in enumerate(names)}, sep).encode()
        for site, X in tables.items()
    }


MOSCOW = "\u041c\u043e\u0441\u043a\u0432\u0430"
ONE_FILE = text(
    {n: [c for s in SITES for c in cells(s)[n]] for n in NAMES}
    | {"clinic": [s for s in SITES for _ in range(24)]}
)

AFTER = [
    Kind(
        "1,234 is a thousand where another column has a decimal point",
        column("income", lambda s, X: [f"{round(v + 1000):,}" for v in X[:, 2]], ";"),
        truth=lambda: {s: np.column_stack([X[:, :2], np.round(X[:, 2] + 1000)]) for s, X in TRUE.items()},
    ),
    Kind(
        "1.234 is a thousand where another column has a decimal comma",
        files(
            lambda s: text(
                german_cells(s) | {"income": [german(round(v + 1000), 0, ".") for v in TRUE[s][:, 2]]}, ";"
            )
        ),
        truth=lambda: {s: np.column_stack([X[:, :2], np.round(X[:, 2] + 1000)]) for s, X in TRUE.items()},
    ),
    Kind(
        "three decimals with --decimal .",
        files(
            lambda s: text(
                {"age": cells(s)["age"], "income": [f"{v / 1000 + 1:.3f}" for v in TRUE[s][:, 2]]}, ";"
            )
        ),
        ("--decimal", "."),
        used=("age", "income"),
        truth=lambda: {
            s: np.column_stack([X[:, 0], [float(f"{v / 1000 + 1:.3f}") for v in X[:, 2]]])
            for s, X in TRUE.items()
        },
    ),
    Kind(
        "three decimals between commas are decimals",
        files(
            lambda s: text({"age": cells(s)["age"], "income": [f"{v / 1000 + 1:.3f}" for v in TRUE[s][:, 2]]})
        ),
        used=("age", "income"),
        truth=lambda: {
            s: np.column_stack([X[:, 0], [float(f"{v / 1000 + 1:.3f}") for v in X[:, 2]]])
            for s, X in TRUE.items()
        },
    ),
    Kind(
        "one column with a decimal comma, another with a point",
        files(lambda s: text(cells(s) | {"weight": german_cells(s)["weight"]}, ";")),
    ),
    Kind(
        "decimal comma and decimal point in one column",
        one_site(
            lambda s: text(german_cells(s) | {"weight": [*german_cells(s)["weight"][:23], "70.5"]}, ";")
        ),
        error="south.csv, line 25, column weight.*70.5",
    ),
    Kind(
        "decimal commas in quotes between commas",
        files(lambda s: text({n: [f'"{v}"' for v in c] for n, c in german_cells(s).items()})),
    ),
    Kind(
        "a point although --decimal is a comma",
        files(lambda s: text(cells(s), ";")),
        ("--decimal", ","),
        error="weight.*--decimal",
    ),
    Kind(
        "one column of decimal commas and no delimiter",
        files(lambda s: text({"weight": german_cells(s)["weight"]})),
        used=("weight",),
        truth=lambda: {s: X[:, 1:2] for s, X in TRUE.items()},
    ),
    Kind("a first line sep=;", files(lambda s: "sep=;\r\n" + text(german_cells(s), ";", "\r\n"))),
    Kind("columns at blanks", files(lambda s: text(cells(s), " ")), error="--delimiter ' '"),
    Kind("columns at blanks with --delimiter", files(lambda s: text(cells(s), " ")), ("--delimiter", " ")),
    Kind("columns at bars", files(lambda s: text(cells(s), "|"))),
    Kind("no header", one_site(lambda s: text(cells(s), header=False)), error="south.csv, line 1.*names"),
    Kind(
        "dates as 20201231",
        dates(lambda y, m, d: f"{y}{m:02}{d:02}"),
        left_out=("admitted",),
        notices=("admitted.*date",),
    ),
    Kind(
        "dates with the month's name",
        dates(lambda y, m, d: f"{d}-{('Jan', 'Mai', 'Dec')[m % 3]}-{y}"),
        left_out=("admitted",),
    ),
    Kind(
        "dates of one day in some cells only",
        column("admitted", lambda s, X: ["" if i % 3 else f"2020-01-{10 + i % 9}" for i in range(len(X))]),
        left_out=("admitted",),
    ),
    Kind(
        "times of day",
        column("seen", lambda s, X: [f"{8 + i % 9}:{10 + i % 40}" for i in range(len(X))]),
        left_out=("seen",),
        notices=("seen.*date",),
    ),
    Kind(
        "a year is a number",
        column("year", lambda s, X: [str(1990 + i % 8 + 4 * (i // 8)) for i in range(len(X))]),
        used=(*NAMES, "year"),
        truth=with_column("year", lambda s: np.array([1990 + i % 8 + 4 * (i // 8) for i in range(24)])),
    ),
    Kind(
        "dates asked for by name",
        dates(lambda y, m, d: f"{y}-{m:02}-{d:02}"),
        ("--columns", "age,admitted"),
        error="admitted.*dates",
    ),
    Kind(
        "percent in some cells only",
        one_site(
            lambda s: text(
                cells(s) | {"weight": [v + " %" if i % 2 else v for i, v in enumerate(cells(s)["weight"])]}
            )
        ),
        error="south.csv.*weight.*one unit",
    ),
    Kind(
        "two currencies in one column",
        one_site(
            lambda s: text(
                cells(s)
                | {
                    "income": [
                        "$" * (i % 2) + "€" * (1 - i % 2) + v for i, v in enumerate(cells(s)["income"])
                    ]
                }
            )
        ),
        error="south.csv.*income.*one unit",
    ),
    Kind(
        "a currency's name behind the number",
        column("income", lambda s, X: [f"{v:.2f} CHF" for v in X[:, 2]]),
    ),
    Kind(
        "losses in brackets",
        one_site(lambda s: text(cells(s) | {"income": ["(100.00)", *cells(s)["income"][1:]]})),
        error="south.csv, line 2, column income",
    ),
    Kind(
        "a minus from a typesetter",
        one_site(lambda s: text(cells(s) | {"weight": ["\u22125.0", *cells(s)["weight"][1:]]})),
        truth=lambda: (
            TRUE | {"south": np.vstack([[TRUE["south"][0, 0], -5.0, TRUE["south"][0, 2]], TRUE["south"][1:]])}
        ),
    ),
    Kind(
        "a number beyond all limits",
        one_site(lambda s: text(cells(s) | {"income": ["1e400", *cells(s)["income"][1:]]})),
        error="south.csv, line 2, column income",
    ),
    Kind(
        "the number of a patient who comes twice",
        column("PatientID", lambda s, X: [str(500 + 7 * (i // 2)) for i in range(len(X))]),
        left_out=("PatientID",),
    ),
    Kind(
        "a patient's number that is a number, by --numbers",
        column("patient_id", lambda s, X: [str(10_000 + 37 * i) for i in range(len(X))]),
        ("--numbers", "patient_id"),
        used=(*NAMES, "patient_id"),
        truth=with_column("patient_id", lambda s: np.arange(24.0)),
    ),
    Kind(
        "an id asked for by name",
        column("patient_id", lambda s, X: [str(10_000 + 37 * i) for i in range(len(X))]),
        ("--columns", "age,patient_id"),
        error="patient_id.*--numbers patient_id",
    ),
    Kind(
        "names of people at small sites",
        {
            f"{s}.csv": text(
                {n: v[::3] for n, v in cells(s, who=[f"{s} {i}" for i in range(24)]).items()}
            ).encode()
            for s in SITES
        },
        left_out=("who",),
        notices=("who.*different text in every row",),
        truth=lambda: few(8),
    ),
    Kind(
        "post codes that are numbers, by --numbers",
        column("postcode", lambda s, X: [f"0{1000 + 7 * (i % 9)}" for i in range(len(X))]),
        ("--numbers", "postcode"),
        used=(*NAMES, "postcode"),
        truth=with_column("postcode", lambda s: np.array([1000 + 7 * (i % 9) for i in range(24)])),
    ),
    Kind(
        "free text with delimiters and lines in it",
        column("note", lambda s, X: [f'"{s}, visit {i}\nfine"' for i in range(len(X))]),
        left_out=("note",),
    ),
    Kind(
        "True and False",
        column("smokes", lambda s, X: [str(bool(v)) for v in two(s)]),
        used=(*NAMES, "smokes"),
        truth=with_column("smokes", two),
    ),
    Kind(
        "True and False at one site, 1 and 0 at others",
        files(lambda s: text(cells(s, smokes=[str(bool(v)) if s == "west" else f"{v:.0f}" for v in two(s)]))),
        used=(*NAMES, "smokes"),
        truth=with_column("smokes", two),
    ),
    Kind(
        "True and False at one site, 1 and 0 at others, by --recode",
        files(lambda s: text(cells(s, smokes=[str(bool(v)) if s == "west" else f"{v:.0f}" for v in two(s)]))),
        ("--recode", "smokes:1=True,0=False"),
        used=(*NAMES, "smokes"),
        truth=with_column("smokes", two),
    ),
    Kind(
        "spellings by --recode",
        spellings(north=("m", "f"), south=("M", "F"), west=("male", "female")),
        ("--recode", "sex:m=male,M=male,f=female,F=female"),
        used=(*NAMES, "sex"),
        truth=with_column("sex", two),
    ),
    Kind(
        "blanks around categories",
        spellings(north=("m", "f"), south=(" m", "f "), west=("m", "f")),
        used=(*NAMES, "sex"),
        truth=with_column("sex", two),
    ),
    Kind(
        "a recode that is not one",
        spellings(north=("m", "f"), south=("m", "f"), west=("m", "f")),
        ("--recode", "sex"),
        error="--recode",
    ),
    Kind(
        "a recode of a spelling that no site has",
        spellings(north=("m", "f"), south=("m", "f"), west=("m", "f")),
        ("--recode", "sex:m=male,W=female"),
        error=r"--recode sex:W=female: no row has W in column sex; its categories are f, m$",
    ),
    Kind(
        "a recode of a column that no site has",
        spellings(north=("m", "f"), south=("m", "f"), west=("m", "f")),
        ("--recode", "gender:m=male"),
        error=r"no file has a column gender; columns are age, weight, income, sex$",
    ),
    Kind(
        "categories in another language at one site",
        spellings(north=("alive", "alive"), south=("lebt", "lebt"), west=("alive", "alive")),
        notices=(
            r"sex at south: no other site has any of its categories \(south: lebt; elsewhere: alive\)"
            r".*--recode sex:",
        ),
        used=(*NAMES, "sex"),
        truth=with_column("sex", lambda s: np.full(len(TRUE[s]), float(s == "south"))),
    ),
    Kind(
        "a name over two lines, in quotes",
        files(lambda s: text({'"weight\n(kg)"' if n == "weight" else n: v for n, v in cells(s).items()})),
        used=("age", "weight (kg)", "income"),
    ),
    Kind(
        "two names that differ by a blank",
        files(lambda s: text(cells(s) | {" age": cells(s)["age"]})),
        error="two columns are named age",
    ),
    Kind(
        "UTF-16 without its mark",
        files(lambda s: text(cells(s)).encode("utf-16-le")),
        error="north.csv.*--encoding",
    ),
    Kind(
        "UTF-16 without its mark, by --encoding",
        files(lambda s: text(cells(s)).encode("utf-16-le")),
        ("--encoding", "utf-16-le"),
    ),
    Kind(
        "Cyrillic of Windows",
        one_site(lambda s: text(cells(s, city=[MOSCOW] * 24)).encode("cp1251")),
        error="south.csv, line 2.*--encoding",
    ),
    Kind(
        "an encoding that there is not",
        files(lambda s: text(cells(s))),
        ("--encoding", "klingon"),
        error="--encoding.*klingon",
    ),
    Kind(
        "an encoding that is not the file's",
        files(
            lambda s: text({"größe" if n == "age" else n: v for n, v in cells(s).items()}).encode("cp1252")
        ),
        ("--encoding", "utf-8"),
        error="north.csv.*--encoding",
    ),
    Kind(
        "errors of a spreadsheet among numbers",
        one_site(lambda s: text(cells(s) | {"weight": ["#DIV/0!", "-", "#N/A", *cells(s)["weight"][3:]]})),
        truth=filled("south", "weight", 3),
    ),
    Kind(
        "a word among numbers",
        one_site(lambda s: text(cells(s) | {"weight": ["unknown", *cells(s)["weight"][1:]]})),
        error="south.csv, line 2, column weight.*--na 'unknown'",
    ),
    Kind(
        "-999 for missing, by --na",
        one_site(lambda s: text(cells(s) | {"weight": ["-999"] * 3 + cells(s)["weight"][3:]})),
        ("--na", "weight=-999"),
        truth=filled("south", "weight", 3),
    ),
    Kind(
        "lines of delimiters only at the end",
        one_site(lambda s: text(cells(s)) + ",,\n,,\n  \n,\n"),
        left_out=("rows",),
        notices=("rows: at the end of south, without any value",),
    ),
    Kind(
        "a line of delimiters only between rows is a row without values",
        one_site(lambda s: text(cells(s)).replace("\n", "\n,,\n", 2).replace("\n,,\n", "\n", 1)),
        ("--missing", "keep"),
        left_out=("rows",),
        notices=("rows: they have no value in any column",),
    ),
    Kind(
        "columns that one site lacks, by --columns common",
        one_site(lambda s: text(cells(s, pulse=["70", "81"] * 12))),
        ("--columns", "common"),
        left_out=("pulse",),
        notices=("pulse: not at north, west",),
    ),
    *(
        Kind(
            f"ids named {name}",
            column(name, make),
            left_out=(name,),
            notices=(f"{name}: looks like",),
        )
        for name, make in (
            ("Fallnummer", lambda s, X: [str(88000 + 7 * (i // 2)) for i in range(len(X))]),
            ("pat_nr", lambda s, X: [str(88000 + 3 * (i % 9)) for i in range(len(X))]),
            ("svnr", lambda s, X: [str(1000 + 37 * (i % 11)) for i in range(len(X))]),
            ("plz", lambda s, X: [str(1010 + 10 * (i % 5)) for i in range(len(X))]),
            ("zip_code", lambda s, X: [str(90210 + i % 5) for i in range(len(X))]),
            ("visit", lambda s, X: [str(4000 + 3 * i + i % 2) for i in range(len(X))]),
        )
    ),
    *(
        Kind(
            f"dates as {form(2020, 3, 13)}", dates(form), left_out=("admitted",), notices=("admitted.*date",)
        )
        for form in (
            lambda y, m, d: f"{y}-{m:02}",
            lambda y, m, d: f"{m:02}/{y}",
            lambda y, m, d: f"{('Jan', 'Mar', 'Dec')[m % 3]} {d} {y}",
            lambda y, m, d: f"{('Jan', 'March', 'Dec.')[m % 3]} {y}",
        )
    ),
    Kind(
        "two numbers in a cell",
        column("bp", lambda s, X: [f"{110 + 2 * i}/{70 + i}" for i in range(len(X))]),
        error="north.csv, line 2, column bp: digits with /.*'110/70'.*--categorical bp",
    ),
    Kind(
        "numbers with a star",
        column("weight", lambda s, X: [f"{v:.0f}*" for v in X[:, 1]]),
        error="weight: digits with \\*",
    ),
    Kind(
        "spellings beside a third category",
        column("sex", lambda s, X: list("mwd" if s == "north" else "MFX") * 8),
        error="sex: several spellings.*m=M|sex: .*M=m",
    ),
    Kind(
        "spellings beside a category of no family",
        column("sex", lambda s, X: [*(("m", "w") if s == "north" else ("m", "f")), "unknown"] * 8),
        error="sex: several spellings of one category: f .*and w",
    ),
    Kind(
        "a sheet of a file that has none",
        files(lambda s: text(cells(s))),
        ("--sheet", "rows"),
        error="north.csv: --sheet is for workbooks",
    ),
    Kind(
        "a delimiter at the end of rows but not of the header",
        one_site(lambda s: text(cells(s), end=",\n").replace(",\n", "\n", 1)),
    ),
    Kind(
        "names of rows without a heading, as R writes them",
        one_site(
            lambda s: (
                "age,weight,income\n" + text({"": [f'"{i}"' for i in range(24)]} | cells(s), header=False)
            )
        ),
        error="south.csv, line 2: 4 fields",
    ),
    Kind(
        "a cell too few",
        one_site(lambda s: text(cells(s)) + "50,70.0\n"),
        error="south.csv, line 26: 2 fields",
    ),
    Kind(
        "a quote that is not closed", one_site(lambda s: text(cells(s)) + '50,"70.0,900\n'), error="south.csv"
    ),
    Kind(
        "one more column at one site",
        one_site(lambda s: text(cells(s, pulse=["70"] * 24))),
        error="north lacks pulse.*--columns common",
    ),
    Kind("no rows at any site", files(lambda s: "age,weight,income\n"), error="no rows"),
    Kind(
        "one file of all sites, with row numbers",
        {
            "all.csv": (
                "nr,"
                + "".join(
                    f"{line}\n" if i == 0 else f"{i},{line}\n" for i, line in enumerate(ONE_FILE.splitlines())
                )
            ).encode()
        },
        ("--site-column", "clinic"),
        left_out=("nr",),
    ),
    Kind(
        "degrees Fahrenheit at one site",
        named_numbers(thermometer(), (*NAMES, "fever")),
        used=(*NAMES, "fever"),
        truth=thermometer,
        notices=("fever at west: .*Fahrenheit",),
    ),
    Kind("children at one site", named_numbers(children(), NAMES), truth=children, quiet=True),
    Kind(
        "the same number in every row of a site",
        named_numbers(
            {
                s: np.column_stack([X[:, :2], np.full(24, 900.0) if s == "west" else X[:, 2]])
                for s, X in TRUE.items()
            },
            NAMES,
        ),
        truth=lambda: {
            s: np.column_stack([X[:, :2], np.full(24, 900.0) if s == "west" else X[:, 2]])
            for s, X in TRUE.items()
        },
        notices=("income at west: every value is the same",),
    ),
    Kind(
        "a site of two people",
        one_site(lambda s: "".join(text(cells(s)).splitlines(True)[:3])),
        quiet=True,
        truth=lambda: TRUE | {"south": TRUE["south"][:2]},
    ),
    Kind(
        "a folder in place of a file",
        {"north.csv": text(cells("north")).encode()},
        ("--report", "/"),
        error="/",
    ),
    Kind(
        "a long tail",
        named_numbers(tailed(), (*NAMES, "crp")),
        used=(*NAMES, "crp"),
        truth=tailed,
        notices=("crp \\(.*--scale crp=rank",),
    ),
    Kind(
        "a long tail, by --scale",
        named_numbers(tailed(), (*NAMES, "crp")),
        ("--scale", "crp=log"),
        used=(*NAMES, "crp"),
        quiet=True,
        truth=lambda: {s: np.column_stack([X[:, :3], np.log(X[:, 3])]) for s, X in tailed().items()},
    ),
    Kind(
        "a scale of a column that there is not",
        files(lambda s: text(cells(s))),
        ("--scale", "crp=log,pulse=rank"),
        error="--scale for crp, pulse",
    ),
    Kind(
        "a scale that there is not",
        files(lambda s: text(cells(s))),
        ("--scale", "income=cube"),
        error="scale must be one of.*cube",
    ),
    Kind(
        "no logarithm of 0",
        one_site(lambda s: text(cells(s) | {"weight": ["0", *cells(s)["weight"][1:]]})),
        ("--scale", "weight=log"),
        error="column weight.*not above 0",
    ),
    Kind(
        "decimal commas between commas, without quotes",
        files(lambda s: text(german_cells(s))),
        error="north.csv, line 2: 5 fields.*decimal comma",
    ),
    Kind(
        "dates that a spreadsheet made of numbers, at one site",
        one_site(lambda s: text(cells(s) | {"weight": [f"{1 + i % 28:02}.05.2024" for i in range(24)]})),
        error="weight is date at south; number at north, west",
    ),
    Kind(
        "patients' numbers at small sites",
        {
            f"{s}.csv": text(
                {n: v[::3] for n, v in cells(s, patient_id=[str(100 + i) for i in range(24)]).items()}
            ).encode()
            for s in SITES
        },
        left_out=("patient_id",),
        truth=lambda: few(8),
    ),
]
