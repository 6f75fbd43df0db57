"""A site refuses a message that would keep it busy without end, or take all of its memory.

Every field of every question that decides on work or memory is tried; test_questions.py demands a sample of
each question.
"""

import tracemalloc
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pytest

from helpers import EXACT
from question_samples import K, rows, samples
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.kfed import AskDennisMeans
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data import Number, Preparation, Table
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.transforms import Affine, Category
from unpooled.errors import InputError
from unpooled.federation import Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.optimality.bounds import AskBounds
from unpooled.optimality.questions import AskNode
from unpooled.privacy.dp.noise import SimulatedAccountant
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.privacy.secure_sum.stage_messages import AskShares, Participants, SumParameters
from unpooled.protocol import codec, limits
from unpooled.protocol.declarations import (
    Declaration,
    Length,
    Repeats,
    Scalar,
    Work,
    declared,
    declared_fields,
    shape_of,
)
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskDrawnSums,
    AskLocalMeans,
    AskMoments,
    AskScatter,
)
from unpooled.protocol.questions.description import (
    AskBorders,
    AskCovariance,
    AskCrossing,
    AskOutline,
    AskProfile,
)
from unpooled.protocol.questions.fuzzy_sums import AskDirections, AskFuzzyMeans, AskFuzzyMoves
from unpooled.protocol.questions.sums_with_missing import AskObservedProfile
from unpooled.protocol.site_batch import SiteBatch
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

D = 2
C = np.zeros((3, D))
COLUMNS = AskColumns(("x", "y"), np.zeros(2), np.ones(2), ("sex",), (("f", "m"),), False)
EVERY = (*samples(0), COLUMNS, AskSchema())
SAMPLES = {type(q): q for q in sorted(EVERY, key=lambda q: sum(v is not None for v in vars(q).values()))}
EVERYTHING = """
[jobs]
algorithms = ["lloyd", "dual", "dwf", "ewf", "fkm", "fuzzy", "k-fed", "mini-batch", "robust"]
[wire]
max_message_bytes = 1_000_000_000
"""


def site_of(mode="summary", X=None, folder=None):
    more = "rows = 1000\n[dp]\nepsilon_total = 8.0\ndelta = 1e-6\n" if mode == "dp" else ""
    more = f"[domain]\n{more}" if more else ""
    text = f'format = 1\n[protect]\nmode = "{mode}"\nauto_approve = true\none_row_per_person = true\n'
    text += "no_sensitive_columns = true\n"
    text += f"{more}{EVERYTHING}"
    return open_site("a", rows(0) if X is None else X, parse(text), folder)


@pytest.fixture(scope="module")
def site():
    return site_of()


def respond(site, *questions, transform=None, verb="each", number=0):
    """The replies of a site to bytes, as a transport hands them over."""
    parts = tuple(Part(verb, question, transform, i) for i, question in enumerate(questions))
    answer: Response = codec.unwrap(site.respond(codec.wrap(Request(RequestId("r", 0, number, 0), parts))))
    return answer.replies


def reason(site, *questions, **how):
    replies = respond(site, *questions, **how)
    assert all(isinstance(reply, Refusal) for reply in replies), replies
    return replies[0].reason


# ---------------------------------------------------------------- small messages that never ended

ENDLESS = [
    (AskEpochs(C, 10**15, 0, 1.0), "AskEpochs: epochs = 1,000,000,000,000,000.", "10,000"),
    (AskLocalMeans(3, n_init=10**12), "AskLocalMeans: n_init = 1,000,000,000,000.", "1,000"),
    (AskLocalMeans(3, steps=10**12), "AskLocalMeans: steps = 1,000,000,000,000.", "10,000"),
    (AskLocalMeans(10**12), "AskLocalMeans: k = 1,000,000,000,000.", "100,000"),
    (AskDennisMeans(3, 10**400), "AskDennisMeans: steps = more than 10^18.", "10,000"),
    (AskFuzzyMeans(C, 2.0, 10**15, 0.0), "AskFuzzyMeans: steps = 1,000,000,000,000,000.", "10,000"),
    (AskFuzzyMoves(C[None], 2.0, 10**15, 0.0, "sum(u)"), "AskFuzzyMoves: steps = 1,000,000,", "10,000"),
    (AskFuzzyMoves(C[None], 2.0, -1, 0.0, "sum(u)"), "AskFuzzyMoves: steps = -1.", "10,000"),
    (AskLocalMoves(C, 10**15, "counts"), "AskLocalMoves: steps = 1,000,000,000,000,000.", "10,000"),
    (AskNode(C, C, C, "none", C, 2**62), "AskNode: nodes = more than 10^18.", "10,000,000"),
]


