"""A site's policy: one TOML file that a data protection officer can read, comment and sign off.

Every rule has a safe default, so an empty policy is valid. Unknown keys are errors: a misspelt rule must not
be silently ignored. Nothing in a request can loosen a policy.
"""

import tomllib
from dataclasses import dataclass, field, fields, is_dataclass, replace
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from unpooled.errors import InputError, PolicyError
from unpooled.privacy.dp.accounting import check_budget
from unpooled.privacy.microaggregation.summary_settings import SummarySettings
from unpooled.privacy.presets import preset
from unpooled.site.allow_list import METHOD_NAMES, methods_in

VERSION = 2


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
    max_runs: int = 1000  # with noise or trusted: a copy gives nothing more in a thousand runs than in one
    max_rounds: int = 1000  # a run


@dataclass(frozen=True)
class Protect:
    """The protection: answers from the copy, from the rows with noise, or from the rows as they are."""

    mode: Literal["summary", "dp", "raw"] = "summary"
    min_group_size: int = 0  # fewest persons of a group in the copy; 0: proposed by the number of persons
    person: str = ""  # the column that says whose row it is; "": every row is a person
    columns: tuple[str, ...] = ()  # those that studies are about; they count three times in the grouping
    sensitive: tuple[str, ...] = ()  # columns that do not count in the grouping
    log: tuple[str, ...] = ()  # columns of which the copy holds the logarithm only
    preset: str = field(default="", repr=False)  # a published rule that the policy keeps to; "": none
    consumption: tuple[str, ...] = field(default=(), repr=False)  # no cell that one person dominates is shown
    max_share: float = field(default=0.15, repr=False)  # of a cell's total that one person may have
    auto_approve: bool = False  # answer from a copy that nobody approved
    min_cluster_size: int = 5  # trusted: no group of fewer rows is shown

    def settings(self) -> SummarySettings:
        """How the copy is made."""
        return SummarySettings(
            self.min_group_size,
            self.person,
            self.columns,
            self.sensitive,
            self.log,
            self.consumption,
            self.max_share,
        )


@dataclass(frozen=True)
class Studies:
    """Who approves a study: somebody at the site, or this policy for purposes of the known coordinator."""

    approve: Literal["ask", "known"] = field(default="ask", repr=False)
    purposes: tuple[str, ...] = field(default=(), repr=False)  # known: word for word; "*": any

    def covers(self, purpose: str) -> bool:
        """True if the policy approves a study of this purpose, if the federation's authority signed it."""
        return self.approve == "known" and ("*" in self.purposes or purpose in self.purposes)


@dataclass(frozen=True)
class Domain:
    """For noise: all that is told of the table: columns, their ranges in its own units, a number of rows.

    Stated, never computed from rows.
    """

    columns: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    rows: int = 0  # the most rows that there can be; the coordinator sees it


@dataclass(frozen=True)
class Aggregation:
    """Rules for secure sums: off, preferred or required, and the fewest sites."""

    secure: Literal["off", "preferred", "required"] = "preferred"
    min_sites: int = 3


@dataclass(frozen=True)
class Budget:
    """For noise: the budget for differential privacy over all runs."""

    privacy_unit: Literal["row", "person"] = "row"  # whom it protects; "person" needs [protect] person
    rows_per_person: int = 1  # further rows of a person are left out
    honest_sites: int = 1  # on the roster of a secure sum, which share one noise; 1: this site adds all
    delta: float = 1e-6
    epsilon_total: float = 0.0


@dataclass(frozen=True)
class Wire:
    """Limits on messages that the site reads."""

    max_message_bytes: int = 16 * 2**20


@dataclass(frozen=True)
class Policy:
    """All rules of one site.

    >>> Policy().protect.mode
    'summary'
    """

    version: int = VERSION
    site: SiteSection = field(default_factory=SiteSection)
    jobs: Jobs = field(default_factory=Jobs)
    protect: Protect = field(default_factory=Protect)
    domain: Domain = field(default_factory=Domain)
    aggregation: Aggregation = field(default_factory=Aggregation)
    dp: Budget = field(default_factory=Budget)
    wire: Wire = field(default_factory=Wire)
    studies: Studies = field(default_factory=Studies, repr=False)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def digest(self) -> str:
        """A digest of the rules, independent of the file's layout and comments.

        Rules that came later (``repr=False``) count where they differ from their defaults, so that a policy
        has the digest that it had before there were such rules.
        """
        later = [
            f"{section.name}.{rule.name}={getattr(part, rule.name)!r}"
            for section in fields(self)
            if is_dataclass(part := getattr(self, section.name))
            for rule in fields(part)
            if not rule.repr and getattr(part, rule.name) != rule.default
        ]
        return sha256("\n".join([repr(self), *later]).encode()).hexdigest()

    @property
    def answer_rules_digest(self) -> str:
        """A digest of the rules that answers depend on: not of the contact, nor of how much is allowed."""
        rules = (
            replace(self.protect, auto_approve=False),
            (self.jobs.algorithms, self.jobs.modules, self.jobs.describe),
            self.domain,
            self.aggregation,
            replace(self.dp, epsilon_total=0.0),
        )
        return sha256(repr(rules).encode()).hexdigest()

    @property
    def private(self) -> bool:
        """True if the site answers only with noise."""
        return self.protect.mode == "dp"


