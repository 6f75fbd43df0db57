"""The cost of trees of very many members, a part of docs/workers.md. ``python -m benchmarks.bench_scale``.

Measured here, with real messages: bytes of a query and an answer, and the CPU time of a relay and of a site.
The network is not measured but assumed: delays, loss, members that are away. A model of both predicts the
time of a round trip; it is checked against 10,000 sites with real messages and simulated clocks.
"""

import datetime
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.transport_federation import TransportFederation
from unpooled.protocol.algorithm import Ask
from unpooled.protocol.exchange import RequestId
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site import Site

PAGE = Path(__file__).parents[1] / "docs" / "workers.md"
PART = re.compile(r"(?<=<!-- scale: python -m benchmarks.bench_scale -->\n)(.*?)(?=<!-- end -->)", re.S)
ROWS, D, K = 20, 16, 10
MEDIAN, SPREAD = 0.05, 0.8  # seconds of one way, lognormal: 5% take more than 0.19 s
LOSS, AGAIN = 0.01, 1.0  # share of messages that are lost, and seconds until they are sent again
AWAY = 0.2  # share of sites that are away, which the relay learns at once
BANDWIDTH = 100e6 / 8  # bytes a second of a relay
EXCHANGES = 20  # of a run: about those of a default fit
STEP, LAST = 0.005, 60.0  # of the grid of times, seconds


class Costs(NamedTuple):
    """The measured costs of one member in an exchange."""

    down: int  # bytes of a query
    up: int  # bytes of a site's answer
    sum_up: int  # bytes of a relay's answer
    relay: float  # CPU seconds of the relay, for one member
    site: float  # CPU seconds of the site


