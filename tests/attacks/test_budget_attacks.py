"""Attacks on the budget, the sums and the log: each tried by a script, none gives more than the pages say."""

import json
import multiprocessing
import subprocess
import sys
import time
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from tests.amounts import amounts

from attacks import histories
from helpers import blobs, ledger_of
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.transforms import Affine, Shaped
from unpooled.errors import InputError, LedgerError, QueryRefusedError, ReplyError, TooFewAnswersError
from unpooled.federation import LocalFederation
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum import threshold_for
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import AskKeys, AskMasked, SumParameters
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total, transformed
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response, run_protocol
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.fixed_point_range import FixedPointRange
from unpooled.site.ledger import Ledger
from unpooled.site.log import Log, entries
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

DP = histories.RULES
SUMS = (
    "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
    '[aggregation]\nsecure = "required"\n'
)
X, _ = blobs(0, n=280, d=2, k=3)


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("count", amounts(25, 10_000))
def test_the_ledger_pays_for_every_byte_string_of_random_histories(tmp_path, count):
    """Other runs between, restarts, kills at every point of a write, resumes, groups, epochs of a ring."""
    tally = histories.Tally()
    for number in range(count):
        histories.history(number, tmp_path / str(number), tally)
    print(tally)
    assert tally.answers > 2 * count
    assert tally.kills > count / 3
    assert min(tally.repeated, tally.coordinators, tally.sums) > count / 20
    assert tally.paid <= tally.spent


PRELOADED = [name for name in sys.modules if name.split(".")[0] in ("unpooled", "numpy", "opendp", "scipy")]


class KilledSite:
    """A site in a process of its own, which is killed and started again."""

    def __init__(self, folder) -> None:
        self._folder, self.seen, self._process = folder, histories.Observed(), None
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(PRELOADED)
        self.kills = 0

    def up(self):
        if self._process is None:
            self._pipe, theirs = self._context.Pipe()
            words = (str(self._folder), histories.RULES, theirs)
            self._process = self._context.Process(target=histories.serve, args=words, daemon=True)
            self._process.start()
            assert self._pipe.poll(240)
            assert self._pipe.recv_bytes() == b"open"
        return self._pipe

    def ask(self, data: bytes, delay: float | None = None) -> None:
        """Have it answered, and note what left; with a delay in seconds, kill the site after it."""
        pipe, request = self.up(), codec.unwrap(data, expect=Request)
        pipe.send_bytes(data)
        if delay is None:
            assert pipe.poll(240)
            self.seen.note(request, pipe.recv_bytes())
            return
        time.sleep(delay)
        self.kill()
        if pipe.poll():
            try:
                self.seen.note(request, pipe.recv_bytes())  # it was faster
                return
            except (EOFError, ConnectionResetError):  # it had not read the request yet
                pass
        self.seen.lost += histories.price(request)

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._process, self.kills = None, self.kills + 1


@pytest.mark.parametrize("count", amounts(1, 200))
def test_the_ledger_pays_for_every_byte_string_of_a_site_that_is_killed(tmp_path, count):
    """kill -9 a few milliseconds after a request: between charge and answer, or before, or after."""
    rng = np.random.default_rng(0)
    for number in range(count):
        site = KilledSite(tmp_path / str(number))
        ask = partial(_killing, rng, site)
        histories.alone(rng, ask, site.kill, 10)
        site.up()
        site.kill()
        ledger = Ledger(tmp_path / str(number) / "ledger.sqlite", "a")
        site.seen.check(ledger.spent())
        assert site.seen.prices
        assert site.kills
        print(f"{site.kills} kills, {len(site.seen.prices)} distinct answers, spent {ledger.spent():.3g}")
        ledger.close()


def _killing(rng, site: KilledSite, data: bytes, dies: bool) -> None:
    site.ask(data, float(rng.random() * 0.008) if dies else None)


def test_the_same_noise_is_not_given_twice_under_other_stages(tmp_path):
    """Another epoch, other sharers, one part more: whatever the masks are, the answer is paid for itself."""
    rules = DP + '[aggregation]\nsecure = "required"\n'
    sites = [open_site(f"s{i}", X[i::4], parse(rules), tmp_path / f"s{i}") for i in range(4)]
    question = AskNoisyMoments(0.01, np.full(2, 30.0))
    for number in range(3):  # the coordinator loses its place each time: a new epoch, and the same request
        federation = LocalFederation(sites, secure=SecureSums())
        run_protocol(total(federation.sites, question), federation, run="r", number=7)
        for site in sites:
            assert ledger_of(site).spent() == pytest.approx((number + 1) * 0.01**2)
    for site in sites:
        site.close()