def load(path: str | Path) -> Policy:
    """The policy in a file; PolicyError names the file, the section and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: not a text file in UTF-8") from error
    return parse(text, str(path))


def parse(text: str, where: str = "policy") -> Policy:
    """
    >>> parse("version = 2\\n[protect]\\nmin_group_size = 8").protect.min_group_size
    8
    >>> parse("[protect]\\nmin_group_size = 8")
    Traceback (most recent call last):
    ...
    unpooled.errors.PolicyError: policy: version is missing; this release reads version 2
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    if "version" not in values:
        raise PolicyError(f"{where}: version is missing; this release reads version {VERSION}")
    try:
        policy: Policy = section(Policy, values)
        return policy
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def section(cls: Any, given: dict[str, Any], name: str = "") -> Any:
    """A dataclass of rules from a section of a file, or from all of it; PolicyError names the key."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]
    for key in given:
        if key not in known:
            kind = f"key in [{name}]" if name else "section or key"
            raise PolicyError(f"unknown {kind} {key!r}; known are {', '.join(known)}")
    values = {}
    for key, value in given.items():
        hint, label = hints[key], f"[{name}] {key}" if name else key
        if is_dataclass(hint):
            if not isinstance(value, dict):
                raise PolicyError(f"{label} must be a section, [{key}]")
            values[key] = section(hint, value, key)
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
        ("[protect] min_cluster_size", policy.protect.min_cluster_size, 2),
        ("[aggregation] min_sites", policy.aggregation.min_sites, 3),
        ("[dp] rows_per_person", policy.dp.rows_per_person, 1),
        ("[dp] honest_sites", policy.dp.honest_sites, 1),
        ("[domain] rows", policy.domain.rows, 0),
        ("[wire] max_message_bytes", policy.wire.max_message_bytes, 4096),
    )
    for label, number, fewest in least:
        if number < fewest:
            raise PolicyError(f"{label} must be at least {fewest}, got {number}")
    if not policy.jobs.modules:  # else ``check_methods`` does: reading a policy imports nothing
        _check_algorithms(policy.jobs.algorithms, METHOD_NAMES)
    try:
        policy.protect.settings()
    except InputError as error:
        raise PolicyError(f"[protect] {error}") from None
    _check_rules(policy.protect)
    if (policy.studies.approve == "known") is not bool(policy.studies.purposes):
        raise PolicyError(
            '[studies] approve = "known" and purposes belong together: the purposes, word for word, whose '
            'studies are approved without asking; "*" is any'
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
    try:
        check_budget(policy.dp.epsilon_total or 1.0, policy.dp.delta)
    except InputError as error:
        raise PolicyError(f"[dp] {str(error).replace('epsilon', 'epsilon_total', 1)}") from None
    if policy.private and not policy.dp.epsilon_total:
        raise PolicyError('[protect] mode = "dp" needs a budget: [dp] epsilon_total')
    if policy.private and not domain.rows:
        raise PolicyError(
            '[protect] mode = "dp" needs [domain] rows: the most rows that there can be, a public number'
        )
    if policy.dp.privacy_unit == "person" and not policy.protect.person:
        raise PolicyError(
            '[dp] privacy_unit = "person" needs [protect] person: the column that says whose row it is'
        )
    if policy.dp.privacy_unit == "row" and policy.dp.rows_per_person > 1:
        raise PolicyError('[dp] rows_per_person is for privacy_unit = "person"')
    if policy.dp.epsilon_total and not policy.private:
        raise PolicyError(
            f'[dp] epsilon_total is the budget of noise, and [protect] mode is "{policy.protect.mode}": '
            "a site has the one or the other, since a copy beside noise would void what noise promises"
        )


def _check_rules(protect: Protect) -> None:
    """Check that the protection keeps to its preset, and that a rule on shares is one that can be kept."""
    if protect.consumption and protect.mode != "summary":
        raise PolicyError(
            f'[protect] consumption is a rule for the cells of a copy, and mode is "{protect.mode}": '
            "shares of a total are not looked at there"
        )
    if not protect.preset:
        return
    try:
        rule = preset(protect.preset)
    except InputError as error:
        raise PolicyError(f"[protect] {error}") from None
    said = f'[protect] preset = "{rule.name}"'
    if rule.mode == "dp" and protect.mode != "dp":
        raise PolicyError(f'{said} answers with noise, and mode is "{protect.mode}"')
    if protect.mode == "summary" and protect.min_group_size < rule.min_people:
        raise PolicyError(
            f"{said} asks for groups of {rule.min_people} persons, got min_group_size = {protect.min_group_size}"
        )
    if protect.mode == "raw" and rule.max_share:
        raise PolicyError(f"{said} looks at shares of totals, which a trusted site does not")
    if protect.mode == "raw" and protect.min_cluster_size < rule.min_people:
        raise PolicyError(
            f"{said} asks for groups of {rule.min_people}, got min_cluster_size = {protect.min_cluster_size}"
        )
    if rule.max_share and protect.max_share > rule.max_share:
        raise PolicyError(f"{said} asks for shares of at most {rule.max_share:g}, got {protect.max_share:g}")


def check_declared(policy: Policy, consumption: tuple[str, ...]) -> None:
    """Raise PolicyError if a copy with these columns of consumption lacks what the preset asks for."""
    rule = preset(policy.protect.preset) if policy.protect.preset else None
    if rule is not None and rule.max_share and not consumption:
        raise PolicyError(
            f'[protect] preset = "{rule.name}" needs consumption: the columns of which nobody may have more '
            f"than {rule.max_share:.0%} of a group's total"
        )


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
