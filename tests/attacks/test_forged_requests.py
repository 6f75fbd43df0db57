"""Attacks on budget, sums and log, invented from the pages alone or suggested by the code."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest

from helpers import ledger_of
from unpooled.data import Number, Preparation, Table
from unpooled.data.transforms import Affine, Category
from unpooled.errors import InputError, LedgerError
from unpooled.federation import LocalFederation
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import SecureSums
from unpooled.privacy.dp.noise import Noise, SimulatedAccountant
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells, radius_limits
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.privacy.secure_sum import fixed_point
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import AskConsistency, AskKeys, Keys, Participants, as_array
from unpooled.protocol import codec
from unpooled.protocol.algorithm import total
from unpooled.protocol.exchange import (
    STAGE,
    Part,
    Request,
    RequestId,
    Response,
    countersignable,
    run_protocol,
)
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.budget_guard import BudgetGuard
from unpooled.site.ledger import Ledger
from unpooled.site.log import verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

DP = 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 1\n[domain]\nrows = 500\n'
COLUMNS = DP + 'columns = ["x", "ill"]\nlower = [-9, 0]\nupper = [9, 1]\n'
RAW = 'format = 1\n[protect]\nmode = "raw"\n'
X = np.random.default_rng(0).normal(size=(90, 2))
CHEAP = AskNoisyMoments(0.01, np.full(2, 5.0), 4)


def asked(site, request_id: RequestId, *parts: Part, countersigned: str = "") -> Response:
    """The answer of a site at the site, from bytes to bytes."""
    return codec.unwrap(site.respond(codec.wrap(Request(request_id, parts, countersigned))), expect=Response)


def reasons(answer: Response) -> list[str]:
    return [reply.reason if isinstance(reply, Refusal) else "" for reply in answer.replies]


def spent(site) -> float:
    return ledger_of(site).spent()


# ---------------------------------------------------------------- what a transform tells of rows under noise


def refusals(tables, rules: str, transform) -> set[str]:
    """All reasons that sites with these rows give to one transform: a single one, if they tell nothing."""
    found = set()
    for table in tables:
        site = open_site("a", table, parse(rules))
        for number, question in enumerate((AskMoments(), replace(CHEAP, box=np.full(1, 5.0)))):
            (why,) = reasons(asked(site, RequestId("r", 0, 0, number), Part("total", question, transform, 0)))
            found.add(f"{number}: {why}")
    return {why.partition(": ")[2] for why in found} if len(found) == 2 else found


def test_categories_of_a_column_of_numbers_do_not_tell_whether_anybody_has_a_one():
    ill = np.arange(90) == 40
    tables = [
        Table.from_columns({"x": X[:, 0], "ill": values}) for values in (np.zeros(90), ill.astype(float))
    ]
    transform = Preparation((Category("ill", ("a",), False, -1, 1.0),), drop=False)
    assert refusals(tables, COLUMNS, transform) == {"categories of column ill, which holds numbers"}


@pytest.mark.parametrize("rows", [89, 90, 91])
def test_a_shift_of_every_row_does_not_tell_how_many_there_are(rows):
    transform = Affine(np.zeros((rows, 1)), np.ones(2))
    assert refusals([X, X[:50]], DP, transform) == {f"a scaling of shape ({rows}, 1) for rows of 2 columns"}


def test_a_transform_that_would_fill_the_memory_of_large_sites_only_is_refused_by_all():
    transform = Preparation((Number("x", 0.0, 0.0, 1.0),) * 1000, drop=False)
    table = Table.from_columns({"x": X[:, 0], "ill": np.zeros(90)})
    assert refusals([table], COLUMNS, transform) == {"a preparation with a column twice"}


def test_a_fill_without_a_place_does_not_tell_whether_a_value_is_missing():
    whole, missing = ["f", "m"] * 20, ["f", "m"] * 19 + ["f", None]
    transform = Preparation((Category("sex", ("f", "m"), False, 5, 1.0),), drop=False)
    for sexes in (whole, missing):
        site = open_site("a", Table.from_columns({"sex": sexes}), parse(RAW))
        (why,) = reasons(asked(site, RequestId("r", 0, 0, 0), Part("total", AskMoments(), transform, 0)))
        assert why == "column sex: a missing value has no place 5"


# ---------------------------------------------------------------- what a row adds to a noisy reply


def shift_of_a_row(monkeypatch, question, rows, row) -> float:
    """How far one row more moves a reply, in standard deviations of its noise, over the price's root."""
    sums: list[np.ndarray] = []

    def added(self, whole, step, sd):
        sums.append(whole.ravel() * (step / sd))
        return np.zeros(whole.shape)

    monkeypatch.setattr(Noise, "added", added)
    replies = []
    for X in (rows, np.vstack([rows, row])):
        sums.clear()
        noise = SimulatedAccountant().spend([1.0], [1.0])
        question.answer(SiteBatch(X, np.array([0, len(X)]), None, np.zeros(1, np.uint64), noise=noise))
        replies.append(np.concatenate(sums))
    return float(np.linalg.norm(replies[1] - replies[0])) / question.mu