def test_a_kill_between_mask_and_answer_costs_a_price_and_stops_no_sum(tmp_path, monkeypatch):
    """State of the mask and answer are kept as one: noise that nobody has is not bound to a mask."""
    rules = DP + '[aggregation]\nsecure = "required"\n'
    sites = [open_site(f"s{i}", X[i::3], parse(rules), tmp_path / f"s{i}") for i in range(3)]
    keep, died = Ledger.keep, []

    def dies(self, request_id, request, answer):
        if not died:
            died.append(request)
            raise KeyboardInterrupt
        keep(self, request_id, request, answer)

    monkeypatch.setattr(Ledger, "keep", dies)
    question = AskNoisyMoments(0.01, np.full(2, 30.0))
    federation = LocalFederation(sites, secure=SecureSums())
    transport = federation._transport
    receive = {name: site.receive for name, site in transport._members.items()}

    def again(name):
        def answered(data):
            try:
                return receive[name](data)
            except KeyboardInterrupt:
                return receive[name](data)  # the same request again, as after a restart

        return answered

    for name, site in transport._members.items():
        monkeypatch.setattr(site, "receive", again(name))
    result = run_protocol(total(federation.sites, question), federation, run="r")
    assert result.noise[0] == pytest.approx(3.0)  # each adds the whole: nobody vouched for anybody
    spent = sorted(ledger_of(site).spent() / 0.01**2 for site in sites)
    assert spent == pytest.approx([1.0, 1.0, 2.0])
    for site in sites:
        site.close()


@pytest.mark.parametrize(
    ("honest", "share"), [(1, 1), (2, 1), (3, 1 / 2), (4, 1 / 3), (5, 1 / 4), (9, 1 / 4)]
)
def test_a_site_shares_its_noise_with_as_many_honest_sites_as_will_be_in_the_sum(tmp_path, honest, share):
    """Five sites, of which four are needed: one honest site drops out, and the others that are not honest
    know their own noise. A whole noise is left.
    """
    rules = DP.replace("[jobs]", f"honest_sites = {honest}\n[jobs]") + '[aggregation]\nsecure = "required"\n'
    sites = [open_site(f"s{i}", X[i::5], parse(rules), tmp_path / f"s{i}") for i in range(5)]
    federation = LocalFederation(sites, secure=SecureSums())
    transport = federation._transport
    send_and_receive, lost = transport.send_and_receive, honest > 1

    def carried(requests):
        came = send_and_receive(requests)
        for name, data in requests.items():
            parts = codec.unwrap(data, expect=Request).parts
            if lost and name == "s0" and any(isinstance(part.question, AskMasked) for part in parts):
                del came[name]
        return came

    transport.send_and_receive = carried
    question = AskNoisyMoments(0.01, np.full(2, 30.0))
    result = run_protocol(total(federation.sites, question), federation, run="r", quorum=0.5)
    assert result.noise[0] == pytest.approx((5 - lost) * share)
    hostile = max(5 - honest, 0)
    assert result.noise[0] - hostile * share >= 1 - 1e-12
    for site in sites:
        site.close()


def test_a_folder_that_answered_with_noise_answers_in_no_other_way(tmp_path):
    site = open_site("a", X, parse(DP), tmp_path)
    question = AskNoisyMoments(0.01, np.full(2, 30.0))
    site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),)))
    site.close()
    for rules in (
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
        'format = 1\n[protect]\nmode = "raw"',
    ):
        with pytest.raises(LedgerError, match="answered with differential privacy before"):
            open_site("a", X, parse(rules), tmp_path)
    open_site("a", X, parse(DP), tmp_path).close()


