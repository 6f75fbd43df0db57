"""A site's answers: their order, refusals and replay; the site's identity."""

import errno
import os
import resource
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import pytest

from helpers import bits
from unpooled.data.transforms import Affine
from unpooled.errors import InputError, QueryRefusedError
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Question, Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, Moments
from unpooled.protocol.site_batch import SiteBatch
from unpooled.protocol.transform import Transform
from unpooled.site import Guard as BaseGuard
from unpooled.site import Site
from unpooled.site.chain import Chain
from unpooled.site.chain_steps import Recorder
from unpooled.site.identity import identity_in
from unpooled.storage.atomic_files import create_atomically

ROWS = np.array([[1.0], [2.0], [6.0]])
REQUEST_ID = RequestId("run", 0, 1, 0)
events: list[str] = []


@pytest.fixture(autouse=True)
def _fresh():
    events.clear()


@dataclass(frozen=True, eq=False)
class RecordedTransform(Transform, prefix="test_site"):
    """A transform that says when it is applied."""

    def apply(self, X):
        events.append("transform")
        return X + 1


@dataclass(frozen=True, eq=False)
class SeenQuestion(Question[Moments], prefix="test_site"):
    """A question that says when it is answered."""

    reads = "rows"

    def answer_all(self, batch: SiteBatch):
        events.append("answer")
        batch.memory[0]["times"] = batch.memory[0].get("times", 0) + 1
        return [Moments(np.array([float(batch.memory[0]["times"])]), batch.X.sum(axis=0), np.full(1, 1e9))]


class Guard(BaseGuard):
    def __init__(self, name: str, refuses: bool = False) -> None:
        self.title, self.refuses = name, refuses

    def check(self, exchange):
        events.append(f"{self.title} {len(exchange.parts[0].rows)}")
        if self.refuses:
            raise QueryRefusedError("not this question")


class Mask:
    """A mask that doubles sums."""

    def check_request(self, request):
        events.append("stages")

    def is_masked(self, request, part):
        return False

    def apply(self, request, replies):
        events.append("mask")
        return tuple(replace(r, sums=r.sums * 2) for r in replies)

    def forget(self):
        events.append("forget")


class Log(Recorder):
    def record(self, exchange, response):
        events.append("log " + ", ".join(type(r).__name__ for r in response.replies))
        return ""


def request(*questions, transform=None, request_id=REQUEST_ID) -> Request:
    return Request(request_id, tuple(Part("total", q, transform, i) for i, q in enumerate(questions)))


def test_everything_leaves_by_the_same_way():
    site = Site("a", ROWS, guards=[Guard("one"), Guard("two")], mask=Mask(), log=Log())
    (reply,) = site.answer(request(SeenQuestion(), transform=RecordedTransform())).replies
    assert events == ["stages", "transform", "one 3", "two 3", "answer", "mask", "log Moments"]
    assert reply.sums.tolist() == [(9 + 3) * 2]


def test_several_parts_pass_the_same_guards():
    site = Site("a", ROWS, guards=[Guard("g")], mask=Mask(), log=Log())
    site.answer(request(SeenQuestion(), SeenQuestion()))
    assert events == ["stages", "g 3", "answer", "answer", "mask", "log Moments, Moments"]


def test_a_refusal_becomes_data_and_is_logged():
    site = Site("a", ROWS, guards=[Guard("g", refuses=True)], mask=Mask(), log=Log())
    answer = site.answer(request(SeenQuestion(), SeenQuestion()))
    assert [r.reason for r in answer.replies] == ["not this question", "not this question"]
    assert all(isinstance(r, Refusal) for r in answer.replies)
    assert events == ["stages", "g 3", "log Refusal, Refusal"]


def test_a_refusal_after_the_mask_takes_the_mask_back_and_is_logged():
    """As by a study that was withdrawn while the answer was computed."""

    class Withdrawn(BaseGuard):
        name = "study"

        def check(self, exchange):
            raise QueryRefusedError("not after all")

    site = Site("a", ROWS, guards=[Guard("g")], mask=Mask(), log=Log())
    site.chain = Chain(*site.chain.steps, Withdrawn())
    answer = site.answer(request(SeenQuestion()))
    assert answer.replies[0].reason == "not after all"
    assert events == ["stages", "g 3", "answer", "mask", "forget", "log Refusal"]


def test_a_mask_may_refuse():
    class NoMask(Mask):
        def apply(self, request, replies):
            raise QueryRefusedError("no partner to mask with")

    answer = Site("a", ROWS, mask=NoMask()).answer(request(SeenQuestion()))
    assert answer.replies[0].reason == "no partner to mask with"


def test_another_error_is_not_taken_for_a_refusal():
    class Broken(BaseGuard):
        def check(self, exchange):
            raise ZeroDivisionError("broken rule")

    with pytest.raises(ZeroDivisionError, match="broken rule"):
        Site("a", ROWS, guards=[Broken()], log=Log()).answer(request(SeenQuestion()))
    assert events == []