@pytest.mark.parametrize(("question", "says", "most"), ENDLESS, ids=[says for _, says, _ in ENDLESS])
@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_a_small_message_that_never_ended_is_refused_with_its_limit(mode, question, says, most):
    printed = reason(site_of(mode), question)
    assert says in printed
    assert f"A site answers at most {most}." in printed


def test_settings_that_are_each_allowed_can_be_too_much_together(site):
    printed = reason(site, AskLocalMeans(1000, n_init=1000, steps=10_000))
    assert printed == (
        "AskLocalMeans: with it the message compares every row 10,000,000,000 times with a centre. "
        "A site answers at most 100,000,000."
    )
    many = AskFuzzyMoves(np.zeros((50, 300, D)), 2.0, 10_000, 0.0, "sum(u^m)")
    assert "compares every row 150,000,000 times" in reason(site, many)
    assert replace(many, steps=0).comparisons() == 50 * 300 * 300  # 0 stands for 300 steps


def test_the_questions_of_a_message_count_together(site):
    one = AskLocalMeans(3, n_init=1000, steps=10_000)
    assert one.comparisons() == 30_000_000
    assert "compares every row 120,000,000 times" in reason(site, one, one, one, one)
    crossing = AskCrossing(np.zeros((1000, D)), np.zeros((3, 1000, D)))
    assert "the answer would have 9,000,000 numbers" in reason(site, crossing, crossing, crossing)


@pytest.mark.parametrize(
    ("question", "numbers"),
    [
        (AskCrossing(np.zeros((2000, D)), np.zeros((3, 2000, D))), "12,000,000"),
        (AskCovariance(np.zeros(5000)), "25,005,001"),
        (AskDirections(C, 2.0, 0, np.zeros((3, 10**5))), None),
        (AskOutline(np.zeros((10**5, 2)), np.zeros(10**5)), None),
        (AskOutline(np.zeros((2, 10**5)), np.zeros(D)), None),
        (AskScatter(np.zeros((3, 10**5))), None),
        (AskDrawnSums(C[None], np.zeros(10**5), 1.0, 0.0, 7), None),
    ],
)
def test_an_answer_that_would_be_too_long_and_another_number_of_columns_are_refused(site, question, numbers):
    printed = reason(site, question)
    assert (
        f"the answer would have {numbers} numbers" in printed
        if numbers
        else "olumns" in printed or "shape" in printed
    )


def test_a_message_with_very_many_questions_or_transforms_is_refused(site):
    assert "a message of 10,001 queries" in reason(site, *[AskMoments()] * 10_001)
    transforms = [Affine(np.full(D, float(i)), np.ones(D)) for i in range(17)]
    parts = [Part("each", AskMoments(), transform, i) for i, transform in enumerate(transforms)]
    for some, refused in ((parts, True), (parts[:16] * 2, False)):
        answer = site.answer(Request(RequestId("views", 0, len(some), 0), tuple(some)))
        assert isinstance(answer.replies[0], Refusal) is refused
        assert not refused or "17 different transforms" in answer.replies[0].reason


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_a_transform_cannot_make_rows_of_very_many_columns(mode):
    named = site_of(mode, Table.from_columns({"x": rows(0)[:, 0], "sex": ["f", "m"] * 20}))
    number = Number("x", 0.0, 0.0, 1.0)
    categories = Category("sex", tuple(f"l{i}" for i in range(10_000)), False, 0, 1.0)
    assert "a transform with 10,001 columns" in reason(
        named, AskMoments(), transform=Preparation((number, categories), False)
    )
    known = replace(categories, categories=("f", "m"))
    transform = Preparation((number, known), False)
    assert not isinstance(respond(named, AskMoments(), transform=transform, number=1)[0], Refusal)


def test_a_column_cannot_be_asked_for_twice_in_one_question():
    named = site_of("raw", Table.from_columns({"x": rows(0)[:, 0], "sex": ["f", "m"] * 20}))
    twice = AskColumns(("x", "x"), np.zeros(2), np.ones(2), (), (), False)
    assert "a column twice" in reason(named, twice, verb="total")


# ---------------------------------------------------------------- every field of every question