def test_a_shape_of_a_column_is_refused_by_a_site_with_dp_or_a_summary_table(tmp_path):
    """A logarithm fails if somebody has a value of 0 or less: the failure would tell."""
    table = Table.from_columns({"x": X[:, 0], "y": X[:, 1]})
    declared = DP + 'columns = ["x", "y"]\nlower = [-30, -30]\nupper = [30, 30]\n'
    transform = Preparation((Shaped("x", 0.0, 0.0, 1.0, "log", ()),), drop=False)
    for rules in (
        declared,
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
    ):
        site = open_site("a", table, parse(rules))
        for question in (AskMoments(), AskNoisyMoments(0.01, np.full(1, 30.0))):
            request = Request(RequestId("r", 0, 0, 0), (Part("total", question, transform, 0),))
            (reply,) = codec.unwrap(site.respond(codec.wrap(request)), expect=Response).replies
            assert "log(x): a summary table, or a declared table, has its columns as they are" in reply.reason
        site.close()


def test_a_failure_is_in_the_log_and_is_tried_again(tmp_path, monkeypatch):
    site = open_site("a", X, RAW, folder=tmp_path)
    request = codec.wrap(signed_post(None, ""))
    with monkeypatch.context() as patch:
        patch.setattr(AskMoments, "answer_all", lambda self, batch: 1 / 0)
        (reply,) = codec.unwrap(site.respond(request), expect=Response).replies
    assert reply.reason == "failed with ZeroDivisionError; the site's own log has the details"
    site.close()
    lines = [entry for _, entry in entries(tmp_path / "log.jsonl")]
    assert [line["kind"] for line in lines] == ["opening", "refusal"]
    assert lines[1]["refused"] == [reply.reason]
    site = open_site("a", X, RAW, folder=tmp_path)
    assert not isinstance(codec.unwrap(site.respond(request), expect=Response).replies[0], Refusal)
    site.close()


# ---------------------------------------------------------------- the sums


def federated(tmp_path, rules: str = SUMS, count: int = 4):
    table = {f"s{i}": Table.from_columns({"x": X[i::count, 0], "y": X[i::count, 1]}) for i in range(count)}
    sites = [open_site(name, rows, parse(rules), tmp_path / name) for name, rows in table.items()]
    return LocalFederation(sites, secure=SecureSums()), sites


WHOLE = (*range(-1074, -60, 130), *range(-60, 60, 5), *range(60, 1024, 130), 1023)  # exponents of floats


def searched(federation, ask) -> tuple[list, list[str]]:
    """A search over the whole range of floats: the sums that were answered, and why others were not."""
    seen, refused, wrapped = [], [], []
    for e in WHOLE:
        try:
            result = run_protocol(ask(2.0**e), federation, run=f"r{e}")
        except TooFewAnswersError as error:
            refused.append(str(error))
            continue
        except ReplyError as error:  # squares that wrapped around: all sites are in the sum
            wrapped.append(f"{e}: {error}")
            continue
        assert federation._secure_sums.out == {}
        seen.append(result.sums * 2.0**e)
        if e > 200:
            assert not seen.pop().any()  # nothing is left, at any site
    assert len(refused) > 15
    assert all(text.startswith("-") and "the secure sum is not possible" in text for text in wrapped)
    assert all("0 of 4 sites" in text for text in refused)  # all refuse, or none: not one by its numbers
    return seen, refused


def test_a_search_over_units_sees_the_sum_and_never_a_single_site(tmp_path):
    """In steps as large as a site's sum the total would count the sites above it: such units are refused.

    So are units in which a sum of squares would leave the range of a float, at one site before another.
    """
    federation, sites = federated(tmp_path)

    def asked(unit):
        return total(federation.sites, AskColumns(("x", "y"), np.zeros(2), np.full(2, unit), (), (), False))

    seen, refused = searched(federation, asked)
    assert 8 < len(seen) < 20
    np.testing.assert_allclose(seen, [seen[0]] * len(seen), rtol=1e-9)  # the sum, however it is asked
    for side in ("above", "below"):
        assert any(f"the unit of column x is far {side} the size of its values" in text for text in refused)
    for site in sites:
        site.close()


def test_a_search_over_scales_of_a_transform_ends_where_steps_would_tell(tmp_path):
    rows = {f"s{i}": X[i::4] for i in range(4)}
    sites = [open_site(name, own, parse(SUMS), tmp_path / name) for name, own in rows.items()]
    federation = LocalFederation(sites, secure=SecureSums())

    def asked(scale):
        return transformed(Affine(np.zeros(2), np.full(2, scale)), total(federation.sites, AskMoments()))

    seen, refused = searched(federation, asked)
    assert 8 < len(seen) < 20
    np.testing.assert_allclose(seen, [seen[0]] * len(seen), rtol=1e-9)
    for side in ("above", "below"):
        assert any(f"far {side} the size of its values" in text for text in refused)
    for site in sites:
        site.close()


