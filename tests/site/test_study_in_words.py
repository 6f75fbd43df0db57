"""A study in words, as ``unpooled site review`` puts it in a process that has asked nothing yet."""

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from studies import study_of
from unpooled.algorithms import METHODS
from unpooled.app.cli import app
from unpooled.optimality.bounds import AskPartsBound
from unpooled.protocol.declarations import Work, declared
from unpooled.site.study import allowed_questions
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


def test_a_number_of_centres_is_reported_of_questions_about_centres_only():
    printed = {name: most for _, name, most, _ in allowed_questions(study_of(ks=(2,)))}
    assert {name for name, most in printed.items() if most == ""} == {
        "AskColumns",
        "AskSchema",
        "AskCovariance",
        "AskHalfCovariance",
        "AskObservedMoments",
        "AskMoments",
    }
    assert printed["AskProfile"] == "2"
    assert printed["AskClusterSums"] == "500"
    kfed = {name: most for _, name, most, _ in allowed_questions(study_of(ks=(2,), method="k-fed"))}
    assert kfed["AskDennisMeans"] == "2"


def test_a_question_of_somebody_elses_method_is_reported_as_unknown_with_its_limit():
    study = study_of(questions=(("elsewhere.AskAnything", 7),), work=(("elsewhere.AskAnything", "laps", 4),))
    assert allowed_questions(study) == [
        ("a query that this site does not know", "elsewhere.AskAnything", "7", "4 laps")
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
    assert {name: work for _, name, _, work in allowed_questions(study)}[name] == work
    StudyFolder(tmp_path).receive("a", study, "")
    printed = (
        CliRunner().invoke(app, ["site", "review", "--text", str(tmp_path)], env={"COLUMNS": "400"}).output
    )
    (line,) = (line for line in printed.splitlines() if name in line)
    assert work in line
    assert ("queries, centres and steps in the list below") in printed


@pytest.mark.parametrize("method", [m for m in METHODS.values() if m.__module__.startswith("unpooled.")])
def test_a_method_of_the_package_states_all_the_work_that_it_asks_of_a_site(method):
    """No study of it says only what any site would answer."""
    stated = method(k=2).work_limits()
    for kind in method.questions():
        fields = {name for name, printed in declared(kind).items() if isinstance(printed, Work)}
        assert kind is AskPartsBound or stated.get(kind, {}).keys() == fields
