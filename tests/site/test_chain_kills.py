"""kill -9 between any two steps of a site's chain: no unpaid noise, no unlogged release, no second answer."""

from contextlib import closing

import numpy as np
import pytest

from attacks.stages import AUTHORITY, SlowCoordinator, request_id
from kills import Hospital, Region
from studies import private_study, study_of
from unpooled.data import Number, Preparation, Table
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskMoments
from unpooled.site.chain import CHAIN
from unpooled.site.ledger import Ledger
from unpooled.site.log import entries, verify
from unpooled.site.study_store import APPROVED, StudyFolder

X = np.random.default_rng(0).normal(size=(90, 2))
TABLE = Table.from_columns({"x": X[:, 0], "y": X[:, 1]})
TRANSFORM = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
MU = 0.001
NOISY = AskNoisyMoments(MU, np.full(2, 30.0))
RULES = {
    "summary": "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
    "no_sensitive_columns = true\n",
    "raw": 'format = 1\n[protect]\nmode = "raw"\none_row_per_person = true\nno_sensitive_columns = true\n',
    "dp": 'format = 1\n[protect]\nmode = "dp"\n[dp]\nepsilon_total = 8\n[domain]\ncolumns = ["x", "y"]\n'
    "lower = [-30, -30]\nupper = [30, 30]\nrows = 100\n",
}


def spent(folder) -> float:
    with closing(Ledger.open_read_only(folder / "ledger.sqlite")) as ledger:
        return ledger.spent() / MU**2


def releases(folder) -> list[int]:
    """The exchanges that the log has a release of, one entry for each line."""
    return [e["exchange"] for _, e in entries(folder / "log.jsonl") if e["kind"] == "release"]


def approved(mode: str, folder):
    """A study that the site has approved; it covers all that is asked here."""
    study = private_study(epsilon=1.0) if mode == "dp" else study_of()
    place = StudyFolder(folder)
    folder.mkdir()
    place.receive("a", study, "")
    place.decide(study.digest, APPROVED, "Dr. Low")
    return study


@pytest.mark.parametrize(
    "mode", ["dp", *(pytest.param(mode, marks=pytest.mark.long) for mode in ("summary", "raw"))]
)
def test_a_kill_between_any_two_steps_leaves_all_that_was_promised(tmp_path, mode):
    folder = tmp_path / "a"
    hospital = Hospital("a", TABLE, RULES[mode], folder, approved(mode, folder))
    steps = hospital.steps()
    unused = {"members"} if mode == "dp" else {"members", "charged answers"}
    assert set(steps) == set(CHAIN) - unused  # every step of the list is killed before and after
    before, after = steps.index("noise"), steps.index("transaction")
    log = steps.index("log")
    exchange = 0
    for place in range(len(steps) + 1):
        for on_the_way in ("in", "out"):
            question = NOISY if mode == "dp" else AskMoments()
            parts = (Part("total", question, TRANSFORM, 0),)
            data, paid = codec.wrap(Request(RequestId("r", 0, 0, exchange), parts)), spent(folder)
            left = hospital.die(data, place, on_the_way)
            logged = on_the_way == "out" and place <= log
            assert (exchange in releases(folder)) is logged
            response = hospital.respond(data)
            assert not isinstance(codec.unwrap(response, expect=Response).replies[0], Refusal)
            if logged:
                assert response == left  # nobody has it, or somebody has: it is the same
            assert releases(folder).count(exchange) == 1
            charged = on_the_way == "out" or place > before
            kept = on_the_way == "out" and place <= after
            if mode == "dp":  # what was charged and not kept is charged again, and nothing is free
                assert spent(folder) - paid == pytest.approx(2.0 if charged and not kept else 1.0)
            exchange += 1
    assert verify(folder / "log.jsonl") == []
    assert sorted(releases(folder)) == list(range(exchange))


