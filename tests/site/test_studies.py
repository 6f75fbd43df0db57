"""A site answers nothing of a study before it is approved, and nothing beyond it: by the site's own log."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from studies import approved_terms, study_of, terms_of
from unpooled.algorithms import METHODS
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.kfed import AskDennisMeans
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.app.cli import app
from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.pages.audit_page import lines
from unpooled.app.propose_study import propose_study
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.errors import InputError, LedgerError, PolicyError
from unpooled.federation import LocalFederation
from unpooled.optimality.bounds import AskPartsBound
from unpooled.optimality.questions import AskNode
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import AskKeys
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId
from unpooled.protocol.messages import Question, Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, AskScatter
from unpooled.protocol.questions.description import AskProfile
from unpooled.protocol.questions.fuzzy_sums import AskBorderline, AskFuzzyMeans, AskFuzzyMoves
from unpooled.protocol.run_loop import run
from unpooled.site.audit.overview import read
from unpooled.site.chain import Exchange
from unpooled.site.log import Log, entries, verify
from unpooled.site.policy import Policy, parse
from unpooled.site.session import PendingDecision, SiteSession, SiteSettings
from unpooled.site.site import Site
from unpooled.site.study import Study
from unpooled.site.study_guard import StudyGuard, StudyLimitsGuard
from unpooled.site.study_store import APPROVED, DECLINED, WITHDRAWN, Decision, StudyFolder, record_decision

IDENTITY = Identity.new()


@pytest.fixture
def site(tmp_path):
    """A site of a federation whose authority is IDENTITY: raw, so that what it answers is rows."""
    data, policy = tmp_path / "patients.csv", tmp_path / "policy.toml"
    data.write_text("age,bmi\n" + "".join(f"{40 + i % 31},{20 + i % 9}\n" for i in range(60)))
    policy.write_text('format = 1\n[protect]\nmode = "raw"\n')
    return SiteSettings("a", str(data), str(tmp_path / "kept"), str(policy), IDENTITY.public.hex())


def home(site) -> Path:
    return Path(site.folder)


def asked(*questions, run="r", number=0, verb="each", exchange=0, transform=None):
    parts = tuple(Part(verb, question, transform, i) for i, question in enumerate(questions))
    return codec.wrap(Request(RequestId(run, 0, number, exchange), parts))


SCHEMA = asked(AskSchema())
COLUMNS = AskColumns(("age",), np.zeros(1), np.ones(1), (), (), False)


def session_of(site, study=None, identity=IDENTITY):
    study = study_of(identity=IDENTITY) if study is None else study
    return SiteSession(site, terms_of(study, identity))


def log_of(site):
    path = home(site) / "log.jsonl"
    found = [entry for _, entry in entries(path)] if path.exists() else []
    assert not found or verify(path) == []
    return found


def kinds(site):
    return [entry["kind"] for entry in log_of(site)]


def reasons(answer):
    """Why an answer holds nothing: every reply is a refusal."""
    replies = codec.unwrap(answer).replies
    assert all(isinstance(reply, Refusal) for reply in replies)
    return replies[0].reason


def officer(site, *words, code=0):
    verb, *rest = words
    result = CliRunner().invoke(app, ["site", verb, site.folder, *rest])
    assert result.exit_code == code, result.output
    return result.output


# ---------------------------------------------------------------- before the approval


@pytest.mark.parametrize(
    "data",
    [
        SCHEMA,
        asked(COLUMNS, verb="total"),
        asked(AskKeys("epoch"), verb=STAGE),
        asked(AskSchema(), run="another"),
        b"garbage",
    ],
    ids=["schema", "columns", "keys of secure sums", "another run", "garbage"],
)
def test_nothing_is_answered_before_the_approval(site, data):
    end = session_of(site)
    for _ in range(2):
        printed = end.respond(data)
        assert isinstance(printed, PendingDecision)
        assert printed == "nobody at the site has approved the study yet"
    assert log_of(site) == []
    Log(home(site) / "log.jsonl").close()  # who waits does not hold the log
    end.close()


def test_an_approved_study_is_answered_and_the_log_binds_it(site):
    study = study_of(identity=IDENTITY)
    end = session_of(site, study)
    end.respond(SCHEMA)
    assert "1. pending: k-means of a federation, k 2..3 (to find groups)" in officer(site, "status", code=6)
    printed = officer(site, "review", "--text")
    for text in ("to find groups", "AskSchema", study.digest, study.expires):
        assert text in printed
    assert f"approved: {study.title}" in officer(
        site, "approve", study.digest[:12], "--yes", "--by", "Dr. Low"
    )
    reply = codec.unwrap(end.respond(SCHEMA)).replies[0]
    assert reply.names == ("age", "bmi")
    end.close()
    approval, opening, release = log_of(site)
    assert (approval["kind"], approval["decision"], approval["by"]) == ("study", "approved", "Dr. Low")
    assert approval["study"] == opening["study"] == study.digest
    assert release["kind"] == "release"
    printed = dict(lines(read(home(site))))
    assert "approved by Dr. Low" in printed["Studies"][0]
    assert "1. approved" in officer(site, "status")


def test_the_approval_of_one_study_is_not_that_of_another(site):
    session_of(site).respond(SCHEMA)
    officer(site, "approve", "--yes")
    for other in (
        study_of("r2", IDENTITY),
        study_of(identity=IDENTITY, ks=(2, 3, 4)),
        study_of(identity=IDENTITY, purpose="another purpose"),
        study_of(identity=IDENTITY, columns=("age",)),
    ):
        assert isinstance(session_of(site, other).respond(SCHEMA), PendingDecision)
    assert kinds(site) == ["study"]
    assert "4 studies are possible" in officer(site, "approve", "--yes", code=1)
    assert "does not name one study" in officer(site, "approve", "abc", code=1)


def test_a_declined_study_ends_with_its_reason(site):
    end = session_of(site)
    end.respond(SCHEMA)
    officer(site, "decline", "1", "--reason", "no agreement with you")
    assert end.respond(SCHEMA) == "the site has declined the study: no agreement with you"
    assert "is declined" in officer(site, "decline", "1", code=1)
    assert [entry["decision"] for entry in log_of(site)] == ["declined", "refused"]
    officer(site, "approve", "1", "--yes")  # somebody thought better of it
    assert isinstance(end.respond(SCHEMA), bytes)
    end.close()


# ---------------------------------------------------------------- studies that nobody is asked about


def _altered(study: Study) -> Study:
    return replace(study, ks=(2, 50))


BAD = {
    "signed by another key": (lambda s: s, Identity.new(), "not signed by the authority"),
    "naming another key": (
        lambda s: replace(s, authority=Identity.new().public.hex()),
        IDENTITY,
        "not signed by the authority",
    ),
    "not signed": (lambda s: s, None, "not signed by the authority"),
    "expired": (
        lambda s: replace(s, expires="2020-01-01T00:00:00+00:00"),
        IDENTITY,
        "the clock of this site says 2",
    ),
    "without a purpose": (lambda s: replace(s, purpose=""), IDENTITY, "lacks a"),
    "with hidden letters": (lambda s: replace(s, title="k\x1b[2J"), IDENTITY, "invisible characters"),
    "without end": (lambda s: replace(s, expires="never"), IDENTITY, "not a date with a time zone"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_study_is_refused_and_the_log_says_so(site, case):
    change, identity, says = BAD[case]
    end = session_of(site, change(study_of(identity=IDENTITY)), identity)
    for _ in range(2):
        printed = end.respond(SCHEMA)
        assert says in printed
        assert not isinstance(printed, PendingDecision)
    (line,) = log_of(site)
    assert (line["kind"], line["decision"]) == ("study", "refused")
    assert says in line["reason"]
    assert StudyFolder(home(site)).every() == []


def test_a_signature_is_of_the_whole_study(site):
    study = study_of(identity=IDENTITY)
    session_of(site, study).respond(SCHEMA)
    officer(site, "approve", "--yes")
    end = SiteSession(site, replace(terms_of(study, IDENTITY), study=_altered(study)))
    assert "not signed by the authority" in end.respond(SCHEMA)
    assert "release" not in kinds(site)


def test_an_approval_counts_where_file_and_log_have_it(site, monkeypatch):
    """A file that somebody wrote, or changed, approves nothing."""
    monkeypatch.setattr("unpooled.site.session.FRESH", 0.1)
    study, place = study_of(identity=IDENTITY), StudyFolder(home(site))
    session_of(site, study).respond(SCHEMA)
    file = place.file(study.digest)
    content = json.loads(file.read_text())
    decision = {"decision": "approved", "by": "x", "at": "2026-01-01", "reason": ""}
    file.write_text(json.dumps({**content, "decisions": [decision]}))
    assert "cannot open its data" in session_of(site, study).respond(SCHEMA)
    assert "release" not in kinds(site)
    file.write_text(json.dumps({**content, "study": {**content["study"], "title": "harmless"}}))
    with pytest.raises(LedgerError, match="another program changed the study"):
        place.read(study.digest)
    assert "cannot open" in session_of(site, study).respond(SCHEMA)


# ---------------------------------------------------------------- a coordinator that asks for more


@pytest.fixture
def end(site):
    study = study_of(identity=IDENTITY)
    made = session_of(site, study)
    made.respond(SCHEMA)
    officer(site, "approve", "--yes")
    yield made
    made.close()


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (asked(AskSchema(), run="r2"), "this is another run"),
        (asked(AskKeys("epoch"), run="r2", verb=STAGE), "this is another run"),
        (asked(AskLocalMeans(2)), "does not contain AskLocalMeans"),
        (asked(AskScatter(np.zeros((4, 2)))), r"about 4 centres\. The approved study allows at most 3"),
        (asked(AskClusterSums(np.zeros((1, 501, 2)))), r"about 501 centres\. .* at most 500"),
        (asked(AskMoments(), number=305), r"round 305\. The approved study has at most 304"),
        (asked(AskNoisyMoments(1.0, np.ones(2))), "does not contain"),
    ],
    ids=[
        "another run",
        "keys of another run",
        "another kind",
        "more k",
        "more cells",
        "more rounds",
        "dp",
    ],
)
def test_what_is_not_in_the_study_is_refused(site, end, data, says):
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(reasons(end.respond(data)))
    assert kinds(site) == ["study", "opening", "refusal"]


@pytest.mark.parametrize(
    ("method", "question", "says"),
    [
        ("mini-batch", AskEpochs(np.zeros((3, 2)), 10**15, 0, 1.0), "answers at most 10,000"),
        ("mini-batch", AskEpochs(np.zeros((3, 2)), 2, 0, 1.0), "AskEpochs: epochs = 2. .* at most 1"),
        ("k-fed", AskLocalMeans(3, n_init=10**12), "answers at most 1,000"),
        ("k-fed", AskLocalMeans(3, n_init=6), "AskLocalMeans: n_init = 6. .* at most 5"),
        ("k-fed", AskLocalMeans(3, n_init=5, steps=301), "AskLocalMeans: steps = 301. .* at most 300"),
        ("k-fed", AskDennisMeans(3, steps=301), "AskDennisMeans: steps = 301. .* at most 300"),
        ("fkm", AskLocalMeans(3, n_init=2), "n_init = 2. .* at most 1"),
        ("dwf", AskLocalMoves(np.zeros((3, 2)), 2, "counts"), "steps = 2. .* at most 1"),
        ("fuzzy", AskFuzzyMeans(np.zeros((3, 2)), 2.0, 10**15, 0.0), "answers at most 10,000"),
        ("fuzzy", AskFuzzyMeans(np.zeros((3, 2)), 2.0, 2, 0.0), "steps = 2. .* at most 1"),
        ("fuzzy", AskFuzzyMoves(np.zeros((1, 3, 2)), 2.0, 0, 0.0, "sum(u)"), "steps = 300. .* at most 1"),
        ("fuzzy", AskBorderline(np.zeros((60_000, 2)), 2.0), r"about 60000 centres\. .* at most 3"),
        ("lloyd", AskPartsBound(np.zeros((3, 2)), "thorough", 1.0), "work = 1,000,000,000.* at most 30"),
        ("lloyd", AskProfile(np.zeros((60_000, 2))), r"about 60000 centres\. .* at most 3"),
        ("dual", AskNode(*[np.zeros((3, 2))] * 3, "none", np.zeros((3, 2)), 200_001), "at most 200,000"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Question) else None,
)
def test_more_work_than_the_study_states_is_refused_before_it_is_done(site, method, question, says):
    end = session_of(site, study_of(identity=IDENTITY, method=method))
    end.respond(SCHEMA)
    officer(site, "approve", "--yes")
    transform = Preparation(tuple(Number(name, 0.0, 0.0, 1.0) for name in ("age", "bmi")), False)
    with pytest.raises(AssertionError, match=says):
        raise AssertionError(reasons(end.respond(asked(question, transform=transform))))
    assert kinds(site) == ["study", "opening", "refusal"]
    end.close()


def test_a_study_of_a_method_of_ones_own_states_what_any_site_answers(site):
    """Its author may state less; a study that does not state a field at all allows none of it."""
    epochs = AskEpochs(np.zeros((3, 2)), 1, 0, 1.0)
    study = study_of(identity=IDENTITY, method="mini-batch")
    assert ("AskEpochs", "epochs", 1) in study.work
    end = session_of(site, replace(study, work=()))
    end.respond(SCHEMA)
    officer(site, "approve", "--yes")
    assert "epochs = 1. The approved study allows at most 0." in reasons(end.respond(asked(epochs)))
    end.close()


def test_a_study_of_columns_is_about_no_others(site):
    end = session_of(site, study_of(identity=IDENTITY, columns=("bmi",)))
    end.respond(SCHEMA)
    officer(site, "approve", "--yes")
    assert "not about column age" in reasons(end.respond(asked(COLUMNS, verb="total")))
    assert isinstance(
        codec.unwrap(end.respond(asked(replace(COLUMNS, numbers=("bmi",)), verb="total"))).replies[0],
        COLUMNS.reply_type(),
    )
    end.close()


def test_a_withdrawal_holds_from_the_next_question_on(site, end):
    """Also for a request that was answered before, and while the process that answers has the log."""
    answer = end.respond(SCHEMA)
    assert end.respond(SCHEMA) == answer
    officer(site, "decline", "--reason", "a complaint")
    says = "the site has withdrawn the study: a complaint"
    assert end.respond(SCHEMA) == says
    assert end.respond(asked(AskMoments(), number=1)) == says
    found = log_of(site)
    last = max(i for i, entry in enumerate(found) if entry["kind"] == "release")
    assert [entry.get("decision") for entry in found[last + 1 :]] == ["withdrawn", "refused"]
    officer(site, "approve", "1", "--yes")
    assert codec.unwrap(end.respond(SCHEMA)).replies[0].names == ("age", "bmi")


def test_a_withdrawal_that_no_process_noticed_holds_too(site, end):
    """The file alone says it: an open site refuses and logs it; nothing that was computed leaves."""
    end.respond(SCHEMA)
    study, place = study_of(identity=IDENTITY), StudyFolder(home(site))
    (kept,) = place.every()
    place._write(replace(kept, decisions=(*kept.decisions, Decision(WITHDRAWN, "x", "now"))))
    assert reasons(end.respond(SCHEMA)) == "the site has withdrawn the study"
    with pytest.raises(Exception, match="withdrawn"):
        StudyGuard(kept.study, StudyFolder(home(site))).check(Exchange(codec.unwrap(SCHEMA)))
    assert kinds(site)[-2:] == ["release", "refusal"]
    assert study.run == "r"


def test_a_study_that_expired_after_its_approval_is_over(site):
    past = study_of(identity=IDENTITY, expires="2020-01-01T00:00:00+00:00")
    place = StudyFolder(home(site))
    home(site).mkdir()
    place.receive("a", past, "")
    with pytest.raises(InputError, match="expired at 2020"):
        place.decide(past.digest, APPROVED)
    log = Log(home(site) / "log.jsonl")
    record_decision(log, "a", past, Decision(APPROVED, "x", "now"))
    log.close()
    (kept,) = place.every()
    place._write(replace(kept, decisions=(Decision(APPROVED, "x", "now"),)))
    assert "expired" in session_of(site, past).respond(SCHEMA)
    with pytest.raises(Exception, match="expired"):
        StudyGuard(past, StudyFolder(home(site))).check(Exchange(codec.unwrap(SCHEMA)))
    assert "1. expired" in officer(site, "status")


# ---------------------------------------------------------------- policies


def test_a_policy_approves_the_purposes_that_it_names(site, tmp_path):
    rules = 'format = 1\n[protect]\nmode = "raw"\n'
    rules += '[studies]\napprove = "known"\npurposes = ["to find groups"]\n'
    Path(site.policy).write_text(rules)
    other = session_of(site, study_of("r2", IDENTITY, purpose="To find groups"))
    assert isinstance(other.respond(SCHEMA), PendingDecision)
    end = session_of(site)
    assert isinstance(end.respond(SCHEMA), bytes)
    assert log_of(site)[0]["by"] == f"the policy {parse(rules).digest[:16]}"
    officer(site, "decline", end._terms.study.digest[:8])
    assert "withdrawn" in end.respond(SCHEMA)  # and the policy does not approve it again
    assert "not signed" in session_of(site, identity=None).respond(SCHEMA)
    nobody = replace(site, authority="", folder=str(tmp_path / "apart"))  # no coordinator is known there
    assert isinstance(SiteSession(nobody, terms_of(study_of())).respond(SCHEMA), PendingDecision)
    end.close()


def test_the_rules_about_studies():
    assert Policy().studies.approve == "ask"
    assert not Policy().studies.covers("any")
    assert parse('format = 1\n[studies]\napprove = "known"\npurposes = ["*"]').studies.covers("any")
    for text in ('approve = "known"', 'purposes = ["*"]'):
        with pytest.raises(PolicyError, match="belong together"):
            parse(f"format = 1\n[studies]\n{text}")
    with pytest.raises(PolicyError, match=r"\[studies\] approve must be one of ask, known"):
        parse('format = 1\n[studies]\napprove = "all"')


def test_an_officer_is_asked_before_the_only_study_is_approved(site):
    home(site).mkdir()
    assert "not the folder of a site" in officer(site, "status", code=1)
    assert "there is no study to approve" in officer(site, "approve", code=1)
    session_of(site).respond(SCHEMA)
    printed = CliRunner().invoke(app, ["site", "approve", site.folder], input="n\n")
    assert printed.exit_code == 1
    assert "to find groups" in printed.output
    assert StudyFolder(home(site)).pending()
    assert CliRunner().invoke(app, ["site", "approve", site.folder], input="y\n").exit_code == 0
    assert not StudyFolder(home(site)).pending()
    assert "must be one line" in officer(site, "decline", "--reason", "a\nb", code=1)
    assert DECLINED not in officer(site, "status")


# ---------------------------------------------------------------- honest runs


class Approved(StudyGuard):
    """The rule of a study at a site of a simulation."""

    name = "policy"


@pytest.mark.parametrize("missing", [False, True], ids=["whole", "with missing cells"])
@pytest.mark.parametrize(
    "method", [name for name, m in METHODS.items() if m.__module__.startswith("unpooled.")]
)
def test_no_honest_run_goes_beyond_its_study(method, missing, tmp_path):
    """Every method as ``unpooled federation run`` does it, to its last round: no question is refused."""
    rng, ks = np.random.default_rng(0), (2, 3)
    study = study_of(ks=ks, method=method, rounds=3 + 4)
    place = StudyFolder(tmp_path)
    place.receive("a", study, "")
    place.decide(study.digest, APPROVED)
    sites = []
    for name in "abc":
        X = rng.normal(size=(40, 3)) + 5 * rng.integers(3, size=(40, 1))
        X[rng.random(X.shape) < (0.2 if missing else 0.0)] = np.nan
        table = Table.from_columns({f"c{j}": X[:, j] for j in range(3)})
        sites.append(Site(name, table, guards=[Approved(study, place), StudyLimitsGuard(study)]))
    job = Job(("x",), ks, method=method, n_init=3, max_rounds=3)
    done = run(job.algorithm, LocalFederation(sites), seed=1, name="r", quorum=1.0)
    assert done.finished
    assert not any(record.silent for record in done.records)


def test_a_run_that_is_resumed_has_the_study_that_was_approved():
    """The job on disk gives the same digest: nobody is asked a second time."""
    remote = RemoteRunOptions("", "r", ("a", "b"), contact="Dr. Low", purpose="to find groups")
    job = Job((), (2, 3), method="fuzzy", protect="summary", remote=remote)
    again = Job.from_json(json.loads(json.dumps(job.to_json())))
    assert propose_study(again)[0].digest == propose_study(job)[0].digest
    other = replace(job, ks=(2, 3, 4))
    assert propose_study(other)[0].digest != propose_study(job)[0].digest


def test_terms_for_tests_are_those_of_an_officer(site):
    end = SiteSession(replace(site, authority=""), approved_terms(site))
    assert isinstance(end.respond(SCHEMA), bytes)
    end.close()