NAMED = tuple(
    f"{form} {what}" for form in ("Number", "rank", "log") for what in ("scale", "shift", "fill", "knots")
)


@pytest.mark.parametrize("what", ["origin", "centres", "memberships", "shift", "rate", *NAMED])
def test_no_number_of_a_question_makes_one_site_refuse_and_another_answer(what):
    """Numbers of all sizes in every place that a coordinator fills: sites refuse for what is public."""
    rng = np.random.default_rng(0)
    sizes = dict(
        zip("abcd", (1.0, 1.1, 1.2, 1.3), strict=True)
    )  # stated alike, to a quarter of a power of ten
    rows = {name: np.abs(rng.normal(size=(60, 2))) * size + 1e-3 for name, size in sizes.items()}
    tables = {name: Table.from_columns({"x": own[:, 0], "y": own[:, 1]}) for name, own in rows.items()}
    named = what in NAMED
    bounds = {name: FixedPointRange(own) for name, own in (tables if named else rows).items()}
    answered = 0
    for e in (*range(-1074, 1024, 23), 1023):
        with np.errstate(all="ignore"):
            part = _part_with(what, 2.0**e)
            reasons, replies = set(), []
            for name, check in bounds.items():
                try:
                    check(part)
                except QueryRefusedError as error:
                    reasons.add(str(error))
                    continue
                own = (
                    part.transform.apply(tables[name] if named else rows[name])
                    if part.transform
                    else rows[name]
                )
                batch = SiteBatch(own, np.array([0, len(own)]), None, np.zeros(1, np.uint64))
                replies.append(part.question.answer(batch))
        assert len(reasons) == (0 if replies else 1), (e, reasons)
        for reply in replies:
            answered += 1
            for field in codec.field_names(type(reply)):
                assert (np.abs(getattr(reply, field)) < 2.0**116).all(), (e, field)
    assert answered


def _part_with(what: str, size: float) -> Part:
    """A question of a secure sum in which one number has this size."""
    one, centers = np.ones(2), np.array([[[0.5, 0.5], [1.0, 2.0]]])
    questions = {
        "origin": AskMoments(np.array([size, 0.0])),
        "centres": AskClusterSums(centers * np.array([size, 1.0])),
        "memberships": AskFuzzySums(centers, max(1 + size, float(np.nextafter(1, 2)))),
        "rate": AskEpochs(centers[0], 40, 1, size),
    }
    if what in questions:
        return Part("total", questions[what], None, 0)
    if what == "shift":
        return Part("total", AskMoments(), Affine(np.array([size, -size]), one), 0)
    form, place = what.split()
    numbers = {"fill": 0.5, "shift": 0.0, "scale": 1.0} | ({place: size} if place != "knots" else {})
    if form == "Number":
        column = Number("x", *(numbers[key] for key in ("fill", "shift", "scale")))
    else:
        knots = (0.0, size if place == "knots" else 1.0) if form == "rank" else ()
        column = Shaped("x", *(numbers[key] for key in ("fill", "shift", "scale")), form, knots)
    return Part("total", AskMoments(), Preparation((column,), drop=False), 0)


def test_there_is_no_format_to_choose_and_nothing_that_does_not_fit():
    """What a coordinator says of a sum is who and what, never how numbers are written."""
    assert set(codec.field_names(SumParameters)) == {
        "request_id",
        "epoch",
        "participants",
        "sites",
        "threshold",
        "asked",
    }
    assert set(codec.field_names(AskMasked)) == {"epoch", "sharers", "sealed", "parts"}
    assert set(codec.field_names(AskKeys)) == {"epoch"}


