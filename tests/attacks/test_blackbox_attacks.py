"""Attacks invented from the documentation alone find nothing beyond the summary table."""

import json
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import pytest
from typer.testing import CliRunner

from attacks.crafted_queries import PLAIN, asking, rows_of
from unpooled.app.cli import app
from unpooled.data import Category, Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_table import SummaryTable, described, from_csv, to_csv
from unpooled.errors import InputError
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.group_means import spread_of
from unpooled.protocol import codec
from unpooled.protocol.declarations import Centers, Count, Sum
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Question, Refusal, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.chain import Chain
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

AUTO = parse(
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true"
)
CELLS = AskClusterSums(np.array([[[0.0, 0.0], [5.0, 5.0]]]))


def digest(table: Table | np.ndarray, **settings: Any) -> str:
    return microaggregate(table, SummarySettings(**settings), made="2026-01-02").digest


def replies(site, *requests) -> list[bytes]:
    """What a site answers, without the heads of its log."""
    out = []
    for number, (question, transform) in enumerate(requests):
        request = Request(RequestId("tried", 0, number, 0), (Part("each", question, transform, 0),))
        answer = codec.unwrap(site.respond(codec.wrap(request)))
        out += [codec.encode(reply) for reply in answer.replies]
    return out


def far_column(n: int, values: dict[int, float]) -> np.ndarray:
    rng = np.random.default_rng(n)
    X = rng.normal(50, 10, (n, 2))
    for row, value in values.items():
        X[row, 0] = value
    return X


# ---------------------------------------------------------------- the size of a far person


@pytest.mark.parametrize("n", [5, 6, 7, 8, 9, 30, 300])
def test_the_value_of_one_far_person_changes_no_byte(n):
    """At 1e4, 1e9 or 1e90: means, grid, variance within groups, groups and order are the same."""
    assert len({digest(far_column(n, {2: far})) for far in (1e4, 1e9, 1e90)}) == 1


@pytest.mark.parametrize("n", [7, 8, 9, 30, 300])
def test_the_values_of_two_far_people_change_no_byte(n):
    pairs = ((1e4, 1e5), (1e9, 1e5), (1e9, 1e12))
    assert len({digest(far_column(n, {2: a, 4: b})) for a, b in pairs}) == 1


@pytest.mark.parametrize("n", [30, 300])
def test_the_grid_and_the_variance_are_not_moved_by_as_many_as_a_group_less_one(n):
    """Four people of five far away: the rounding of all other groups stays."""
    near = spread_of(far_column(n, {})[:, 0], 5)
    far = spread_of(far_column(n, dict.fromkeys(range(4), 1e9))[:, 0], 5)
    assert far.grid in (near.grid / 2, near.grid, 2 * near.grid)


# ---------------------------------------------------------------- few people, few values


@pytest.mark.parametrize("n", range(5, 10))
@pytest.mark.parametrize("seed", range(4))
def test_a_table_of_five_to_nine_people_shows_nobodys_value(n, seed):
    """One group, no trimming of g at either end: no mean is the value of a person, as a median would be."""
    X = np.random.default_rng(seed).lognormal(3, 2, (n, 4))
    summary = microaggregate(X)
    assert len(summary) == 1
    for j in range(4):
        assert not set(summary.means[str(j)]) & set(X[:, j])
    assert np.isnan(summary.within).all()