def test_a_kill_between_any_two_steps_of_a_relay_leaves_one_answer(tmp_path):
    """The members of the first sum, which later sums must have, are kept with the answer or not at all."""
    rows, folder = {name: X[i::3] for i, name in enumerate("abc")}, tmp_path / "r"
    region = Region("r", rows, RelayRules(exact=True, fixed_membership=True), folder)
    steps = region.steps()
    assert {"members", "stages", "answer", "transaction", "mask", "ledger"} < set(steps)
    for exchange, (place, way) in enumerate((i, way) for i in range(len(steps) + 1) for way in ("in", "out")):
        parts = (Part("total", AskMoments(), None, 0),)
        data = codec.wrap(Request(RequestId(f"r{exchange}", 0, 0, 0), parts))
        left, logged = region.die(data, place, way), way == "out" and place <= steps.index("log")
        assert (bool(runs := answered_runs(folder)) and runs[-1] == f"r{exchange}") is logged
        response = region.respond(data)
        reply = codec.unwrap(response, expect=Response).replies[0]
        assert not isinstance(reply, Refusal)
        assert not logged or response == left
        assert answered_runs(folder).count(f"r{exchange}") == 1
    assert verify(folder / "log.jsonl") == []


def answered_runs(folder) -> list[str]:
    """The runs that the log has a release of, one entry for each line."""
    return [e["run"] for _, e in entries(folder / "log.jsonl") if e["kind"] == "release"]


def masked_places(steps) -> list[tuple[int, str]]:
    """Before and after the steps that keep the state of the mask and the answer together."""
    names = [(name, "in") for name in ("mask", "ledger")] + [("transaction", "out"), ("ledger", "out")]
    return [(steps.index(name), on_the_way) for name, on_the_way in names]


@pytest.mark.parametrize("places", [masked_places, pytest.param(None, marks=pytest.mark.long)])
@pytest.mark.parametrize("mode", ["dp", pytest.param("raw", marks=pytest.mark.long)])
def test_a_kill_between_any_two_steps_of_a_masked_exchange_stops_no_sum(tmp_path, mode, places):
    """The state of the mask, the charge and the answer are there together, or none of them is."""
    rules, question = RULES[mode], NOISY if mode == "dp" else AskMoments()
    rules += '[aggregation]\nsecure = "required"\n'
    authority = AUTHORITY.public

    def hospital(name):
        table = Table.from_columns({"x": X[int(name[1]) :: 3, 0], "y": X[int(name[1]) :: 3, 1]})
        return Hospital(name, table, rules, tmp_path / name, authority=authority)

    hospitals = {name: hospital(name) for name in ("s0", "s1", "s2")}
    steps = hospitals["s0"].steps()
    every = [(place, way) for place in range(len(steps) + 1) for way in ("in", "out")]
    undisturbed = SlowCoordinator(hospitals)
    undisturbed.begin(request_id(0, "whole"), question, TRANSFORM, epoch="whole")
    whole = undisturbed.rest()
    for exchange, death in enumerate(places(steps) if places else every):
        coordinator, paid = SlowCoordinator(hospitals), spent(tmp_path / "s0")
        run = f"r{exchange}"
        coordinator.begin(request_id(0, run), question, TRANSFORM, epoch=run)
        assert coordinator.stage() is None  # shares
        hospitals["s0"].deaths = [death]
        assert coordinator.stage() is None  # masked
        hospitals["s0"].deaths = []
        result = coordinator.rest()
        assert not coordinator.refused
        assert result is not None
        if mode == "raw":
            assert np.array_equal(result.sums, whole.sums)  # of groups of the rows
            continue
        place, way = death
        charged = way == "out" or place > steps.index("noise")
        kept = way == "out" and place <= steps.index("transaction")
        assert spent(tmp_path / "s0") - paid == pytest.approx(2.0 if charged and not kept else 1.0)
    assert verify(tmp_path / "s0" / "log.jsonl") == []
