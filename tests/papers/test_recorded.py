"""The recorded results, the table of the papers' items, and the pages that are written from them."""

import csv
import re
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from reproduction import garst, plots, recorded, stallmann_more, triebe, yfantis
from reproduction.catalogue import NAMES, PAPERS, find
from reproduction.data_sources import Sources
from reproduction.experiment import Plot, Presentation
from reproduction.output import NUMBER_COLUMNS, FinishedExperiment, write
from reproduction.published_holzer import SCORE
from reproduction.recorded import (
    ITEM_VERDICTS,
    KINDS,
    kind_of,
    only_some,
    only_stored,
    read_csv,
    record,
    surviving,
)
from reproduction.result_store import Store
from reproduction.result_table import POWER, PROVENANCES, ResultTable, row
from reproduction.runner import finish

from unpooled.errors import InputError

ROOT = Path(__file__).parents[2]
ITEMS = read_csv(recorded.ITEMS)
RECORD = {e.name: e for e in recorded.recorded()}
LINES = [line for e in RECORD.values() for lines in e.tables.values() for line in lines]


# ---------------------------------------------------------------- items


def test_the_items_of_the_papers_are_complete():
    counts = Counter(item["paper"] for item in ITEMS)
    assert counts == {"garst": 36, "holzer": 42, "triebe": 20, "yfantis": 32, "stallmann": 32}
    for paper in PAPERS:
        numbers = [int(item["number"]) for item in ITEMS if item["paper"] == paper]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("item", ITEMS, ids=[f"{i['paper']}-{i['number']}" for i in ITEMS])
def test_an_item_has_a_verdict_a_place_and_a_test_or_a_reason(item):
    verdict, note = item["verdict"], item["note"]
    assert verdict in ITEM_VERDICTS
    places = [place for place in item["place"].split("; ") if place]
    for place in places:
        assert (ROOT / place).is_file(), place
    tests = [test for test in item["test"].split("; ") if test]
    for test in tests:
        file, _, name = test.partition("::")
        assert (
            f"def {name}(" in (ROOT / file).read_text(encoding="utf-8") if name else (ROOT / file).is_file()
        )
    if verdict in ("faithful", "differs, stated"):
        assert places
        assert tests
    if verdict == "differs, stated":
        assert f"docs/papers/{item['paper']}.md" in places, (
            "the page of the paper does not state the difference"
        )
    assert bool(note) == (verdict != "faithful")


def test_what_the_items_state_about_numbers_that_differ():
    notes = {(item["paper"], int(item["number"])): item["note"] for item in ITEMS}
    judged = [(e.name, line) for e in RECORD.values() for line in e.judged]
    remain = surviving([line for _, line in judged])

    def check(paper, number, experiment, of=lambda line: True):
        lines = [line for name, line in judged if name == experiment and of(line)]
        differ = sum(kind_of(line["verdict"]) == "differs" for line in lines)
        assert notes[paper, number].startswith(f"{differ} of {len(lines)} "), (paper, number)
        return sum(line in remain for line in lines)

    assert check("triebe", 12, "triebe-fraction") == 0
    check("triebe", 13, "triebe-epochs")
    check("triebe", 14, "triebe-rate")
    assert check("stallmann", 18, "stallmann-claims") == 0
    together = check("stallmann", 19, "stallmann-cases", lambda line: line["case"] != "case 1")
    assert f"{together} of them over all numbers together" in notes["stallmann", 19]
    of_page = notes["stallmann", 19].partition(" differ")[0]  # "13 of 45 numbers"
    assert of_page in (recorded.DOCS / "papers" / "stallmann.md").read_text(encoding="utf-8")


def test_what_is_missing_has_its_reason_on_the_page_of_the_paper():
    words = {
        ("holzer", "31"): "Figures 5, 6 and 8",
        ("holzer", "41"): "Homomorphic encryption",
        ("yfantis", "21"): "ADMM and QADA",
        ("yfantis", "30"): "illustrations 2, 3 and 5",
        ("yfantis", "31"): "support vector machines",
        ("stallmann", "30"): "supervised federated learning",
        ("holzer", "23"): "the FEMNIST non-IID sample",
        ("triebe", "20"): "energy data",
    }
    absent = [i for i in ITEMS if i["verdict"] in ("missing", "impossible here")]
    assert {(item["paper"], item["number"]) for item in absent} == set(words)
    for (paper, _), text in words.items():
        page = (recorded.DOCS / "papers" / f"{paper}.md").read_text(encoding="utf-8")
        assert text in " ".join(page.partition("<!-- results -->")[0].split()), (paper, text)


