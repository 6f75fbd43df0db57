"""A study in words, as ``unpooled study show`` puts it in a process that has asked nothing yet."""

import subprocess
import sys

from studies import study_of
from unpooled.site.study import asked
from unpooled.site.study_folder import StudyFolder

_SHOW = "from unpooled.app.cli import app; app()"


def test_all_that_a_study_may_ask_is_known_in_a_process_of_its_own(tmp_path):
    study = study_of()
    StudyFolder(tmp_path).receive("a", study, "")
    done = subprocess.run(
        [sys.executable, "-c", _SHOW, "study", "show", str(tmp_path)],
        capture_output=True,
        text=True,
        env={"COLUMNS": "400", "PATH": ""},
        check=True,
    )
    for name, _ in study.questions:
        assert name in done.stdout
    assert "not known here" not in done.stdout


def test_a_number_of_centres_is_said_of_questions_about_centres_only():
    said = {name: most for _, name, most in asked(study_of(ks=(2,)))}
    assert {name for name, most in said.items() if most == ""} == {
        "asking.AskColumns",
        "asking.AskSchema",
        "figures.AskCovariance",
        "observed.AskMoments",
        "summaries.AskMoments",
    }
    assert said["figures.AskProfile"] == "2"
    assert said["summaries.AskClusterSums"] == "500"
    kfed = {name: most for _, name, most in asked(study_of(ks=(2,), method="k-fed"))}
    assert kfed["kfed.AskDennisMeans"] == "2"


def test_a_question_of_somebody_elses_method_is_said_to_be_unknown_with_its_limit():
    study = study_of(questions=(("elsewhere.AskAnything", 7),))
    assert asked(study) == [("a question that is not known here", "elsewhere.AskAnything", "7")]
