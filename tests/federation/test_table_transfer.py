"""Live runs over summary tables: each table leaves once, and the result is that of asking every question."""

import csv
import json
from dataclasses import replace

import numpy as np
import pytest

from federation.test_file_runs import DP, RAW, SITES, SUMMARY, Federation, command, same_result
from federation.test_relay_summary import mixed
from helpers import ONE_ROW_PER_PERSON, bits
from studies import approved_terms, study_of, terms_of
from unpooled.algorithms import METHODS
from unpooled.data import PreparationOptions
from unpooled.data.schema import AskSchema, Schema
from unpooled.data.summary_question import AskSummary, SummaryGroups
from unpooled.errors import InputError, ReplyError, TooFewAnswersError, UnpooledError
from unpooled.evaluation import Analysis
from unpooled.federation import Simulation
from unpooled.federation.local_federation import LocalTransport
from unpooled.federation.recipient import read_summary
from unpooled.federation.table_transfer import TABLES, TableTransfer
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy.microaggregation import microaggregate
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site
from unpooled.site.audit.overview import read
from unpooled.site.log import entries
from unpooled.site.open_site import open_site
from unpooled.site.session import SiteSession, SiteSettings
from unpooled.site.study_store import StudyFolder

OPTIONS = ("-k", "2..3", "--restarts", "2")


def analysis(k=2, method="lloyd", **options):
    return Analysis(PreparationOptions(**options), (METHODS[method](k=k).with_restarts(2),))


def tables(seed=0, n=90):
    rng = np.random.default_rng(seed)
    return {site: mixed(rng, n, missing=0.02) for site in SITES}


class Counted(LocalTransport):
    """A transport to sites in this process: the questions by site, and other answers (``does``)."""

    def __init__(self, sites):
        super().__init__({site.name: site for site in sites}, tolerate_failures=True)
        self.asked = {site.name: [] for site in sites}
        self.does = {}

    def send_and_receive(self, requests):
        for site, data in requests.items():
            self.asked[site] += [type(part.question) for part in codec.unwrap(data, expect=Request).parts]
        answers = super().send_and_receive({s: d for s, d in requests.items() if s not in self.does})
        return answers | {site: self.does[site] for site in requests if site in self.does}


def transfer(transport, folder, columns=()):
    return TableTransfer(TransportFederation(transport), columns, folder / TABLES)


def rounds(path):
    return list(csv.DictReader((path / "history.csv").read_text().splitlines()))