# ---------------------------------------------------------------- the record


def test_every_experiment_is_recorded():
    assert list(RECORD) == list(NAMES)
    assert {name for paper in PAPERS.values() for name in paper.experiments} == set(NAMES)
    assert all(e.seconds >= 0 and e.runs > 0 and e.tables for e in RECORD.values())


def test_verdicts_provenances_and_power_are_consistent():
    judged = [line for line in LINES if kind_of(line["verdict"]) in KINDS]
    assert len(judged) > 200
    for line in LINES:
        assert kind_of(line["verdict"]) in (*KINDS, "derived", "not judged", "not published")
        assert bool(line["published"]) == bool(line["provenance"]) == (line["verdict"] != "not published")
        assert line["provenance"] in ("", *PROVENANCES)
        assert np.isfinite(float(line["ours"]))
    for line in judged:
        assert 0 <= float(line["p"]) <= 1
        if line["verdict"] == "matches":  # the comparison could have found a difference
            assert float(line["detectable"]) <= POWER or line["p"] == "1"


def test_a_note_that_a_verdict_names_exists():
    for e in RECORD.values():
        for line in (line for lines in e.tables.values() for line in lines):
            for number in re.findall(r"note (\d+)", line["verdict"]):
                assert number in e.notes, (e.name, number)


def test_shares_that_follow_from_means_are_derived():
    groups = RECORD["dual-tables"].tables["dual-groups"]
    assert groups
    assert all(kind_of(line["verdict"]) in ("derived", "not published") for line in groups)


def test_every_point_of_the_pictures_is_compared_once():
    read = triebe.readings()
    judged = [line for name in PAPERS["triebe"].experiments for line in RECORD[name].judged]
    keys = [
        (line["figure"], next(line[x] for x in ("C", "E", "beta") if x in line), line["score"])
        for line in judged
    ]
    assert Counter(keys) == Counter(read.keys())
    assert {line["provenance"] for line in judged} == {"read from a picture"}
    assert {line["alpha"] for line in judged} == {"decay", "none"}


def test_the_decaying_rate_is_nearer_to_the_pictures_than_momentum():
    """Why ``MiniBatch.as_published`` decays."""
    squares: dict[str, list[float]] = {"decay": [], "momentum": []}
    for name in ("triebe-fraction", "triebe-epochs", "triebe-rate"):
        for line in RECORD[name].tables[name.removeprefix("triebe-")]:
            if line["score"] == "distance" and line["alpha"] in squares and line["published"]:
                squares[line["alpha"]].append((float(line["ours"]) - float(line["published"])) ** 2)
    assert len(squares["decay"]) == len(squares["momentum"]) == 25 + 12 + 14
    decay, momentum = (np.array(squares[alpha]) for alpha in ("decay", "momentum"))
    assert decay.mean() < 0.8 * momentum.mean()
    by_figure = (slice(0, 25), slice(25, 37), slice(37, 51))  # 1 to 3, 4, 5
    assert [bool(decay[at].mean() < momentum[at].mean()) for at in by_figure] == [True, False, True]


def test_every_stored_mean_of_the_grid_is_read():
    stored = garst.stored()
    assert len(stored) == 3 * 3 * 6 * 3
    assert stored["FKM", 0.1, 50, 1.0].value == 0.9492
    assert stored["k-FED", 10.0, 200, 1.5].runs == 200
    assert stored["central", 0.1, 100, 1.2] == stored["central", 10.0, 100, 1.2]


def test_every_set_of_the_grid_is_compared_for_every_method():
    compared = {
        (
            line["method"].split(",")[0],
            float(line["beta"]),
            int(line["rows of a cluster"]),
            float(line["noise"]),
        )
        for name in ("fig3", "fig6")
        for line in RECORD[f"garst-{name}"].tables[name]
        if line["published"]
    }
    assert compared == set(garst.stored())
    assert len({what[1:] for what in compared}) == 54


