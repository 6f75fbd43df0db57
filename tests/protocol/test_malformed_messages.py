"""Messages that are declared or written in uncommon ways, and the errors about them."""

import copy
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np
import pytest
from test_codec import root

from helpers import bits
from unpooled.errors import CodecError
from unpooled.federation import Simulation
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Ask, each, together, total
from unpooled.protocol.declarations import Count, Sum, declared
from unpooled.protocol.exact_sum import exact_sum
from unpooled.protocol.exchange import Part, Request, RequestId, gather, round_rng, run_protocol
from unpooled.protocol.merge_questions import merged, shared
from unpooled.protocol.messages import Message, Question, Refusal, Reply, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments, Moments
from unpooled.protocol.transform import Transform
from unpooled.site import Site
from unpooled.typing import FloatArray

pytestmark = pytest.mark.quick


def test_a_message_of_more_bytes_than_are_allowed_is_not_parsed():
    data = codec.encode(Refusal("no"))
    assert codec.decode(data, limit=len(data)).reason == "no"
    for read, given in ((codec.decode, data), (codec.unwrap, codec.wrap(Refusal("no")))):
        with pytest.raises(CodecError, match=f"message of {len(given)} bytes, {len(given) - 1} are allowed"):
            read(given, limit=len(given) - 1)
    with pytest.raises(CodecError, match="message of 9 bytes, 8 are allowed"):
        codec.decode(b"not a bit", limit=8)


@pytest.mark.parametrize("more", [{"other": 1}, {"version": 1}])
def test_an_entry_beside_type_and_fields_is_refused(more):
    node = {"type": "Refusal", "fields": {"reason": "no"}}
    assert codec.decode(root(node)).reason == "no"
    with pytest.raises(CodecError, match="something unknown"):
        codec.decode(root({**node, **more}))


T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Loose(Message, prefix="test_uncommon_messages"):
    """A message with a field of any type."""

    value: T  # type: ignore[valid-type]


def test_a_field_of_any_type_takes_what_can_travel():
    for value in (3, "text", None, (1.5, Refusal("no"))):
        assert bits(codec.decode(bits(Loose(value)))) == bits(Loose(value))


# ---------------------------------------------------------------- declarations


@dataclass(frozen=True, eq=False)
class Loosely(Summable, prefix="test_uncommon_messages"):
    mass: Annotated[FloatArray, Count("k"), "people"]  # a declaration, and a remark for people
    sums: Annotated[FloatArray, Sum("k d", rows="size")]  # of a count that there is not


@dataclass(frozen=True, eq=False)
class AskLoosely(Question[Loosely], prefix="test_uncommon_messages"):
    reads = "rows"


@dataclass(frozen=True, eq=False)
class AskSomething(Question, prefix="test_uncommon_messages"):
    reads = "rows"


K = TypeVar("K", bound=Reply)


class AskAny(Question[K]):
    """A base class of questions; its subclasses declare the reply."""

    reads = "rows"


@dataclass(frozen=True, eq=False)
class AskOne(AskAny[Moments], prefix="test_uncommon_messages"):
    pass


def test_a_remark_beside_a_declaration_is_none():
    assert list(declared(Loosely)) == ["mass", "sums"]
    assert isinstance(declared(Loosely)["mass"], Count)


def test_missing_declarations_of_a_question_are_named():
    assert AskLoosely.undeclared() == "the count 'size' of the rows behind sums of its reply"
    assert AskSomething.reply_type() is Reply
    assert AskSomething.undeclared() == "what its reply is (Question[...])"
    assert AskAny.undeclared() == "what its reply is (Question[...])"
    assert (AskOne.reply_type(), AskOne.undeclared()) == (Moments, "")


@dataclass(frozen=True, eq=False)
class Plain(Transform, prefix="test_uncommon_messages"):
    """A transform that overrides nothing."""


def test_a_transform_keeps_the_rows_unless_it_overrides_apply():
    X = np.array([[1.0, 2.0], [3.0, 5.0]])
    request = Request(RequestId("r", 0, 0, 0), (Part("total", AskMoments(), Plain(), 0),))
    assert Site("a", X).answer(request).replies[0].sums.tolist() == [4.0, 7.0]
    assert Plain().undo(X) is X
    assert Plain().names is None
    assert [len(part) for part in Plain().scaling()] == [0, 0]


# ---------------------------------------------------------------- protocols


ROWS = {"a": np.array([[1.0], [3.0]]), "b": np.array([[5.0]]), "c": np.array([[7.0], [9.0]])}


@pytest.mark.parametrize("way", [merged, shared])
def test_questions_of_their_own_for_every_site_are_neither_merged_nor_shared(way):
    federation = Simulation.from_rows(ROWS)
    centers = {"a": np.zeros((1, 1, 1)), "b": np.ones((1, 1, 1)), "c": np.full((1, 1, 1), 2.0)}

    def steps():
        own = each(federation.sites, lambda site: AskClusterSums(centers[site]))
        other = each(federation.sites, lambda site: AskClusterSums(2 * centers[site]))
        return together([own, other, total(federation.sites, AskMoments())])

    plain, ways = run_protocol(steps(), federation), run_protocol(way(steps()), federation)
    assert [bits(one) for one in (ways[0], ways[1])] == [bits(one) for one in (plain[0], plain[1])]
    assert ways[2].n == 5
    assert ways[0]["b"].inertia.item() == 16.0
    assert ways[1]["b"].inertia.item() == 9.0


def test_a_site_with_other_columns_than_most_is_left_out_by_name():
    replies = {name: Moments(np.ones(1), np.ones(2), np.ones(2)) for name in "abc"}
    replies["b"] = Moments(np.ones(1), np.ones(3), np.ones(3))
    for verb in ("total", "each"):
        result = gather(Ask(verb, ("a", "b", "c"), AskMoments()), replies)
        assert result.sites == ("a", "c")
        assert result.refusals["b"].startswith("its answer was not usable: ")
        assert "where most sites have" in result.refusals["b"]
    assert gather(Ask("total", ("a", "c"), AskMoments()), {k: replies[k] for k in "ac"}).refusals == {}


def test_a_generator_that_waits_can_be_copied_before_it_draws():
    lazy = round_rng(3, 1)
    assert not hasattr(lazy, "_bit_generator")
    drawn = copy.copy(lazy).integers(1000, size=4).tolist()
    own = np.random.default_rng(np.random.SeedSequence(3, spawn_key=(1,)))
    assert drawn == round_rng(3, 1).integers(1000, size=4).tolist() == own.integers(1000, size=4).tolist()


def test_an_exact_sum_of_very_many_numbers_loses_nothing():
    """Of more than two million numbers of 32 bits float64 does not hold every sum."""
    count = 2**21 + 1
    total = exact_sum(np.full((count, 1), 2.0**32 - 1))
    found = sum(int(limb) << 32 * (total.low + i) for i, limb in enumerate(total.limbs[:, 0]))
    assert found == count * (2**32 - 1)


def test_a_question_about_no_clusters_at_all_is_not_needed_for_the_others():
    """A site of no rows shows no means, and stops nobody."""
    federation = Simulation.from_rows({**ROWS, "d": np.zeros((0, 1))})
    replies = run_protocol(each(federation.sites, AskLocalMeans(2)), federation)
    assert len(replies["d"].means) == 0
    assert len(replies["a"].means) == 2
