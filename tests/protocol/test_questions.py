"""The contract of questions: what each declares is true, and every reply that breaks it is refused by name.

Questions are found by introspection, so none can be forgotten: a new one needs a line in SAMPLES.
"""

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
import pytest

from question_samples import QUESTIONS, rows, samples
from unpooled.algorithms import METHODS, Method
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_question import AskSummary
from unpooled.data.table import Table
from unpooled.errors import CodecError, InputError, ReplyError
from unpooled.federation.member_tree import AskMembers
from unpooled.optimality.bounds import AskBounds
from unpooled.optimality.questions import AskNode
from unpooled.privacy.dp.noise import SimulatedAccountant
from unpooled.privacy.dp.private_questions import PrivateQuestion
from unpooled.privacy.secure_sum.stage_messages import STAGES
from unpooled.protocol import codec, declarations
from unpooled.protocol.declarations import Count, Figure, Mean, Numbers, Sum, Text
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Question, Refusal, Reply, Summable
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.protocol.questions.description import AskCrossing
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.typing import FloatArray

ROWLESS = (*STAGES, AskMembers)  # a relay answers the last, and a site refuses it


def table(seed: int, n: int = 40) -> Table:
    """Two numbers, one with missing values, and a categorical column."""
    rng = np.random.default_rng(seed)
    values = np.column_stack([rng.normal(50, 9, n), rng.normal(0, 1, n), rng.integers(0, 3, n)])
    values[:7, 1] = np.nan
    return Table(("age", "bmi", "sex"), ("number", "number", "category"), {"sex": ("f", "m", "x")}, values)


def about_tables():
    return [
        AskSchema(),
        AskColumns(("age", "bmi"), np.zeros(2), np.ones(2), ("sex",), (("f", "m", "x"),), False),
        AskColumns((), np.zeros(0), np.ones(0), (), (), True),
    ]


def reply_to(question, seed: int, *, weights=None, minimum: float = 1.0, twice: bool = False):
    """An honest site's reply."""
    X = table(seed) if question.reads == "table" else rows(seed)
    if twice:
        X = (
            replace(X, values=np.repeat(X.values, 2, axis=0))
            if question.reads == "table"
            else np.repeat(X, 2, axis=0)
        )
    noise = SimulatedAccountant().spend([1.0], [1.0])
    batch = SiteBatch(
        X, np.array([0, len(X)]), weights, np.array([7], dtype=np.uint64), minimum, memory=({},), noise=noise
    )
    return question.answer(batch)


CASES = [(type(q).__name__, i) for i, q in enumerate([*samples(0), *about_tables()])]
each_sample = pytest.mark.parametrize(("name", "i"), CASES, ids=[f"{n}-{i}" for n, i in CASES])


def sample(i: int, seed: int = 0):
    return [*samples(seed), *about_tables()][i]


def test_every_question_of_the_package_has_a_sample():
    made = {type(q) for q in (*samples(0), *about_tables())}
    assert set(QUESTIONS) == made | set(ROWLESS) | {AskSummary}  # federation/test_relay_summary.py
    assert len(QUESTIONS) >= 34


@pytest.mark.parametrize("kind", QUESTIONS, ids=lambda q: q.__name__)
def test_every_question_declares_all_of_itself(kind):
    assert kind.undeclared() == ""
    other = {
        **dict.fromkeys(ROWLESS, "nothing"),
        AskSchema: "table",
        AskColumns: "table",
        AskSummary: "groups",
        AskExactSums: "raw rows",
    }
    assert kind.reads == other.get(kind, "rows")


@each_sample
@pytest.mark.parametrize("minimum", [1.0, 5.0])
def test_every_declaration_is_true_on_random_data(name, i, minimum):
    for seed in range(8):
        question = sample(i, seed)
        reply = reply_to(question, seed, minimum=minimum)
        question.check_reply(reply)
        if isinstance(reply, Summable):
            question.check_reply(reply + reply, sites=2)


def changed(reply, name, value):
    return replace(reply, **{name: value})


