"""The verdict on tables with and without clusters: few of each kind here, all of them under ``long``.

``python -m benchmarks.choice_of_k`` prints the rates over many tables.
"""

import numpy as np
import pytest
from benchmarks import choice_of_k, clinic_tables, made_tables
from benchmarks.choice_of_k import chosen, claims, main, tables_of
from benchmarks.made_tables import SEPARATED, WITHOUT, made

from helpers import bits
from unpooled.algorithms import Lloyd
from unpooled.data import PreparationOptions
from unpooled.evaluation import Analysis
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run
from unpooled.site import Site

QUICK = ("six yes or no", "mixed", "counts with zeros", "nine yes or no, a factor")


@pytest.mark.parametrize("summary", [False, True], ids=["rows", "summary"])
@pytest.mark.parametrize("kind", QUICK)
def test_columns_of_few_values_alone_are_not_clusters(kind, summary):
    choice = chosen(tables_of(made(kind, 300, 0)), summary=summary, ks=range(2, 7))
    assert (choice.verdict, choice.k) == ("none", 1), choice.reasons


@pytest.mark.parametrize("summary", [False, True], ids=["rows", "summary"])
@pytest.mark.parametrize("kind", ["3 balls", "six categories"])
def test_separate_clusters_are_found_and_reproduced(kind, summary):
    table = made(kind, 300, 0)
    choice = chosen(tables_of(table), summary=summary, ks=range(2, 7))
    assert (choice.verdict, choice.k) == ("clear", table.k), choice.reasons
    assert choice.judgement.passes


@pytest.mark.parametrize("summary", [False, True], ids=["rows", "summary"])
def test_clusters_crossed_with_a_yes_or_no_are_counted_once(summary):
    choice = chosen(tables_of(made("unequal sites", 300, 100)), summary=summary, ks=range(2, 7))
    assert (choice.k, choice.verdict) == (3, "clear"), choice.reasons
    assert any("differ in one column alone" in j.fault for j in choice.judgements)


def test_the_range_of_k_changes_neither_a_judgement_nor_the_answer():
    tables = tables_of(made("3 balls", 300, 1))
    choices = [chosen(tables, ks=range(2, last)) for last in (5, 7, 9)]
    assert [c.k for c in choices] == [3, 3, 3]
    for k in (2, 3, 4):
        judgements = [next(j for j in c.judgements if j.k == k) for c in choices]
        assert len({j.passes for j in judgements}) == 1
        assert np.ptp([j.expected for j in judgements]) < 1e-9 or np.isnan(judgements[0].expected)


def test_simulated_sites_and_sites_that_answer_for_themselves_give_the_same_bits():
    tables = tables_of(made("numbers and yes or no", 300, 1))
    analysis = Analysis(PreparationOptions(), tuple(Lloyd(k=k) for k in (2, 3)))
    sites = [Site(name, table) for name, table in tables.items()]
    one, other = (run(analysis, there, seed=3).state.choice
                  for there in (Simulation.from_rows(tables), LocalFederation(sites)))  # fmt: skip
    assert bits(one) == bits(other)
    assert np.isfinite(one.judgements[1].expected)  # references were made


def test_every_k_that_fails_has_its_own_reason():
    choice = chosen(tables_of(made("mixed", 300, 0)), ks=range(2, 11))
    assert choice.verdict == "none"
    for judgement in choice.judgements[1:]:
        assert judgement.fault
        assert any(judgement.fault in reason for reason in choice.doubts)


def test_a_single_row_far_away_is_named_and_is_not_a_cluster():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((300, 4))
    X[7] = 40.0
    table = made("6 normals", 300, 0)._replace(columns={f"x{j}": X[:, j] for j in range(4)})
    choice = chosen(tables_of(table), ks=range(2, 5))
    assert choice.verdict == "none"
    assert any("fewer than 10 rows" in reason for reason in choice.doubts)


def test_a_few_groups_of_a_summary_table_are_not_a_cluster():
    choice = chosen(tables_of(made("twelve yes or no", 300, 4000)), summary=True, ks=range(2, 7))
    assert (choice.k, choice.verdict) == (3, "clear"), choice.reasons
    faults = {j.k: j.fault for j in choice.judgements}
    assert faults[4] == faults[5] == "a cluster has fewer than 5 groups of the summary tables"


@pytest.mark.parametrize(
    ("author", "kind", "n"),
    [(clinic_tables, "clusters, missing cells", 300), (made_tables, "eight yes or no, 15% turned", 900)],
    ids=["few groups", "answers that groups blur"],
)
def test_clusters_that_few_blurred_groups_show_are_found(author, kind, n):
    table = author.made(kind, n, 6000)
    choice = chosen(tables_of(table), summary=True, ks=range(2, 7))
    assert choice.k == table.k, choice.reasons


def test_the_benchmark_goes_on_after_a_kill_and_passes_over_answers_of_another_rule(
    tmp_path, monkeypatch, capsys
):
    file = tmp_path / "answers.jsonl"
    words = ["choice_of_k", "--tables", "1", "--sets", "1", "--author", "few", "--results", str(file)]

    class Few:
        WITHOUT, CLUSTERED, made = ("6 normals",), ("3 balls",), staticmethod(made)

    monkeypatch.setattr(choice_of_k, "AUTHORS", {"few": Few})
    monkeypatch.setattr(choice_of_k, "SIZES", (60,))
    monkeypatch.setattr(choice_of_k, "pooled", lambda X: (3, 3, 3, 2, 3))
    monkeypatch.setattr("sys.argv", words)
    main()
    printed, whole = capsys.readouterr().out, file.read_bytes()
    assert whole.count(b"\n") == 2 + 3  # rows and summary tables, and the pooled criteria of the second
    file.write_bytes(whole[: whole.index(b"\n", len(whole) // 2) + 20])  # killed while it wrote
    main()
    assert (capsys.readouterr().out, file.read_bytes()) == (printed, whole)
    monkeypatch.setattr(choice_of_k, "answer", lambda *_: pytest.fail("computed again"))
    main()
    file.write_bytes(whole.replace(b'"rule": "', b'"rule": "0'))
    monkeypatch.setattr("sys.argv", [*words, "--print"])
    main()
    assert "right of 0" in capsys.readouterr().out


def test_too_few_rows_are_not_judged():
    choice = chosen(tables_of(made("3 balls", 18, 0)), ks=range(2, 4))
    assert (choice.verdict, choice.none) == ("not judged", False)
    assert "too few rows" in choice.doubts[0]


@pytest.mark.long
@pytest.mark.parametrize("summary", [False, True], ids=["rows", "summary"])
def test_clusters_are_rarely_claimed_without_any(summary):
    found = [chosen(tables_of(made(kind, n, seed)), summary=summary)
             for kind in WITHOUT for n in (300, 900) for seed in range(200, 204)]  # fmt: skip
    assert sum(map(claims, found)) <= 0.05 * len(found)
    assert sum(choice.clear for choice in found) <= 0.01 * len(found) + 1


@pytest.mark.long
def test_separate_clusters_are_reproduced_at_the_true_k():
    passed = []
    for kind in SEPARATED:
        for seed in range(200, 204):
            table = made(kind, 900, seed)
            judgements = chosen(tables_of(table)).judgements
            passed.append(next(j for j in judgements if j.k == table.k).passes)
    assert np.mean(passed) >= 0.97
