"""A table of patients that changes, and a site that is asked about it."""

from typing import Any

import numpy as np

from unpooled.data import Number, Preparation, Table
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.protocol import codec
from unpooled.protocol.exchange import Part, Request, RequestId
from unpooled.protocol.messages import Refusal
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site.open_site import open_site

BY_ID = SummarySettings(min_group_size=3, person="id", no_sensitive_columns=True)


class Patients:
    """A table that changes: people by id, a number of two clusters, one with missing values, a category."""

    def __init__(self, count: int = 60, seed: int = 0, called: str = "P") -> None:
        self.rng, self.next, self.called = np.random.default_rng(seed), 0, called
        self.rows: dict[str, Any] = {}
        self.come(count)

    def come(self, count: int) -> list[str]:
        new = [f"{self.called}{self.next + i}" for i in range(count)]
        self.next += count
        for person in new:
            self.change(person)
        return new

    def change(self, person: str) -> None:
        old = self.rng.random() < 0.5
        lab = self.rng.normal(0, 1) if self.rng.random() > 0.05 else np.nan
        self.rows[person] = (self.rng.normal(70 if old else 40, 4), lab, str(self.rng.choice(["f", "m"])))

    def leave(self, count: int) -> list[str]:
        gone = self.rng.choice(sorted(self.rows), count, replace=False).tolist()
        for person in gone:
            del self.rows[person]
        return gone

    def table(self) -> Table:
        age, lab, sex = zip(*self.rows.values(), strict=True)
        return Table.from_columns(
            {"id": list(self.rows), "age": np.array(age), "lab": np.array(lab), "sex": list(sex)}
        )


def asked(site, number: int = 0, run: str = "r"):
    transform = Preparation((Number("age", 0.0, 0.0, 1.0),), True)
    part = Part("total", AskClusterSums(np.array([[[50.0]]])), transform, 0)
    request = Request(RequestId(run, 0, number, 0), (part,))
    return codec.unwrap(site.respond(codec.wrap(request))).replies[0]


def answered(place):
    """Answer from the present summary table; a run is of one table."""
    site = open_site("north", folder=place.folder)
    reply = asked(site, run=place.digest)
    site.close()
    assert not isinstance(reply, Refusal), reply
    return reply