# ---------------------------------------------------------------- a whole run


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A default run over files, its folder, and that of ``fit`` on the same files."""
    federation = Federation(tmp_path_factory.mktemp("default"), SUMMARY)
    with federation.answering():
        federation.run("run", *OPTIONS)
    command("fit", *federation.files, *OPTIONS, "--protect", "summary", "--out", federation.top / "fit")
    return federation, federation.top / "run", federation.top / "fit"


def test_a_default_run_takes_one_round_trip_and_has_the_result_of_fit(done):
    federation, live, fit = done
    same_result(live, fit)
    assert (live / "history.csv").read_bytes() == (fit / "history.csv").read_bytes()
    result, rehearsed = (json.loads((run / "result.json").read_text()) for run in (live, fit))
    assert result == rehearsed
    assert result["exchanges"] == 1
    assert [row["exchanges"] for row in rounds(live)] == ["1"] + ["0"] * (len(rounds(live)) - 1)
    assert not list(federation.home.rglob(TABLES))  # the run has finished


def test_a_site_sends_at_most_twice_its_table_and_four_kilobytes(done):
    federation, live, _ = done
    reported = {site["site"]: site for site in json.loads((live / "result.json").read_text())["sites"]}
    for site in SITES:
        table = (federation.top / site / "summary" / "table.csv").read_bytes()
        (sent,) = read(federation.top / site).runs
        assert sent.bytes <= 2 * len(table) + 4000
        assert reported[site]["bytes_sent"] <= sent.bytes
        cells = sum(line.count(b",") + 1 for line in table.splitlines()[1:])
        assert reported[site]["numbers_sent"] == sent.numbers == cells


def test_the_log_and_the_pages_of_the_site_name_the_transfer(done):
    federation, _, _ = done
    north = federation.top / "north"
    releases = [entry for _, entry in entries(north / "log.jsonl") if entry["kind"] == "release"]
    assert [[one["question"] for one in entry["asked"]] for entry in releases] == [["AskSummary"]]
    printed = " ".join(command("site", "log", north).split())
    assert "The summary table left: 60 people in" in printed
    assert "columns age, bmi. After the transfer" in printed
    command("site", "log", north, "--html", federation.top / "log.html")
    assert "The summary table left" in (federation.top / "log.html").read_text()


def test_the_study_says_what_the_coordinator_receives(done):
    federation, _, _ = done
    shown = " ".join(command("site", "review", federation.top / "north", "1").split())
    for words in ("the summary table of each site once", "hold by agreement", "cannot recall the table"):
        assert words in shown, shown


# ---------------------------------------------------------------- the same bits as questions


@pytest.mark.parametrize("method", ["lloyd", "fuzzy", "dwf"])
@pytest.mark.parametrize("raw", [(), ("north",), ("east", "south")])
def test_the_state_is_that_of_asking_every_question(tmp_path, method, raw):
    """Sites that answer from rows are asked as before, and their answers join those of the tables."""
    every = tables()

    def sites():
        return [Site(name, table if name in raw else microaggregate(table)) for name, table in every.items()]

    transport = Counted(sites())
    one = run(analysis(method=method), transfer(transport, tmp_path), seed=3)
    other = run(analysis(method=method), TransportFederation(Counted(sites())), seed=3)
    assert bits(one.state) == bits(other.state)
    assert one.exchanges == (other.exchanges + 1 if raw else 1)
    for name, asked in transport.asked.items():
        assert asked[0] is AskSummary
        assert (len(asked) > 1) is (name in raw)
    if raw:
        assert all(one.sent()[site] == other.sent()[site] for site in raw)


def test_arrays_are_transferred_too(tmp_path):
    rng = np.random.default_rng(1)
    sites = [
        open_site(name, rng.normal(size=(60, 2)) + 5 * rng.integers(0, 2, (60, 1)), ONE_ROW_PER_PERSON)
        for name in SITES
    ]
    method = METHODS["lloyd"](k=2).with_restarts(2)
    one = run(method, transfer(Counted(sites), tmp_path), seed=1)
    other = run(method, TransportFederation(Counted(sites)), seed=1)
    assert bits(one.state) == bits(other.state)
    assert one.exchanges == 1


def test_only_the_columns_of_the_study_arrive(tmp_path):
    summaries = {name: microaggregate(table) for name, table in tables().items()}
    transport = Counted([Site(name, table) for name, table in summaries.items()])
    federation = transfer(transport, tmp_path, ("age", "sex"))
    one = run(analysis(columns=("age", "sex")), federation, seed=3)
    whole = run(analysis(columns=("age", "sex")), Simulation.from_rows(summaries), seed=3)
    assert np.array_equal(one.state.centers, whole.state.centers)
    for groups in federation._received.tables.values():
        assert groups.table().names == ("age", "sex")


# ---------------------------------------------------------------- late sites, killed runs


def test_a_site_that_does_not_answer_is_not_part_of_the_run(tmp_path):
    transport = Counted([Site(name, microaggregate(table)) for name, table in tables().items()])
    transport.does["north"] = "was not connected when the run began"
    done = run(analysis(), transfer(transport, tmp_path), seed=3)
    assert transport.asked["north"] == [AskSummary]
    assert {tuple(record.silent.items()) for record in done.history} == {
        (("north", "was not connected when the run began"),)
    }
    assert {record.answered for record in done.history} == {("east", "south")}
    transport.does["east"] = "late"
    (tmp_path / "again").mkdir()
    with pytest.raises(TooFewAnswersError, match="1 of 3 sites answered, 2 needed"):
        run(analysis(), transfer(transport, tmp_path / "again"), seed=3)


def test_a_run_that_lacked_sites_asks_only_those_again(tmp_path):
    transport = Counted([Site(name, microaggregate(table)) for name, table in tables().items()])
    transport.does |= {"north": "late", "east": "late"}
    with pytest.raises(TooFewAnswersError):
        run(analysis(), transfer(transport, tmp_path), seed=3, name="r")
    transport.does.clear()
    done = run(analysis(), transfer(transport, tmp_path), seed=3, name="r")
    assert {site: len(asked) for site, asked in transport.asked.items()} == {
        "north": 2,
        "east": 2,
        "south": 1,
    }
    assert done.exchanges == 1
    assert not any(record.silent for record in done.history)


@pytest.mark.parametrize("number", range(4))
def test_a_killed_run_asks_nobody_twice_and_ends_with_the_same_bits(tmp_path, number):
    """Killed after the tables came, before the first checkpoint or after a later one."""
    summaries = {name: microaggregate(table) for name, table in tables().items()}

    class Killed(BaseException):
        pass

    def kill(record):
        if record.round == number - 1:
            raise Killed

    def sites():
        return Counted([Site(name, table) for name, table in summaries.items()])

    (tmp_path / "calm").mkdir()
    checkpoints = [tmp_path / "checkpoint", tmp_path / "calm" / "checkpoint"]
    calm = run(analysis(), transfer(sites(), tmp_path / "calm"), seed=3, checkpoint=checkpoints[1], name="r")
    transport = sites()
    if number == 0:
        transfer(transport, tmp_path).ask(RequestId("r", 3, 0, 0), ())
    else:
        with pytest.raises(Killed):
            run(
                analysis(),
                transfer(transport, tmp_path),
                seed=3,
                checkpoint=checkpoints[0],
                name="r",
                progress=kill,
            )
    again = run(analysis(), transfer(transport, tmp_path), seed=3, checkpoint=checkpoints[0], name="r")
    assert all(asked == [AskSummary] for asked in transport.asked.values())
    assert checkpoints[0].read_bytes() == checkpoints[1].read_bytes()
    assert again.exchanges == calm.exchanges == 1


def test_a_table_that_is_too_large_for_a_message_is_asked_questions(tmp_path, monkeypatch):
    monkeypatch.setattr("unpooled.data.summary_question.MAX_CHARACTERS", 100)
    summaries = {name: microaggregate(table) for name, table in tables().items()}
    transport = Counted([Site(name, table) for name, table in summaries.items()])
    done = run(analysis(), transfer(transport, tmp_path), seed=3)
    assert bits(done.state) == bits(run(analysis(), Simulation.from_rows(summaries), seed=3).state)
    assert all(len(asked) > 1 for asked in transport.asked.values())


# ---------------------------------------------------------------- attacks


def settings_of(tmp_path, rules):
    """A site with a file, and its summary table if its rules ask for one."""
    rng = np.random.default_rng(0)
    lines = [
        f"{age:.1f},{bmi:.1f},{'xyz'[i % 3]}"
        for i, (age, bmi) in enumerate(rng.normal((60, 25), (9, 4), (90, 2)))
    ]
    (tmp_path / "rows.csv").write_text("age,bmi,kind\n" + "\n".join(lines) + "\n")
    (tmp_path / "policy.toml").write_text(rules)
    (tmp_path / "site").mkdir()
    settings = SiteSettings(
        "a", str(tmp_path / "rows.csv"), str(tmp_path / "site"), str(tmp_path / "policy.toml")
    )
    if rules == SUMMARY:
        words = ("--data", tmp_path / "rows.csv", "--one-row-per-person", "--no-sensitive-columns")
        command("site", "summarize", tmp_path / "site", *words)
    return settings


def transferable(**how):
    """The study of a default run between machines."""
    study = study_of()
    return replace(study, protection="summary", questions=(*study.questions, ("AskSummary", 3)), **how)


def asked_of(session, question, number=0, run_name="r"):
    answer = session.respond(
        codec.wrap(Request(RequestId(run_name, 0, 0, number), (Part("each", question, None, 0),)))
    )
    if isinstance(answer, str):
        return answer
    (reply,) = codec.unwrap(answer, expect=Response).replies
    return reply.reason if isinstance(reply, Refusal) else reply


def test_a_coordinator_gets_the_approved_columns_and_nothing_else(tmp_path):
    """Nothing leaves before the approval, of other columns, in another run, or after a withdrawal."""
    settings = settings_of(tmp_path, SUMMARY)
    study = transferable(columns=("age", "kind"))
    pending = SiteSession(settings, terms_of(study))
    assert "nobody at the site has approved" in asked_of(pending, AskSummary(("age",)))
    session = SiteSession(settings, approved_terms(settings, study=study))
    assert "is not about column bmi" in asked_of(session, AskSummary(("age", "bmi")), 1)
    assert "about all columns" in asked_of(session, AskSummary(), 2)
    assert "this is another run" in asked_of(session, AskSummary(("age",)), 3, "s")
    groups = asked_of(session, AskSummary(("age", "kind")), 4)
    assert isinstance(groups, SummaryGroups)
    assert groups.table().names == ("age", "kind")
    StudyFolder(tmp_path / "site").decide(study.digest, "withdrawn", "an officer", "no longer")
    assert "withdrawn" in asked_of(session, AskSummary(("age", "kind")), 4)  # the same request, too
    session.close()
    assert "withdrawn" in asked_of(SiteSession(settings, terms_of(study)), AskSummary(("age",)), 5)


@pytest.mark.parametrize("rules", [RAW, DP])
def test_a_site_that_answers_from_rows_transfers_nothing(tmp_path, rules):
    settings = settings_of(tmp_path, rules)
    session = SiteSession(settings, approved_terms(settings, study=transferable()))
    assert isinstance(asked_of(session, AskSummary()), str)
    assert isinstance(asked_of(session, AskSchema(), 1), Schema)
    session.close()


def test_a_table_is_transferred_as_the_signed_file_holds_it(tmp_path):
    """Both ways disclose the same table: there is one body, and one check of it."""
    federation = Federation(tmp_path, SUMMARY)
    (tmp_path / "study.toml").write_text(
        'title = "t"\npurpose = "p"\ncontact = "c"\ncolumns = ["age"]\nexpires = 2100-01-01\n'
    )
    words = ("--recipient", federation.coordinator.key_file, "--study", tmp_path / "study.toml", "--yes")
    file = federation.home / "north.unpooled"
    command("site", "export", federation.top / "north", *words, "-o", file)
    command("federation", "receive", federation.home, file, "--yes")
    settings = SiteSettings.of_folder(federation.top / "north")
    site = open_site("north", None, settings.rules(), settings.folder)
    request = Request(RequestId("r", 0, 0, 0), (Part("each", AskSummary(("age",)), None, 0),))
    (groups,) = site.answer(request).replies
    site.close()
    assert groups.table().digest == read_summary(file).digest


def test_a_few_questions_of_an_ordinary_study_disclose_the_table_too():
    """What a transfer gives at once, a coordinator could compute before, within the limits of a study."""
    rng = np.random.default_rng(4)
    site = open_site("a", rng.normal(size=(300, 2)), ONE_ROW_PER_PERSON)
    means, people = site.rows, site.weights
    most = dict(study_of().questions)["AskClusterSums"]
    found = set()
    for number in range(10):
        centers = rng.normal(size=(most, 2))[None]
        request = Request(RequestId("r", 0, number, 0), (Part("total", AskClusterSums(centers), None, 0),))
        (sums,) = site.answer(request).replies
        alone = (sums.mass[0] > 0) & (sums.mass[0] < 2 * people.min())  # two groups have more people
        found |= {
            (mass, *row) for mass, row in zip(sums.mass[0][alone], _rows(sums, centers)[alone], strict=True)
        }
    table = {(mass, *row) for mass, row in zip(people, np.round(means, 9), strict=True)}
    assert len(table) > 20
    assert len(found & table) == len(table)


def _rows(sums, centers):
    """The means of cells, in the columns' own units."""
    return np.round(centers[0] + sums.sums[0] / np.maximum(sums.mass[0], 1.0)[:, None], 9)


