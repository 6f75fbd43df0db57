"""The arguments of ``unpooled.cluster``: their values as the job needs them, and messages that name them."""

import functools
import inspect
import numbers
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast

from unpooled.app.job import parse_ks
from unpooled.errors import InputError, UnpooledError
from unpooled.options.reading import OPTIONS, ReadingArguments
from unpooled.options.values import ColumnsValue, plain_name

_INTEGERS = (
    "n_init",
    "max_rounds",
    "random_state",
    "min_group_size",
    "min_cluster_size",
    "sites_per_person",
)
_OPTIONAL_INTEGERS = ("rows", "n_threads")
_REAL = ("min_category_share", "delta")
_TEXT = ("scale", "missing", "method", "protect", "person")
_OPTIONAL_TEXT = ("certify",)


def check_kinds(given: Mapping[str, Any]) -> None:
    """Raise InputError for an argument of another kind than it must have."""
    for names, kind, noun in (
        (_INTEGERS + _OPTIONAL_INTEGERS, numbers.Integral, "a whole number"),
        ((*_REAL, "epsilon"), numbers.Real, "a number"),
        (_TEXT + _OPTIONAL_TEXT, str, "text"),
    ):
        for name in names:
            value, may_lack = given[name], name in (*_OPTIONAL_INTEGERS, *_OPTIONAL_TEXT, "epsilon")
            fits = isinstance(value, kind) and not isinstance(value, bool)
            if not fits and not (value is None and may_lack):
                raise InputError(f"{name} must be {noun}{' or None' if may_lack else ''}, got {value!r}")


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


def names_of(argument: str, given: object) -> tuple[str, ...]:
    """Return the names of columns: one, or a list, an array or an index of them."""
    names: tuple[str, ...] = ColumnsValue().converted(argument, given)
    return names


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


def scales_of(given: object) -> tuple[tuple[str, str], ...]:
    """Return (column, scale) for each of {"income": "log"}."""
    if not isinstance(given, Mapping):
        raise InputError(f'scales must be a mapping such as {{"income": "log"}}, got {given!r}')
    return tuple((plain_name(name), scale) for name, scale in given.items())


def bounds_of(given: Mapping[str, tuple[float, float]]) -> tuple[tuple[str, float, float], ...]:
    """Return (column, low, high) for each of {"age": (0, 110)}."""
    try:
        return tuple((plain_name(name), float(low), float(high)) for name, (low, high) in given.items())
    except (TypeError, ValueError, AttributeError):
        raise InputError(f'bounds must be a mapping such as {{"age": (0, 110)}}, got {given!r}') from None


# ---------------------------------------------------------------- messages

_ARGUMENTS = {
    *(name.replace("_", "-") for name in ReadingArguments.__annotations__),
    "outcomes", "columns", "scale", "bounds", "missing", "min-category-share", "method",
    "restarts", "max-rounds", "seed", "secure", "polish", "exact-sums", "protect", "min-group-size", "person",
    "one-row-per-person", "not-a-person", "sensitive", "diverse", "log-transform", "consumption",
    "min-cluster-size", "epsilon", "delta", "rows", "sites-per-person", "accept-noise", "overwrite",
    "certify",
}  # fmt: skip
_PYTHON_NAMES = {"restarts": "n_init", "seed": "random_state"}  # where scikit-learn has a name
_FLAGS = ("one-row-per-person", "secure", "exact-sums", "accept-noise", "overwrite")
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
    name = _PYTHON_NAMES.get(option, option.replace("-", "_"))
    if option in _FLAGS:
        return f"{name}=True" + (f" {value}" if value else "")
    if value is None or (found[2] is None and _NO_VALUE.fullmatch(value)):
        return name + (f" {value}" if value else "")
    if found[2] is None and len(value) > 1 and value[-1] in ",:":
        value, rest = value[:-1], value[-1]
    if name in ReadingArguments.__annotations__:
        return OPTIONS[name].kind.in_python(name, value) + rest
    if option == "scale" and "=" in value:
        parts = [part.rpartition("=") for part in value.split(",")]
        common = [f'scale="{scale}", ' for column, _, scale in parts if not column]
        own = ", ".join(f'"{column}": "{scale}"' for column, _, scale in parts if column)
        return f"{''.join(common)}scales={{{own}}}{rest}"
    if option == "bounds" and "=" in value:
        column, _, span = value.partition("=")
        return f'bounds={{"{column}": ({span.replace(":", ", ")})}}{rest}'
    return f'{name}="{value}"{rest}'


C = TypeVar("C", bound=Callable[..., Any])


def documents_reading(call: C) -> C:
    """Return the call with the options for reading files in its signature and its documentation."""
    signature = inspect.signature(call)
    parameters = list(signature.parameters.values())
    kinds, keyword = ReadingArguments.__annotations__, inspect.Parameter.KEYWORD_ONLY
    parameters[-1:] = [
        inspect.Parameter(name, keyword, default=OPTIONS[name].kind.default, annotation=kind)
        for name, kind in kinds.items()
    ]
    call.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    if call.__doc__ is not None:
        listed = (f"{name} : {OPTIONS[name].kind.documented}\n        {OPTIONS[name].doc}" for name in kinds)
        call.__doc__ = call.__doc__.replace("**reading", "\n    ".join(listed))
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