def test_the_published_numbers_of_holzer_are_those_of_the_record():
    for set_, name in (
        ("synthetic", "holzer-synthetic"),
        ("MNIST", "holzer-mnist"),
        ("FEMNIST", "holzer-femnist"),
    ):
        for line in RECORD[name].tables["table1"]:
            if line["of runs"] == "mean" and line["published"]:
                column = ("k-means", "EWF", "DWF", "k-FED").index(line["method"])
                assert float(line["published"]) == SCORE[set_][line["split"]][column][0]


def test_deviations_stand_beside_ours():
    lines = [line for line in RECORD["holzer-synthetic"].tables["table1"] if line["of runs"] == "mean"]
    assert all(line["ours_sd"] for line in lines if line["published_sd"])


def test_the_dual_as_published_is_what_is_judged():
    e = RECORD["dual-tables"]
    assert {line["method"] for line in e.judged} <= set(yfantis.PUBLISHED_METHODS)
    bounds = {
        (line["method"], line["problems"]): float(line["ours"])
        for line in e.tables["dual-table3"]
        if line["score"] == "lower bound / optimum, highest"
    }
    assert len(bounds) >= 4 * 18 + 3 * 17
    above = {what for what, bound in bounds.items() if bound > 1 + 1e-9}
    # the paper's constraint (36) excludes the optimum of 4N2D3K2: see test_constraint_36_excludes_an_optimum
    assert above == {(method, "4N2D3K") for method in yfantis.PUBLISHED_METHODS}


def ours(experiment, table):
    """Our recorded numbers of a table, by the cells that identify a row."""
    return {
        tuple(cell for head, cell in line.items() if head not in NUMBER_COLUMNS): float(line["ours"])
        for line in RECORD[experiment].tables[table]
    }


def test_what_the_page_of_garst_states_in_short():
    for name in ("fig3", "fig6"):
        found = ours(f"garst-{name}", name)
        kfed = [what for what in found if what[3:] == ("k-FED, k' = 16", "by site, authors' weights")]
        assert len(kfed) == {"fig3": 18, "fig6": 36}[name]
        for *at, _, _ in kfed:
            pooled = found[*at, "central, n_init 10", "all rows"]
            assert 0.95 <= round(found[*at, "FKM", "by site"] / pooled, 2) <= 1.01
            assert (
                0.60 <= round(found[*at, "k-FED, k' = 16", "by site, authors' weights"] / pooled, 2) <= 0.91
            )
    fig1 = ours("garst-fig1", "fig1")
    informed = {what[0]: ari for what, ari in fig1.items() if what[3].startswith("k-FED, informed")}
    assert sorted(f"{ari:.2f}" for ari in informed.values()) == ["0.87", "0.89", "0.90"]
    for beta, ari in informed.items():
        assert (
            fig1[beta, "1", "50", "k-FED, k' = 16", "by site"] < ari < fig1[beta, "1", "50", "FKM", "by site"]
        )
    fig4 = RECORD["garst-fig4"].tables["fig4"]
    sd = {line["method"]: float(line["ours_sd"]) for line in fig4 if line["ARI"] == "by site"}
    assert sd["unpooled"] < sd["FKM, our default"] < sd["FKM, means only"] < sd["FKM"]


def test_what_the_page_of_holzer_states_in_short():
    for name, splits in (("synthetic", 3), ("mnist", 3), ("femnist", 2)):
        found = {
            what[:2]: score for what, score in ours(f"holzer-{name}", "table1").items() if what[2] == "mean"
        }
        assert len({split for split, _ in found}) == splits
        for split, method in found:
            assert found[split, "DWF"] < 1.01 * found[split, "k-means"]
            if method in ("k-means", "EWF", "DWF", "k-FED"):
                assert round(found[split, method], 4) >= round(found[split, "k-means, n_init 10"], 4)
        if name != "femnist":
            above = found["non-IID", "EWF"] / found["non-IID", "DWF"] - 1
            assert f"{100 * above:.0f}" == {"synthetic": "4", "mnist": "12"}[name]


def test_what_the_page_of_triebe_states_in_short():
    found = ours("triebe-fraction", "fraction")
    numbers = (
        found["1", "E = 1, beta = 1", "0.1", "distance", "decay"],
        found["1", "central", "central", "distance", "none"],
        found["none", "central, n_init 10", "central", "distance", "none"],
    )
    assert [f"{number:.3f}" for number in numbers] == ["0.161", "0.202", "0.157"]