@each_sample
def test_every_wrong_reply_is_refused_by_name(name, i):
    question = sample(i)
    reply = reply_to(question, 0)
    with pytest.raises(ReplyError, match="Refusal where"):
        question.check_reply(Refusal("no"))
    lengths = question.lengths()
    for field, declaration in declarations.declared(type(reply)).items():
        value = getattr(reply, field)
        if isinstance(declaration, Text):
            with pytest.raises(ReplyError):
                question.check_reply(changed(reply, field, (*value, "more")))
            continue
        wrong = [value[None], value.astype(np.float32), np.zeros(value.shape, dtype=np.int64), "text"]
        wrong += [
            np.concatenate([value, value[:1]]) if value.size else value[None]
            for axis in declaration.axes[:1]
            if axis.isdigit() or axis in lengths
        ]
        if value.size and isinstance(declaration, Figure):
            if not declaration.may_be_missing:
                wrong += [np.full_like(value, odd) for odd in (np.nan, np.inf, -np.inf)]
            if np.isfinite(declaration.min_value):
                wrong += [np.full_like(value, declaration.min_value - 1.0)]
            if np.isfinite(declaration.max_value):
                wrong += [np.full_like(value, declaration.max_value + 1.0)]
        for bad in wrong:
            with pytest.raises(ReplyError, match=field):
                question.check_reply(changed(reply, field, bad))


@each_sample
def test_counts_and_sums_double_with_the_weights_and_means_stay(name, i):
    """Which fields are counts, sums and means, and of which rows."""
    for seed in range(4):
        question = sample(i, seed)
        if isinstance(question, PrivateQuestion | AskNode | AskBounds):
            continue  # noise; or solved at prices, which weights change
        if question.reads == "table" or isinstance(question, AskLocalMoves):
            one, two = reply_to(question, seed), reply_to(question, seed, twice=True)
        else:
            one = reply_to(question, seed, weights=np.ones(40))
            two = reply_to(question, seed, weights=np.full(40, 2.0))
        for field, declaration in question.figures().items():
            a, b = getattr(one, field), getattr(two, field)
            if isinstance(declaration, Count | Sum):
                np.testing.assert_allclose(b, 2 * a, rtol=1e-9, atol=1e-9, err_msg=field)
            elif isinstance(declaration, Mean):
                np.testing.assert_allclose(b, a, rtol=1e-9, atol=1e-9, err_msg=field)


@each_sample
def test_counts_are_of_the_sites_rows(name, i):
    question = sample(i)
    reply = reply_to(question, 0)
    for field, declaration in question.figures().items():
        if isinstance(declaration, Count):
            assert np.nanmax(getattr(reply, field), initial=0) <= 40 + declaration.extra
        if isinstance(declaration, Sum | Mean) and declaration.rows != "site":
            assert isinstance(question.figures()[declaration.rows], Count)


# ---------------------------------------------------------------- a question that declares nothing


@dataclass(frozen=True, eq=False)
class Sums(Summable, prefix="test_questions"):
    sums: FloatArray


@dataclass(frozen=True, eq=False)
class AskSums(Question[Sums], prefix="test_questions"):
    def answer_all(self, batch):
        return [Sums(batch.site(s).X.sum(axis=0)) for s in range(len(batch))]


@dataclass(frozen=True, eq=False)
class Declared(Summable, prefix="test_questions"):
    sums: Annotated[FloatArray, Sum("d")]


@dataclass(frozen=True, eq=False)
class AskHidden(Question[Declared], prefix="test_questions"):
    reads = "rows"

    means: FloatArray


@dataclass(frozen=True, eq=False)
class AskOther(Question[Declared], prefix="test_questions"):
    """Sends what it does not declare."""

    reads = "rows"

    what: Annotated[FloatArray, Numbers("d")]

    def answer_all(self, batch):
        return [Declared(batch.X.ravel())]


@pytest.mark.parametrize(
    ("question", "why"),
    [
        (AskSums(), r"does not declare what it reads"),
        (AskHidden(np.zeros(2)), r"does not declare what it sends as means"),
    ],
)
def test_a_question_that_declares_nothing_is_refused_by_a_real_site(question, why):
    site = open_site("a", rows(0), parse('format = 1\n[protect]\nmode = "raw"'))
    (reply,) = site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))).replies
    assert isinstance(reply, Refusal)
    assert why in reply.reason


