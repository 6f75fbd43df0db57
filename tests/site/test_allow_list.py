"""Every question of the package is on a site's allow list, or refused: by enumeration, not by example."""

import importlib
import inspect
import pkgutil

import numpy as np
import pytest

import unpooled
from unpooled.algorithms import METHODS
from unpooled.data.summary_question import AskSummary
from unpooled.errors import QueryRefusedError
from unpooled.federation.member_tree import AskMembers
from unpooled.privacy.secure_sum.stage_messages import STAGES
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Part, Request, RequestId
from unpooled.protocol.messages import Question, Refusal
from unpooled.site.allow_list import DESCRIBE, EXACT, METHOD_NAMES, NOISY, PREPARE, allowed
from unpooled.site.chain import Exchange
from unpooled.site.guards import AllowListGuard
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

pytestmark = pytest.mark.quick

LEFT_OUT = (
    "nvflare",
    "workers",
    "__main__",
    "_native",
)  # they need engines, and have no questions of their own
NOT_ABOUT_ROWS = (*STAGES, AskMembers)  # stages pass the mask and not the guards; a relay answers the other


def questions() -> list[type]:
    """All questions that a message can carry, after every module was imported."""
    for module in pkgutil.walk_packages(unpooled.__path__, "unpooled."):
        if not any(word in module.name.split(".") for word in LEFT_OUT):
            importlib.import_module(module.name)
    return [kind for kind in _subclasses(Question) if _is_question(kind)]


def _subclasses(kind: type) -> list[type]:
    return sorted({s for c in kind.__subclasses__() for s in (c, *_subclasses(c))}, key=lambda c: c.__name__)


def _is_question(kind: type) -> bool:
    registered = codec.class_named(codec.name_of(kind)) is kind
    return kind.__module__.startswith("unpooled.") and registered and not inspect.isabstract(kind)


def asked(guard: AllowListGuard, kind: type) -> str:
    """The reason of a refusal, "" if the guard allows the question. Its values do not count."""
    parts = (Part("total", object.__new__(kind), None, 0),)
    try:
        guard.check(Exchange(Request(RequestId("r", 0, 0, 0), parts)))
    except QueryRefusedError as refusal:
        return str(refusal)
    return ""


def test_there_are_questions():
    names = {kind.__name__ for kind in questions()}
    assert {"AskClusterSums", "AskSchema", "AskNoisyMoments", "AskNode", "AskKeys", "AskMembers"} <= names
    assert len(names) > 35


@pytest.mark.parametrize("describe", ["true", "false"])
@pytest.mark.parametrize("methods", [(), *((name,) for name in METHOD_NAMES), METHOD_NAMES])
def test_a_question_is_answered_if_it_is_on_the_list_of_the_policy_and_refused_otherwise(methods, describe):
    listed = {*PREPARE, AskSummary, *EXACT, *NOISY, *(DESCRIBE if describe == "true" else ())}
    listed |= {kind for name in methods for kind in METHODS[name].questions()}
    policy = parse(f"format = 1\n[jobs]\nalgorithms = {list(methods)}\ndescribe = {describe}")
    names = allowed(policy.jobs.algorithms, describe=policy.jobs.describe)
    assert names == {codec.name_of(kind) for kind in listed}
    guard = AllowListGuard(policy)
    for kind in questions():
        reason = asked(guard, kind)
        if kind in listed:
            assert reason == "", kind
        else:
            assert f"the policy does not allow {codec.name_of(kind)}" in reason, kind


def test_every_question_that_some_policy_allows_belongs_to_a_method_or_to_the_description():
    everything = {kind for kind in questions() if codec.name_of(kind) in allowed(METHOD_NAMES, describe=True)}
    assert set(questions()) - everything == set(NOT_ABOUT_ROWS)


def test_questions_that_are_not_about_rows_are_refused_by_a_site_as_questions():
    site = open_site("a", np.zeros((60, 2)), parse("format = 1\n[protect]\nmode = 'raw'"))
    for kind in NOT_ABOUT_ROWS:
        assert asked(AllowListGuard(parse("format = 1")), kind)
    stage = Request(RequestId("r", 0, 0, 0), (Part(STAGE, AskMembers(), None, 0),))
    (reply,) = site.answer(stage).replies
    assert isinstance(reply, Refusal)