@pytest.mark.parametrize("count", [4, 5, 7])
def test_a_site_that_is_called_gone_does_not_come_back_and_at_most_a_third_can_be(tmp_path, count):
    """abcd minus abc is d: somebody who says that d is gone sees this once a run, and not of many sites."""
    federation, sites = federated(tmp_path, count=count)
    asked = AskColumns(("x", "y"), np.zeros(2), np.ones(2), (), (), False)
    assert run_protocol(total(federation.sites, asked), federation, run="r").rows[0] == 280
    names = federation.sites
    fewer = TransportFederation(_Fewer(federation, names[-1:]), secure=SecureSums())
    without = run_protocol(total(fewer.sites, asked), fewer, run="r", number=1)
    again = TransportFederation(federation._transport, secure=SecureSums())
    with_all = run_protocol(total(again.sites, asked), again, run="r", number=2)
    assert with_all.rows[0] == without.rows[0] < 280  # all are asked, and the one that left is not in it
    most = count - threshold_for(count)
    with pytest.raises((TooFewAnswersError, InputError), match=r"needed|at least 3 sites"):
        _asked_of(_Fewer(federation, names[-most - 1 :]), asked)
    for site in sites:
        site.close()


def _asked_of(transport, question):
    fewer = TransportFederation(transport, secure=SecureSums())
    return run_protocol(total(fewer.sites, question), fewer, run="r", number=3)


class _Fewer:
    """A carrier that leaves sites out, and says that there are none."""

    def __init__(self, federation, without: tuple[str, ...]) -> None:
        self._inner, self._without = federation._transport, without

    @property
    def sites(self):
        return tuple(site for site in self._inner.sites if site not in self._without)

    def send_and_receive(self, requests):
        return self._inner.send_and_receive(requests)


def test_two_stages_in_one_request_and_parts_out_of_order_are_refused(tmp_path):
    federation, sites = federated(tmp_path)
    seen: list[Request] = []
    send_and_receive = federation._transport.send_and_receive

    def noting(requests):
        seen.append(codec.unwrap(requests["s0"], expect=Request))
        return send_and_receive(requests)

    federation._transport.send_and_receive = noting
    asked = AskColumns(("x",), np.zeros(1), np.ones(1), (), (), False)
    run_protocol(total(federation.sites, asked), federation, run="q")
    masked = next(
        p for p in seen if any(isinstance(x.question, AskMasked) for x in p.parts) and p.request_id.run == "q"
    )
    (part, stage) = masked.parts
    for parts, says in (
        ((part, stage, stage), "does not know this sum|two stages"),
        (
            (part, replace(stage, question=replace(stage.question, parts=(0, 0)))),
            "cannot be summed|not know this sum",
        ),
        (
            (part, replace(stage, question=replace(stage.question, parts=()))),
            "cannot be summed|single site's",
        ),
        ((part, part, stage), "cannot be summed|not know this sum"),
    ):
        for reply in sites[0].answer(Request(masked.request_id, parts)).replies:
            assert isinstance(reply, Refusal)
            assert any(word in reply.reason for word in says.split("|")), reply.reason
    for site in sites:
        site.close()


def test_noise_and_summary_tables_do_not_mix_and_it_is_reported_before_anything_is_asked(tmp_path):
    """One site with dp among sites with summary tables: all private, or refused; no budget is spent."""
    from unpooled.app.job import Job, parse_ks
    from unpooled.data import PreparationOptions
    from unpooled.protocol.run_loop import run as do

    files = [Table.from_columns({"x": X[i::3, 0], "y": X[i::3, 1]}) for i in range(3)]
    declared = DP + 'columns = ["x", "y"]\nlower = [-30, -30]\nupper = [30, 30]\n'
    sites = [
        open_site(
            f"s{i}", table, parse(declared if i == 1 else SUMS.replace("required", "off")), tmp_path / f"s{i}"
        )
        for i, table in enumerate(files)
    ]
    federation = LocalFederation(sites)
    bounds = (("x", -30.0, 30.0), ("y", -30.0, 30.0))
    plain = Job(("",), parse_ks("3"))
    with pytest.raises(
        InputError, match="s1 answers only with differential privacy, and this run is not private"
    ):
        do(plain.algorithm, federation, seed=0)
    private = Job(("",), (3,), preparation_options=PreparationOptions(bounds=bounds), epsilon=1.0)
    with pytest.raises(InputError, match=r"s0, s2: .*needs it at every site"):
        do(private.algorithm, federation, seed=0)
    for site in sites:
        site.close()
    assert Ledger(tmp_path / "s1" / "ledger.sqlite", "s1").spent() == 0
    asked = {
        part["question"]
        for i in range(3)
        for _, entry in entries(tmp_path / f"s{i}" / "log.jsonl")
        for part in entry.get("asked", ())
    }
    assert asked == {codec.name_of(AskSchema)}


