"""An audit of whole private runs: sites drop out, others collude with the coordinator, one row is wanted.

Real sites with a budget answer secure sums through real sites. The coordinator knows everything but one row:
all other rows, and that hostile sites add no noise and no rows. It loses the masked answers of as many honest
sites as the threshold allows. From all sums of a run it computes the likelihood ratio of the two tables,
which is the best test there is.

Whatever it sees, mu, is at most what the ledger of the row's site has charged. There are two versions. The
law takes the noise that sites drew by its standard deviation: mu^2 is the sum of squared shifts over
variances. The long one takes the drawn noise itself, and bounds mu from below by how often the test is right.
"""

from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from test_dp_audit import seen_mu

from helpers import ledger_of
from seeded_noise import SHARES, batch, whitened
from unpooled.algorithms import Private
from unpooled.data.transforms import Affine
from unpooled.federation.transport_federation import TransportFederation
from unpooled.privacy import Gaussian, SecureSums
from unpooled.privacy.dp.accounting import gdp_delta, gdp_mu
from unpooled.privacy.dp.noise import Noise
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.privacy.secure_sum import site_mask, threshold_for
from unpooled.privacy.secure_sum.crypto import Identity
from unpooled.privacy.secure_sum.stage_messages import AskMasked
from unpooled.privacy.secure_sum.sum_member import Member
from unpooled.protocol import codec, run
from unpooled.protocol.algorithm import total, transformed
from unpooled.protocol.exchange import Request, run_protocol
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RUNS = 150  # of either table, in the long tests
EPSILON, DELTA = 6.0, 0.02
MU = gdp_mu(EPSILON, DELTA)  # 2.14
CORNER = np.ones((1, 2))  # adds as much as a row can, in most questions
RULES = f"""
format = 1
[protect]
mode = "dp"
[dp]
epsilon_total = {EPSILON}
delta = {DELTA}
honest_sites = {{honest}}
sites_per_person = {{stated}}
[domain]
rows = 50
[aggregation]
secure = "required"
"""


@dataclass
class World:
    """The sites of one run, of which the first ``honest`` are honest; the row to be found is at the first.

    A person may have the row at several sites, ``at``; the policies and the queries state ``stated`` of them.
    """

    sites: int
    honest: int
    row: np.ndarray  # (1, 2), or (0, 2): it is not there
    lost: int  # honest sites whose masked answer is lost, the last ones, from the second sum on
    factor: float = 1.0  # of the noise that is drawn, in proportion to what it should be
    at: int = 1  # sites at which the person has the row, the first ones
    stated: int = 1  # sites per person, by the policies and the queries
    answering: str = ""  # the site that draws noise now
    shares: dict[str, float] = field(default_factory=dict)  # of one noise, as each honest site drew it last
    asked: list = field(
        default_factory=list
    )  # question and transform of every sum, and its honest sites' shares

    def __post_init__(self) -> None:
        rules = parse(RULES.format(honest=self.honest, stated=self.stated))
        rng, theirs = np.random.default_rng(0), {f"s{i}" for i in range(self.at)}
        self.rows = {f"s{i}": rng.uniform(-0.9, 0.9, (4, 2)) for i in range(self.honest)}
        self.made = {}
        for name in (f"s{i}" for i in range(self.sites)):
            own = self.rows.get(name, np.zeros((0, 2)))
            own = np.vstack([own, self.row]) if name in theirs else own
            self.made[name] = open_site(name, own, rules, member=Member(name, Identity.new()))
        self.gone = {f"s{i}" for i in range(self.honest - self.lost, self.honest)}

    @property
    def charged(self) -> float:
        """mu, as the ledger of the row's site has it."""
        return float(ledger_of(self.made["s0"]).spent() ** 0.5)

    def federation(self) -> TransportFederation:
        return TransportFederation(self.Transport(self), secure=SecureSums())

    class Transport:
        """Loses masked answers; notes what is asked of the row's site."""

        def __init__(self, world: "World") -> None:
            self._world, self.sites = world, tuple(world.made)

        def send_and_receive(self, requests):
            world, came = self._world, {}
            masked = [name for name, data in requests.items() if _masks(data)]
            for name, data in requests.items():
                world.answering = name
                came[name] = world.made[name].respond(data)
            world.answering = ""
            if masked:
                late = world.gone & set(requests) if world.asked else set()
                for name in late:
                    del came[name]
                (part,) = [p for p in _parts(requests["s0"]) if p.verb == "total"]
                there = {name: share for name, share in world.shares.items() if name in came}
                world.asked.append((part.question, part.transform, there))
            return came


