"""Attacks by a coordinator who asks what it likes: each returns values that it takes for people' own.

``ask(question, transform=None, seed=0)`` puts one question to ``respond`` of a real site, in a round of its
own; None is a refusal. What an attack returns is compared with the rows by ``people_found``.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from unpooled.algorithms import Lloyd
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.data import Category, Number, Preparation, PreparationOptions, Table
from unpooled.data.schema import AskColumns
from unpooled.data.transforms import Affine
from unpooled.evaluation import Analysis
from unpooled.federation.transport_federation import TransportFederation
from unpooled.optimality.questions import AskNode, AskOutside, AskRange
from unpooled.protocol import codec, run
from unpooled.protocol.exchange import Part, Request, RequestId, Transport
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskLocalMeans, AskMoments
from unpooled.protocol.questions.description import AskCrossing
from unpooled.protocol.questions.fuzzy_sums import AskFuzzySums
from unpooled.site import Site
from unpooled.site.audit.attack import attack, in_process, probe
from unpooled.site.audit.known_sums import Space, disclosed_in

Ask = Any  # a function that asks a question at a site, which is its field ``site``


NAMES = ("x", "y", "lab", "kind")


def rows_of(seed: int, n: int = 200) -> Table:
    """Two full columns, one with a single missing value, a category with one rare category."""
    rng = np.random.default_rng(seed)
    centers = rng.uniform(-10, 10, (4, 2))
    X = centers[rng.integers(4, size=n)] + rng.normal(0, 2, (n, 2))
    lab = rng.normal(5, 1, n)
    lab[rng.integers(n)] = np.nan
    kind = np.array(["usual"] * n, dtype=object)
    kind[rng.integers(n)] = "rare"
    return Table.from_columns({"x": X[:, 0], "y": X[:, 1], "lab": lab, "kind": kind.tolist()})


def numbers(table: Table) -> np.ndarray:
    return np.asarray(table.values[:, :2])


def asking(site: Site) -> Ask:
    rounds = iter(range(10**9))

    def ask(question: Any, transform: Any = None, seed: int = 0, number: int | None = None) -> Any:
        request_id = RequestId("attack", seed, next(rounds) if number is None else number, 0)
        request = Request(request_id, (Part("each", question, transform, 0),))
        (reply,) = codec.unwrap(site.respond(codec.wrap(request))).replies
        return None if isinstance(reply, Refusal) else reply

    return ask


def people_found(found: Any, table: Table) -> int:
    """Rows of the table that are among the values found, exact to 1e-6 of a column's spread."""
    found = np.atleast_2d(np.asarray(found, dtype=float))
    if not found.size:
        return 0
    X = numbers(table)[:, : found.shape[1]]
    scale = X.std(axis=0)
    near = [np.abs((found - row) / scale).max(axis=1).min() for row in X]
    return int((np.array(near) < 1e-6).sum())


