"""The allow list of a site: it answers the questions of the methods that its policy names.

A coordinator could claim any method, so a site checks questions, not claims. Each method declares its
questions; tests/site/test_requests.py runs every method and checks its declaration.
"""

from typing import Any

from unpooled.algorithms import METHODS, Method
from unpooled.algorithms.registry import import_methods
from unpooled.data.missing_values import PreparationWithMissing
from unpooled.data.outcomes import PreparationWithOutcomes
from unpooled.data.schema import AskColumns, AskSchema
from unpooled.data.summary_question import AskSummary
from unpooled.data.transforms import Affine, Preparation
from unpooled.errors import InputError, PolicyError
from unpooled.optimality.bounds import AskPartsBound
from unpooled.optimality.questions import AskObjective
from unpooled.privacy.dp.noisy_cluster_sums import AskNoisyCells
from unpooled.privacy.dp.noisy_moments import AskNoisyMoments, AskNoisySpread
from unpooled.protocol import codec
from unpooled.protocol.messages import Question
from unpooled.protocol.questions import description as figures
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments, AskScatter
from unpooled.protocol.questions.exact_sums import AskExactSums
from unpooled.protocol.questions.half_sums import AskHalfCovariance, AskHalfSums, AskObservedHalfSums
from unpooled.protocol.questions.outcome_sums import AskOutcomes
from unpooled.protocol.questions.sums_with_missing import (
    AskObservedCovariance,
    AskObservedMoments,
    AskObservedProfile,
    AskObservedSums,
)

# of a site's rows, before a question reads them
TRANSFORMS = (Affine, Preparation, PreparationWithMissing, PreparationWithOutcomes)
SCHEMA = (AskSchema,)  # names and kinds of columns, which every method needs
PREPARE = (AskSchema, AskColumns, AskMoments, AskObservedMoments)
DESCRIBE = (
    figures.AskBorders,
    figures.AskCovariance,
    figures.AskCrossing,
    figures.AskOutline,
    figures.AskProfile,
    AskScatter,
    AskClusterSums,
    AskObjective,
    AskPartsBound,
    AskObservedCovariance,
    AskObservedProfile,
    AskObservedSums,
    AskHalfCovariance,
    AskHalfSums,
    AskObservedHalfSums,
    AskOutcomes,
)
EXACT = (AskExactSums,)  # always allowed: only in secure sums, and the equation budget limits them
NOISY = (AskNoisyCells, AskNoisyMoments, AskNoisySpread)  # always allowed: the privacy budget limits them

METHOD_NAMES = tuple(name for name, method in METHODS.items() if method.__module__.startswith("unpooled."))


def aggregate_only() -> tuple[str, ...]:
    """Return the names of the methods that by default need only totals, not single sites' answers."""
    return tuple(name for name, method in METHODS.items() if method.visibility == "totals")


def methods_in(modules: tuple[str, ...]) -> tuple[type[Method], ...]:
    """Return the methods of installed modules, imported by name; PolicyError if an import fails."""
    try:
        import_methods(modules)
    except InputError as error:
        raise PolicyError(f"[jobs] modules: {error}") from error
    inside = tuple(f"{module}." for module in modules)
    return tuple(m for m in METHODS.values() if f"{m.__module__}.".startswith(inside))


def allowed(algorithms: tuple[str, ...], modules: tuple[str, ...] = (), *, describe: bool) -> frozenset[str]:
    """Return the names of the questions that a site with these methods answers."""
    questions: list[type[Question[Any]]] = [
        *PREPARE,
        AskSummary,
        *EXACT,
        *NOISY,
        *(DESCRIBE if describe else ()),
    ]
    for method in (*(METHODS[name] for name in algorithms), *methods_in(modules)):
        questions += method.questions()
    return frozenset(codec.name_of(question) for question in questions)