def test_what_the_page_of_stallmann_states_in_short():
    found = ours("stallmann-cases", "cases")
    cases = {case for case, _, score in found if score == "gap"} - {
        "case 1"
    }  # the paper has no gap of case 1
    assert len(cases) == 5
    for case in cases:
        central, avg1, avg2 = (found[case, method, "gap"] for method in ("central", "avg1", "avg2"))
        assert avg2 < central + 0.01
        assert avg1 > 2 * central


def test_what_the_page_of_yfantis_states_in_short():
    kinds = {}
    for line in RECORD["dual-tables"].tables["dual-table3"]:
        if line["score"] == "iterations" and line["published"]:
            kinds.setdefault(line["method"], {})[line["problems"]] = line
    common = set.intersection(*map(set, kinds.values()))
    assert len(common) >= 11
    for column in ("ours", "published"):
        sg, btm, qnda = (
            sum(float(kinds[m][kind][column]) for kind in common) for m in yfantis.PUBLISHED_METHODS
        )
        assert btm < sg / 2
        assert qnda < sg / 2
    assert f"{ours('dual-tables', 'dual-table2')['bundle (ours)', 'iterations']:.0f}" == "6"


def test_what_the_page_of_garst_states_about_figure_5():
    lines = RECORD["garst-fig5"].tables["fig5"]
    names = ("silhouette", "simplified silhouette")
    stored = [
        [float(line["published"]) for line in lines if line["score"] == n and line["published"]]
        for n in names
    ]
    assert {len(values) for values in stored} == {4}
    assert f"{np.corrcoef(stored)[0, 1]:.2f}" == "0.94"
    assert {kind_of(line["verdict"]) for line in lines if line["published"]} == {"matches"}
    found = ours("garst-fig5", "fig5")
    assert f"{found['all methods', 'correlation of the two scores']:.2f}" == "0.98"
    assert found["k-FED, informed: k' = 15", "silhouette"] > found["k-FED, k' = 21", "silhouette"]


def test_what_the_page_of_garst_states_about_real_data():
    found = ours("garst-real", "real")
    for name, percent_above in (("penguins", "26"), ("heart disease", "0.38")):
        pooled = found[name, "central, n_init 10", "score"]
        for method in ("FKM, means only", "FKM, our default", "unpooled"):
            assert found[name, method, "score"] < 1.01 * pooled
        assert f"{100 * (found[name, 'k-FED', 'score'] / pooled - 1):.2g}" == percent_above


def test_what_the_page_of_holzer_states_about_rounded_weights():
    found = ours("holzer-rounding", "rounding")
    for split in ("IID", "half-IID", "non-IID"):
        exact = found[split, "exact", "score"]
        for decimals in (1, 2):
            assert found[split, f"{decimals} decimals", "score"] == pytest.approx(exact, rel=1e-4)
    above = found["half-IID", "0 decimals", "score"] / found["half-IID", "exact", "score"] - 1
    assert f"{100 * above:.1f}" == "0.7"


def test_what_the_page_of_holzer_states_about_participation():
    """The claims on figures 5 and 6, on the authors' newer stored runs."""
    lines = read_csv(Path(recorded.__file__).with_name("holzer_stored.csv"))
    stored = {
        (line["set"], line["split"], line["method"], int(line["clients"])): float(line["mean"])
        for line in lines
    }
    clients = range(5, 101, 5)
    assert len(stored) == len(lines) == 3 * 3 * 3 * len(clients)

    def curve(set_, split, method):
        return np.array([stored[set_, split, method, n] for n in clients])

    for split in ("IID", "half-IID", "non-IID"):
        ewf, dwf, kfed = (curve("FEMNIST", split, method) for method in ("EWF", "DWF", "k-FED"))
        assert max(ewf.max() / ewf.min(), dwf.max() / dwf.min()) < 1.007
        assert ((dwf < ewf) & (ewf < kfed)).all()
    ewf, dwf, kfed = (curve("MNIST", "non-IID", method) for method in ("EWF", "DWF", "k-FED"))
    assert [n for n, below in zip(clients, kfed < ewf, strict=True) if below] == list(range(20, 101, 5))
    assert [n for n, below in zip(clients, kfed < dwf, strict=True) if below] == [95, 100]
    assert f"{100 * (ewf / dwf - 1)[0]:.0f}" == "6"
    assert (ewf / dwf)[1:].min() > ewf[0] / dwf[0]


