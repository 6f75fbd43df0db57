"""One run of every method and preset on three separated clusters: sorted centres and inertia."""

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from helpers import ALGORITHMS, blobs, in_order, inertia_of, pooled, split
from unpooled.algorithms import Private
from unpooled.federation import Simulation
from unpooled.privacy import Gaussian
from unpooled.protocol import run

PATH = Path(__file__).parent / "golden.json"
ROWS = split(blobs(1, n=160, spread=1.0)[0], 4, seed=1)
RUNS = [*ALGORITHMS, "private", "private-fuzzy"]


def _noise(count: int, scale: float) -> np.ndarray:
    """Noise from a fixed seed: only a test may replace the operating system's entropy."""
    return np.array([round(scale * x) for x in np.random.default_rng(count).standard_normal(count)])


def _private(m: float | None) -> np.ndarray:
    size = max(abs(rows).max() for rows in ROWS.values())
    rows = {name: np.tile(rows / size, (50, 1)) for name, rows in ROWS.items()}
    algorithm = Private(k=3, dp=Gaussian(epsilon=4), m=m)
    with patch("unpooled.privacy.dp.noise.discrete_gaussian", _noise):
        return run(algorithm, Simulation.from_rows(rows), seed=0).state.centers * size


def golden_run(name: str) -> dict[str, Any]:
    """Return the result of one run, as plain JSON."""
    if name.startswith("private"):
        centers = _private(1.5 if name == "private-fuzzy" else None)
    else:
        centers = run(ALGORITHMS[name](), Simulation.from_rows(ROWS), seed=0).state.centers
    return {
        "centers": np.round(in_order(centers), 9).tolist(),
        "inertia": round(inertia_of(pooled(ROWS), centers), 9),
    }


def load() -> dict[str, Any]:
    return json.loads(PATH.read_text(encoding="utf-8"))


def save() -> None:
    """Write every run anew, one line each."""
    lines = ",\n".join(f"  {json.dumps(name)}: {json.dumps(golden_run(name))}" for name in RUNS)
    PATH.write_text("{\n" + lines + "\n}\n", encoding="utf-8")