# ---------------------------------------------------------------- the log


def signed_post(authority, log_head: str, run="r", number=0, site="a"):
    from unpooled.protocol.exchange import countersignable

    seal = f"{log_head}:{authority.sign(countersignable(site, log_head)).hex()}" if log_head else ""
    part = Part("total", AskMoments(), None, 0)
    return Request(RequestId(run, 0, number, 0), (part,), seal)


RAW = parse('format = 1\n[protect]\nmode = "raw"\n')


def test_a_site_restored_from_an_old_backup_answers_nothing_until_its_newest_log_is_back(tmp_path):
    authority = Identity.new()
    opened = {"folder": tmp_path, "authority": authority.public}
    site, head = open_site("a", X, RAW, **opened), ""
    for number in range(3):
        head = site.answer(signed_post(authority, head, number=number)).head
        if number == 1:
            site.close()
            backup = {name: (tmp_path / name).read_bytes() for name in ("log.jsonl", "ledger.sqlite")}
            site = open_site("a", X, RAW, **opened)
    site.close()
    newest = {name: (tmp_path / name).read_bytes() for name in backup}
    for name, data in backup.items():
        (tmp_path / name).write_bytes(data)
    site = open_site("a", X, RAW, **opened)
    for _ in range(2):  # asked again: it does not grow into a log that looks long enough
        (reply,) = site.answer(signed_post(authority, head, number=3)).replies
        assert "restored from an old backup" in reply.reason
    site.close()
    for name, data in newest.items():
        (tmp_path / name).write_bytes(data)
    site = open_site("a", X, RAW, **opened)
    assert not isinstance(site.answer(signed_post(authority, head, number=3)).replies[0], Refusal)
    site.close()


def test_a_head_that_the_authority_did_not_sign_is_refused(tmp_path):
    authority = Identity.new()
    site = open_site("a", X, RAW, folder=tmp_path, authority=authority.public)
    head = site.answer(signed_post(authority, "")).head
    for wrong in (
        signed_post(Identity.new(), head, number=1),
        signed_post(authority, head, number=1, site="b"),
        replace(signed_post(authority, head, number=1), countersigned="0:zz"),
        replace(signed_post(authority, head, number=1), countersigned="x:y:z:" * 9),
    ):
        (reply,) = site.answer(wrong).replies
        assert "not countersigned by the authority" in reply.reason
    assert not isinstance(site.answer(signed_post(authority, head, number=1)).replies[0], Refusal)
    site.close()
    kinds = [entry["kind"] for _, entry in entries(tmp_path / "log.jsonl")]
    assert kinds == ["opening", "release", "countersigned", "release"]


def test_a_site_whose_log_was_changed_does_not_answer(tmp_path):
    site = open_site("a", X, RAW, folder=tmp_path)
    for number in range(4):
        site.answer(signed_post(None, "", number=number))
    site.close()
    log = tmp_path / "log.jsonl"
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    entry = json.loads(lines[2])
    entry["round"] = 7
    for wrong in (
        b"".join([*lines[:2], json.dumps(entry).encode() + b"\n", *lines[3:]]),
        whole.replace(b'"round":2', b'"round":3'),
        b"".join([*lines[:2], *lines[3:]]),
        b"".join([lines[0], lines[2], lines[1], *lines[3:]]),
        lines[0] + whole,
    ):
        log.write_bytes(wrong)
        with pytest.raises(LedgerError, match=r"another program changed line"):
            open_site("a", X, RAW, folder=tmp_path)
    log.write_bytes(b"".join(lines[:3]))  # cut: the ledger has seen more
    with pytest.raises(LedgerError, match="the log is lost, or older than the ledger"):
        open_site("a", X, RAW, folder=tmp_path)
    log.write_bytes(whole)
    site = open_site("a", X, RAW, folder=tmp_path)
    with log.open("ab") as file:
        file.write(b"{}\n")
    with pytest.raises(LedgerError, match=r"another program changed the log\. Nothing is sent"):
        site.answer(signed_post(None, "", number=9))
    site.close()