def test_a_box_whose_squares_underflow_is_refused():
    """In it the norm of a row came out too small, and one row counted as ten under the noise of one."""
    narrow = np.full(400, 1.5e-162)
    narrow[0] = 2.3e-162
    for box in (narrow, np.full(2, 1e-163), np.full(2, 1e155), np.array([np.nan])):
        for ask in (
            lambda box: AskNoisyMoments(0.1, box),
            lambda box: AskNoisySpread(0.1, box),
            lambda box: AskNoisyCells(0.1, np.zeros((1, len(box))), box, np.zeros(1), (0.4, 0.3, 0.3)),
        ):
            with pytest.raises(InputError, match="box must be"):
                ask(box)


def test_no_row_shifts_a_noisy_reply_by_more_than_was_paid_for(monkeypatch):
    """Random boxes, radii, centres that coincide, fuzzifiers near 1 and rows on the edge of what is exact."""
    rng = np.random.default_rng(1)
    for _ in range(150):
        d, clusters = int(rng.integers(1, 5)), int(rng.integers(1, 4))
        box = 10.0 ** rng.integers(-100, 101, size=d if rng.random() < 0.5 else 1) * np.ones(d)
        centers = rng.integers(-1, 2, size=(clusters, d)) * box * rng.choice([1, 0.5, 1e-8])
        rho = rng.choice(radius_limits(box), size=clusters)
        m = rng.choice([1 + 1e-12, 1.001, 2.0, 100.0]) if rng.random() < 0.7 else None
        mu = float(rng.choice([1e-6, 0.1, 100.0]))
        row = rng.choice([0, 1, -1, 1e-9, 1e6]) * box if rng.random() < 0.5 else centers[0]
        rows = rng.integers(-1, 2, size=(3, d)) * box
        for question in (
            AskNoisyMoments(mu, box),
            AskNoisySpread(mu, box),
            AskNoisyCells(mu, centers, box, rho, (0.3, 0.3, 0.4), m),
        ):
            assert shift_of_a_row(monkeypatch, question, rows, row) <= 1 + 1e-9


# ---------------------------------------------------------------- the budget


@pytest.mark.parametrize("mu", [np.nan, np.inf, -1.0, 0.0, 1e-9, 1e200])
def test_a_price_that_is_no_price_is_no_message(mu):
    site = open_site("a", X, parse(DP))
    forged = replace(CHEAP)
    object.__setattr__(forged, "mu", mu)
    (why,) = reasons(asked(site, RequestId("r", 0, 0, 0), Part("total", forged, None, 0)))
    assert why.startswith("not a message for this site")
    assert spent(site) == 0


def test_parts_of_one_request_are_paid_together_or_not_at_all():
    site = open_site("a", X, parse(DP))
    budget = next(step for step in site.chain.steps if isinstance(step, BudgetGuard))
    half = replace(CHEAP, mu=0.8 * budget._limits.spent**0.5)  # 64 % of the budget
    parts = [Part("total", half, None, i) for i in range(2)]
    assert all("privacy budget" in why for why in reasons(asked(site, RequestId("r", 0, 0, 0), *parts)))
    assert spent(site) == 0
    assert reasons(asked(site, RequestId("r", 0, 0, 1), parts[0])) == [""]


