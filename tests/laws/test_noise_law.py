"""The law of noise: what leaves a site under a budget is declared, or paid for, or depends on no row.

Two sites with other rows and the same policy give equal bytes to every question of the package but those that
spend; whether one of these is refused, and why, is equal too. There is no noise without a price, in the type.
"""

import ast
from pathlib import Path

import numpy as np
import pytest

import unpooled
from question_samples import samples
from unpooled.data import Number, Preparation, Table
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_question import AskSummary
from unpooled.errors import LedgerError, PolicyError, QueryRefusedError
from unpooled.privacy import PrivateQuestion
from unpooled.privacy.dp.noise import BudgetAccountant, Noise, SimulatedAccountant
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId, Response
from unpooled.protocol.messages import Refusal
from unpooled.site.ledger import Ledger
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RULES = """
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = 0.5
[domain]
columns = ["x", "y"]
lower = [-9, -9]
upper = [9, 9]
rows = 500
"""


def tables(seed: int):
    """Two tables that have nothing in common: rows, their number, missing values, an undeclared column."""
    rng = np.random.default_rng(seed)
    one = rng.normal(0, 3, (300, 2))
    two = rng.uniform(-8, 8, (17, 2)) ** 3
    two[3, 1] = np.nan
    yield Table.from_columns({"x": one[:, 0], "y": one[:, 1], "illness": ["flu"] * 300})
    yield Table.from_columns({"name": [f"n{i}" for i in range(17)], "y": two[:, 1], "x": two[:, 0]})


def content(reply) -> bytes:
    """A reply as bytes; of a noisy one only that it is one."""
    return codec.encode(reply) if not hasattr(reply, "noise") else type(reply).__name__.encode()


@pytest.mark.parametrize("seed", range(4))
def test_two_tables_under_one_policy_give_the_same_bytes_but_for_noise(seed):
    sites = [open_site("a", table, parse(RULES)) for table in tables(seed)]
    rng = np.random.default_rng(seed)
    asked = [
        (AskSchema(), None),
        (AskSchema(3), None),
        (AskSummary(), None),
        (AskColumns(("x", "illness"), np.zeros(2), np.ones(2), (), (), True), None),
    ]
    for question in samples(seed):
        columns = tuple(Number(n, *rng.normal(size=2), rng.uniform(0.5, 30)) for n in "xy")
        asked.append((question, Preparation(columns, drop=bool(rng.integers(2)))))
    asked.append((AskNoisyMoments(0.01, np.full(1, 9.0)), Preparation((Number("illness", 0, 0, 1),), False)))
    answered = 0
    for number in range(60):
        question, transform = asked[rng.integers(len(asked))]
        request = Request(
            RequestId("r", 0, number, 0), (Part(("each", "total")[number % 2], question, transform, 0),)
        )
        one, two = (codec.unwrap(site.respond(codec.wrap(request)), expect=Response) for site in sites)
        assert [content(r) for r in one.replies] == [content(r) for r in two.replies]
        answered += not isinstance(one.replies[0], Refusal)
        if not isinstance(question, PrivateQuestion | AskSchema):
            assert isinstance(one.replies[0], Refusal)
    assert answered


def test_the_schema_of_a_dp_site_is_its_policy():
    site = open_site("a", next(tables(0)), parse(RULES))
    request = Request(RequestId("r", 0, 0, 0), (Part("each", AskSchema(), None, 0),))
    (schema,) = site.answer(request).replies
    assert schema.protection == ("dp", "")
    assert (schema.names, schema.kinds) == (("x", "y"), ("number", "number"))
    assert schema.rows.tolist() == [500.0]
    assert np.isnan([schema.missing, schema.size, schema.spread, schema.within]).all()


def test_declared_columns_must_be_there_and_dp_excludes_a_summary_table(tmp_path):
    table = next(tables(0))
    with pytest.raises(PolicyError, match="there is no column 'z'"):
        open_site("a", table, parse(RULES.replace('["x", "y"]', '["x", "z"]')))
    open_site(
        "a",
        table,
        parse(
            "format = 1\n[protect]\nauto_approve = true\none_row_per_person = true\n"
            "no_sensitive_columns = true"
        ),
        tmp_path,
    ).close()
    with pytest.raises(
        LedgerError,
        match=r'the folder has a summary table, and the policy has mode = "dp"\. Set the policy back',
    ):
        open_site("a", table, parse(RULES), tmp_path)


# ---------------------------------------------------------------- in the type


def test_noise_cannot_be_made_only_bought():
    with pytest.raises(TypeError, match=r"only BudgetAccountant\.spend creates noise"):
        Noise(object(), 1.0, None)

    class Empty(BudgetAccountant):
        def _charge(self, price: float) -> None:
            raise QueryRefusedError("nothing is left")

    with pytest.raises(QueryRefusedError, match="nothing is left"):
        Empty().spend([0.1], [1.0])
    (noise,) = SimulatedAccountant().spend([0.1], [1.0])
    noise.added(np.zeros(2, dtype=np.int64), 2.0**-30, 1.0)
    noise.used()
    with pytest.raises(TypeError, match="already used"):
        noise.added(np.zeros(2, dtype=np.int64), 2.0**-30, 1.0)


def test_the_package_has_two_budget_accountants_and_one_place_that_draws():
    """The ledger's and the simulation's; whatever else would draw noise would have to be written here."""
    accountants, drawing = set(), set()
    for path in Path(unpooled.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and any(
                getattr(b, "id", "") == "BudgetAccountant" for b in node.bases
            ):
                accountants.add((path.stem, node.name))
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in (
                "discrete_gaussian",
                "accepted",
            ):
                drawing.add(path.stem)
            if isinstance(node, ast.Name) and node.id == "_CHARGED":
                assert path.stem == "noise"
    assert accountants == {("noise", "SimulatedAccountant"), ("budget_guard", "_RequestAccountant")}
    assert drawing == {"noise", "discrete_gaussian"}


def test_a_simulated_budget_never_serves_a_site_with_rules(tmp_path):
    """A site under a policy charges its ledger, or answers no question with noise."""
    X = np.zeros((20, 2))
    question = AskNoisyMoments(0.1, np.full(2, 9.0))
    request = Request(RequestId("r", 0, 0, 0), (Part("total", question, None, 0),))
    for mode, reason in (
        ("summary", "answers from its summary table, and a private run needs"),
        ("raw", "does not have a privacy budget"),
    ):
        policy = parse(
            f'format = 1\n[protect]\nmode = "{mode}"\nauto_approve = true\none_row_per_person = true\n'
            "no_sensitive_columns = true"
        )
        site = open_site("a", X, policy, tmp_path / mode)
        (reply,) = site.answer(request).replies
        assert reason in reply.reason
        site.close()
    site = open_site("a", X, parse(RULES), tmp_path / "dp")
    assert not isinstance(site.answer(request).replies[0], Refusal)
    site.close()
    assert Ledger(tmp_path / "dp" / "ledger.sqlite", "a").spent() == pytest.approx(0.01)
