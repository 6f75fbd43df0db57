"""docs/leakage.md equals the output of its generator: nothing in it is typed."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
from benchmarks import leakage

from unpooled.algorithms.seeding import Spread, _draw_of

DOCS = Path(__file__).parents[2] / "docs"


def test_a_start_on_a_sample_could_change_rows_of_femnist_only():
    """Of very many rows a start uses a sample; of the papers' sets only FEMNIST has as many."""
    sets = {  # rows, columns, k
        "garst": (800, 2, 16),
        "garst, FEMNIST of ten": (1210, 784, 60),
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
    assert len(cells) == sum(5 * len(leakage.methods_of(name)) + 4 for name in leakage.SETS)


def test_runs_give_the_rows_of_the_table():
    (penguins,) = leakage.problems(["penguins"])
    known = {(c.method, c.protection): c for c in stored() if c.set == "penguins"}
    for method, protection in (("lloyd", "none"), ("k-fed", "raw"), ("fuzzy:published", "summary")):
        again = leakage.cell(penguins, method, protection, range(leakage.SEEDS))
        assert again == known[method, protection]
    again = leakage.secure_cell(penguins, "lloyd", range(leakage.SEEDS))
    assert again == known["lloyd", leakage.SECURE]


def test_sums_over_raw_rows_of_an_ordinary_run_determine_most_rows():
    """What secure sums open without an equation budget; the coordinator reads no single answer."""
    for cell in stored():
        if (cell.method, cell.protection) == ("lloyd", leakage.SECURE):
            assert min(cell.reconstructed) > 100
    (penguins,) = leakage.problems(["penguins"])
    for line in leakage.arrivals(penguins)[1:]:
        _, plain, secure, masked = line
        assert int(plain) > 0 == int(secure) < int(masked)
