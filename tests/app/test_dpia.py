"""``unpooled site dpia``: what it says is in the folder, its tests exist, it renders and prints."""

import json
import re
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest
from browser import browser
from typer.testing import CliRunner

from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.app.pages.dpia import page, read
from unpooled.app.pages.dpia.threats import ALL, THREATS, threats
from unpooled.data import PreparationOptions, Table
from unpooled.data.summary_table import to_csv
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.privacy.microaggregation.renew import DISCLOSED, NEW_PENDING
from unpooled.protocol import codec, run
from unpooled.site.audit.attack import on_log
from unpooled.site.erase_people import erase
from unpooled.site.explain_policy import explain, template
from unpooled.site.open_site import open_site
from unpooled.site.people_register import Registry
from unpooled.site.policy import parse
from unpooled.site.table_changes import renew
from unpooled.site.table_store import SummaryFolder

ROOT = Path(__file__).parents[2]
ODD = "a <b>&\"' ü"
TEXTS = {
    "summary": template("", "opensafely", one_row_per_person=True).replace(
        "no_sensitive_columns = false", "no_sensitive_columns = true"
    ),
    "raw": 'format = 1\n[protect]\nmode = "raw"\n',
    "dp": template("", "strict", rows=500),
}


def call(*words):
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout + (done.stderr or "")


def refused(*words):
    code, text = call(*words)
    assert (code, text.count("\n")) == (1, 1), text
    return text


@pytest.fixture(scope="module")
def sites(tmp_path_factory):
    """Folders of three sites for each protection, after a run; one with noise, which answered nothing."""
    home = tmp_path_factory.mktemp("sites")
    rng = np.random.default_rng(3)
    rows = {s: rng.normal(size=(80, 2)) + 8 * rng.integers(2, size=(80, 1)) for s in "abc"}
    for mode in ("summary", "raw"):
        for s, X in rows.items():
            folder = home / mode / s
            folder.mkdir(parents=True)
            (folder / "policy.toml").write_text(TEXTS[mode])
            if mode == "summary":
                SummaryFolder(folder).make(X, parse(TEXTS[mode]).protect.settings())
                SummaryFolder(folder).approve(by=ODD)
        sites = [open_site(s, X, parse(TEXTS[mode]), home / mode / s) for s, X in rows.items()]
        run(Lloyd(k=2, min_cluster_size=5 if mode == "raw" else 1), LocalFederation(sites), seed=1)
        for site in sites:
            site.close()
    (home / "dp" / "a").mkdir(parents=True)
    (home / "dp" / "a" / "policy.toml").write_text(TEXTS["dp"])
    open_site("a", rows["a"], parse(TEXTS["dp"]), home / "dp" / "a").close()
    return home


def escaped(text):
    return (
        text.replace("&", "&amp;")
        .replace("<", "&lt;")
        .replace(">", "&gt;")
        .replace('"', "&#34;")
        .replace("'", "&#39;")
    )


# ---------------------------------------------------------------- what it says


def test_what_it_says_of_a_site_with_a_summary_table_is_in_its_folder(sites):
    folder = sites / "summary" / "a"
    facts = read(folder)
    text = page(facts)
    about = json.loads((folder / "summary" / "about.json").read_text())
    opening = json.loads((folder / "log.jsonl").read_text().splitlines()[0])
    summary = SummaryFolder(folder).read()
    assert about["digest"] in text
    assert opening["policy"] in text
    assert f"unpooled {opening['version']}" in text
    assert f"{summary.people.sum():.0f} people in {len(summary)} groups" in text
    assert f"approved by {escaped(ODD)} on" in text
    assert ODD not in text
    for run_ in facts.record.runs:
        assert run_.id in text
        assert f"{run_.numbers:,}" in text
    for _, lines in explain(facts.policy):
        for line in lines:
            assert escaped(line) in text
    assert "OpenSAFELY" in text
    assert f"{len(on_log(folder / 'log.jsonl').rows)} rows. The site answered from its summary table" in text
    assert "The log is intact" in text
    for field in ("Purpose", "Legal basis", "Retention", "Signature"):
        assert field in text


