"""Questions that a site under a policy refuses before it looks at a row, each with its reason."""

from dataclasses import dataclass, replace

import numpy as np
import pytest

from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.transforms import Affine
from unpooled.privacy.secure_sum.stage_messages import AskKeys
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskLocalMeans, AskMoments
from unpooled.protocol.transform import Transform
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

X = np.random.default_rng(0).normal(size=(60, 2))
NAMED = Table.from_columns({"x": X[:, 0], "y": X[:, 1]})


def rules(mode: str = "raw", more: str = ""):
    return parse(
        f'format = 1\n[protect]\nmode = "{mode}"\nauto_approve = true\none_row_per_person = true\n'
        f"no_sensitive_columns = true\n{more}"
    )


def asked(site, question, transform=None, verb="total", number=0):
    request = Request(RequestId("r", 0, number, 0), (Part(verb, question, transform, 0),))
    (reply,) = site.answer(request).replies
    return reply


@dataclass(frozen=True, eq=False)
class Peephole(Transform, prefix="test_refused_questions"):
    """A transform of one's own: it shows the rows as they are, and could do anything else."""

    def scaling(self):
        return np.zeros(2), np.ones(2)

    def apply(self, rows):
        return rows


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_a_transform_that_is_not_of_the_package_is_refused_by_name(mode):
    reply = asked(open_site("a", X, rules(mode)), AskMoments(), Peephole())
    assert isinstance(reply, Refusal)
    assert "the policy does not allow the transform test_refused_questions.Peephole" in reply.reason


@pytest.mark.parametrize("mode", ["summary", "raw"])
def test_a_question_about_rows_is_not_asked_of_a_table_nor_the_other_way(mode):
    about_a_table = AskColumns(("x",), np.zeros(1), np.ones(1), (), (), False)
    reply = asked(open_site("a", X, rules(mode)), about_a_table)
    assert "AskColumns reads table, and this site has rows" in reply.reason
    reply = asked(open_site("a", NAMED, rules(mode)), AskMoments())
    assert "AskMoments reads rows, and this site has a table of named columns" in reply.reason
    transform = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)
    assert not isinstance(asked(open_site("a", NAMED, rules(mode)), AskMoments(), transform), Refusal)


@pytest.mark.parametrize(
    ("shift", "scale"),
    [(0.0, 0.0), (0.0, -1.0), (0.0, np.nan), (0.0, np.inf), (np.nan, 1.0), (np.inf, 1.0)],
)
def test_a_scaling_that_is_no_positive_number_is_refused(shift, scale):
    transform = Affine(np.array([0.0, shift]), np.array([1.0, scale]))
    with np.errstate(all="ignore"):
        reply = asked(open_site("a", X, rules()), AskMoments(), transform)
    assert isinstance(reply, Refusal)
    assert "the scaling of a column is not a positive number" in reply.reason


def test_a_site_that_has_no_part_in_secure_sums_answers_nothing_but_its_schema_where_they_are_required():
    """Not a single reply, and not a plain sum either."""
    site = open_site("a", NAMED, rules(more='[aggregation]\nsecure = "required"'))  # without a folder: no key
    transform = Preparation((Number("x", 0.0, 0.0, 1.0),), drop=False)
    single = asked(site, AskLocalMeans(2), transform, verb="each")
    assert "this query discloses a single site's answer" in single.reason
    plain = asked(site, AskMoments(), transform, verb="total", number=1)
    assert isinstance(plain, Refusal)
    assert plain.reason == "the policy allows only secure sums, and this query is not part of one"
    assert not isinstance(asked(site, AskSchema(), verb="each", number=2), Refusal)
    parts = (Part("each", AskSchema(), None, 0), Part("total", AskMoments(), transform, 1))
    request = Request(RequestId("r", 0, 3, 0), parts)
    assert all(isinstance(reply, Refusal) for reply in site.answer(request).replies)


def test_a_stage_of_a_secure_sum_is_refused_by_a_site_that_takes_no_part():
    site = open_site("a", X, rules(more='[aggregation]\nsecure = "off"'))
    request = Request(RequestId("r", 0, 0, 0), (Part("stage", AskKeys(0), None, 0),))
    (reply,) = site.answer(request).replies
    assert reply.reason == "this site does not take part in secure sums"


@pytest.mark.parametrize(("number", "exchange"), [(-1, 0), (0, -1), (2**63, 0), (0, 2**63)])
def test_an_invalid_request_id_is_refused_and_forgets_nothing(number, exchange):
    site = open_site("a", X, rules())
    first = asked(site, AskMoments(), number=5)
    request = Request(RequestId("r", 0, number, exchange), (Part("total", AskMoments(), None, 0),))
    (reply,) = site.answer(request).replies
    assert "is not a valid number" in reply.reason
    assert asked(site, AskMoments(), number=5) is first


def test_the_last_number_of_a_round_that_may_be_is_one():
    site = open_site("a", X, rules("summary"))
    request = Request(RequestId("r", 0, 2**63 - 1, 2**63 - 1), (Part("total", AskMoments(), None, 0),))
    assert not isinstance(site.answer(request).replies[0], Refusal)
    zero = replace(request, request_id=RequestId("r", 0, 0, 0))
    assert not isinstance(site.answer(zero).replies[0], Refusal)
