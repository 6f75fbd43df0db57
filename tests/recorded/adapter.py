"""Every name of the package that the recording uses. A move or a new name there costs a line here."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
from reproduction.catalogue import find as experiment
from reproduction.command_line import app as reproduction
from reproduction.data_sources import FILES, Sources
from reproduction.dual_problems import dual_problem
from typer.testing import CliRunner

from unpooled import (
    DWF,
    EWF,
    FKM,
    Dual,
    FederatedFuzzyCMeans,
    FederatedKMeans,
    Fuzzy,
    Gaussian,
    KFed,
    Lloyd,
    LocalFederation,
    MiniBatch,
    Private,
    Restarts,
    Robust,
    SecureSums,
    Simulation,
    Site,
    __version__,
    certify,
    exact_kmeans,
    run,
)
from unpooled.algorithms import METHODS
from unpooled.app.cli import app
from unpooled.data.scaling import Scaled
from unpooled.errors import CheckpointError
from unpooled.federation.remote import RemoteFederation as Posting
from unpooled.kernels import BACKEND, ISA
from unpooled.privacy.secure_sum.site_mask import site_masks
from unpooled.site.log import entries, unpacked, verify
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse as policy

MECHANISM = "unpooled.privacy.dp.noise.discrete_gaussian"
"""The mechanism that draws noise: (count, scale) -> whole numbers."""

STATED = (
    "lower_bound",
    "upper_bound",
    "bound_condition",
    "suspects",
    "inertias",
    "scores",
    "spent",
    "n",
    "sizes",
    "planned",
    "separation",
    "trial_excess",
)
"""The attributes of a state besides its centres, where it has them; ``inner_state`` finds the state."""

__all__ = [
    "BACKEND",
    "DWF",
    "EWF",
    "FILES",
    "FKM",
    "ISA",
    "METHODS",
    "CheckpointError",
    "Dual",
    "FederatedFuzzyCMeans",
    "FederatedKMeans",
    "Fuzzy",
    "Gaussian",
    "KFed",
    "Lloyd",
    "LocalFederation",
    "Loopback",
    "MiniBatch",
    "Posting",
    "Private",
    "Restarts",
    "Robust",
    "Scaled",
    "SecureSums",
    "Simulation",
    "Site",
    "Sources",
    "__version__",
    "certify",
    "command",
    "dual_problem",
    "entries",
    "exact_kmeans",
    "experiment",
    "fixed_noise",
    "inner_state",
    "open_site",
    "policy",
    "reproduce",
    "run",
    "site_masks",
    "unpacked",
    "verify",
]


def inner_state(state: Any) -> Any:
    """The state of the method itself, where columns were scaled for it."""
    return getattr(state, "inner", state)


def reproduce(*words: Any) -> str:
    """What ``python -m reproduction`` prints, after it came to a good end."""
    return command(*words, program=reproduction)


def command(*words: Any, program: Any = app) -> str:
    """What ``unpooled`` prints, after it came to a good end."""
    done = CliRunner().invoke(program, [str(word) for word in words], env={"COLUMNS": "120", "NO_COLOR": "1"})
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.stderr
    return done.stdout


class Loopback:
    """A transport between sites in this process, as bytes. ``lost(exchange, site)`` loses an answer.

    It counts the bytes that went down to the sites and came up from them.
    """

    def __init__(
        self, sites: Mapping[str, Any], lost: Callable[[int, str], bool] = lambda exchange, site: False
    ) -> None:
        self._sites, self._lost = dict(sites), lost
        self.exchanges = self.down = self.up = 0

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def send_and_receive(self, requests: Mapping[str, bytes]) -> dict[str, bytes | str]:
        self.exchanges += 1
        came: dict[str, bytes | str] = {}
        for name, data in requests.items():
            self.down += len(data)
            answer = "late" if self._lost(self.exchanges, name) else self._sites[name].respond(data)
            self.up += len(answer) if isinstance(answer, bytes) else 0
            came[name] = answer
        return came


@contextmanager
def fixed_noise(seed: int = 0) -> Iterator[None]:
    """Noise that can be drawn again: what a test may do and the package must not."""
    rng = np.random.default_rng(seed)

    def noise(count: int, scale: float) -> np.ndarray:
        return np.array([round(scale * x) for x in rng.standard_normal(count)], dtype=np.int64)

    with patch(MECHANISM, noise):
        yield