def test_the_policy_is_explained_with_the_options_that_the_table_was_made_with(tmp_path):
    """The policy names no column of people and no group size: ``site summarize`` did."""
    rows = "".join(f"p{i // 2},{40 + i % 13},{20 + i % 7}\n" for i in range(120))
    (tmp_path / "data.csv").write_text(f"id,age,bmi\n{rows}")
    site = tmp_path / "north"
    options = ("--person", "id", "--min-group-size", "8", "--no-sensitive-columns")
    code, text = call("site", "summarize", site, "--data", tmp_path / "data.csv", *options)
    assert code == 0, text
    assert call("site", "dpia", site)[0] == 0
    page = (site / "dpia.html").read_text()
    assert "Column id identifies people." in page
    assert "every row is the average of at least 8 people" in page
    assert "does not declare" not in page
    assert "g is at least 5" not in page


def test_the_attack_on_a_raw_site_is_counted(sites):
    text = page(read(sites / "raw" / "a"))
    found = len(on_log(sites / "raw" / "a" / "log.jsonl").rows)
    assert found > 0
    assert f"It found {found} rows;" in text
    assert "only the contract with its partners protects them" in text


OF_A_SITE = {"site", "rows", "protection", "summary_made", "missing_cells", "numbers_sent", "bytes_sent"}
WITHOUT_SECURE_SUMS = {"inertia_per_row", "centre_moves_without_it"}


@pytest.mark.parametrize("secure", [False, True])
def test_what_readers_of_the_result_see_of_a_site(tmp_path, secure):
    """The line of the report names all of it, and neither rows nor rows of the summary table are there."""
    rng = np.random.default_rng(0)
    clusters = {f"site-{s}": 800 * rng.integers(2, size=(80, 1)) for s in "abc"}
    rows = {name: 12345 + (rng.normal(0, 99, (80, 2)) + shift) / 9999 for name, shift in clusters.items()}
    for name, X in rows.items():
        np.savetxt(tmp_path / f"{name}.csv", X, "%.12f", ",", header="age,bmi", comments="")
    run_, report = tmp_path / "run", tmp_path / "report.html"
    files = [tmp_path / f"{name}.csv" for name in rows]
    words = ("--protect", "summary", "--one-row-per-person", *(["--secure"] if secure else []))
    code, output = call("fit", *files, "-k", 2, *words, "--out", run_, "--report", report)
    assert code == 0, output
    result = json.loads((run_ / "result.json").read_text())
    for one in result["sites"]:
        assert set(one) == OF_A_SITE | WITHOUT_SECURE_SUMS
        assert {name for name, value in one.items() if value is None} == (
            WITHOUT_SECURE_SUMS if secure else set()
        )
    assert all((cluster["rows_by_site"] is None) is secure for cluster in result["clusters"])
    by_site = [name for name in rows if f'"{name}"' in json.dumps({**result, "sites": [], "clusters": []})]
    assert by_site == []
    texts = [path.read_text() for path in (*run_.glob("*.json"), *run_.glob("*.csv"), report)]
    assert numbers_in(*texts)  # the centres
    for X in rows.values():
        of_rows, of_groups = ({float(f"{x:.12f}") for x in X.ravel()}, numbers_in(to_csv(microaggregate(X))))
        assert (len(of_rows), len(of_groups) > 8) == (160, True)
        assert not (of_rows | of_groups) & numbers_in(*texts)


def numbers_in(*texts):
    """The numbers above 10,000 with three decimals or more in some texts."""
    return {float(x) for text in texts for x in re.findall(r"\d{5,}\.\d{3,}", text)}


def test_what_a_coordinator_sees_of_a_site(sites, tmp_path):
    """Its schema in clear, whatever the mode; of a site with groups of rows only sums besides."""
    for mode in ("summary", "raw"):
        text = page(read(sites / mode / "a"))
        assert "The schema: names, kinds and categories of its columns, its number of people" in text
    grouped = tmp_path / "a"
    grouped.mkdir()
    rules = f'{TEXTS["raw"]}one_row_per_person = true\n[aggregation]\nsecure = "required"\n'
    (grouped / "policy.toml").write_text(rules)
    open_site("a", np.random.default_rng(0).normal(size=(80, 2)), parse(rules), grouped).close()
    text = page(read(grouped))
    assert "Of all other answers only sums over all sites" in text
    assert "This site answers only in secure sums, from groups of its rows" in text
    assert "only the contract with its partners protects them" not in text


class Received(LocalFederation):
    """It keeps what is asked of a site."""

    asked: list[bytes]

    def ask(self, request_id, asks):
        self.asked = [*getattr(self, "asked", []), *(codec.encode(ask.question) for ask in asks)]
        self.asked += [codec.encode(ask.transform) for ask in asks if ask.transform is not None]
        return super().ask(request_id, asks)


