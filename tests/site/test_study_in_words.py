"""A study in words, as ``unpooled site review`` puts it in a process that has asked nothing yet."""

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from question_samples import QUESTIONS
from studies import study_of
from unpooled.algorithms import METHODS
from unpooled.app.cli import app
from unpooled.optimality.bounds import AskPartsBound
from unpooled.protocol.declarations import Work, declared
from unpooled.protocol.messages import Question, Reply, asks_for
from unpooled.site.study import allowed_queries
from unpooled.site.study_store import StudyFolder

_SHOW = "from unpooled.app.cli import app; app()"


def test_all_that_a_study_may_ask_is_known_in_a_process_of_its_own(tmp_path):
    study = study_of()
    StudyFolder(tmp_path).receive("a", study, "")
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, "site", "review", "--text", str(tmp_path)],
        capture_output=True,
        text=True,
        env={"COLUMNS": "400", "PATH": ""},
        check=True,
    )
    for name, _ in study.questions:
        assert name in done.stdout
    assert "does not know" not in done.stdout


def limits(study):
    return {query.name: query.limit for query in allowed_queries(study)}


def test_a_number_of_centres_is_reported_of_questions_about_centres_only():
    printed = limits(study_of(ks=(2,)))
    assert {name for name, limit in printed.items() if limit == ""} == {
        "AskColumns",
        "AskSchema",
        "AskCovariance",
        "AskHalfCovariance",
        "AskObservedMoments",
        "AskMoments",
    }
    assert printed["AskProfile"] == "at most 2 centres"
    assert printed["AskClusterSums"] == "at most 500 centres"
    assert limits(study_of(ks=(2,), method="k-fed"))["AskDennisMeans"].startswith("at most 2 centres, ")


def test_the_queries_are_in_the_order_of_a_run_and_in_words():
    queries = allowed_queries(study_of())
    assert [query.stage for query in queries] == sorted(
        (query.stage for query in queries), key=["to prepare", "to cluster", "for the report"].index
    )
    stages = {query.name: query.stage for query in queries}
    assert (stages["AskSchema"], stages["AskClusterSums"]) == ("to prepare", "to cluster")
    assert stages["AskProfile"] == "for the report"
    words = {query.name: query.asks_for for query in queries}
    assert words["AskProfile"] == "for each cluster: its size, and the mean and spread of every column"


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda kind: kind.__name__)
def test_every_question_says_in_plain_words_what_it_asks_for(kind):
    assert 0 < len(kind.asks_for) <= 140
    assert re.fullmatch(r"[a-z][a-z ,:;()'-]+", kind.asks_for)  # no symbol, name of code or acronym
    assert asks_for(kind.__name__) == kind.asks_for


def test_a_question_of_another_author_is_shown_by_the_first_line_of_its_docstring():
    class AskMedians(Question[Reply], prefix="hospital"):
        """The ``median`` of every column.

        More."""

    assert asks_for("hospital.AskMedians") == "The median of every column."


def test_a_question_of_somebody_elses_method_is_reported_as_unknown_with_its_limit():
    study = study_of(questions=(("elsewhere.AskAnything", 7),), work=(("elsewhere.AskAnything", "laps", 4),))
    assert allowed_queries(study) == [
        (
            "to cluster",
            "a query that this site does not know",
            "elsewhere.AskAnything",
            "at most 7 centres, 4 laps",
        )
    ]


@pytest.mark.parametrize(
    ("method", "name", "work"),
    [
        ("lloyd", "AskClusterSums", ""),
        ("lloyd", "AskPartsBound", "30 billions of steps"),
        ("mini-batch", "AskEpochs", "1 epochs"),
        ("dwf", "AskLocalMoves", "1 steps"),
        ("fkm", "AskLocalMeans", "1 restarts, 1 steps"),
        ("k-fed", "AskLocalMeans", "5 restarts, 300 steps"),
        ("fuzzy", "AskFuzzyMeans", "1 steps"),
        ("dual", "AskNode", "200,000 nodes"),
    ],
)
def test_an_officer_reads_how_much_work_a_study_may_ask_of_the_site(method, name, work, tmp_path):
    study = study_of(method=method)
    assert limits(study)[name].endswith(work)
    StudyFolder(tmp_path).receive("a", study, "")
    printed = (
        CliRunner().invoke(app, ["site", "review", "--text", str(tmp_path)], env={"COLUMNS": "400"}).output
    )
    (line,) = (line for line in printed.splitlines() if f"({name}" in line)
    assert work in line
    assert ("with the listed queries, centres and steps") in printed


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.__module__.startswith("unpooled.")])
def test_a_method_of_the_package_states_all_the_work_that_it_asks_of_a_site(method):
    """No study of it says only what any site would answer."""
    stated = method(k=2).work_limits()
    for kind in method.questions():
        fields = {name for name, printed in declared(kind).items() if isinstance(printed, Work)}
        assert kind is AskPartsBound or stated.get(kind, {}).keys() == fields