@pytest.mark.parametrize("holders", [5, 6, 7, 11, 15])
def test_a_column_of_which_few_have_a_value_shows_nobodys_value(holders):
    """Trimming leaves one or two people there: neither they nor their scale is disclosed."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        x = np.full(60, np.nan)
        x[:holders] = rng.normal(50, 10, holders)  # in one place of the other column: grouped together
        summary = microaggregate(
            Table.from_columns({"x": x, "y": np.where(np.arange(60) < holders, 9.0, 0) + rng.random(60)})
        )
        assert not set(summary.means.get("x", ())) & set(x)
        assert (summary.people_with_value("x")[summary.people_with_value("x") > 0] >= 5).all()


def test_values_that_too_few_have_change_no_byte():
    """Four of twelve have a value: schema, totals, complete rows and far fills tell nothing of the four."""
    asked = (
        (AskSchema(), None),
        *((AskColumns(("x", "lab"), np.zeros(2), np.ones(2), (), (), w), None) for w in (False, True)),
        *(
            (question, Preparation((PLAIN.columns[0], Number("lab", fill, 0.0, 1.0)), drop=drop))
            for question in (AskMoments(), CELLS, AskLocalMeans(2, steps=0))
            for fill in (0.0, 1e9)
            for drop in (False, True)
        ),
    )
    seen = set()
    for values in ([1.0, 2.0, 3.0, 4.0], [1e9, -1.0, 0.0, 17.5]):
        lab = np.full(12, np.nan)
        lab[:4] = values
        table = Table.from_columns({"x": np.arange(12.0), "lab": lab})
        seen.add(tuple(replies(open_site("a", table, AUTO), *asked)))
    assert len(seen) == 1


# ---------------------------------------------------------------- columns that are functions of each other


def values_from_powers(sums: list[float]) -> np.ndarray:
    """The five values of which these are the sums of the first five powers (Newton's identities)."""
    e = [1.0]
    for k in range(1, 6):
        e.append(sum((-1) ** (j - 1) * e[k - j] * sums[j - 1] for j in range(1, k + 1)) / k)
    found = np.roots([(-1) ** k * e[k] for k in range(6)])
    return np.sort(found[np.abs(found.imag) < 1e-6].real)


def test_five_powers_of_a_column_do_not_give_the_five_values_of_a_group():
    """Control: from exact sums they do; rounding leaves nobody."""
    found = exact = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        x = rng.normal(0, 1, 5)
        table = Table.from_columns({f"x{p}": x**p for p in range(1, 6)})
        disclosed = microaggregate(table)
        result = values_from_powers([5 * float(disclosed.means[f"x{p}"][0]) for p in range(1, 6)])
        found += int((np.abs(result[:, None] - x).min(axis=1, initial=9.0) < 1e-3).sum())
        sums = [float((x**p).sum()) for p in range(1, 6)]
        exact += len(values_from_powers(sums)) == 5 and np.allclose(
            values_from_powers(sums), np.sort(x), 1e-3
        )
    assert exact == 8
    assert found <= 1


def test_equal_columns_have_equal_cells():
    """Neither rounding nor cutting differs between them, so that their difference tells nothing."""
    X = far_column(200, {3: 1e6, 9: -1e5})
    summary = microaggregate(Table.from_columns({"x": X[:, 0], "again": X[:, 0], "y": X[:, 1]}))
    assert np.array_equal(summary.means["x"], summary.means["again"])


def test_columns_with_complementary_missing_values_disclose_cells_of_a_group_or_none():
    for seed in range(5):
        rng = np.random.default_rng(seed)
        first = rng.random(120) < 0.5
        x = rng.normal(size=120)
        table = Table.from_columns(
            {"a": np.where(first, x, np.nan), "b": np.where(first, np.nan, x), "y": rng.normal(size=120)}
        )
        summary = microaggregate(table)
        assert ((summary.known == 0) | (summary.known >= 5)).all()


# ---------------------------------------------------------------- people


def test_the_number_of_rows_of_a_person_changes_no_byte():
    """One row or four hundred, if they say the same; also if they has most rows of the site."""
    seen = set()
    for times in (1, 3, 400):
        t = rows_of(4, 60)
        repeat = np.r_[np.arange(60), np.full(times - 1, 7)]
        who = [f"P{i}" for i in repeat]
        columns = {name: t.values[repeat, j] for j, name in enumerate(("x", "y", "lab"))}
        seen.add(
            digest(
                Table.from_columns({"who": who, **columns, "s": ["fm"[i % 2] for i in repeat]}), person="who"
            )
        )
    assert len(seen) == 1


def test_rows_without_a_person_make_no_summary_table_and_no_folder(tmp_path):
    """Missing ids are neither a person each nor one person together."""
    path = tmp_path / "rows.csv"
    path.write_text("who,x\n" + "".join(f"{'' if i == 20 else i},{i}\n" for i in range(40)))
    result = CliRunner().invoke(
        app,
        [
            "site",
            "summarize",
            "--no-sensitive-columns",
            str(tmp_path / "n"),
            "--data",
            str(path),
            "--person",
            "who",
        ],
    )
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "which identifies people" in result.stderr
    assert not (tmp_path / "n").exists()


def test_one_person_written_in_several_ways_of_a_number_is_one_person(tmp_path):
    path = tmp_path / "rows.csv"
    ids = ["1", "1.0", "01", " 1", "1 ", *map(str, range(2, 31))]
    path.write_text("who,x\n" + "".join(f"{who},{i}\n" for i, who in enumerate(ids)))
    result = CliRunner().invoke(
        app,
        [
            "site",
            "summarize",
            "--no-sensitive-columns",
            str(tmp_path / "n"),
            "--data",
            str(path),
            "--person",
            "who",
        ],
    )
    assert "30 people" in result.stdout


def test_the_order_of_the_file_changes_no_byte():
    """Neither groups nor categories nor rows of the summary table follow who came first."""
    for seed in range(6):
        table = rows_of(seed)
        order = np.random.default_rng(seed).permutation(len(table))
        shuffled = Table(table.names, table.kinds, table.categories, table.values[order])
        assert digest(table) == digest(shuffled)


# ---------------------------------------------------------------- categories


@pytest.mark.parametrize("holders", [1, 3, 4, 5])
def test_a_category_is_named_from_g_people_on_and_nowhere_before(holders, tmp_path):
    """In no file and in no answer, whatever is asked of it; visits do not make it more people."""
    who = [f"P{i}" for i in range(40)] + ["P0"] * 30
    category = ["Wilson"] * holders + ["usual"] * (40 - holders) + ["Wilson"] * 30
    x = np.random.default_rng(0).normal(size=70)
    table = Table.from_columns({"who": who, "x": x, "y": x, "kind": category})
    rules = parse("format = 1\n[protect]\nauto_approve = true\nno_sensitive_columns = true\nperson = 'who'")
    site = open_site("a", table, rules, tmp_path)
    hook = Preparation((PLAIN.columns[0], Category("kind", ("Wilson",), False, 0, 1e-6)), drop=False)
    disclosed = asking(site)(AskSchema())
    total = asking(site)(AskColumns((), np.zeros(0), np.ones(0), ("kind",), (("Wilson",),), False), None)
    cell = asking(site)(AskClusterSums(np.array([[[0.0, 0.0], [0.0, 1e6]]])), hook)
    site.close()
    kept = (tmp_path / "summary" / "table.csv").read_text() + (
        tmp_path / "summary" / "about.json"
    ).read_text()
    named = holders >= 5
    assert ("Wilson" in kept) is named
    assert ("Wilson" in disclosed.categories[disclosed.names.index("kind")]) is named
    assert bool(total.categories[0] > 0) is named
    assert named or cell.mass[0, 1] == 0


def test_a_thousand_categories_of_one_person_each_are_other():
    table = Table.from_columns({"x": np.arange(1000.0), "name": [f"name {i}" for i in range(1000)]})
    summary = microaggregate(table)
    assert summary.categories["name"] == ("other",)
    assert "name 1" not in to_csv(summary)


ODD = ("other", "a = b", 'quo"te', "new\nline", "people", " ", ",", "é", "nan", "x" * 500)


@pytest.mark.parametrize("name", ["people", "x (people with a value)", "kind = a", "two\nlines", "é"])
def test_odd_texts_survive_the_file_and_are_taken_for_nothing_else(name, tmp_path):
    """A category called other, a column called people: the table that is read is the one that was made."""
    rng = np.random.default_rng(0)
    kind = rng.choice(ODD, 200).tolist()
    x = np.where(rng.random(200) < 0.1, np.nan, rng.normal(size=200))
    table = Table.from_columns({name: kind, "x": x, "kind": rng.choice(["a", "b"], 200).tolist()})
    site = open_site("a", table, AUTO, tmp_path)
    again, made = site.rows, microaggregate(table)
    site.close()
    assert again.digest == made.digest
    assert again.categories == made.categories
    assert set(made.categories[name]) <= {*ODD, "other"}


# ---------------------------------------------------------------- files, texts, names of runs


def test_no_file_of_a_site_holds_a_value_an_id_a_path_or_a_column_that_is_not_read(tmp_path):
    """A reader of the summary table's files, of the log and of all answers."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=80).tolist()
    source = tmp_path / "secret-path.csv"
    lines = [f"ZZ{i},{v!r},Name{i},{'ab'[i % 2]}" for i, v in enumerate(x)]
    source.write_text("who,x,surname,kind\n" + "\n".join(lines) + "\n")
    folder = tmp_path / "n"
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        folder,
        "--data",
        source,
        "--person",
        "who",
        "--exclude",
        "surname",
    ]
    for command in (words, ["site", "approve", "--table", "--yes", folder, "--by", "officer"]):
        assert CliRunner().invoke(app, list(map(str, command))).exit_code == 0
    site = open_site("a", None, None, folder)
    transform = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)
    answers = replies(
        site, (AskSchema(), None), (AskMoments(), transform), (AskLocalMeans(5, steps=0), transform)
    )
    site.close()
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    # table, page, about, notes, approved, registry, log, who holds it, ledger, identity, the folder's id
    assert len(files) == 11
    for data in (*files, *answers):
        for text in (b"secret-path", b"surname", b"Name3", b"ZZ", *(repr(v).encode() for v in x)):
            assert text not in data
    about = json.loads((folder / "summary" / "about.json").read_text())
    assert set(about) == {
        *(
            "format",
            "digest",
            "names",
            "kinds",
            "categories",
            "values",
            "incomplete",
            "within",
            "min_group_size",
            "made",
        ),
        *("named", "settings", "registry"),
    }


@pytest.mark.parametrize("run", ["", "../../out", "/etc/x", "a" * 5000, "\0", "line\nline", "ü", '"}{"'])
def test_no_name_of_a_run_writes_elsewhere_or_changes_an_answer(run, tmp_path):
    site = open_site("a", rows_of(0), AUTO, tmp_path / "deep" / "site")
    before = sorted(p for p in tmp_path.rglob("*") if "sqlite-" not in p.name)
    result = []
    for name in ("usual", run):
        request = Request(RequestId(name, 0, 0, 0), (Part("total", CELLS, PLAIN, 0),))
        result.append(codec.encode(codec.unwrap(site.respond(codec.wrap(request))).replies[0]))
    site.close()
    assert result[0] == result[1]
    assert sorted(p for p in tmp_path.rglob("*") if "sqlite-" not in p.name) == before


def test_the_same_request_with_other_parameters_is_a_function_of_the_summary_table():
    """Replayed with other centres, transforms, verbs and indices: answered as if asked for the first time."""
    table = rows_of(2)
    asked, fresh = open_site("a", table, AUTO), lambda: open_site("a", table, AUTO)
    rng = np.random.default_rng(0)
    for _ in range(30):
        question = AskClusterSums(rng.normal(0, 9, (1, 2, 2)))
        transform = Preparation(
            (PLAIN.columns[0], Number("lab", rng.normal(), 0.0, rng.random() + 0.1)), False
        )
        request = Request(
            RequestId("r", 0, 0, 0), (Part(str(rng.choice(["each", "total"])), question, transform, 0),)
        )
        data = codec.wrap(request)
        assert asked.respond(data) == fresh().respond(data) == asked.respond(data)


def test_cut_and_altered_messages_are_answered_alike_whatever_the_rows():
    """What a refusal says does not depend on the rows: two sites of one form, the same texts."""
    rng = np.random.default_rng(0)
    sites = [open_site("a", rows_of(seed), AUTO) for seed in (5, 6)]
    wrong = [
        (CELLS, None),
        (AskSchema(), PLAIN),
        (AskClusterSums(np.full((1, 2, 2), np.nan)), PLAIN),
        (AskClusterSums(np.zeros((1, 2, 3))), PLAIN),
        (AskLocalMeans(-1, steps=0), PLAIN),
        (CELLS, Preparation((Number("x", 0.0, 0.0, 0.0), Number("y", 0.0, 0.0, 1.0)), drop=False)),
        (CELLS, Preparation((Number("patient", 0.0, 0.0, 1.0),), drop=False)),
    ]
    for question, transform in wrong:
        one, two = (replies(site, (question, transform))[0] for site in sites)
        assert one == two
        assert isinstance(codec.decode(one), Refusal)
    nobody = AskColumns(("nobody",), np.zeros(1), np.ones(1), (), (), False)
    one, two = (replies(site, (nobody, None))[0] for site in sites)
    assert one == two  # a column that the site lacks: nobody has a value there
    assert codec.decode(one).count.tolist() == [0.0]
    whole = codec.wrap(Request(RequestId("r", 0, 0, 0), (Part("each", CELLS, PLAIN, 0),)))
    for _ in range(200):
        data = bytearray(whole[: int(rng.integers(len(whole)))] if rng.random() < 0.3 else whole)
        for at in rng.integers(max(1, len(data)), size=int(rng.integers(1, 4))):
            if len(data):
                data[at] = rng.integers(256)
        one, two = (codec.unwrap(site.respond(bytes(data)), expect=Response) for site in sites)
        refusals = [[r.reason for r in a.replies if isinstance(r, Refusal)] for a in (one, two)]
        assert refusals[0] == refusals[1]


def test_another_file_another_width_and_other_settings_change_no_answer(tmp_path):
    """Opened again over other rows or with another grouping: the existing summary table answers."""
    asked = ((AskSchema(), None), (CELLS, PLAIN), (AskLocalMeans(4, steps=0), PLAIN))
    result = []
    others = (rows_of(1), rows_of(9, 57), Table.from_columns({"z": np.arange(4.0)}), None)
    for table in others:
        site = open_site("a", table, AUTO, tmp_path)
        result.append(replies(site, *asked))
        site.close()
    assert all(one == result[0] for one in result)


# ---------------------------------------------------------------- a module that the policy trusts


@dataclass(frozen=True, eq=False)
class Found(Summable, prefix="invented"):
    mass: Annotated[np.ndarray, Count("k")]
    sums: Annotated[np.ndarray, Sum("k d", rows="mass")]


@dataclass(frozen=True, eq=False)
class AskFound(Question[Found], prefix="invented"):
    """Takes every row that it can see."""

    reads = "rows"
    centers: Annotated[np.ndarray, Centers("k d")]

    def answer_all(self, batch: SiteBatch) -> list[Found]:
        SEEN.append(batch)
        return [Found(np.zeros(len(self.centers)), np.zeros(self.centers.shape))]


SEEN: list[SiteBatch] = []


def test_a_question_of_ones_own_sees_groups_and_nothing_else():
    """Even where a site allows it (here without a policy): the batch and its parts hold the summary table."""
    table = rows_of(3)
    summary = microaggregate(table)
    guarded = open_site("a", table, AUTO)
    ask = asking(guarded)
    assert ask(AskFound(np.zeros((1, 2))), PLAIN) is None  # no method asks it: refused
    guarded.chain = Chain(*(step for step in guarded.chain.steps if step.name != "policy"))
    ask(AskFound(np.zeros((1, 2))), PLAIN)
    batch = SEEN.pop()
    assert batch.X.shape == (len(summary), 2)
    assert np.array_equal(np.sort(batch.X[:, 0]), np.sort(summary.means["x"]))
    assert batch.weights.min() >= summary.min_group_size
    assert isinstance(guarded.rows, SummaryTable)


# ---------------------------------------------------------------- odd tables


def odd_column(rng: np.random.Generator, n: int) -> Any:
    match rng.integers(12):
        case 0:
            return np.full(n, rng.choice([0.0, -0.0, 7.0, 1e90, -1e-90]))
        case 1:
            return rng.normal(size=n) * 10.0 ** rng.integers(-90, 90)
        case 2:
            return rng.choice([0.0, -0.0, 1.0], n)
        case 3:
            return np.where(np.arange(n) == rng.integers(n), 1e90, rng.normal(size=n))
        case 4:
            return np.where(rng.random(n) < rng.random(), np.nan, rng.normal(size=n))
        case 5:
            return np.full(n, np.nan)
        case 6:
            return [f"L{i}" for i in range(n)]
        case 7:
            return rng.choice([*ODD, ""], n).tolist()
        case 8:
            return [None if rng.random() < 0.5 else "yes" for _ in range(n)]
        case 9:
            return np.where(np.arange(n) < rng.integers(n + 1), rng.normal() * 1e6, 0.0)
        case 10:
            return rng.random(n) < 0.1
        case _:
            return np.datetime64("2020-01-01") + rng.integers(0, 100, n)


@pytest.mark.parametrize("seed", range(150))
def test_an_odd_table_gives_a_summary_table_that_keeps_its_promises_or_one_clear_error(seed):
    rng = np.random.default_rng(seed)
    n = int(rng.choice([4, 5, 6, 7, 8, 9, 10, 12, 30, 80]))
    names = ["x", "people", "x = a", "x (people with a value)", "a\nb", "ü"][: rng.integers(1, 7)]
    columns = {name: odd_column(rng, n) for name in names}
    settings: dict[str, Any] = {"min_group_size": int(rng.choice([0, 0, 3, 8]))}
    if rng.random() < 0.4:
        columns["who"] = [f"P{i}" for i in rng.integers(0, max(1, int(n * rng.random())), n)]
        settings["person"] = "who"
    if rng.random() < 0.3:
        settings["sensitive"] = tuple(names[:2])
    few = len(set(columns.get("who", range(n)))) < (settings["min_group_size"] or 5)
    if few:
        with pytest.raises(InputError, match="too few for a summary table"):
            microaggregate(Table.from_columns(columns), SummarySettings(**settings))
        return
    summary = microaggregate(Table.from_columns(columns), SummarySettings(**settings))
    g = summary.min_group_size
    assert summary.people.min() >= g
    assert ((summary.known == 0) | (summary.known >= g)).all()
    assert (summary.known <= summary.people[:, None]).all()
    assert all(np.isfinite(mean).all() for mean in summary.means.values())
    for name, counts in summary.counts.items():
        assert (counts >= 0).all()
        assert np.allclose(counts.sum(axis=1), summary.people_with_value(name))
    assert not np.isinf(summary.within).any()
    again = from_csv(to_csv(summary), json.loads(json.dumps(described(summary))))
    assert again.digest == summary.digest
    assert np.array_equal(again.known, summary.known)
    assert all(np.array_equal(again.means[name], summary.means[name]) for name in summary.means)
    assert all(np.array_equal(again.counts[name], summary.counts[name]) for name in summary.counts)


@pytest.mark.parametrize("value", ["-0.75", "-3.25"])
def test_a_value_without_a_logarithm_is_an_error_that_does_not_quote_it(value, tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("x,pay\n" + "".join(f"{i},{value if i == 9 else i + 7}\n" for i in range(40)))
    words = [
        "site",
        "summarize",
        "--no-sensitive-columns",
        tmp_path / "n",
        "--data",
        path,
        "--log-transform",
        "pay",
        "--one-row-per-person",
    ]
    result = CliRunner().invoke(app, list(map(str, words)))
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "column pay" in result.stderr
    assert value not in result.stderr.replace(str(path), "")
    assert not (tmp_path / "n").exists()