def _parts(data: bytes):
    return codec.unwrap(data, expect=Request).parts


def _masks(data: bytes) -> bool:
    return any(isinstance(part.question, AskMasked) for part in _parts(data))


@pytest.fixture
def worlds(monkeypatch):
    """Make worlds in which only honest sites draw noise."""
    made, honest = [], Noise.added

    def added(self, sums, step, sd):
        world = made[-1]
        if world.answering not in world.rows:
            return sums * step
        world.shares[world.answering] = self.share
        return honest(self, sums, step, sd * world.factor)

    def world(*words, **people) -> World:
        made.append(World(*words, **people))
        return made[-1]

    monkeypatch.setattr(Noise, "added", added)
    return world


# ---------------------------------------------------------------- runs


def private(world: World, seed: int) -> list:
    """The sums of an honest run of private k-means."""
    dp = Gaussian(EPSILON, DELTA, -1.0, 1.0, accept_noise=True, sites_per_person=world.stated)
    method = Private(k=2, dp=dp, scale="standard")
    return [release.reply for release in run(method, world.federation(), seed=seed, name="r").state.releases]


def crafted(world: World, seed: int) -> list:
    """The sums of a lying coordinator, whose questions cost the row all that is charged; it restarts once."""
    mu, box, centers = MU / 7**0.5 / world.stated, np.ones(2), np.array([[0.0, 0.0], [-1.0, -1.0]])
    questions = [
        AskNoisySpread(mu, box),
        AskNoisyMoments(mu, box, bins=4),
        AskNoisyCells(mu, centers[:1], box, np.ones(1), SHARES),
        AskNoisyCells(mu, centers, box, np.full(1, 0.5), SHARES, m=1.1),
        AskNoisyCells(mu, centers, box, np.array([0.1, 2.0]), SHARES),
        AskNoisyMoments(mu, box, bins=1),
    ]
    sums, federation = [], world.federation()
    questions = [replace(question, sites_per_person=world.stated) for question in questions]
    for number, question in enumerate([*questions, questions[-1]]):
        if number == 6:  # the same sum again, under other keys: its noise is drawn and paid for again
            federation, number = world.federation(), 5
        asks = transformed(Affine(np.zeros(2), np.ones(2)), total(federation.sites, question))
        sums.append(run_protocol(asks, federation, run="r", number=number, quorum=0.5))
    return sums


RUN_KINDS = {"private": private, "crafted": crafted}


def evidence(world: World, sums: list) -> tuple[float, float]:
    """Log likelihood ratio that the row is there, and mu^2 of all sums: squared shifts over variances."""
    ratio = square = 0.0
    assert len(world.asked) == len(sums)
    for (question, transform, there), reply in zip(world.asked, sums, strict=True):
        rows = np.vstack([world.rows[name] for name in sorted(there)])
        variance = sum(share**2 for share in there.values())
        theirs = [CORNER for i in range(world.at) if f"s{i}" in there]
        without, with_row = (
            whitened(question, question.answer(batch(transform.apply(r))), 2)
            for r in (rows, np.vstack([rows, *theirs]))
        )
        seen = whitened(question, reply, 2)
        ratio += float(((seen - without) ** 2 - (seen - with_row) ** 2).sum()) / (2 * variance)
        square += float(((with_row - without) ** 2).sum()) / variance
    return ratio, square


def audited(
    worlds, kind: str, sites: int, honest: int, seed: int, row=CORNER, factor=1.0, **people: int
) -> tuple[float, float, float]:
    """Of one run: log likelihood ratio, mu by its noise, mu as charged."""
    lost = min(sites - threshold_for(sites), honest - 1)
    world = worlds(sites, honest, row, lost, factor, **people)
    sums = RUN_KINDS[kind](world, seed)
    ratio, square = evidence(world, sums)
    charged = world.charged
    for site in world.made.values():
        site.close()
    return ratio, square**0.5, charged


# ---------------------------------------------------------------- the law


@pytest.mark.parametrize(
    ("kind", "sites", "honest"),
    [("crafted", 4, 3), ("crafted", 4, 4), ("private", 5, 3)],
)
def test_a_whole_run_shows_no_more_of_a_row_than_its_site_has_charged(worlds, kind, sites, honest):
    _, seen, charged = audited(worlds, kind, sites, honest, seed=0)
    assert charged == pytest.approx(MU)
    print(f"{kind}, {honest} of {sites} sites honest: mu {seen:.3f} of {charged:.3f}")
    assert seen <= charged * (1 + 1e-9)
    assert seen > (0.9 if kind == "crafted" else 0.3) * charged  # the audit does see the row


