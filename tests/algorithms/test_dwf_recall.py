"""What simulated sites remember between rounds changes nothing: states are those of sites that do not."""

import dataclasses

import numpy as np
import pytest
from sklearn.datasets import load_digits

from unpooled.algorithms import DWF, EWF
from unpooled.data import partitions as partition
from unpooled.federation import LocalFederation, Simulation
from unpooled.protocol import run

X = load_digits().data[:600] / 16
SPLITS = {
    "iid": partition.iid(len(X), 12, seed=3),
    "half": partition.half_iid(X, 12, seed=3),
    "k-means": partition.by_kmeans(X, 12, seed=3),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("method", [DWF, EWF])
def test_states_are_equal_in_every_bit(method, split):
    for k, dtype in ((5, np.float32), (20, np.float64)):
        sites = partition.split_rows(X.astype(dtype), SPLITS[split])
        algorithm = dataclasses.replace(method.as_published(k=k), max_rounds=60)
        fused, alone = (
            run(algorithm, kind.from_rows(sites), seed=k).state for kind in (Simulation, LocalFederation)
        )
        for field in ("centers", "previous", "movements", "inertia"):
            np.testing.assert_array_equal(getattr(fused, field), getattr(alone, field))