def enlarged(question, axis, length):
    """The same question with an axis of this length, in all of its fields."""
    changed = {}
    for name, declaration, value in declared_fields(question, Declaration):
        if isinstance(declaration, Length) and name == axis:
            changed[name] = length
        if axis not in declaration.axes:
            continue
        if isinstance(value, tuple):
            changed[name] = tuple(f"{i}" if isinstance(value[0], str) else value[0] for i in range(length))
            continue
        for at, own in enumerate(declaration.axes):
            if own == axis:
                value = np.take(value, np.arange(length) % value.shape[at], axis=at)
        changed[name] = value
    return replace(question, **changed)


def sizes_of(kind):
    """(field, axis, its longest) of the arrays and lengths of a question; of an axis the first field only."""
    found = {}
    for name, declaration in declared(kind).items():
        if isinstance(declaration, Length):
            found.setdefault(name, (name, name, declaration.max_length))
        for axis in () if isinstance(declaration, Scalar) else declaration.axes:
            if axis != "d" and not axis.isdigit():
                found.setdefault(axis, (name, axis, declaration.max_length))
    return list(found.values())


AXES = [(kind, *size) for kind in SAMPLES for size in sizes_of(kind)]
CHECKED = ("bins", "radii")  # the question checks itself, wherever it is made
WORK = [(k, name) for k in SAMPLES for name, printed in declared(k).items() if isinstance(printed, Work)]


def test_every_number_that_drives_work_is_tried():
    assert len(WORK) >= 9
    assert {(kind.__name__, name) for kind, name in WORK} >= {
        ("AskEpochs", "epochs"),
        ("AskLocalMeans", "n_init"),
        ("AskLocalMeans", "steps"),
        ("AskFuzzyMoves", "steps"),
        ("AskFuzzyMeans", "steps"),
    }
    names = {"epochs", "n_init", "nodes", "restarts", "rounds", "steps", "iterations", "work"}
    for kind in SAMPLES:  # a number of such a name is not declared to be harmless by mistake
        printed = declared(kind)
        for field in fields(kind):
            assert (
                field.name not in names
                or not isinstance(printed[field.name], Scalar)
                or (kind, field.name) in WORK
            )


@pytest.mark.parametrize(("kind", "name"), WORK, ids=[f"{kind.__name__}-{name}" for kind, name in WORK])
def test_every_number_that_drives_work_is_refused_beyond_its_limit(site, kind, name):
    declaration, question = declared(kind)[name], SAMPLES[kind]
    most = declaration.max_value
    printed = reason(site, replace(question, **{name: type(getattr(question, name))(2 * most)}))
    assert (
        f"{codec.name_of(kind)}: {name} = {2 * int(most):,}. A site answers at most {int(most):,}." == printed
    )
    if isinstance(declaration, Repeats):
        one, two = (replace(question, **{name: n}).comparisons() for n in (3, 6))
        assert two == 2 * one > 0


@pytest.mark.parametrize(
    ("kind", "name", "axis", "longest"), AXES, ids=[f"{kind.__name__}-{axis}" for kind, _, axis, _ in AXES]
)
def test_every_axis_of_a_question_is_refused_beyond_its_limit(site, kind, name, axis, longest):
    if axis in CHECKED:  # such a message cannot be decoded
        with pytest.raises(InputError, match=kind.__name__):
            enlarged(SAMPLES[kind], axis, longest + 1)
        return
    printed = reason(site, enlarged(SAMPLES[kind], axis, longest + 1))
    assert f"{axis} = {longest + 1:,}. A site answers at most {longest:,}." in printed


def test_a_secure_sum_over_very_many_sites_is_refused(site):
    names = tuple(f"{i:05}" for i in range(limits.MAX_SITES + 1))
    terms = SumParameters(RequestId("r", 0, 0, 0), "e", "", names, 3334, "")
    ask = AskShares(terms, Participants("r", names, names), np.zeros((len(names), 128), dtype=np.uint8))
    assert "AskShares: keys has sites = 5,001. A site answers at most 5,000." in reason(site, ask, verb=STAGE)


# ---------------------------------------------------------------- memory

LARGE = {"k": 1500, "M": 1500, "radii": 1500, "q": 1500, "R": 4, "B": 2, "bins": 64}
SMALL = {  # the exact solver takes 32 clusters, and a reply of (R, k, k) is large by itself
    AskNode: {"k": 8},
    AskBounds: {"k": 8, "B": 2},
    AskCrossing: {"k": 300, "R": 4},
}