class SimulatedNetwork:
    """A transport with real messages and simulated clocks: ``took`` is the time of its last exchange."""

    def __init__(self, sites: Mapping[str, Site], rng: Any, costs: Costs | None, away: float) -> None:
        self._sites, self._rng, self._costs, self._away = sites, rng, costs, away
        self.took, self.used, self.bytes = 0.0, 0.0, [0, 0]

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def send_and_receive(self, requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        answers: dict[str, bytes | str] = {}
        arrivals = []
        for name, request in requests.items():
            if self._rng.random() < self._away:
                answers[name] = "away"
                continue
            began = time.process_time()
            answer = self._sites[name].respond(request)
            self.used += time.process_time() - began
            downstream = getattr(self._sites[name], "network", None)
            self.bytes = [len(request), len(answer)]
            if self._costs is not None:
                inside = self._costs.site if downstream is None else downstream.took
                arrivals.append(inside + _way(self._rng) + _way(self._rng))
            answers[name] = answer
        if self._costs is not None:  # one core reads the answers as they come
            clock = sum(map(len, requests.values())) / BANDWIDTH
            for arrival in sorted(arrivals):
                clock = max(clock, arrival) + self._costs.relay + self.bytes[1] / BANDWIDTH
            self.took = clock
        return answers


def _way(rng: Any) -> float:
    """Seconds of a message one way; a lost one is sent again."""
    again = rng.geometric(1 - LOSS) - 1
    return float(MEDIAN * np.exp(SPREAD * rng.standard_normal()) + AGAIN * again)


def tree(count: int, width: int, costs: Costs | None, away: float, seed: int) -> Any:
    """Relays of sites with real messages, and the network above the relays."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((ROWS, D))
    relays = {}
    for r in range(count):
        sites = {f"{r}-{s}": Site(f"{r}-{s}", X) for s in range(width)}
        network = SimulatedNetwork(sites, rng, costs, away)
        relay: Any = Relay(
            f"{r:04}", TransportFederation(network, exact_sums=True), RelayRules(exact=True, min_sites=3)
        )
        relay.network = network
        relays[relay.name] = relay
    top = SimulatedNetwork(relays, rng, costs, 0.0)
    return TransportFederation(top, exact_sums=True), top, relays


def exchange(federation: Any, number: int) -> Any:
    """The replies of one exchange."""
    centers = np.random.default_rng(7).standard_normal((1, K, D))
    (replies,) = federation.ask(
        RequestId("r", 0, number, 0), (Ask("total", federation.sites, AskClusterSums(centers)),)
    )
    return replies


def measured(count: int = 4, width: int = 50, rounds: int = 5) -> Costs:
    """The costs of a member, the minimum of some rounds."""
    federation, top, relays = tree(count, width, None, 0.0, 0)
    lowest = Costs(0, 0, 0, np.inf, np.inf)
    for number in range(rounds):
        for network in (top, *(relay.network for relay in relays.values())):
            network.used = 0.0
        exchange(federation, number)
        downstream = [relay.network for relay in relays.values()]
        sites, members = sum(one.used for one in downstream), count * width
        own = top.used - sites
        lowest = Costs(
            downstream[0].bytes[0],
            downstream[0].bytes[1],
            top.bytes[1],
            min(lowest.relay, own / members),
            min(lowest.site, sites / members),
        )
    return lowest


# ---------------------------------------------------------------- the model


def grid() -> Any:
    return np.arange(0.0, LAST, STEP)


def _one_way() -> Any:
    """The chances (t,) of the time of a message, on the grid."""
    from scipy.stats import lognorm

    density = np.diff(lognorm.cdf(np.append(grid(), LAST), SPREAD, scale=MEDIAN))
    later, total = round(AGAIN / STEP), np.zeros_like(density)
    for again in range(4):
        shifted = np.concatenate([np.zeros(again * later), density])[: len(density)]
        total += (1 - LOSS) * LOSS**again * shifted
    return total


def _added(a: Any, b: Any) -> Any:
    from scipy.signal import fftconvolve

    return np.maximum(fftconvolve(a, b)[: len(a)], 0.0)


def predicted(widths: list[int], costs: Costs, away: float = AWAY) -> Any:
    """The distribution (t,) of the time of an exchange; ``widths`` from the sites up to the root."""
    both = _added(_one_way(), _one_way())
    inside = np.zeros(len(grid()))
    inside[round(costs.site / STEP)] = 1.0
    for level, width in enumerate(widths):
        present = max(1.0, width * (1 - away) if level == 0 else width)
        slowest = np.cumsum(_added(inside, both)) ** present
        up = costs.up if level == 0 else costs.sum_up
        busy = costs.relay + up / BANDWIDTH  # for the last answer: earlier ones are read before
        first = costs.down * width / BANDWIDTH
        earliest = first + present * busy  # not before a core can have read all of them
        chances = np.diff(np.append(0.0, slowest))
        late = round(busy / STEP)
        inside = np.concatenate([np.zeros(late), chances])[: len(chances)]
        floor = round(earliest / STEP)
        inside[floor] += inside[:floor].sum()
        inside[:floor] = 0.0
    return inside


def quantile(chances: Any, share: float) -> float:
    total = np.cumsum(chances)
    return float(grid()[np.searchsorted(total, share * total[-1])])


def widths_of(members: int, width: int) -> list[int]:
    """The widths of a tree of at most this width for a number of members.

    >>> widths_of(1000, 100), widths_of(10**7, 30)
    ([100, 10], [30, 30, 30, 30, 13])
    """
    widths = []
    while members > width:
        widths.append(width)
        members = -(-members // width)
    return [*widths, members]


# ---------------------------------------------------------------- the page


def checked(costs: Costs, exchanges: int = 5) -> tuple[str, float]:
    """A table of 100 relays x 100 sites, simulated beside the model, and the error of the median."""
    federation, top, _ = tree(100, 100, costs, AWAY, 1)
    times, answered = [], []
    for number in range(exchanges):
        answered.append(exchange(federation, number).partial_sum().sites)
        times.append(top.took)
    model = predicted([100, 100], costs)
    rows = [
        ("median of a round trip, s", float(np.median(times)), quantile(model, 0.5)),
        ("slowest of them, s", max(times), quantile(model, 1 - 0.5 / exchanges)),
        ("sites in a sum", float(np.mean(answered)), 1e4 * (1 - AWAY)),
    ]
    lines = ["| 10,000 sites | simulated | model | error of the model |", "|---|---|---|---|"]
    errors = [abs(model / found - 1) for _, found, model in rows]
    lines += [
        f"| {what} | {simulated:,.2f} | {by_model:,.2f} | {100 * error:.1f}% |"
        for (what, simulated, by_model), error in zip(rows, errors, strict=True)
    ]
    return "\n".join(lines), errors[0]


def table(costs: Costs) -> str:
    heads = ["members", "width", "levels", "relays", "round trip: median, s", "95%, s"]
    heads += [f"run of {EXCHANGES} round trips, min", "busiest relay: CPU s", "MB in and out"]
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for members in (10**3, 10**5, 10**7):
        for width in (30, 100):
            widths = widths_of(members, width)
            chances = predicted(widths, costs)
            relays, nodes = 0, members
            for one in widths:
                nodes = -(-nodes // one)
                relays += nodes
            busiest = max(widths)
            both = busiest * (costs.down + (costs.sum_up if len(widths) > 1 else costs.up)) / 1e6
            cells = [f"{members:,}", str(width), str(len(widths)), f"{relays:,}"]
            median = quantile(chances, 0.5)
            cells += [f"{median:.2f}", f"{quantile(chances, 0.95):.2f}", f"{EXCHANGES * median / 60:.1f}"]
            cells += [f"{busiest * costs.relay:.3f}", f"{both:.2f}"]
            lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def part(costs: Costs) -> str:
    """The part of the page that is measured."""
    import os

    proof, _ = checked(costs)
    load = os.getloadavg()[0]
    return f"""`python -m benchmarks.bench_scale` measured this on {datetime.date.today()}, with a load of
{load:.0f} on {os.cpu_count()} cores. The numbers come from a model, which is fitted to measurements and
checked against a simulation. Nearly all of a round trip is the assumed network: measured CPU times are about
1% of it or less. Nobody has run ten million members.

### Predictions of the model

{table(costs)}

- **Depth costs little, stragglers cost most.** Each level adds a round trip, and the wait for the
  slowest of its members.
- **A lost message decides the median** as soon as a level has a hundred members: one of them waits
  {AGAIN:.0f} s. A `--deadline` and a quorum below 1 trade these sites for time.
- **Bytes and CPU time are small**: the busiest relay reads its own members only, at any size of the tree.
- The engine between machines has costs of its own for every connection
  ([many sites](deployment/operation.md#many-sites)); they are not in this model.

### Measured: bytes and CPU time

One round trip of Lloyd with {K} clusters and {D} columns, with real messages. Times are CPU times, the
minimum of some round trips.

| per member of a relay and round trip | |
|---|---|
| bytes of the query | {costs.down:,} |
| bytes of a site's answer | {costs.up:,} |
| bytes of a relay's answer, an exact sum | {costs.sum_up:,} |
| time of the relay, for one member | {1e6 * costs.relay:.0f} us |
| time of a site with {ROWS} rows | {1e6 * costs.site:.0f} us |

### Assumed: the network

- A message takes {1e3 * MEDIAN:.0f} ms one way at the median (lognormal, sigma {SPREAD}).
- {100 * LOSS:.0f}% of messages are lost, and sent again after {AGAIN:.0f} s.
- {100 * AWAY:.0f}% of the sites are away at any time, which their relay learns at once.
- A relay has 100 Mbit/s and one core, and is never away.

### The model

A query takes one round trip for each level of the tree. A relay waits for the slowest of its members that are
present: the distribution function of that time is that of one member to the power of their number. A relay
above adds the same for its own members. One core reads the answers as they arrive, so a round trip takes at
least the time to read all of them. The model uses the mean number of members that are present.

### The model beside a simulated network

100 relays of 100 sites in one process. Every message is real and encoded, and sums are exact; clocks are
simulated.

{proof}
"""


def main() -> None:
    before, _, after = PART.split(PAGE.read_text(encoding="utf-8"))
    PAGE.write_text(f"{before}{part(measured())}{after}", encoding="utf-8")
    print(f"written: {PAGE}")


if __name__ == "__main__":
    main()