@pytest.mark.parametrize(("kind", "at"), [("crafted", 2), ("crafted", 3), ("private", 2)])
def test_a_whole_run_shows_no_more_of_a_person_at_several_sites_than_each_has_charged(worlds, kind, at):
    """Five honest sites share one noise, and one of them is lost."""
    _, seen, charged = audited(worlds, kind, 5, 5, seed=0, at=at, stated=at)
    assert charged == pytest.approx(MU)
    print(f"{kind}, a person at {at} of 5 sites: mu {seen:.3f} of {charged:.3f}")
    assert seen <= charged * (1 + 1e-9)
    assert seen > (0.9 if kind == "crafted" else 0.3) * charged


def test_the_audit_catches_a_person_at_more_sites_than_are_stated(worlds):
    _, seen, charged = audited(worlds, "crafted", 5, 5, seed=0, at=2, stated=1)
    print(f"at 2 sites, 1 stated: mu {seen:.3f} of {charged:.3f}")
    assert seen > 1.8 * charged


def test_the_audit_catches_a_share_that_forgets_who_drops_out(worlds, monkeypatch):
    """Four sites, three of them honest, one of these lost: two thirds of a noise were left."""
    monkeypatch.setattr(site_mask, "noise_sharers", lambda sites, threshold, honest: min(threshold, honest))
    _, seen, charged = audited(worlds, "crafted", 4, 3, seed=0)
    print(f"one of min(threshold, honest): mu {seen:.3f} of {charged:.3f}")
    assert seen > 1.1 * charged


# ---------------------------------------------------------------- the long version


def distinguished(
    worlds, kind: str, sites: int, honest: int, factor: float = 1.0
) -> tuple[float, float, float]:
    """What runs on both tables show: mu as estimated, its standard error, and what is charged."""
    ratios, by_noise = [], []
    for row in (CORNER, np.zeros((0, 2))):
        found = [audited(worlds, kind, sites, honest, seed, row, factor) for seed in range(RUNS)]
        ratios.append(np.array([ratio for ratio, _, _ in found]))
        by_noise += [seen for _, seen, _ in found]
        charged = max(charge for _, _, charge in found)
        assert factor != 1.0 or max(by_noise) <= charged * (1 + 1e-9)
    there, absent = ratios
    spread = ((there.var(ddof=1) + absent.var(ddof=1)) / 2) ** 0.5
    seen = float(there.mean() - absent.mean()) / float(spread)
    error = (2 / RUNS + seen**2 / (4 * RUNS)) ** 0.5
    least = seen_mu(there[:, None], absent[:, None], np.ones(1))
    print(
        f"{kind}, {honest} of {sites} sites honest, {factor:g} times the noise, {RUNS} runs of either table: "
        f"mu {seen:.3f} (standard error {error:.3f}, at least {least:.3f}), by the noise "
        f"{np.mean(by_noise):.3f} (largest {max(by_noise):.3f}), charged {charged:.3f}"
    )
    for epsilon in (0.0, 1.0, 2.0, 4.0):
        p, q = float((there > epsilon).mean()), float((absent > epsilon).mean())
        delta, allowed = p - np.exp(epsilon) * q, gdp_delta(charged, epsilon)
        sd = ((p * (1 - p) + np.exp(2 * epsilon) * q * (1 - q)) / RUNS) ** 0.5
        print(f"  P1 - e^{epsilon:g} P0 = {delta:.3f} (error {sd:.3f}), allowed {allowed:.3f}")
    assert least <= charged or factor < 1
    return seen, error, charged


@pytest.mark.long
@pytest.mark.parametrize(("kind", "sites", "honest"), [("crafted", 4, 3), ("private", 5, 3)])
def test_whole_runs_on_two_tables_are_distinguished_no_better_than_is_charged(worlds, kind, sites, honest):
    """An honest mechanism fails with a probability below 1e-4."""
    seen, error, charged = distinguished(worlds, kind, sites, honest)
    assert seen <= charged + 4 * error


@pytest.mark.long
def test_the_audit_of_whole_runs_catches_half_the_noise(worlds):
    seen, error, charged = distinguished(worlds, "crafted", 4, 3, factor=0.5)
    assert seen > charged + 4 * error