def test_what_the_page_of_stallmann_states_about_claims_and_real_data():
    claims = ours("stallmann-claims", "claims")
    rules = [claims["case 2", f"central, until {rule}", "gap"] for rule in stallmann_more.RULES]
    assert rules[0] == pytest.approx(rules[1], abs=0.01)
    for case in stallmann_more.COST_CASES:
        assert claims[case, "avg2 / avg1", "CPU seconds of a run"] < 1
    real = ours("stallmann-real", "real")
    for name in ("penguins", "heart disease"):
        pooled, avg1, avg2 = (real[name, m, "within SSE, all rows"] for m in ("central", "avg1", "avg2"))
        assert avg1 > 1.02 * pooled
        assert avg2 == pytest.approx(pooled, rel=0.02)


def test_what_the_page_of_stallmann_states_about_figure_4():
    found = ours("stallmann-g2", "figure4")
    gaps = {sd: found["4 a", str(sd), "central", "normalised gap"] for sd in range(10, 101, 10)}
    assert [f"{gaps[sd]:.0f}" for sd in (50, 60, 70, 100)] == ["8", "14", "24", "79"]
    assert sorted(gaps, key=lambda sd: gaps[sd]) == sorted(gaps)
    for method in stallmann_more.METHODS:
        outside = [found["4 b", str(2**i), method, "outside SSE"] for i in range(1, 11)]
        halved = np.array(outside[2:]) / outside[:-2]  # four times as many columns
        assert ((halved > 0.45) & (halved < 0.55)).all()


def test_btm_oscillates_in_figure_6_and_qnda_does_not():
    found = ours("dual-tables", "dual-fig6")
    assert {m: found[m, "rounds in which the gap rises"] for m in yfantis.PUBLISHED_METHODS} == {
        "SG": 0,
        "BTM": 1,
        "QNDA": 0,
    }
    assert f"{found['QNDA', 'gap in % after round 150']:.2f}" == "0.12"


def test_the_pooled_exact_solver_is_faster_than_qnda():
    """Figure 8 and section 5: the reverse of the paper's finding with Gurobi."""
    points = ours("dual-tables", "dual-fig8")
    assert f"{points['QNDA', 'gap in %, last point']:.2f}" == "0.13"
    assert points[yfantis.POOLED, "gap in %, last point"] < 1e-6
    last = "CPU seconds, last point"
    assert points[yfantis.POOLED, last] < points["QNDA", last] / 10
    seconds = ours("dual-tables", "dual-section5")
    kinds = [kind for method, kind, _ in seconds if method == "QNDA"]
    assert len(kinds) >= 13
    for kind in kinds:
        assert seconds[yfantis.POOLED, kind, "CPU seconds"] < seconds["QNDA", kind, "CPU seconds"]


# ---------------------------------------------------------------- pages


def test_the_pages_equal_their_generator():
    for path, text in recorded.pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path}: run python -m reproduction pages"


def test_the_summary_is_short():
    assert len((recorded.DOCS / "results.md").read_text(encoding="utf-8").split()) <= 1500


def test_the_summary_counts_the_items(tmp_path):
    table = recorded.items_table(ITEMS)
    last = [cell.strip() for cell in table.splitlines()[-1].strip("|").split("|")]
    counts = Counter(item["verdict"] for item in ITEMS)
    assert last == ["all", "162", *(str(counts[verdict]) for verdict in ITEM_VERDICTS)]
    assert table in (recorded.DOCS / "results.md").read_text(encoding="utf-8")


def test_holms_method_on_recorded_p_values():
    def lines(*judged):
        return [{"p": str(p), "verdict": verdict} for p, verdict in judged]

    judged = [(0.0001, "differs, open"), (0.012, "differs, note 1"), (0.04, "differs, open")]
    more = [(0.6, "matches"), (0.9, "inconclusive")]
    assert len(surviving(lines(*judged, *more))) == 2  # 0.05 / 4, 0.05 / 3, 0.05 / 2
    assert len(surviving(lines(*judged, *[(0.6, "matches")] * 9))) == 1
    assert len(surviving(lines(*judged))) == 3


# ---------------------------------------------------------------- a part of an experiment anew


