"""A site's policy: one TOML file that a data protection officer can read, comment and sign off.

Every rule has a safe default, so an empty policy is valid. Unknown keys are errors: a misspelt rule must not
be silently ignored. Nothing in a request can loosen a policy.
"""

import tomllib
from dataclasses import dataclass, field, fields
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from unpooled.errors import PolicyError
from unpooled.site.allow_list import METHOD_NAMES, methods_in

VERSION = 1
SECURE = ("off", "preferred", "required")
DIFFERENCING = ("off", "warn", "refuse")


@dataclass(frozen=True)
class SiteSection:
    """The site's name and contact."""

    id: str = ""
    contact: str = ""


@dataclass(frozen=True)
class Jobs:
    """The methods that the site takes part in, and limits on runs."""

    algorithms: tuple[str, ...] = METHOD_NAMES
    modules: tuple[str, ...] = ()  # installed modules whose methods the site trusts
    describe: bool = True  # sums for the report: profiles, spread, crossings
    max_runs: int = 1000
    max_rounds: int = 1000  # a run
    max_parameters_per_row: float = 0.0  # k (d + 1) / rows of one set of clusters; 0: no limit


@dataclass(frozen=True)
class Disclosure:
    """Minimum sizes, and other rules against disclosure of single rows."""

    min_cluster_size: int = 5
    min_site_rows: int = 20
    round_counts_to: int = 1
    differencing: Literal["off", "warn", "refuse"] = "warn"
    group_rows: int = 0  # show rows as means of fixed groups of at least so many; 0: no groups


@dataclass(frozen=True)
class Domain:
    """Ranges of columns, in the file's own units. Stated by the site, never computed from its rows."""

    columns: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()


@dataclass(frozen=True)
class Aggregation:
    """Rules for secure sums: off, preferred or required, and the fewest sites."""

    secure: Literal["off", "preferred", "required"] = "preferred"
    min_sites: int = 3


@dataclass(frozen=True)
class Budget:
    """The budget for differential privacy over all runs. Without epsilon_total no noise is required."""

    unit: Literal["row"] = "row"
    delta: float = 1e-6
    epsilon_total: float = 0.0  # 0: no budget, and no noise is demanded


@dataclass(frozen=True)
class Wire:
    """Limits on messages that the site reads."""

    max_message_bytes: int = 16 * 2**20


@dataclass(frozen=True)
class Policy:
    """All rules of one site.

    >>> Policy().disclosure.min_cluster_size
    5
    """

    version: int = VERSION
    site: SiteSection = field(default_factory=SiteSection)
    jobs: Jobs = field(default_factory=Jobs)
    disclosure: Disclosure = field(default_factory=Disclosure)
    domain: Domain = field(default_factory=Domain)
    aggregation: Aggregation = field(default_factory=Aggregation)
    dp: Budget = field(default_factory=Budget)
    wire: Wire = field(default_factory=Wire)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def digest(self) -> str:
        """A digest of the rules, independent of the file's layout and comments."""
        return sha256(repr(self).encode()).hexdigest()

    @property
    def private(self) -> bool:
        """True if the site answers only with noise."""
        return self.dp.epsilon_total > 0


def load(path: str | Path) -> Policy:
    """The policy in a file; PolicyError names the file, the section and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: not a text file in UTF-8") from error
    return parse(text, str(path))


def parse(text: str, where: str = "policy") -> Policy:
    """
    >>> parse("version = 1\\n[disclosure]\\nmin_cluster_size = 10").disclosure.min_cluster_size
    10
    >>> parse("[disclosure]\\nmin_cluster_sise = 10")
    Traceback (most recent call last):
    ...
    unpooled.errors.PolicyError: policy: version is missing; this release reads version 1
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    if "version" not in values:
        raise PolicyError(f"{where}: version is missing; this release reads version {VERSION}")
    try:
        policy: Policy = _section(Policy, values, "")
        return policy
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _section(cls: Any, given: dict[str, Any], name: str) -> Any:
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]
    for key in given:
        if key not in known:
            kind = "section or key" if cls is Policy else f"key in [{name}]"
            raise PolicyError(f"unknown {kind} {key!r}; known are {', '.join(known)}")
    values = {}
    for key, value in given.items():
        hint, label = hints[key], f"[{name}] {key}" if name else key
        if isinstance(hint, type) and hint.__module__ == __name__:
            if not isinstance(value, dict):
                raise PolicyError(f"{label} must be a section, [{key}]")
            values[key] = _section(hint, value, key)
        else:
            values[key] = _value(hint, value, label)
    return cls(**values)