def test_a_noisy_question_that_calls_itself_a_stage_costs_nothing(tmp_path):
    """Nor does one beside a stage that is refused when the noise is paid for."""
    site = open_site("a", X, parse(DP), tmp_path)
    question, stage = (
        Part("total", CHEAP, None, 0),
        Part(STAGE, AskConsistency("e", ("a", "b", "c")), None, 0),
    )
    for number, parts in enumerate(((Part(STAGE, CHEAP, None, 0),), (question, stage))):
        assert all(reasons(asked(site, RequestId("r", 0, 0, number), *parts)))
        assert spent(site) == 0
    assert not any(reasons(asked(site, RequestId("r", 0, 0, 9), Part(STAGE, AskKeys("e"), None, 0))))
    site.close()


def test_what_was_paid_and_could_not_be_kept_is_paid_again_and_never_disclosed(tmp_path, monkeypatch):
    """A disk that is full between price and answer: one answer leaves, and two prices are in the ledger."""
    site, request_id, part = (
        open_site("a", X, parse(DP), tmp_path),
        RequestId("r", 0, 0, 0),
        Part("total", CHEAP, None, 0),
    )

    def full(*_):
        raise LedgerError("full")

    with monkeypatch.context() as patched:
        patched.setattr(Ledger, "keep", full)
        assert reasons(asked(site, request_id, part)) == [
            "failed with LedgerError; the site's own log has the details"
        ]
    first = asked(site, request_id, part)
    assert spent(site) == pytest.approx(2 * CHEAP.privacy_cost)
    site.close()
    site = open_site("a", X, parse(DP), tmp_path)
    again = asked(site, request_id, part)
    assert codec.encode(first) == codec.encode(again)
    site.close()


# ---------------------------------------------------------------- log and ledger


def test_a_run_whose_name_imitates_lines_of_the_log_leaves_it_whole(tmp_path):
    site = open_site("a", X, parse(DP), tmp_path)
    names = ("\0packed", '","hash":"0"}\n{"seq":1,', '"prev":"' + "0" * 64 + '"', "\u2028", "a" * 100_000)
    for name in names:
        assert reasons(asked(site, RequestId(name, 0, 0, 0), Part("total", CHEAP, None, 0))) == [""]
    site.close()
    assert verify(tmp_path / "log.jsonl") == []
    open_site("a", X, parse(DP), tmp_path).close()
    lines = map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    assert [line["run"] for line in lines if line["kind"] == "release"] == list(names)


def test_a_log_without_its_last_answer_gives_the_same_noise_and_does_not_fit_the_heads(tmp_path):
    """The ledger does not see that the last line is gone; it has the answer, and the coordinator the head."""
    site, request_id, part = (
        open_site("a", X, parse(DP), tmp_path),
        RequestId("r", 0, 0, 0),
        Part("total", CHEAP, None, 0),
    )
    first = asked(site, request_id, part)
    site.close()
    log = tmp_path / "log.jsonl"
    log.write_bytes(b"".join(log.read_bytes().splitlines(keepends=True)[:-1]))
    number, _, head = first.head.partition(":")
    assert verify(log) == []
    assert "cut off" in str(verify(log, {int(number): head})[0])
    site = open_site("a", X, parse(DP), tmp_path)
    again = asked(site, request_id, part)
    assert codec.encode(replace(first, head="")) == codec.encode(replace(again, head=""))
    assert spent(site) == pytest.approx(CHEAP.privacy_cost)
    site.close()
    assert "rewritten" in str(verify(log, {int(number): head})[0])


def test_a_folder_that_is_copied_or_opened_twice_is_one_site_at_a_time(tmp_path):
    """Of two tables of a folder, only the one whose log has the countersigned head continues."""
    authority = Identity.new()
    one, two = tmp_path / "one", tmp_path / "two"
    site = open_site("a", X, parse(DP), one, authority=authority.public)
    with pytest.raises(LedgerError, match="in use by another process"):
        open_site("a", X, parse(DP), one, authority=authority.public)
    site.close()
    shutil.copytree(one, two)
    sites = [open_site("a", X, parse(DP), folder, authority=authority.public) for folder in (one, two)]
    part = Part("total", CHEAP, None, 0)
    head = asked(sites[0], RequestId("r", 0, 0, 0), part).head
    signed = f"{head}:{authority.sign(countersignable('a', head)).hex()}"
    (why,) = reasons(asked(sites[1], RequestId("r", 0, 1, 0), part, countersigned=signed))
    assert "restored from an old backup" in why
    assert spent(sites[1]) == 0
    assert reasons(asked(sites[0], RequestId("r", 0, 1, 0), part, countersigned=signed)) == [""]
    for site in sites:
        site.close()