FULL = """
import resource, signal, sys
from pathlib import Path
from unpooled.errors import LedgerError
from unpooled.site.log import Log
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
log = Log(Path(sys.argv[1]))
log.append("opening", site="a")
size = Path(sys.argv[1]).stat().st_size
resource.setrlimit(resource.RLIMIT_FSIZE, (size + 300, resource.RLIM_INFINITY))
try:
    log.append("release", payload="x" * 1000)
except LedgerError as error:
    print(error)
assert Path(sys.argv[1]).stat().st_size == size
log.append("release", payload="short")
"""


def test_a_full_disk_is_reported_and_leaves_the_log_whole(tmp_path):
    from unpooled.site.log import verify

    log = tmp_path / "log.jsonl"
    done = subprocess.run([sys.executable, "-c", FULL, str(log)], capture_output=True, text=True, check=True)
    assert "so nothing is sent" in done.stdout
    assert verify(log) == []
    assert len(list(entries(log))) == 2
    whole = log.read_bytes()
    log.write_bytes(whole + b'{"digest":"half a line')  # the power went while a line was written
    assert verify(log) == []
    Log(log).close()
    assert log.read_bytes() == whole


def test_verify_names_what_does_not_fit_and_what_it_could_not_check(tmp_path):
    from typer.testing import CliRunner

    from unpooled.app.cli import app

    authority = Identity.new()
    site, head = open_site("a", X, RAW, folder=tmp_path, authority=authority.public), ""
    for number in range(3):
        head = site.answer(signed_post(authority, head, number=number)).head
    site.close()
    done = CliRunner().invoke(app, ["site", "log", "--verify", str(tmp_path)])
    assert done.exit_code == 0, done.output
    assert "2 times countersigned" in done.output
    assert "not checked: whether the end was cut off" in done.output
    assert "not checked: the policy" in done.output
    ledger = tmp_path / "ledger.sqlite"
    kept = ledger.read_bytes()
    ledger.unlink()
    done = CliRunner().invoke(app, ["site", "log", "--verify", str(tmp_path)])
    assert done.exit_code == 1
    assert "there is no ledger next to the log" in done.output
    ledger.write_bytes(kept)
    lone = tmp_path / "lone"
    lone.mkdir()
    (lone / "log.jsonl").write_bytes((tmp_path / "log.jsonl").read_bytes())
    done = CliRunner().invoke(app, ["site", "log", "--verify", str(lone)])
    assert done.exit_code == 0
    assert "not checked: the ledger: the log is not in the folder of its site" in done.output
    forged = []  # the whole chain written anew, with a seal of somebody else: every hash fits
    path = tmp_path / "forged" / "log.jsonl"
    path.parent.mkdir()
    log = Log(path)
    for _, entry in entries(tmp_path / "log.jsonl"):
        kind, rest = (
            entry["kind"],
            {k: v for k, v in entry.items() if k not in ("seq", "prev", "utc", "kind", "hash")},
        )
        if kind == "countersigned":
            rest["head"] = forged[int(rest["number"])]
            rest["signature"] = Identity.new().sign(b"anything").hex()
        forged.append(log.append(kind, **rest))
    log.close()
    done = CliRunner().invoke(app, ["site", "log", "--verify", str(path.parent)])
    assert done.exit_code == 1
    assert "the countersignature is not that of the federation's authority" in done.output


def test_the_audit_counts_what_could_be_read_singly(tmp_path):
    """A plain total is read singly by somebody who receives it; a masked one is not."""
    from unpooled.site.audit.overview import read

    federation, sites = federated(tmp_path, SUMS.replace("required", "preferred"))
    asked = AskColumns(("x", "y"), np.zeros(2), np.ones(2), (), (), False)
    run_protocol(total(federation.sites, asked), federation, run="masked")
    plain = LocalFederation(sites)
    run_protocol(total(plain.sites, asked), plain, run="plain")
    for site in sites:
        site.close()
    runs = {run.id: run for run in read(tmp_path / "s0").runs}
    assert (runs["masked"].alone, runs["masked"].masked) == (0, 1)
    assert (runs["plain"].alone, runs["plain"].masked) == (1, 0)
    assert runs["masked"].keys == 4
    assert runs["masked"].numbers == runs["plain"].numbers == 7  # bytes of keys and shares are no numbers
    assert STAGE == "stage"