@pytest.mark.parametrize("kind", [k for k in SAMPLES if k.reads == "rows"], ids=lambda kind: kind.__name__)
def test_a_site_needs_memory_in_proportion_to_the_question_its_rows_and_its_reply(kind):
    """Nothing of the size of k times k, or worse, is made on the way."""
    question = SAMPLES[kind]
    for axis, length in SMALL.get(kind, LARGE).items():
        if any(axis == own for _, own, _ in sizes_of(kind)):
            question = enlarged(question, axis, length)
    X = rows(0, n=20)
    noise = SimulatedAccountant().spend([1.0], [1.0])
    batch = SiteBatch(X, np.array([0, 20]), None, np.array([7], dtype=np.uint64), memory=({},), noise=noise)
    places = [
        np.prod(shape_of(v))
        for _, printed, v in declared_fields(question, Declaration)
        if not isinstance(printed, Scalar)
    ]
    asked = max([*places, getattr(question, "k", 0) * D])
    numbers = 20 * (asked + question.reply_numbers(D)) + 4 * len(X) * asked
    question.answer(batch)  # what is imported or compiled once is not counted
    tracemalloc.start()
    try:
        reply = question.answer(batch)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert codec.numbers(reply) <= question.reply_numbers(D)
    assert peak <= 8 * numbers + 500_000


@pytest.mark.parametrize(
    ("transform", "profile"),
    [(Preparation, AskProfile), (PreparationWithMissing, AskObservedProfile)],
    ids=["whole rows", "missing cells"],
)
def test_descriptions_of_very_many_centres_are_answered(transform, profile):
    """Messages of a megabyte for which sites took more than four gigabytes."""
    X = rows(0)
    site = site_of("raw", Table.from_columns({"x": X[:, 0], "y": X[:, 1]}))
    seen = transform((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), False)
    many = np.random.default_rng(0).normal(size=(60_000, D))
    for i, question in enumerate((AskBorders(many), AskOutline(np.eye(2), np.zeros(2), many), profile(many))):
        (reply,) = respond(site, question, transform=seen, verb="total", number=i)
        assert not isinstance(reply, Refusal), reply.reason


# ---------------------------------------------------------------- what a refusal costs


def test_a_refusal_costs_nothing_of_the_privacy_budget(tmp_path):
    site = site_of("dp", folder=tmp_path)
    box = np.full(D, 20.0)
    cells = AskNoisyCells(0.1, np.zeros((3, D)), box, np.array([5.0]), (0.3, 0.4, 0.3))
    assert "centers has M = 100,001" in reason(site, enlarged(cells, "M", 100_001), verb="total")
    wide = AskNoisyMoments(0.1, np.full(D + 1, 20.0))
    assert "is about 3 columns, and the rows have 2" in reason(site, wide, verb="total", number=1)
    site.close()
    ledger = Ledger(tmp_path / "ledger.sqlite", "a")
    assert ledger.spent() == 0
    ledger.close()


def test_a_relay_passes_nothing_on_that_its_sites_would_refuse(monkeypatch):
    below = Simulation.from_rows({s: rows(i) for i, s in enumerate("abc")}, exact_sums=True)
    relay = Relay("north", below, EXACT)
    asked = []
    monkeypatch.setattr(below, "ask", lambda *what: asked.append(what))
    assert "epochs = 1,000,000" in reason(relay, AskEpochs(C, 10**15, 0, 1.0), verb="total")
    assert asked == []


def test_the_page_for_officers_has_every_limit():
    page = (Path(__file__).parents[2] / "docs" / "policy.md").read_text(encoding="utf-8")
    section = page.partition("## Limits of one message")[2].partition("\n## ")[0]
    cells = {line.split("|")[-2].strip() for line in section.splitlines() if line.startswith("| ")}
    assert cells - {"at most"} == {f"{v:,}" for name, v in vars(limits).items() if name.startswith("MAX_")}


def test_what_is_at_a_limit_is_answered(site):
    at = AskLocalMoves(C, limits.MAX_STEPS, "counts"), AskLocalMeans(K, 1, limits.MAX_STEPS)
    for i, question in enumerate(at):
        (reply,) = respond(site, question, number=i + 10)
        assert not isinstance(reply, Refusal), reply.reason
    many = AskClusterSums(np.random.default_rng(0).normal(size=(1, limits.MAX_LENGTH, D)))
    (reply,) = respond(site, many, number=20)
    assert reply.mass.shape == (1, limits.MAX_LENGTH)
