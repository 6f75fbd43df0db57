"""Every method gives the recorded result, up to rounding; ``tests/golden/__main__.py`` records anew."""

import numpy as np
import pytest
from tests.golden.runs import ROWS, RUNS, golden_run, load

from helpers import pooled

pytestmark = pytest.mark.quick

GOLDEN = load()


def test_every_run_is_recorded():
    assert list(GOLDEN) == RUNS


@pytest.mark.parametrize("name", RUNS)
def test_the_result_is_the_recorded_one(name):
    found, expected = golden_run(name), GOLDEN[name]
    size = np.abs(pooled(ROWS)).max()
    np.testing.assert_allclose(found["centers"], expected["centers"], rtol=0, atol=1e-6 * size)
    assert found["inertia"] == pytest.approx(expected["inertia"], rel=1e-6)