PLAIN = Preparation((Number("x", 0.0, 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)
ATTACKS: dict[str, Callable[[Ask, np.random.Generator], Any]] = {}


def listed(function: Any) -> Any:
    ATTACKS[function.__name__.replace("_", " ")] = function
    return function


@listed
def seeds_of_a_local_clustering(ask: Ask, rng: np.random.Generator) -> Any:
    """k-means++ takes rows as seeds, and with no step the seeds are the reply."""
    found = [ask(AskLocalMeans(8, steps=0), PLAIN, seed) for seed in range(40)]
    return np.concatenate([reply.means for reply in found if reply is not None] or [np.zeros((0, 2))])


@listed
def batches_of_one_as_linear_equations(ask: Ask, rng: np.random.Generator) -> Any:
    """With one centre and batches of one row every reply is a known combination of all rows."""
    moments = ask(AskMoments(), PLAIN)
    if moments is None:
        return []
    n = int(moments.n)
    question = AskEpochs(np.zeros((1, 2)), 1, 1, 2.0)
    own = Site("target", np.eye(n))  # the same draws on unit vectors give the coefficients
    A, B = [], []
    for seed in range(n + 20):
        reply = ask(question, PLAIN, seed, number=1000)
        coefficients = asking(own)(AskEpochs(np.zeros((1, n)), 1, 1, 2.0), None, seed, number=1000)
        if reply is None or coefficients is None or not reply.counts[0]:
            continue
        A.append(coefficients.weighted[0] / coefficients.counts[0])
        B.append(reply.weighted[0] / reply.counts[0])
    return np.linalg.lstsq(np.array(A), np.array(B), rcond=None)[0] if A else []


def _borders(
    ask: Ask, rng: np.random.Generator, asked: Callable[[np.ndarray], Any], transform: Any, far: float = 40.0
) -> Any:
    """Two cells whose border moves across the data: consecutive sums that differ by one row."""
    found = []
    for _ in range(4):
        direction = rng.standard_normal(2)
        direction /= np.linalg.norm(direction)
        known = {}
        for offset in np.linspace(-22, 22, 350):
            centers = np.stack([(offset - far) * direction, (offset + far) * direction])
            reply = ask(asked(centers), transform() if callable(transform) else transform)
            if reply is None:
                continue
            mass = np.ravel(reply.rows if hasattr(reply, "rows") else reply.mass)[:2]
            sums = reply.sums.reshape(-1, 2)[:2] + mass[:, None] * centers
            known[offset] = (mass[0], sums[0])
        offsets = sorted(known)
        for a, b in pairwise(offsets):
            if abs(known[b][0] - known[a][0] - 1) < 1e-9:
                found.append(known[b][1] - known[a][1])
    return found


@listed
def a_border_that_moves(ask: Ask, rng: np.random.Generator) -> Any:
    return _borders(ask, rng, lambda c: AskClusterSums(c[None]), PLAIN)


@listed
def a_border_that_moves_under_new_transforms(ask: Ask, rng: np.random.Generator) -> Any:
    """A transform of its own for every question, so that none was seen before."""

    def transform() -> Any:
        return Preparation((Number("x", rng.normal(), 0.0, 1.0), Number("y", 0.0, 0.0, 1.0)), drop=False)

    return _borders(ask, rng, lambda c: AskClusterSums(c[None]), transform)


@listed
def memberships_that_are_nearly_hard(ask: Ask, rng: np.random.Generator) -> Any:
    return _borders(ask, rng, lambda c: AskFuzzySums(c[None], 1.0005), PLAIN, far=1.0)


@listed
def sides_found_by_bisection(ask: Ask, rng: np.random.Generator) -> Any:
    """The probe of ``audit attack``, 200 questions."""
    moments = ask(AskMoments(), PLAIN)
    if moments is None:
        return []
    put = in_process(lambda request: _as_answer(ask(request.parts[0].question, PLAIN)))
    return probe(put, moments.mean, np.sqrt(moments.variance), 200, rng).rows


@dataclass
class _as_answer:  # noqa: N801
    reply: Any

    @property
    def replies(self) -> tuple[Any]:
        return (self.reply if self.reply is not None else Refusal("no"),)


@listed
def cells_of_many_random_centres(ask: Ask, rng: np.random.Generator) -> Any:
    """All cells of 120 random clusterings, searched as a log is."""
    space = Space(2)
    for _ in range(120):
        question = AskClusterSums(rng.uniform(-14, 14, (1, int(rng.integers(2, 12)), 2)))
        reply = ask(question, PLAIN)
        if reply is not None:
            space.disclosed.extend(disclosed_in(question, reply))
    return attack([space]).rows if space.disclosed else []


@listed
def all_rows_less_the_complete_ones(ask: Ask, rng: np.random.Generator) -> Any:
    """One row lacks a value: totals over all rows, minus totals over complete rows, are that row."""

    def totals(complete: bool) -> Any:
        return ask(AskColumns(("x", "y", "lab"), np.zeros(3), np.ones(3), (), (), complete), None)

    every, whole = totals(False), totals(True)
    return [] if every is None or whole is None else [(every.sums - whole.sums)[:2]]


@listed
def the_fill_as_a_hook(ask: Ask, rng: np.random.Generator) -> Any:
    """Rows without a value are filled far away: there they are a cell of their own."""
    far = Preparation((*PLAIN.columns, Number("lab", 1e6, 0.0, 1.0)), drop=False)
    reply = ask(AskClusterSums(np.array([[[0.0, 0.0, 0.0], [0.0, 0.0, 1e6]]])), far)
    return [] if reply is None or not reply.mass[0, 1] else [reply.sums[0, 1, :2] / reply.mass[0, 1]]


@listed
def a_rare_category_as_a_hook(ask: Ask, rng: np.random.Generator) -> Any:
    """Somebody with a rare category is far away along that category, and a cell of their own."""
    hook = Preparation((*PLAIN.columns, Category("kind", ("rare",), False, 0, 1e-6)), drop=False)
    reply = ask(AskClusterSums(np.array([[[0.0, 0.0, 0.0], [0.0, 0.0, 1e6]]])), hook)
    return [] if reply is None or not reply.mass[0, 1] else [reply.sums[0, 1, :2] / reply.mass[0, 1]]


@listed
def the_lowest_and_the_highest(ask: Ask, rng: np.random.Generator) -> Any:
    reply = ask(AskRange(), PLAIN)
    return [] if reply is None or not len(reply.low) else [[reply.low[0]], [reply.high[0]]]


@listed
def a_box_closed_by_bisection(ask: Ask, rng: np.random.Generator) -> Any:
    """Does any row lie outside? Sixty times, and the highest value is known."""
    low, high = 0.0, 100.0
    for _ in range(60):
        middle = (low + high) / 2
        reply = ask(AskOutside(np.array([[-1e3, -1e3], [middle, 1e3]])), PLAIN)
        if reply is None:
            return []
        low, high = (middle, high) if reply.sites[0] else (low, middle)
    return [[high]]


@listed
def centroids_in_boxes_of_one_point(ask: Ask, rng: np.random.Generator) -> Any:
    """Exact clustering with one centroid fixed far out: the other holds all rows but the farthest."""
    found, sums = [], {}
    moments = ask(AskMoments(), PLAIN)
    if moments is None:
        return []
    for corner in rng.uniform(-40, 40, (25, 2)):
        low = np.array([[-1e3, -1e3], corner])
        high = np.array([[1e3, 1e3], corner])
        reply = ask(AskNode(np.zeros((2, 2)), low, high, "none", np.zeros((2, 2)), 200), PLAIN)
        if reply is not None and reply.seen[0]:
            sums[tuple(corner)] = (reply.counts[0], reply.counts[0] * reply.centroids[0])
    values = [(moments.n, moments.sums), *sums.values()]
    for n, total in values:
        found += [total - other for m, other in values if n - m == 1]
    return found


@listed
def counts_that_cross(ask: Ask, rng: np.random.Generator) -> Any:
    """Counts in two clusterings at once locate a value to any digit, one bit a question."""
    found = []
    for start in rng.uniform(-12, 12, 12):
        low, high = start, 100.0
        for _ in range(55):
            middle = (low + high) / 2
            first = np.array([[start - 50, 0.0], [start + 50, 0.0]])
            other = np.array([[[middle - 50, 0.0], [middle + 50, 0.0]]])
            reply = ask(AskCrossing(first, other), PLAIN)
            if reply is None:
                break
            low, high = (low, middle) if reply.counts[0, 1, 0] > 0 else (middle, high)
        found.append([high])
    return found


@listed
def an_honest_scan(ask: Ask, rng: np.random.Generator) -> Any:
    """An ordinary scan of k at one site, and all its replies searched."""
    spaces: dict[str, Space] = {}

    class Wire(Transport):
        sites = ("target",)

        def send_and_receive(self, requests: Any) -> Any:
            out = {}
            for site, data in requests.items():
                request = codec.unwrap(data)
                data = ask.site.respond(data)
                for part, reply in zip(request.parts, codec.unwrap(data).replies, strict=True):
                    if not isinstance(reply, Refusal):
                        key = "raw" if part.transform is None else "transformed"
                        transform = part.transform if isinstance(part.transform, Preparation) else None
                        width = 2 if transform is None else transform.width
                        scaling = () if transform is None else transform.scaling()
                        space = spaces.setdefault(key, Space(width, key, *scaling))
                        space.disclosed.extend(disclosed_in(part.question, reply))
                out[site] = data
            return out

    methods = tuple(Lloyd(k=k, min_cluster_size=5) for k in range(2, 11))
    try:
        run(Analysis(PreparationOptions(columns=("x", "y")), methods), TransportFederation(Wire()), seed=1)
    except Exception:
        return []
    return attack([s for s in spaces.values() if s.disclosed]).rows if spaces else []


@listed
def affine_transforms_of_the_table(ask: Ask, rng: np.random.Generator) -> Any:
    """A transform of arrays asked of a table, in case it shows what a preparation does not."""
    reply = ask(AskClusterSums(rng.normal(size=(1, 3, 4))), Affine(np.zeros(4), np.ones(4)))
    return [] if reply is None else (reply.sums / np.maximum(reply.mass, 1)[..., None]).reshape(-1, 4)[:, :2]