@pytest.mark.parametrize("aggregate_only", [False, True])
def test_what_a_site_receives_depends_only_on_sums_over_the_others(aggregate_only):
    """The same bytes if two other sites exchange their tables, so no question has an answer of one site."""
    rng = np.random.default_rng(1)
    tables = {}
    for site in "abc":
        age = np.where(rng.random(60) < 0.05, np.nan, rng.normal(60, 9, 60))
        tables[site] = Table.from_columns({"age": age, "ward": rng.choice(["p", "q", site], 60).tolist()})
    analysis = Analysis(PreparationOptions(), (Lloyd(k=2, n_starts=2),), aggregate_only=aggregate_only)
    found = []
    for names in ("abc", "acb"):
        held = {name: microaggregate(tables[site]) for name, site in zip("abc", names, strict=True)}
        federation = Received.from_rows(held, exact_sums=True)
        run(analysis, federation, seed=2)
        found.append(federation.asked)
    assert len(found[0]) > 10
    assert found[0] == found[1]


def test_a_site_with_noise_that_answered_nothing(sites):
    text = page(read(sites / "dp" / "a"))
    assert "Nothing has left this site" in text
    assert "every answer is noisy and charged to one privacy budget" in text
    assert "It found 0 rows;" in text


def patients(numbers, seed=0):
    rng = np.random.default_rng(seed)
    values = {i: rng.normal(50, 9, 2) for i in range(200)}
    x, y = np.array([values[i] for i in numbers]).T
    return Table.from_columns({"id": [f"P{i}" for i in numbers], "x": x, "y": y})


def test_what_it_says_of_data_that_change_is_what_registry_and_erasures_hold(tmp_path):
    """A summary table is updated, two people are erased, and another update is not approved."""
    place = SummaryFolder(tmp_path)
    place.make(patients(range(90)), SummarySettings(min_group_size=5, person="id", no_sensitive_columns=True))
    assert "ever disclosed" in page(read(tmp_path))  # nobody approved it yet
    place.approve(by="Dr. Low")
    plan = renew(place, patients(range(6, 130)))
    place.approve(by="Dr. High")
    person = next(person for person, state in plan.states.items() if state in DISCLOSED)
    erase(place, [person, "P199"], by=ODD, block_unknown=True)
    with Registry.open(tmp_path) as registry:
        history, summaries = registry.history(), registry.summaries()
    facts = read(tmp_path)
    text = page(facts)
    assert "reads rows to make the summary table and to update it, and not to answer" in text
    assert f"{len(history.groups)} groups were ever disclosed" in text
    live = sum(len(history.groups[n].members) for n in history.live)
    held = {p for withheld in history.withheld.values() for p in withheld} - history.erased
    assert live
    assert held
    assert f"{live} people are disclosed now" in text
    assert f"{len(held)} people are withheld for ever" in text
    assert "2 people were erased" in text
    assert sum(facts.changes.people.values()) == len({*history.people, *history.erased})
    waits = list(plan.states.values()).count(NEW_PENDING)
    assert waits
    assert "The last update had 124 people in its file: " in text
    assert f"pending, new: {waits}" in text
    assert [one.approved_by for one in summaries] == ["Dr. Low", "Dr. High", ODD]
    assert [(one.added, one.retired) for one in summaries][1:] == [
        (len(plan.added), len(plan.retired)),
        (0, 1),
    ]
    for one in summaries:
        assert one.digest[:16] in text
    assert escaped(ODD) in text[text.index(">Erasures<") :]
    for name in ("registry.sqlite", "erasures.json"):
        assert f"SHA-256 of {name}" in text
        assert sha256((tmp_path / name).read_bytes()).hexdigest() in text
    assert "The folder keeps 2 earlier summary tables, " in text
    further = renew(place, patients(range(12, 140)))
    text = page(read(tmp_path))
    assert f"it withdraws {len(further.retired)} groups and adds {len(further.added)}" in text
    (tmp_path / "registry.sqlite").write_bytes(b"nothing" * 100)
    refused("site", "dpia", tmp_path)
    place.renewal.rename(tmp_path / "away")
    text = page(read(tmp_path))
    assert text.index("not a registry of unpooled, or damaged") < text.index("What is processed")


def test_a_summary_table_without_ids_says_that_it_cannot_be_renewed(sites):
    text = page(read(sites / "summary" / "a"))
    assert "The summary table was made without ids of people" in text
    assert "to update it" not in text
    assert "the difference of two answers is that row" in page(read(sites / "raw" / "a"))


