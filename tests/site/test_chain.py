"""The chain of a site and of a relay: its order is a literal, here and in site/chain.py."""

import numpy as np
import pytest

from helpers import EXACT
from studies import study_of
from unpooled.federation import Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.site import Guard, Site
from unpooled.site.chain import CHAIN, Chain
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse
from unpooled.site.study_guard import StudyGuard
from unpooled.site.study_store import StudyFolder

pytestmark = pytest.mark.quick

X = np.random.default_rng(0).normal(size=(40, 2))
ORDER = (
    "log head",
    "request id",
    "failures",
    "study",
    "source",
    "erasures",
    "replay cache",
    "log",
    "charged answers",
    "limits",
    "members",
    "stages",
    "transform",
    "policy",
    "suppression",
    "noise",
    "answer",
    "transaction",
    "mask",
    "study",
    "erasures",
    "ledger",
)
RULES = {
    "summary": "[protect]\nauto_approve = true\none_row_per_person = true\nno_sensitive_columns = true",
    "raw": '[protect]\nmode = "raw"',
    "dp": '[protect]\nmode = "dp"\n[domain]\nrows = 100\n[dp]\nepsilon_total = 1',
}


def without(*names: str) -> list[str]:
    return [name for name in ORDER if name not in names]


def steps(member) -> list[str]:
    """The names of the steps; the guards of the policy are one."""
    names = member.chain.names
    return [name for i, name in enumerate(names) if i == 0 or names[i - 1] != name]


def test_the_order_of_the_chain_is_this():
    assert CHAIN == ORDER


@pytest.mark.parametrize(
    ("mode", "missing"), [("summary", ["charged answers"]), ("raw", ["charged answers"]), ("dp", [])]
)
def test_a_site_under_a_policy_has_every_step_that_its_mode_needs(tmp_path, mode, missing):
    site = open_site("a", X, parse(f"format = 1\n{RULES[mode]}"), tmp_path)
    assert steps(site) == without("study", "members", *missing)
    site.close()


def test_a_study_is_checked_first_and_once_more_before_the_release(tmp_path):
    guard = StudyGuard(study_of(), StudyFolder(tmp_path))
    site = open_site("a", X, parse(f"format = 1\n{RULES['raw']}"), study=guard)
    places = [i for i, step in enumerate(site.chain.steps) if step is guard]
    assert places == [site.chain.names.index("source") - 1, site.chain.names.index("ledger") - 2]
    relay = Relay("r", Simulation.from_rows({"a": X, "b": X, "c": X}, exact_sums=True), EXACT, study=guard)
    assert relay.chain.names.count("study") == 2


def test_a_relay_has_the_same_chain_with_other_steps():
    relay = Relay("r", [Site(name, X) for name in "abc"], EXACT)
    missing = ("study", "erasures", "charged answers", "transform", "policy", "suppression", "noise")
    assert steps(relay) == without(*missing)
    assert not isinstance(relay, Site)


def test_a_site_of_a_simulation_has_the_steps_that_answer():
    missing = ("log head", "failures", "study", "source", "erasures", "charged answers", "members")
    assert steps(Site("a", X)) == without(*missing, "policy", "mask", "ledger")


def test_steps_in_another_order_are_not_a_chain():
    site = Site("a", X, guards=[Guard()])
    for i in range(1, len(site.chain.steps)):
        swapped = list(site.chain.steps)
        swapped[i - 1], swapped[i] = swapped[i], swapped[i - 1]
        with pytest.raises(ValueError, match="is not in the order of the chain"):
            Chain(*swapped)


def test_a_step_that_is_not_in_the_list_is_not_part_of_a_chain():
    class Unknown(Guard):
        name = "unknown"

    with pytest.raises(ValueError, match="the step 'unknown' is not in the order of the chain"):
        Chain(Unknown())
