"""Every question of the package, and a sample of each kind about rows."""

import importlib
import pkgutil

import numpy as np

import unpooled
from helpers import blobs
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.fkm import AskOneStep
from unpooled.algorithms.kfed import AskDennisMeans
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.optimality.bounds import AskBounds, AskPartsBound
from unpooled.optimality.questions import AskNode, AskObjective, AskOutside, AskRange
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.messages import Question
from unpooled.protocol.questions.cluster_sums import (
    AskClusterSums,
    AskDrawnSums,
    AskLocalMeans,
    AskMoments,
    AskScatter,
)
from unpooled.protocol.questions.description import (
    AskBorders,
    AskCovariance,
    AskCrossing,
    AskOutline,
    AskProfile,
)
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.protocol.questions.fuzzy_sums import (
    AskBorderline,
    AskDirections,
    AskFuzzyMeans,
    AskFuzzyMoves,
    AskFuzzyScatter,
    AskFuzzySums,
)
from unpooled.protocol.questions.half_sums import AskHalfCovariance, AskHalfSums, AskObservedHalfSums
from unpooled.protocol.questions.outcome_sums import AskOutcomes
from unpooled.protocol.questions.sums_with_missing import (
    AskObservedCovariance,
    AskObservedMoments,
    AskObservedProfile,
    AskObservedSums,
)

for _module in pkgutil.walk_packages(unpooled.__path__, "unpooled."):
    if not _module.name.endswith(("__main__", "_native", ".nvflare")) and ".nvflare." not in _module.name:
        importlib.import_module(_module.name)

D, K = 2, 3


def found(kind):
    """Every concrete question of the package."""
    below = [c for s in kind.__subclasses__() for c in (s, *found(s))]
    named = (c for c in dict.fromkeys(below) if codec.name_of(c) in codec.registered())
    return [c for c in named if c.__module__.startswith("unpooled.")]


QUESTIONS = found(Question)


def rows(seed: int, n: int = 40):
    return blobs(seed, n=n, d=D, k=K, spread=1.0)[0]


def samples(seed: int):
    """A question of every kind about rows, by its class."""
    rng = np.random.default_rng(seed)
    c = rng.uniform(-8, 8, (K, D))
    R = rng.uniform(-8, 8, (4, K, D))
    low, high = np.full((K, D), -20.0), np.full((K, D), 20.0)
    return [
        AskMoments(),
        AskMoments(c[0]),
        AskClusterSums(R),
        AskDrawnSums(R, c[0], 1.0, 0.0, 7),  # a draw of all rows
        AskHalfCovariance(c[0], 4, 7),
        AskHalfSums(R, 7),
        AskExactSums(c),
        AskObservedHalfSums(R, 7),
        AskLocalMeans(K),
        AskScatter(c),
        AskFuzzySums(R, 2.0),
        AskFuzzyMoves(R, 2.0, 2, 1e-6, "sum(u^m)"),
        AskFuzzyMoves(R, 2.0, 2, 1e-6, "sum(u)"),
        AskFuzzyMeans(c, 2.0, 2, 1e-6),
        AskFuzzyScatter(c, 2.0),
        AskBorderline(c, 2.0),
        AskDirections(c, 2.0, 1, np.eye(D)),
        AskLocalMoves(c, 2, "counts"),
        AskLocalMoves(c, 2, "equal"),
        AskLocalMoves(c, 2, "rows"),
        AskOneStep(c, "before", 1.0),
        AskOneStep(c, "after", 1.0),
        AskDennisMeans(K),
        AskEpochs(c, 1, 0, 1.0),
        AskBorders(c),
        AskCrossing(c, R),
        AskProfile(c),
        AskOutcomes(c, 1),  # the last column is an outcome
        AskCovariance(c[0]),
        AskObservedMoments(),
        AskObservedMoments(c[0]),
        AskObservedSums(R),
        AskObservedProfile(c),
        AskObservedCovariance(c[0]),
        AskObservedCovariance(c[0], c),
        AskOutline(np.eye(D), c[0], c),
        AskOutline(np.eye(D), c[0]),
        AskNoisyCells(1.0, c, np.full(D, 20.0), np.full(K, 5.0), (0.3, 0.4, 0.3)),
        AskNoisyCells(1.0, c, np.full(D, 20.0), np.array([5.0]), (0.3, 0.4, 0.3), 2.0),
        AskNoisyMoments(1.0, np.full(D, 20.0)),
        AskNoisySpread(1.0, np.full(D, 20.0)),
        AskRange(),
        AskOutside(np.array([[-1.0, -1.0], [1.0, 1.0]])),
        AskObjective(R),
        AskNode(np.zeros((K, D)), low, high, "none", c, 1000),
        AskBounds(
            low[None], high[None], np.zeros((1, K), dtype=np.int64), c, c[None], np.zeros(1),
            np.zeros(1, dtype=np.int64), np.full(1, -1), 1000, 10.0,
        ),
        AskPartsBound(c, "quick", 2.0**-40),
    ]  # fmt: skip