def test_a_reply_that_is_not_as_declared_does_not_leave_a_real_site(monkeypatch):
    monkeypatch.setattr("unpooled.site.guards.allowed", lambda *_, **__: {"test_questions.AskOther"})
    site = open_site("a", rows(0), parse('format = 1\n[protect]\nmode = "raw"'))
    request = Request(RequestId("r", 0, 0, 0), (Part("each", AskOther(np.zeros(2)), None, 0),))
    (reply,) = site.answer(request).replies
    assert reply.reason == "the reply to test_questions.AskOther is not what test_questions.AskOther declares"


@dataclass(frozen=True, eq=False)
class Positive(Summable, prefix="test_questions"):
    sums: Annotated[FloatArray, Sum("d", min_value=0.0)]


@dataclass(frozen=True, eq=False)
class AskPositive(Question[Positive], prefix="test_questions"):
    """A reply whose sign is wrong at some rows: a refusal must not say which number it was."""

    reads = "rows"

    def answer_all(self, batch):
        return [Positive(-np.abs(batch.site(s).X).max(axis=0)) for s in range(len(batch))]


def test_a_refusal_holds_no_number_from_the_rows(monkeypatch):
    monkeypatch.setattr("unpooled.site.guards.allowed", lambda *_, **__: {"test_questions.AskPositive"})
    reasons = set()
    for seed in range(3):
        site = open_site("a", rows(seed), parse('format = 1\n[protect]\nmode = "raw"'))
        request = Request(RequestId("r", 0, 0, 0), (Part("total", AskPositive(), None, 0),))
        (reply,) = site.answer(request).replies
        assert isinstance(reply, Refusal)
        reasons.add(reply.reason)
    assert len(reasons) == 1
    assert not any(letter.isdigit() for letter in reasons.pop())


def test_arrays_of_a_question_that_do_not_fit_together_are_refused():
    with pytest.raises(InputError, match=r"AskCrossing: others of shape \(2, 3, 4\), not \(2, 3, 2\)"):
        AskCrossing(np.zeros((3, 2)), np.zeros((2, 3, 4))).lengths()
    site = open_site("a", rows(0), parse('format = 1\n[protect]\nmode = "raw"'))
    question = AskCrossing(np.zeros((3, 2)), np.zeros((2, 3, 4)))
    (reply,) = site.answer(Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))).replies
    assert "others of shape" in reply.reason


# ---------------------------------------------------------------- wire names


def test_two_messages_of_one_name_are_an_error():
    with pytest.raises(CodecError, match=r"two messages travel as 'test_questions.AskSums': "):

        @dataclass(frozen=True, eq=False)
        class AskSums(Reply, prefix="test_questions"):
            mass: float


def test_a_message_of_another_author_needs_a_prefix():
    @dataclass(frozen=True, eq=False)
    class Unnamed(Reply):
        number: int

    with pytest.raises(CodecError, match="its class has no prefix"):
        codec.encode(Unnamed(3))
    with pytest.raises(CodecError, match="the prefix must be a name"):
        type("Odd", (Reply,), {}, prefix="a.b")
    with pytest.raises(InputError, match="a method outside of unpooled needs a prefix"):
        type("Mine", (Method,), {}, method="mine")
    assert "mine" not in METHODS


def test_a_class_that_is_defined_again_takes_its_own_place():
    def define():
        @dataclass(frozen=True, eq=False)
        class Again(Reply, prefix="test_questions"):
            number: int

        return Again

    define()
    again = define()
    assert type(codec.decode(codec.encode(again(3)))) is again


def test_a_message_of_another_format_is_refused():
    data = bytearray(codec.encode(AskMoments()))
    data[4] += 1
    with pytest.raises(CodecError, match="message of format 2, and this release reads format 1"):
        codec.decode(bytes(data))


def test_every_message_of_the_package_travels_under_the_name_of_its_class():
    for name, kind in codec.registered().items():
        assert codec.name_of(kind) == name
        assert name == kind.__name__ or not kind.__module__.startswith("unpooled.")