def test_every_threat_names_a_test_that_there_is():
    for threat in THREATS:
        file, _, name = threat.test.partition("::")
        assert (ROOT / file).exists(), threat.test
        assert name, threat.test
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), threat.test
        assert all(threat[:4])
    for mode in ALL:
        assert len(threats(mode)) > 5


# ---------------------------------------------------------------- as its reader sees it

# a long text into every field: its label, its height, the height of the text, its height when it was empty
FILL_IN = """[...document.querySelectorAll('#sign .field [role=textbox]')].map(field => {
  const before = field.clientHeight, label = document.getElementById(field.getAttribute('aria-labelledby'));
  if (!field.isContentEditable) throw new Error('nothing can be written into ' + label.textContent);
  field.focus();
  document.execCommand('insertText', false, 'Studies of care, with our partners. '.repeat(60));
  return [label.textContent, field.clientHeight, field.scrollHeight, before];
})"""
# names of tests that are wider than their cells
CUT = """[...document.querySelectorAll('.threats code')].filter(name =>
  name.getBoundingClientRect().right > name.closest('td').getBoundingClientRect().right + 1
).map(name => name.textContent)"""


def test_it_renders_and_prints_without_errors_and_without_any_request(sites, tmp_path):
    person = {mode: tmp_path / f"{mode}.html" for mode in ALL}
    for mode, path in person.items():
        path.write_text(page(read(sites / mode / "a")), encoding="utf-8")
    with browser(tmp_path / "profile") as tab:
        for mode, path in person.items():
            for width, dark in ((1200, False), (390, True)):
                tab.open(path, width, dark=dark)
                wide = tab.value("document.documentElement.scrollWidth")
                assert wide <= width, f"{mode}: {wide} pixels wide on a screen of {width}"
            tab.open(path, paper=True)
            assert tab.value("getComputedStyle(document.querySelector('#sign')).breakBefore") == "page"
            pages = tab.pdf().count(b"/Type /Page\n")
            assert 4 <= pages <= 8
            written = tab.value(FILL_IN)
            assert len(written) == 8
            for label, high, needed, before in written:
                assert needed <= high, f"{mode}: what is written into {label!r} is cut on paper"
                assert high > before > 40, f"{mode}: {label!r} does not grow"
            assert tab.pdf().count(b"/Type /Page\n") > pages
            cut = tab.value(CUT)
            assert cut == [], f"{mode}: {cut}"
        assert not tab.complaints
        assert [url for url in tab.requests if not url.startswith(("file:", "data:"))] == []


# ---------------------------------------------------------------- the command


def test_the_command_writes_once_and_names_what_is_wrong(sites, tmp_path):
    folder = sites / "summary" / "b"
    code, text = call("site", "dpia", folder)
    assert code == 0
    assert f"written: {folder / 'dpia.html'}" in text
    assert "already exists. Use --overwrite" in refused("site", "dpia", folder)
    assert call("site", "dpia", folder, "--overwrite")[0] == 0
    assert call("site", "dpia", folder, "--html", tmp_path / "mine.html")[0] == 0
    assert "no such folder" in refused("site", "dpia", tmp_path / "none")
    empty = tmp_path / "empty"
    empty.mkdir()
    assert "it has neither a summary table nor a log" in refused("site", "dpia", empty)
    assert not list(empty.iterdir())
    (empty / "bad.toml").write_text("format = 1\nx = 1\n")
    assert "unknown section or key 'x'" in refused(
        "site", "dpia", folder, "--policy", empty / "bad.toml", "--html", empty / "page.html"
    )
    assert not (empty / "page.html").exists()


def test_a_changed_summary_table_is_refused_and_a_changed_log_stands_first(tmp_path):
    rows = Table.from_columns({"age": np.arange(60.0), "sex": list("fm") * 30})
    folder = tmp_path / "north"
    SummaryFolder(folder).make(rows, SummarySettings(one_row_per_person=True, no_sensitive_columns=True))
    SummaryFolder(folder).approve(by="Dr. Low")
    open_site("north", folder=folder).close()
    open_site("north", folder=folder).close()
    assert "Look at this first" not in page(read(folder))
    log = folder / "log.jsonl"
    log.write_text(log.read_text().replace('"protection":"summary"', '"protection":"none"', 1))
    text = page(read(folder))
    assert text.index("THE LOG IS NOT INTACT") < text.index("What is processed")
    table = folder / "summary" / "table.csv"
    table.write_text(table.read_text().replace("5", "6", 1))
    assert refused("site", "dpia", folder)
    assert not (folder / "dpia.html").exists()
