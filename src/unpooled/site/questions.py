"""Which questions belong to which method: what a site's allow-list of methods means.

A coordinator could claim any method, so a site does not look at claims: it looks at questions. A method that
is allowed brings the questions that it asks; tests/site/test_questions.py runs every method and holds this
table to what it asked.
"""

from unpooled import codec
from unpooled.algorithms import METHODS
from unpooled.algorithms.dual.bounding import AskBounds, AskOwnBound
from unpooled.algorithms.dual.questions import AskNode, AskObjective, AskOutside, AskRange
from unpooled.algorithms.dwf import AskLocalMoves
from unpooled.algorithms.fkm import AskOneStep
from unpooled.algorithms.kfed import AskDennisMeans
from unpooled.algorithms.minibatch import AskEpochs
from unpooled.analysis.figures import AskCovariance, AskCrossing, AskOutline, AskProfile
from unpooled.memberships import (
    AskBorderline,
    AskDirections,
    AskFuzzyMeans,
    AskFuzzyMoves,
    AskFuzzyScatter,
    AskFuzzySums,
)
from unpooled.privacy.cells import AskNoisyCells
from unpooled.privacy.moments import AskNoisyMoments, AskNoisySpread
from unpooled.summaries import AskClusterSums, AskLocalMeans, AskMoments, AskScatter
from unpooled.tables.asking import AskColumns, AskSchema

METHOD_NAMES = tuple(METHODS)

_START = (AskMoments, AskClusterSums, AskScatter)  # seeds, inertia, indices: totals of cells

FAMILIES: dict[str, tuple[type, ...]] = {
    "prepare": (AskSchema, AskColumns, AskMoments),
    "describe": (AskCovariance, AskCrossing, AskOutline, AskProfile, AskScatter, AskClusterSums),
    "lloyd": _START,
    "dwf": (*_START, AskLocalMeans, AskLocalMoves),
    "ewf": (*_START, AskLocalMeans, AskLocalMoves),
    "fkm": (*_START, AskLocalMeans, AskOneStep),
    "k-fed": (*_START, AskLocalMeans, AskDennisMeans),
    "mini-batch": (*_START, AskEpochs),
    "fuzzy": (
        *_START,
        AskLocalMeans,
        AskFuzzySums,
        AskFuzzyMoves,
        AskFuzzyMeans,
        AskFuzzyScatter,
        AskBorderline,
        AskDirections,
    ),
    "robust": (*_START, AskLocalMeans),
    "dual": (
        *_START,
        AskLocalMeans,
        AskRange,
        AskOutside,
        AskNode,
        AskObjective,
        AskOwnBound,  # these two are certify's
        AskBounds,
    ),
    "noisy": (AskNoisyCells, AskNoisyMoments, AskNoisySpread),  # a budget is all they need
}
SCHEMA = (AskSchema,)  # the names and kinds of columns: asked of each site, whatever the method
ONLY_TOTALS = (
    "lloyd",
    "dwf",
    "ewf",
    "mini-batch",
    "fuzzy",
)  # methods whose defaults never ask to see a single site's reply


def allowed(algorithms: tuple[str, ...], *, describe: bool) -> frozenset[str]:
    """The names of the questions that a site with these methods answers."""
    families = ("prepare", "noisy", *algorithms, *(("describe",) if describe else ()))
    return frozenset(codec.name_of(question) for family in families for question in FAMILIES[family])