def _value(hint: Any, value: Any, label: str) -> Any:
    if get_origin(hint) is tuple:
        if not isinstance(value, list):
            raise PolicyError(f"{label} must be a list, got {value!r}")
        return tuple(_value(get_args(hint)[0], v, label) for v in value)
    if get_origin(hint) is Literal:
        if value not in get_args(hint):
            raise PolicyError(f"{label} must be one of {', '.join(get_args(hint))}, got {value!r}")
        return value
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if not isinstance(value, hint) or (hint is int and isinstance(value, bool)):
        words = {int: "a whole number", float: "a number", bool: "true or false", str: "text"}
        raise PolicyError(f"{label} must be {words[hint]}, got {value!r}")
    return value


def _check(policy: Policy) -> None:
    """Check the range of every value."""
    if policy.version != VERSION:
        raise PolicyError(f"version {policy.version}, this release reads version {VERSION}")
    least = (
        ("[jobs] max_runs", policy.jobs.max_runs, 1),
        ("[jobs] max_rounds", policy.jobs.max_rounds, 1),
        ("[disclosure] min_cluster_size", policy.disclosure.min_cluster_size, 2),
        ("[disclosure] min_site_rows", policy.disclosure.min_site_rows, 1),
        ("[disclosure] round_counts_to", policy.disclosure.round_counts_to, 1),
        ("[aggregation] min_sites", policy.aggregation.min_sites, 3),
        ("[wire] max_message_bytes", policy.wire.max_message_bytes, 4096),
    )
    for label, number, fewest in least:
        if number < fewest:
            raise PolicyError(f"{label} must be at least {fewest}, got {number}")
    if not policy.jobs.modules:  # else ``check_methods`` does: reading a policy imports nothing
        _check_algorithms(policy.jobs.algorithms, METHOD_NAMES)
    if not policy.jobs.max_parameters_per_row >= 0:
        raise PolicyError(
            f"[jobs] max_parameters_per_row must be 0 or more, got {policy.jobs.max_parameters_per_row}"
        )
    domain = policy.domain
    if not len(domain.columns) == len(domain.lower) == len(domain.upper):
        raise PolicyError(
            f"[domain] names {len(domain.columns)} columns, {len(domain.lower)} lower and "
            f"{len(domain.upper)} upper bounds"
        )
    if len(set(domain.columns)) < len(domain.columns):
        raise PolicyError("[domain] names a column twice")
    for column, low, high in zip(domain.columns, domain.lower, domain.upper, strict=True):
        if not -float("inf") < low < high < float("inf"):
            raise PolicyError(f"[domain] {column}: lower {low:g} must be below upper {high:g}, both finite")
    grouped = policy.disclosure.group_rows
    if grouped and grouped < 2:
        raise PolicyError(f"[disclosure] group_rows must be 0, or at least 2, got {grouped}")
    if grouped and policy.private:
        raise PolicyError(
            "[disclosure] group_rows does not go with [dp] epsilon_total: which group a row is in depends on "
            "all rows, so noise for one row would no longer hide it"
        )
    if not 0 < policy.dp.delta < 1:
        raise PolicyError(f"[dp] delta must be between 0 and 1, got {policy.dp.delta:g}")
    if not 0 <= policy.dp.epsilon_total < float("inf"):
        raise PolicyError(f"[dp] epsilon_total must be 0 or more, got {policy.dp.epsilon_total:g}")


def check_methods(policy: Policy) -> None:
    """Import the modules that the policy trusts, and raise PolicyError if a method that it names is unknown.

    Only who opens or checks a site of her own calls this: a policy that somebody sent must not import code.
    """
    own = tuple(method.method for method in methods_in(policy.jobs.modules))
    _check_algorithms(policy.jobs.algorithms, (*METHOD_NAMES, *own))


def _check_algorithms(names: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise PolicyError(f"[jobs] algorithms: unknown {name!r}; known are {', '.join(known)}")