FAULTS = {
    "no name": lambda about, lines: about["names"].pop(),
    "kind": lambda about, lines: about["kinds"].__setitem__(0, "rows"),
    "a number as a name": lambda about, lines: about["names"].__setitem__(0, 3),
    "variance": lambda about, lines: about["within"].__setitem__(0, -1.0),
    "infinite variance": lambda about, lines: about["within"].__setitem__(0, 1e999),
    "category": lambda about, lines: about["categories"]["sex"].__setitem__(0, about["categories"]["sex"][1]),
    "three values": lambda about, lines: about["values"].__setitem__("age", [1.0, 2.0, 3.0]),
    "a value that is no number": lambda about, lines: about["values"].__setitem__("age", [float("nan")]),
    "few people": lambda about, lines: lines.__setitem__(1, "1" + lines[1][lines[1].index(",") :]),
    "no people": lambda about, lines: lines.__delitem__(slice(1, None)),
    "infinite": lambda about, lines: lines.__setitem__(
        1, lines[1].replace(lines[1].split(",")[1], "1e999", 1)
    ),
    "a cell more": lambda about, lines: lines.__setitem__(1, lines[1] + ",1"),
    "size": lambda about, lines: about.__setitem__("min_group_size", 1),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_table_that_no_honest_site_sends_is_not_used(fault):
    good = SummaryGroups.from_table(microaggregate(tables()["north"]))
    about, lines = json.loads(good.about[0]), list(good.lines)
    FAULTS[fault](about, lines)
    with pytest.raises(ReplyError, match="cannot be used"):
        AskSummary().check_reply(SummaryGroups((json.dumps(about),), tuple(lines), good.sites))


@pytest.mark.parametrize("seed", range(20))
def test_a_site_that_forges_its_table_stops_no_run_without_a_reason(tmp_path, seed):
    """Numbers of the table are replaced at random: the table is refused, or the run ends as it may."""
    rng = np.random.default_rng(seed)
    forged = SummaryGroups.from_table(microaggregate(tables()["north"]))
    lines = [line.split(",") for line in forged.lines]
    for _ in range(3):
        row, column = int(rng.integers(1, len(lines))), int(rng.integers(len(lines[0])))
        lines[row][column] = str(rng.choice(["0", "-7", "1e9", "1e300", "", "nan", "6", "text"]))
    forged = SummaryGroups(forged.about, tuple(map(",".join, lines)), forged.sites)
    sites = [Site(name, microaggregate(table)) for name, table in tables().items()]
    transport = Counted(sites)

    class Forging:
        name = "north"

        def respond(self, data):
            request = codec.unwrap(data, expect=Request)
            if isinstance(request.parts[0].question, AskSummary):
                return codec.wrap(Response(request.request_id, (forged,)))
            return "gone"

    transport._members["north"] = Forging()
    with np.errstate(all="ignore"):
        try:
            run(analysis(), transfer(transport, tmp_path), seed=3)
        except (InputError, ReplyError):
            pass
        except UnpooledError as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from error
