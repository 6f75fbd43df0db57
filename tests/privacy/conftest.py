"""Noise from a seed, for tests of its distribution."""

from types import SimpleNamespace

import numpy as np
import pytest

from unpooled.privacy.dp import discrete_gaussian


@pytest.fixture
def seeded_noise(monkeypatch):
    """The bits of all noise come from a seed instead of the operating system."""
    rng = np.random.default_rng(7)
    monkeypatch.setattr(discrete_gaussian, "os", SimpleNamespace(urandom=rng.bytes))
