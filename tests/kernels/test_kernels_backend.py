"""Which kernels a process runs, and what it says about it."""

import os
import subprocess
import sys

import pytest
from kernel_cases import needs_native

from unpooled import kernels

pytestmark = pytest.mark.quick

WITHOUT_EXTENSION = "import sys; sys.modules['unpooled.kernels._native'] = None; "
SHOW = "from unpooled import kernels; print(kernels.BACKEND, kernels.ISA)"


def _python(code: str, chosen: str = "") -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "UNPOOLED_KERNELS": chosen}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )


def test_without_the_extension_it_warns_once_and_works() -> None:
    done = _python(WITHOUT_EXTENSION + SHOW + "; import unpooled.kernels")
    assert done.stdout == "numpy numpy\n"
    assert done.stderr.count("unpooled runs on its numpy kernels: no compiled extension") == 1


def test_numpy_can_be_asked_for_silently() -> None:
    done = _python(WITHOUT_EXTENSION + SHOW, "numpy")
    assert (done.stdout, done.stderr) == ("numpy numpy\n", "")


@needs_native
def test_an_instruction_set_can_be_asked_for() -> None:
    assert _python(SHOW, kernels.ISA).stdout == f"native {kernels.ISA}\n"
    refused = _python(SHOW, "abacus")
    assert refused.returncode != 0
    assert "no kernels for abacus" in refused.stderr


@needs_native
def test_memory_stays_small() -> None:
    if sys.platform != "linux":
        pytest.skip("reads the peak from /proc")
    code = """
import numpy as np, resource
from unpooled import kernels
X = np.zeros((1_000_000, 16)); X[:] = np.arange(16)
centers = np.random.default_rng(0).normal(size=(2, 32, 16))
def peak(): return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
before = peak()
kernels.totals(X, [0, len(X)], centers, threads=2)
kernels.nearest(X, centers[0])
kernels.scatter(X, [0, len(X)], centers[0])
kernels.local_steps(X, [0, len(X)], centers[0], steps=2)
print(peak() - before)
"""
    assert float(_python(code).stdout) < 64