def test_some_rows_anew_and_the_others_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(triebe, "EPOCHS", (1, 2))
    experiment = find("triebe-epochs")

    def done(of, runs):
        (finished,) = finish([of], Sources(), tmp_path / f"store-{runs}", quick=True, runs=runs)
        return finished

    record(done(experiment, 2), tmp_path / "record")
    path = tmp_path / "record" / "triebe-epochs" / "epochs.csv"
    before = list(csv.reader(path.read_text().splitlines()))
    record(done(only_some(experiment, ("method=unpooled",)), 5), tmp_path / "record")
    after = list(csv.reader(path.read_text().splitlines()))
    changed = {b[1] for a, b in zip(before, after, strict=True) if a != b}
    assert changed == {"unpooled"}
    (e,) = recorded.recorded(tmp_path / "record")
    assert e.runs == 2  # those of the whole experiment
    assert [line["runs"] for line in e.tables["epochs"] if line["settings"] == "unpooled"] == ["5", "5"]


def test_a_part_of_an_experiment_keeps_rows_and_notes_and_adds_its_seconds(tmp_path):
    def done(rows, note, seconds):
        table = ResultTable("t", "title", ("what",), tuple(row((name,), np.array(v)) for name, v in rows))
        presented = Presentation((table,), (), (note,))
        return FinishedExperiment(find("holzer-fig1"), presented, 4, seconds, "data generated")

    def recorded_now():
        (e,) = recorded.recorded(tmp_path)
        return {line["what"]: line["ours"] for line in e.tables["t"]}, e.notes["1"], e.seconds, e.missing

    unknown = [np.nan]
    record(done([("a", [1.0]), ("b", unknown), ("group", [3.0])], "first", 10.0), tmp_path)
    assert recorded_now() == ({"a": "1", "group": "3"}, "first", 10, 1)
    record(done([("a", unknown), ("b", [2.0])], "the mean is nan", 5.0), tmp_path)
    assert recorded_now() == ({"a": "1", "b": "2", "group": "3"}, "first", 15, 0)
    record(done([("a", unknown), ("b", [2.5])], "second", 5.0), tmp_path)  # the same row again
    assert recorded_now() == ({"a": "1", "b": "2.5", "group": "3"}, "second", 15, 0)
    record(done([("a", [1.5]), ("b", [2.5])], "third", 7.0), tmp_path)  # the whole experiment
    assert recorded_now() == ({"a": "1.5", "b": "2.5"}, "third", 7, 0)


def test_a_figure_without_any_point_is_left_out(tmp_path):
    """A part of an experiment may have no point of a figure."""
    drawn = Plot(
        "drawn", "Figure 1", plots.lines("", [plots.Line("a", [0, 1], np.array([1.0, 2.0]))], "x", "y")
    )
    empty = Plot(
        "empty", "Figure 2", plots.lines("", [plots.Line("a", [0, 1], np.full(2, np.nan))], "x", "y")
    )
    presented = Presentation((), (drawn, empty), ())
    path = write(FinishedExperiment(find("holzer-fig1"), presented, 1, 0.0, "data generated"), tmp_path)
    assert {file.name for file in path.parent.iterdir()} == {"drawn.svg", path.name}
    assert "empty.svg" not in path.read_text(encoding="utf-8")


def test_recording_an_empty_store_keeps_all_rows_and_counts_those_that_were_never_run(tmp_path):
    e = find("holzer-fig1")
    first = only_some(e, ("weights=EWF",))
    (done,) = finish([first], Sources(), tmp_path / "store", runs=2)
    record(done, tmp_path / "record")
    before, *_ = recorded.recorded(tmp_path / "record")
    nothing = only_stored(e, Store(tmp_path / "empty"), Sources(), runs=2)
    (done,) = finish([nothing], Sources(), tmp_path / "empty", runs=2)
    record(done, tmp_path / "record")
    after, *_ = recorded.recorded(tmp_path / "record")
    assert after == before
    assert (len(after.tables["fig1"]), after.missing) == (4, 4)


def test_a_page_without_its_markers_is_an_error(tmp_path):
    (tmp_path / "papers").mkdir()
    for paper in PAPERS:
        (tmp_path / "papers" / f"{paper}.md").write_text("# A paper\n")
    with pytest.raises(InputError, match="has no lines '<!-- results -->'"):
        recorded.pages(docs=tmp_path)