def test_a_repeated_request_gets_the_same_bytes_and_costs_nothing():
    site = Site("a", ROWS, guards=[Guard("g")], log=Log())
    first = site.answer(request(SeenQuestion()))
    count = len(events)
    again = site.answer(request(SeenQuestion()))
    assert bits(again) == bits(first)
    assert len(events) == count
    later = site.answer(request(SeenQuestion(), request_id=replace(REQUEST_ID, exchange=1)))
    assert later.replies[0].n == 2.0
    assert len(events) == 2 * count


def test_a_repeated_refusal_is_remembered_too():
    site = Site("a", ROWS, guards=[Guard("g", refuses=True)], log=Log())
    assert bits(site.answer(request(SeenQuestion()))) == bits(site.answer(request(SeenQuestion())))
    assert events == ["g 3", "log Refusal"]


def test_another_question_in_the_same_request_is_not_mistaken_for_it():
    site = Site("a", ROWS)
    assert site.answer(request(AskMoments())).replies[0].sums[0] == 9.0
    assert site.answer(request(AskMoments(np.ones(1)))).replies[0].sums[0] == 6.0


def test_memory_belongs_to_one_run():
    site = Site("a", ROWS)
    times = [
        site.answer(request(SeenQuestion(), request_id=RequestId(run, 0, 0, exchange))).replies[0].n
        for exchange, run in enumerate(["x", "x", "y", "x"])
    ]
    assert times == [1, 2, 1, 3]


def test_the_minimum_is_the_sites_own():
    X = np.array([[1.0], [2.0], [20.0], [30.0], [31.0], [32.0]])
    question = AskClusterSums(np.array([[[1.5], [20.0], [31.0]]]))
    disclosed = Site("a", X, min_cluster_size=1).answer(request(question)).replies[0]
    suppressed = Site("a", X, min_cluster_size=2).answer(request(question)).replies[0]
    assert disclosed.mass.tolist() == [[2.0, 1.0, 3.0]]
    assert (suppressed.mass[0, 1], suppressed.inertia[0, 1], suppressed.sums[0, 1, 0]) == (0.0, 0.0, 0.0)
    # the row that is alone does not follow from the site's total: it is not the only one that is hidden
    assert 0 < suppressed.mass.sum() <= 6 - 2


def test_draws_depend_on_the_request_and_the_place_in_the_exchange_only():
    X = np.random.default_rng(0).normal(size=(30, 2))
    part = Part("each", AskLocalMeans(4, steps=0), None, 3)
    alone = Site("a", X).answer(Request(REQUEST_ID, (part,))).replies[0]
    first = Part("each", AskLocalMeans(4, steps=0), None, 1)
    sum_members = Site("a", X).answer(Request(REQUEST_ID, (first, part))).replies
    assert bits(sum_members[1]) == bits(alone)
    assert bits(sum_members[0]) != bits(alone)


def test_a_transform_is_applied_once_a_run():
    site = Site("a", ROWS)
    for exchange in range(3):
        site.answer(
            request(
                SeenQuestion(),
                SeenQuestion(),
                transform=RecordedTransform(),
                request_id=RequestId("r", 0, 0, exchange),
            )
        )
    assert events.count("transform") == 1
    site.answer(
        request(SeenQuestion(), transform=Affine(np.zeros(1), np.ones(1)), request_id=RequestId("r", 0, 1, 0))
    )
    assert np.array_equal(site.rows, [[1.0], [2.0], [6.0]])


def test_an_answer_travels():
    answer = Site("a", ROWS).answer(request(AskMoments(), AskClusterSums(np.zeros((1, 1, 1)))))
    again = codec.decode(bits(answer), expect=Response)
    assert [type(r) for r in again.replies] == [type(r) for r in answer.replies]
    assert bits(again) == bits(answer)


def test_an_identity_is_there_whole_or_not_at_all(tmp_path):
    """On a full disk nothing is left in its place, and later it is made; what is there stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, hard))  # a write of more ends after 10 bytes
    try:
        with pytest.raises(OSError, match=os.strerror(errno.EFBIG)):
            identity_in(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert list(tmp_path.iterdir()) == []
    made = identity_in(tmp_path)
    (path,) = tmp_path.iterdir()
    assert path.name == "identity.key"
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.read_bytes()
    assert identity_in(tmp_path).public == made.public
    assert not create_atomically(path, b"another")
    assert path.read_bytes() == kept
    path.write_text("half\n")
    with pytest.raises(InputError, match=r"identity.key: the identity must be 64 hexadecimal digits"):
        identity_in(tmp_path)


def test_processes_that_make_an_identity_at_once_have_the_same(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        made = [one.public for one in pool.map(identity_in, [tmp_path] * 32)]
    assert len(set(made)) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["identity.key"]
