"""The arguments of ``unpooled.cluster``: their values as the job needs them, and messages that name them."""

import functools
import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from unpooled.app.job import parse_ks
from unpooled.errors import InputError, UnpooledError
from unpooled.options.clustering import ClusteringArguments, ClusteringChoices
from unpooled.options.declaration import OptionGroup, arguments_of
from unpooled.options.preparation import PreparationArguments, PreparationChoices
from unpooled.options.reading import Reading, ReadingArguments
from unpooled.options.summarizing import SummaryArguments, SummaryChoices
from unpooled.options.values import SwitchValue, TextValue, WholeNumberValue

_GROUPS: tuple[type[OptionGroup], ...] = (PreparationChoices, ClusteringChoices, SummaryChoices, Reading)


class ClusterArguments(
    PreparationArguments, ClusteringArguments, SummaryArguments, ReadingArguments, total=False
):
    """The options of a job as arguments of ``cluster``, for type checkers."""


def check_names_of(given: Mapping[str, Any]) -> None:
    """Raise TypeError for an argument that ``cluster`` does not have."""
    for name in given:
        if name not in ClusterArguments.__annotations__:
            raise TypeError(f"cluster() got an unexpected keyword argument {name!r}")


def check_threads(n_threads: object) -> None:
    """Raise InputError for a number of threads that is none."""
    WholeNumberValue(optional=True).converted("n_threads", n_threads)


def ks_of(n_clusters: object) -> tuple[int, ...]:
    """Return the numbers of clusters to compare.

    >>> ks_of(3), ks_of(range(2, 5)), ks_of("2..4")
    ((3,), (2, 3, 4), (2, 3, 4))
    """
    if isinstance(n_clusters, str):
        return parse_ks(n_clusters)
    many: list[Any] = list(n_clusters) if isinstance(n_clusters, Iterable) else [n_clusters]
    if not all(isinstance(one, numbers.Integral) and not isinstance(one, bool) for one in many):
        raise InputError(
            f'n_clusters must be a whole number (3), a range, a list of these or "auto", got {n_clusters!r}'
        )
    return parse_ks(",".join(str(int(one)) for one in many))


def named_sites(given: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the data by the names of sites. Whole numbers, as of ``groupby``, are names too."""
    named: dict[str, Any] = {}
    for key, data in given.items():
        is_number = isinstance(key, numbers.Integral) and not isinstance(key, bool)
        if not (isinstance(key, str) and key) and not is_number:
            raise InputError(f"a site's name must be text or a whole number, got {key!r}")
        if str(key) in named:
            raise InputError(f"two sites are named {key}")
        named[str(key)] = data
    return named


# ---------------------------------------------------------------- messages

_ARGUMENTS: dict[str, tuple[str, TextValue]] = {  # by the command's option: the argument, and its kind
    (declared.name or name).replace("_", "-"): (declared.python or name, declared.kind)
    for group in _GROUPS
    for name, declared in group.declared().items()
    if (declared.python or name) in ClusterArguments.__annotations__
} | {"overwrite": ("overwrite", SwitchValue())}
_OPTION = re.compile(r"--([a-z]+(?:-[a-z]+)*)(?: (?:'([^']*)'|(?!--)([^\s;()]+)))?")
_NO_VALUE = re.compile(
    r"(?:names?|takes?|reads?|leaves?|decides?|lets?|is|are|asks?|does|must|makes?|needs?|works?|would|and|"
    r"or|for|to|with|has|use|exclude|a|the|of|there)[,:.]?"
)


def in_python(text: str) -> str:
    """Return a message with the arguments of ``cluster`` in place of the options of the command.

    >>> in_python("--exclude bmi leaves it out"), in_python("--recode sex:M=male,F=female reads them")
    ('exclude="bmi" leaves it out', 'recode={"sex": {"M": "male", "F": "female"}} reads them')
    >>> in_python("--scale crp=rank takes ranks"), in_python("already exists. Use --overwrite to replace it.")
    ('scales={"crp": "rank"} takes ranks', 'already exists. Use overwrite=True to replace it.')
    >>> in_python("--scale robust,crp=rank,ldh=log")
    'scale="robust", scales={"crp": "rank", "ldh": "log"}'
    """
    return _OPTION.sub(_as_argument, text)


def _as_argument(found: "re.Match[str]") -> str:
    option, value, rest = found[1], found[2] if found[2] is not None else found[3], ""
    if option == "query":
        return "Database(address, query)" + ("" if found[3] == "cohort.sql" else f" {value}" if value else "")
    if option not in _ARGUMENTS:
        return found[0]
    name, kind = _ARGUMENTS[option]
    if isinstance(kind, SwitchValue):
        return kind.in_python(name, value or "")
    if value is None or (found[2] is None and _NO_VALUE.fullmatch(value)):
        return name + (f" {value}" if value else "")
    if found[2] is None and len(value) > 1 and value[-1] in ",:":
        value, rest = value[:-1], value[-1]
    return kind.in_python(name, value) + rest


C = TypeVar("C", bound=Callable[..., Any])


def documents_options(call: C) -> C:
    """Return the call with the declared options in its signature and its documentation."""
    signature, kinds = inspect.signature(call), ClusterArguments.__annotations__
    named, options = list(signature.parameters.values())[:-1], {}
    for name, declared, default in arguments_of(*_GROUPS):
        if name in kinds:
            keyword = inspect.Parameter.KEYWORD_ONLY
            options[name] = (
                inspect.Parameter(name, keyword, default=default, annotation=kinds[name]),
                declared,
            )
    shown = [*named[:2], *(parameter for parameter, _ in options.values()), *named[2:]]
    call.__signature__ = signature.replace(parameters=shown)  # type: ignore[attr-defined]
    if call.__doc__ is not None:
        listed = (f"{name} : {one.kind.documented}\n        {one.doc}" for name, (_, one) in options.items())
        call.__doc__ = call.__doc__.replace("**options", "\n    ".join(listed))
    return call


def named_in_python(call: C) -> C:
    """Return the call with errors that name its arguments instead of the command's options."""

    @functools.wraps(call)
    def calling(*given: Any, **named: Any) -> Any:
        try:
            return call(*given, **named)
        except UnpooledError as error:
            error.args = (in_python(str(error)), *error.args[1:])
            raise

    return cast(C, calling)
