"""docs/results.md and docs/leakage.md equal the output of their generators: nothing in them is typed."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from benchmarks import leakage, results
from benchmarks.kept_results import Section, counted, merged, only_some, sections, still_differing
from reproduction.catalogue import find
from reproduction.data_sources import Sources
from reproduction.output import markdown
from reproduction.runner import finish

from unpooled.algorithms.seeding import Spread, _draw_of
from unpooled.errors import InputError

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "results.md").read_text(encoding="utf-8")


def test_the_head_of_the_page_counts_its_tables():
    parts = sections(PAGE)
    assert list(parts) == list(results.PLAN)
    assert results.page(list(parts.values()), []) == PAGE
    verdicts = [pair for part in parts.values() for pair in part.verdicts]
    assert counted(verdicts).judged > 150
    changed = PAGE.replace(" differs, open |", "       matches |", 1)
    assert changed != PAGE
    assert results.page(list(sections(changed).values()), []) != changed


def test_no_number_of_the_page_is_missing():
    assert "nan" not in PAGE.split()
    for part in sections(PAGE).values():
        assert all(len(line) == len(head) for head, *lines in part.tables.values() for line in lines)


def test_the_page_has_both_weights_of_garsts_k_fed():
    """All six published numbers match by the authors' weights; by each set's own the first is far off."""
    of = {name: sections(PAGE)[name].tables for name in ("garst-fig1", "garst-fig3")}
    head, *lines = next(iter(of["garst-fig1"].values()))
    lines += next(iter(of["garst-fig3"].values()))[1:]
    rows = [dict(zip(head, line, strict=True)) for line in lines]
    kfed = [r for r in rows if r["method"] == "k-FED, k' = 16"]
    by_last = [
        r for r in kfed if r["ARI"] == "by site, authors' weights" and "not judged" not in r["verdict"]
    ]
    assert [r["verdict"] for r in by_last] == ["matches"] * 6
    own = {(r["beta"], r["noise"]): float(r["ours"].split()[0]) for r in kfed if r["ARI"] == "by site"}
    assert set(own) == {(r["beta"], r["noise"]) for r in by_last}
    assert own["0.1", "1"] < 0.67 < 0.690


def test_holms_method_on_printed_p_values():
    judged = [(0.0001, "differs, open"), (0.012, "differs, note 1"), (0.04, "differs, open")]
    more = [(1.0, "matches"), (0.9, "inconclusive")]
    assert still_differing([*judged, *more]) == 2  # 0.05 / 4, 0.05 / 3, 0.05 / 2
    assert still_differing([*judged, *[(1.0, "matches")] * 9]) == 1
    assert still_differing(judged) == 3


def test_some_rows_anew_and_the_others_kept(tmp_path):
    experiment = find("triebe-rate")

    def section(of, folder):
        (done,) = finish([of], Sources(), tmp_path / folder, quick=True, runs=2)
        return Section(markdown(done, 2, short=True))

    whole = section(experiment, "whole")
    some = section(only_some(experiment, ("method=unpooled",)), "some")
    assert "nan" in some.text
    assert merged(some, whole).text.split("CPU seconds")[1] == whole.text.split("CPU seconds")[1]
    # an old row of a method that is computed anew is not kept, and one of another is
    lines = [
        re.sub(r"0\.\d{4}", {"unpooled": "9.9999", "central": "8.8888"}[line.split()[1]], line)
        if re.match(r"\| (unpooled|central) ", line)
        else line
        for line in whole.text.splitlines()
    ]
    text = merged(some, Section("\n".join(lines) + "\n")).text
    assert "9.9999" not in text
    assert "8.8888" in text
    with pytest.raises(InputError, match=r"the page has no row central, -, distance\. Run this method too\."):
        merged(some, Section(whole.text.replace("| central  ", "| pooled   ")))


def test_a_start_on_a_sample_could_change_rows_of_femnist_only():
    """Of very many rows a start uses a sample; of the papers' sets only FEMNIST has as many."""
    sets = {  # rows, columns, k
        "garst": (800, 2, 16),
        "garst, FEMNIST of ten": (1700, 784, 60),
        "holzer, synthetic": (10_100, 2, 5),
        "holzer, MNIST": (10_000, 784, 20),
        "holzer, FEMNIST": (17_000, 784, 64),
        "triebe": (500, 1, 5),
        "compare": (10_100, 8, 50),
    }
    drawn = {
        name
        for name, (n, d, k) in sets.items()
        if _draw_of(Spread(n, np.zeros(d), np.ones(d)), k, 1, np.random.default_rng(0)) is not None
    }
    assert drawn == {"holzer, FEMNIST"}


# ---------------------------------------------------------------- rows reconstructed


def stored():
    with (DOCS / "leakage.csv").open(encoding="utf-8", newline="") as file:
        found: dict[tuple[str, str, str], leakage.Cell] = {}
        for line in csv.DictReader(file):
            key = line["set"], line["method"], line["protection"]
            cell = found.get(key, leakage.Cell(*key, not_run=line["not_run"]))
            if line["reconstructed"]:
                messages, read = (int(line[f"{name}_of_all_seeds"]) for name in ("messages", "read"))
                numbers = {"messages": messages, "examined": read}
                cell = replace(
                    cell, reconstructed=(*cell.reconstructed, int(line["reconstructed"])), **numbers
                )
            found[key] = cell
        return list(found.values())


def test_the_page_of_reconstructed_rows_equals_its_table():
    cells = stored()
    assert leakage.page(cells, leakage.problems()) == (DOCS / "leakage.md").read_text(encoding="utf-8")
    assert {len(c.reconstructed) for c in cells if not c.not_run and "(" not in c.method} == {leakage.SEEDS}
    assert all(
        max(c.reconstructed) == 0 for c in cells if c.protection in ("summary", "dp") and c.reconstructed
    )
    assert {c.method for c in cells} > set(leakage.methods_and_presets())
    assert len(cells) == sum(4 * (len(leakage.methods_of(name)) + 1) for name in leakage.SETS)


def test_runs_give_the_rows_of_the_table():
    (penguins,) = leakage.problems(["penguins"])
    known = {(c.method, c.protection): c for c in stored() if c.set == "penguins"}
    for method, protection in (("lloyd", "none"), ("k-fed", "raw"), ("fuzzy:published", "summary")):
        again = leakage.cell(penguins, method, protection, range(leakage.SEEDS))
        assert again == known[method, protection]