# ---------------------------------------------------------------- secure sums


def test_the_last_bits_of_sums_in_many_scales_tell_the_size_of_the_smallest_part():
    """What docs/secure-sums.md says that it does not stop: from the words of totals alone."""
    parts = np.array([8.12275736, -72.2266, 97.62889, -13.5539])

    def last_bit(scale: float) -> int:
        bits = []
        for j in range(16):  # the last bit of each is set in half of all scales
            words = np.zeros((2, 1), np.uint64)
            for part in parts:
                fixed_point.add(words, fixed_point.encode(np.array([part / (scale * (1 + j * 1e-11))])))
            whole = int(words[0, 0]) | int(words[1, 0]) << 64
            bits.append((whole & -whole).bit_length())
        return min(bits)

    low, high = 1.0, 1.9
    start, sums = last_bit(low), 0
    assert last_bit(high) < start
    while high - low > 1e-8:
        middle, sums = (low + high) / 2, sums + 16
        low, high = (middle, high) if last_bit(middle) == start else (low, middle)
    assert low * 8 == pytest.approx(abs(parts).min(), rel=1e-7)
    assert sums < 1000


LIES = {
    "a participant list of another run": {
        "participants": as_array(codec.encode(Participants("q", ("s3",), ("00" * 32,))))
    },
    "a participant list that nobody signed": {
        "participants": as_array(codec.encode(Participants("r", ("s3",), ("00" * 32,))))
    },
    "no participant list": {"participants": as_array(b"no participant list")},
    "others have left": {"departed": ("s0", "s1")},
}


@pytest.mark.parametrize("lie", LIES)
def test_a_site_that_lies_about_the_participants_is_left_out_by_name_and_the_run_goes_on(tmp_path, lie):
    """The first word of a site, beside its key: what it remembers of the run."""
    authority, rules = (
        Identity.new(),
        parse(
            "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
            "no_sensitive_columns = true\n"
        ),
    )
    sites = [
        open_site(f"s{i}", X[i::4], rules, tmp_path / f"s{i}", authority=authority.public) for i in range(4)
    ]
    transport = LocalFederation(sites)._transport
    send_and_receive = transport.send_and_receive

    def lying(requests):
        came = dict(send_and_receive(requests))
        answer = codec.unwrap(came["s3"], expect=Response) if "s3" in came else None
        if answer is not None and isinstance(answer.replies[0], Keys):
            came["s3"] = codec.wrap(replace(answer, replies=(replace(answer.replies[0], **LIES[lie]),)))
        return came

    transport.send_and_receive = lying
    federation = TransportFederation(transport, secure=SecureSums(), sign=authority.sign)
    assert run_protocol(total(federation.sites, AskMoments()), federation, run="r").n == 68
    assert federation._secure_sums.out == {"s3": "its key was not usable"}
    for site in sites:
        site.close()


def test_sites_that_are_killed_after_every_stage_end_with_the_sum_of_those_that_are_not(tmp_path):
    rules = parse(
        "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true\n"
        '[aggregation]\nsecure = "required"\n'
    )
    folders = {f"s{i}": tmp_path / f"s{i}" for i in range(3)}
    for i, (name, folder) in enumerate(folders.items()):
        open_site(name, X[i::3], rules, folder).close()
    sites = [open_site(name, None, rules, folder) for name, folder in folders.items()]
    federation = LocalFederation(sites, secure=SecureSums())
    plain = run_protocol(total(federation.sites, AskMoments()), federation, run="plain")
    transport, stages = federation._transport, []
    send_and_receive = transport.send_and_receive

    def killed(requests):
        stages.append(len(requests))
        came = send_and_receive(requests)
        for i, (name, folder) in enumerate(folders.items()):
            sites[i].close()
            sites[i] = open_site(name, None, rules, folder)
        transport._members = {site.name: site for site in sites}
        return came

    transport.send_and_receive = killed
    again = run_protocol(total(federation.sites, AskMoments()), federation, run="killed")
    assert len(stages) == 5
    assert codec.encode(plain) == codec.encode(again)
    for site in sites:
        site.close()
