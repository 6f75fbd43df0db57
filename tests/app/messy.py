"""Everyday files, kind by kind, and what a reasonable user expects of each.

The kinds of ``BEFORE`` were written down before the reader's code was looked at; those of ``AFTER`` with the code in view.
A kind is either ``right``, and then the clusters must be those of scikit-learn on the pooled table, or ``wrong``, and then the
command must end with one line that matches, exit code 1 and nothing written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

SITES = ("north", "south", "west")
NAMES = ("age", "weight", "income")
Cells = dict[str, list[str]]  # the text of every cell, by column


def numbers() -> dict[str, np.ndarray]:
    """The true table: 24 rows a site, three blobs of age (years), weight (kg) and income (a month, two decimals)."""
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
    wrong: str = ""  # the line on stderr matches this; empty if the clusters must be right
    says: tuple[str, ...] = ()  # each matches a warning, or what is left out
    left: tuple[str, ...] = ()  # what is left out, by name: a column or a site
    used: tuple[str, ...] = NAMES  # the columns that are clustered by
    truth: Callable[[], Mapping[str, np.ndarray]] = field(default=lambda: TRUE)
    quiet: bool = False  # no warning at all


def spellings(**levels: tuple[str, str]) -> dict[str, bytes]:
    return column("sex", lambda site, X: [levels[site][i % 2] for i in range(len(X))])


def pounds(at: str, factor: float, shift: float = 0.0, name: str = "weight") -> Kind:
    truth = changed(at, name, lambda v: round(v * factor + shift, 2))
    return Kind(f"{name} at {at} times {factor} plus {shift}", of_numbers(truth()), says=(f"{at}.*{name}",), truth=truth)


def dates(form: Callable[[int, int, int], str]) -> dict[str, bytes]:
    return column("admitted", lambda site, X: [form(2019 + i % 3, 1 + i % 12, 13 + i % 15) for i in range(len(X))])


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
    Kind("Swiss thousands 1'234.56", column("income", lambda s, X: [f"{v:,.2f}".replace(",", "'") for v in X[:, 2]], ";")),
    Kind("French thousands with a no-break space", files(lambda s: text(german_cells(s, "\u00a0"), ";"))),
    Kind("thousands with a narrow no-break space", files(lambda s: text(german_cells(s, "\u202f"), ";"))),
    Kind(
        "one site German, the others English",
        one_site(lambda s: text(german_cells(s), ";")),
    ),
    Kind(
        "a name with an umlaut, cp1252 at one site",
        files(lambda s: text({"größe" if n == "weight" else n: v for n, v in cells(s).items()}).encode("cp1252" if s == "south" else "utf-8")),
        used=("age", "größe", "income"),
    ),
    Kind(
        "cp1252 with --encoding",
        files(lambda s: text({"größe" if n == "weight" else n: v for n, v in cells(s).items()}).encode("cp1252")),
        ("--encoding", "cp1252"),
        used=("age", "größe", "income"),
    ),
    Kind("UTF-16 with tabs, as Excel writes Unicode text", files(lambda s: text(cells(s), "\t").encode("utf-16"), "txt")),
    Kind(
        "1,234 or 1.234: every number has three digits behind one mark",
        column("income", lambda s, X: [f"{v / 1000:.3f}".replace(".", ",") for v in X[:, 2] + 1000], ";"),
        wrong="income.*--decimal",
    ),
    Kind("percent signs", column("weight", lambda s, X: [f"{v:.1f} %" for v in X[:, 1]])),
    Kind("euro signs", files(lambda s: text(german_cells(s, ".") | {"income": [german(v, 2, ".") + " €" for v in TRUE[s][:, 2]]}, ";"))),
    Kind("dollar signs", column("income", lambda s, X: [f'"${v:,.2f}"' for v in X[:, 2]])),
    Kind("dates as 2020-12-31", dates(lambda y, m, d: f"{y}-{m:02}-{d:02}"), left=("admitted",), says=("admitted.*date",)),
    Kind("dates as 31.12.2020", dates(lambda y, m, d: f"{d:02}.{m:02}.{y}"), left=("admitted",), says=("admitted.*date",)),
    Kind("dates as 12/31/2020", dates(lambda y, m, d: f"{m}/{d}/{y}"), left=("admitted",), says=("admitted.*date",)),
    Kind("dates with times", dates(lambda y, m, d: f"{y}-{m:02}-{d:02} 08:30:00"), left=("admitted",), says=("admitted.*date",)),
    Kind(
        "a patient's number as a column",
        column("patient_id", lambda s, X: [str(10_000 + 37 * i) for i in range(len(X))]),
        left=("patient_id",),
        says=("patient_id.*--columns",),
    ),
    Kind(
        "an id as text",
        column("patient", lambda s, X: [f"{s[0].upper()}-{i:04}" for i in range(len(X))]),
        left=("patient",),
    ),
    Kind(
        "the row numbers that pandas writes, without a name",
        files(lambda s: text({"": [str(i) for i in range(24)]} | cells(s))),
        left=("column 1",),
        says=("row number",),
    ),
    Kind(
        "spellings m/f, M/F and male/female",
        spellings(north=("m", "f"), south=("M", "F"), west=("male", "female")),
        wrong="sex.*--recode",
    ),
    Kind(
        "spellings that differ by capitals",
        spellings(north=("Yes", "No"), south=("yes", "no"), west=("YES", "NO")),
        wrong="sex.*--recode",
    ),
    pounds("south", 2.2046),
    pounds("west", 1 / 2.54),
    pounds("west", 2.54),
    pounds("north", 9 / 5, 32.0, name="age"),
    Kind("a site of one person", single_person(), truth=single_person_truth, quiet=True),
    Kind("another order of columns at one site", one_site(lambda s: text({n: cells(s)[n] for n in reversed(NAMES)}))),
    Kind(
        "blanks around names and numbers",
        one_site(lambda s: text({f" {n} ": [f" {v} " for v in c] for n, c in cells(s).items()})),
    ),
    Kind(
        "names with other capitals at one site",
        one_site(lambda s: text({n.upper(): c for n, c in cells(s).items()})),
        wrong="AGE.*WEIGHT.*INCOME",
    ),
    Kind(
        "two columns missing at one site",
        one_site(lambda s: text({"age": cells(s)["age"]})),
        wrong="(?s)weight.*income.*--columns common",
    ),
    Kind(
        "two columns asked for that are nowhere",
        files(lambda s: text(cells(s))),
        ("--columns", "age,size,pulse"),
        wrong="size.*pulse",
    ),
    Kind("the same name twice", files(lambda s: text(cells(s)).replace("weight", "age", 1)), wrong="age"),
    Kind(
        "a cell too many",
        one_site(lambda s: text(cells(s)) + "1,2,3,4\n"),
        wrong="south.csv.*26",
    ),
    Kind("a delimiter at the end of every line", files(lambda s: text(cells(s), end=",\n"))),
    Kind("blank lines between rows and at the end", one_site(lambda s: text(cells(s)).replace("\n", "\n\n") + "\n\n")),
    Kind(
        "a title above the header",
        one_site(lambda s: "Export of the clinic\n\n" + text(cells(s))),
        wrong="south.csv",
    ),
    Kind(
        "a line of totals at the end",
        one_site(lambda s: text(cells(s)) + "Total,,64000.00\n"),
        wrong="south.csv.*26.*Total",
    ),
    Kind("an empty file", one_site(lambda s: ""), wrong="south.csv.*empty"),
    Kind("a header without rows", one_site(lambda s: "age,weight,income\n"), left=("south",), truth=lambda: {k: v for k, v in TRUE.items() if k != "south"}),
    Kind("a workbook of Excel", {"north.xlsx": b"PK\x03\x04", "south.csv": b"age\n1\n"}, wrong="north.xlsx.*CSV"),
    Kind("everything in quotes", files(lambda s: text({f'"{n}"': [f'"{v}"' for v in c] for n, c in cells(s).items()}))),
    Kind(
        "numbers with a unit in the cell",
        one_site(lambda s: text(cells(s) | {"weight": [v + " kg" for v in cells(s)["weight"]]})),
        wrong="weight",
    ),
    Kind("lines that end as on Windows", files(lambda s: text(cells(s), end="\r\n"))),
    Kind("lines that end as on an old Mac", one_site(lambda s: text(cells(s), end="\r"))),
    Kind("powers of ten", column("income", lambda s, X: [f"+{v:.8e}" for v in X[:, 2]])),
    Kind(
        "values below a limit of detection",
        one_site(lambda s: text(cells(s) | {"weight": ["<55.0", *cells(s)["weight"][1:]]})),
        wrong="south.csv.*weight.*<55.0",
    ),
    Kind("a constant column", column("country", lambda s, X: ["7"] * len(X)), left=("country",)),
    Kind(
        "infinite numbers",
        one_site(lambda s: text(cells(s) | {"weight": ["inf", *cells(s)["weight"][1:]]})),
        wrong="south.csv.*weight.*inf",
    ),
    Kind(
        "post codes with leading zeros",
        column("postcode", lambda s, X: [f"0{1000 + 7 * (i % 9)}" for i in range(len(X))]),
        left=("postcode",),
    ),
    Kind(
        "-999 for missing in one column",
        one_site(lambda s: text(cells(s) | {"weight": ["-999"] * 3 + cells(s)["weight"][3:]})),
        wrong="weight.*-999.*--na",
    ),
    Kind(
        "a column without values at one site",
        one_site(lambda s: text(cells(s, pulse=[""] * 24)), "south") | {
            f"{s}.csv": text(cells(s, pulse=[str(60 + i % 20) for i in range(24)])).encode() for s in ("north", "west")
        },
        wrong="pulse.*south",
    ),
    Kind("an image", {"north.csv": bytes(range(256)) * 8, "south.csv": b"age\n1\n"}, wrong="north.csv"),
    Kind("cut by gzip", {"north.csv.gz": b"\x1f\x8b\x08", "south.csv": b"age\n1\n"}, wrong="north.csv.gz"),
]

AFTER: list[Kind] = []
