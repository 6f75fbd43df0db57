"""A site's policy: one TOML file that a data protection officer can read, comment and sign off.

Every rule has a safe default, so a policy that holds only its format is valid. Unknown keys are errors: a
misspelt rule must not be silently ignored. Nothing in a request can loosen a policy.

A new rule is a field of its section here, a line of the commented file and a sentence in ``explain_policy``,
and a step of the chain that enforces it (``guards``, ``chain_steps``).
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
from unpooled.storage.file_format import FORMAT, format_error

POLICY = "policy.toml"  # in the folder of a site

# Names before format 1, by section and key, and what to write in their place.
_RENAMED_KEYS = {
    ("", "version"): f"format = {FORMAT}",
    ("protect", "g"): "min_group_size",
    ("protect", "largest_share"): "max_share",
    ("protect", "auto"): "auto_approve",
    ("dp", "unit"): "privacy_unit",
}
_RENAMED_VALUES = {("protect", "mode"): {"copy": "summary", "trusted": "raw", "noise": "dp"}}


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
    max_runs: int = 1000  # of dp and raw: a summary table gives away no more in a thousand runs than in one
    max_rounds: int = 1000  # of one run, of dp and raw


@dataclass(frozen=True)
class Protect:
    """The protection: answers from a summary table, with differential privacy, or exactly from raw rows."""

    mode: Literal["summary", "dp", "raw"] = "summary"
    min_group_size: int = 0  # people in a group of the summary table; 0: by people and columns
    person: str = ""  # the column that identifies people
    one_row_per_person: bool = False  # the officer declares that every row is a different person
    study_columns: tuple[
        str, ...
    ] = ()  # columns that studies are about; they count three times in the grouping
    sensitive: tuple[str, ...] = ()  # columns that do not count in the grouping
    diverse: tuple[str, ...] = ()  # sensitive columns of which every group has diverse values
    diverse_by: float = 0.3  # by how much a value's share in a group may exceed its share in the table
    no_sensitive_columns: bool = False  # the officer declares that no column is sensitive
    log_transform: tuple[str, ...] = ()  # columns of which the summary table has only the logarithm
    preset: str = ""  # a published rule that the policy follows; "": none
    consumption: tuple[str, ...] = ()  # columns in which no cell that one person dominates is disclosed
    max_share: float = 0.15  # the largest share of a cell's total that one person may have
    auto_approve: bool = False  # answer from a summary table that nobody approved
    min_cluster_size: int = 5  # raw: no group of fewer rows is disclosed

    def settings(self) -> SummarySettings:
        """Return the settings of the summary table."""
        return SummarySettings(
            self.min_group_size,
            self.person,
            self.study_columns,
            self.sensitive,
            self.log_transform,
            self.consumption,
            self.max_share,
            self.one_row_per_person,
            diverse=self.diverse,
            diverse_by=self.diverse_by,
            no_sensitive_columns=self.no_sensitive_columns,
        )


@dataclass(frozen=True)
class Studies:
    """The approval of studies: by somebody at the site, or by this policy for listed purposes."""

    approve: Literal["ask", "known"] = "ask"
    purposes: tuple[str, ...] = ()  # known: word for word; "*": any

    def covers(self, purpose: str) -> bool:
        """Return whether the policy approves a signed study of this purpose."""
        return self.approve == "known" and ("*" in self.purposes or purpose in self.purposes)


@dataclass(frozen=True)
class Domain:
    """For dp: the public facts about the table: columns, their ranges in its own units, a number of rows.

    They are declared here, and not computed from rows.
    """

    columns: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    upper: tuple[float, ...] = ()
    rows: int = 0  # an upper bound on the number of rows; the coordinator sees it


@dataclass(frozen=True)
class Aggregation:
    """Rules for secure sums: off, preferred or required, and the fewest sites."""

    secure: Literal["off", "preferred", "required"] = "preferred"
    min_sites: int = 3
    max_equations: float = 0.05  # raw: equations about rows in secure sums, as a share of the rows; 1: any


@dataclass(frozen=True)
class Budget:
    """For dp: the privacy budget over all runs."""

    privacy_unit: Literal["row", "person"] = "row"  # "person" needs [protect] person
    rows_per_person: int = 1  # a person's other rows are left out
    sites_per_person: int = 1  # sites at which one person may have rows
    honest_sites: int = 1  # participants of a secure sum that share one noise; 1: only this site
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

    format: int = FORMAT
    site: SiteSection = field(default_factory=SiteSection)
    jobs: Jobs = field(default_factory=Jobs)
    protect: Protect = field(default_factory=Protect)
    domain: Domain = field(default_factory=Domain)
    aggregation: Aggregation = field(default_factory=Aggregation)
    dp: Budget = field(default_factory=Budget)
    wire: Wire = field(default_factory=Wire)
    studies: Studies = field(default_factory=Studies)

    def __post_init__(self) -> None:
        _check(self)

    @property
    def digest(self) -> str:
        """A digest of the rules, independent of the file's layout and comments."""
        return sha256(repr(self).encode()).hexdigest()

    @property
    def answer_rules_digest(self) -> str:
        """A digest of the rules that answers depend on, without the contact and the limits."""
        rules = (
            replace(self.protect, auto_approve=False),
            (self.jobs.algorithms, self.jobs.modules, self.jobs.describe),
            self.domain,
            self.aggregation,
            replace(self.dp, epsilon_total=0.0),
        )
        return sha256(repr(rules).encode()).hexdigest()

    @property
    def groups_rows(self) -> bool:
        """True in raw mode if the site answers only in secure sums: from groups of its rows."""
        rule = self.aggregation
        return self.protect.mode == "raw" and rule.secure == "required" and rule.max_equations < 1

    @property
    def private(self) -> bool:
        """True if the site answers only with differential privacy."""
        return self.protect.mode == "dp"


def load(path: str | Path) -> Policy:
    """Read a policy; PolicyError names the file, the section and the key."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise PolicyError(f"{path}: not a text file in UTF-8. Save it as UTF-8.") from error
    return parse(text, str(path))


def parse(text: str, where: str = "policy") -> Policy:
    """Return the policy in a text; PolicyError names ``where``, the section and the key.

    >>> parse("format = 1\\n[protect]\\nmin_group_size = 8").protect.min_group_size
    8
    >>> parse("[protect]\\nmin_group_size = 8")
    Traceback (most recent call last):
    ...
    unpooled.errors.PolicyError: policy: the policy has no format, and this release reads format = 1
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    if renamed := _renamed(values):
        raise PolicyError(f"{where}: {'; '.join(renamed)}")
    if "format" not in values:
        raise PolicyError(f"{where}: the policy has no format, and this release reads format = {FORMAT}")
    try:
        policy: Policy = section(Policy, values)
        return policy
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None


def _renamed(values: dict[str, Any]) -> list[str]:
    """The names in a policy of before format 1, each with what to write in its place."""
    found = []
    for (name, key), new in _RENAMED_KEYS.items():
        part = values.get(name) if name else values
        if isinstance(part, dict) and key in part:
            found.append(f"[{name}] {key} is now {new}" if name else f"{key} is now {new}")
    for (name, key), renamed in _RENAMED_VALUES.items():
        part = values.get(name)
        old = part.get(key) if isinstance(part, dict) else None
        if isinstance(old, str) and old in renamed:
            found.append(f'[{name}] {key} = "{old}" is now {key} = "{renamed[old]}"')
    return found


def section(cls: Any, rules: dict[str, Any], name: str = "") -> Any:
    """Return a dataclass of rules from a section of a file, or from all of it; PolicyError names the key."""
    hints = get_type_hints(cls)
    known = [f.name for f in fields(cls)]
    for key in rules:
        if key not in known:
            kind = f"key in [{name}]" if name else "section or key"
            raise PolicyError(f"unknown {kind} {key!r}; known are {', '.join(known)}")
    values = {}
    for key, value in rules.items():
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
    if wrong := format_error(policy.format):
        raise PolicyError(f"the policy has {wrong}")
    minima = (
        ("[jobs] max_runs", policy.jobs.max_runs, 1),
        ("[jobs] max_rounds", policy.jobs.max_rounds, 1),
        ("[protect] min_cluster_size", policy.protect.min_cluster_size, 2),
        ("[aggregation] min_sites", policy.aggregation.min_sites, 3),
        ("[dp] rows_per_person", policy.dp.rows_per_person, 1),
        ("[dp] sites_per_person", policy.dp.sites_per_person, 1),
        ("[dp] honest_sites", policy.dp.honest_sites, 1),
        ("[domain] rows", policy.domain.rows, 0),
        ("[wire] max_message_bytes", policy.wire.max_message_bytes, 4096),
    )
    for label, number, minimum in minima:
        if number < minimum:
            raise PolicyError(f"{label} must be at least {minimum}, got {number}")
    if not 0 <= policy.aggregation.max_equations <= 1:
        raise PolicyError(
            f"[aggregation] max_equations must be from 0 to 1, got {policy.aggregation.max_equations:g}"
        )
    if not policy.jobs.modules:  # otherwise ``check_methods`` does: reading a policy imports nothing
        _check_algorithms(policy.jobs.algorithms, METHOD_NAMES)
    try:
        policy.protect.settings()
    except InputError as error:
        raise PolicyError(f"[protect] {error}") from None
    _check_rules(policy.protect)
    if (policy.studies.approve == "known") is not bool(policy.studies.purposes):
        raise PolicyError(
            '[studies] approve = "known" and purposes belong together. List the purposes, word for word, '
            'whose studies the policy approves, or "*" for any.'
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
            '[protect] mode = "dp" needs [domain] rows: a public upper bound on the number of rows'
        )
    if policy.dp.privacy_unit == "person" and not policy.protect.person:
        raise PolicyError(
            '[dp] privacy_unit = "person" needs [protect] person: the column that identifies people'
        )
    if policy.dp.privacy_unit == "row" and policy.dp.rows_per_person > 1:
        raise PolicyError('[dp] rows_per_person is for privacy_unit = "person"')
    if policy.dp.sites_per_person > 1 and policy.dp.rows_per_person > 1:
        raise PolicyError(
            "[dp] rows_per_person and sites_per_person cannot both be above 1: of a person at several sites, "
            "each site counts one row."
        )
    if policy.dp.epsilon_total and not policy.private:
        raise PolicyError(
            f'[dp] epsilon_total is for [protect] mode = "dp", and mode is "{policy.protect.mode}". A site '
            "has one protection, because exact answers would void the promise of differential privacy."
        )


def _check_rules(protect: Protect) -> None:
    """Check that the protection follows its preset, and that the site can enforce a rule on shares."""
    if protect.consumption and protect.mode != "summary":
        raise PolicyError(
            f'[protect] consumption is for mode = "summary", and mode is "{protect.mode}", where shares of a '
            "total are not checked"
        )
    if not protect.preset:
        return
    try:
        rule = preset(protect.preset)
    except InputError as error:
        raise PolicyError(f"[protect] {error}") from None
    label = f'[protect] preset = "{rule.name}"'
    if rule.mode == "dp" and protect.mode != "dp":
        raise PolicyError(f'{label} needs mode = "dp", and mode is "{protect.mode}"')
    if protect.mode == "summary" and protect.min_group_size < rule.min_people:
        raise PolicyError(
            f"{label} needs groups of at least {rule.min_people} people, "
            f"got min_group_size = {protect.min_group_size}"
        )
    if protect.mode == "raw" and rule.max_share:
        raise PolicyError(f'{label} limits shares of totals, which mode = "raw" does not check')
    if protect.mode == "raw" and protect.min_cluster_size < rule.min_people:
        raise PolicyError(
            f"{label} needs groups of at least {rule.min_people} rows, "
            f"got min_cluster_size = {protect.min_cluster_size}"
        )
    if rule.max_share and protect.max_share > rule.max_share:
        raise PolicyError(f"{label} needs max_share of at most {rule.max_share:g}, got {protect.max_share:g}")


def check_declared(policy: Policy, consumption: tuple[str, ...]) -> None:
    """Raise PolicyError if the preset needs columns of consumption and the summary table has none."""
    rule = preset(policy.protect.preset) if policy.protect.preset else None
    if rule is not None and rule.max_share and not consumption:
        raise PolicyError(
            f'[protect] preset = "{rule.name}" needs consumption: the columns in which nobody may have more '
            f"than {rule.max_share:.0%} of a group's total"
        )


def check_methods(policy: Policy) -> None:
    """Import the modules that the policy trusts, and raise PolicyError if it names an unknown method.

    Call this only for a policy of one's own site: a policy from somebody else must not import code.
    """
    own = tuple(method.method for method in methods_in(policy.jobs.modules))
    _check_algorithms(policy.jobs.algorithms, (*METHOD_NAMES, *own))


def _check_algorithms(names: tuple[str, ...], known: tuple[str, ...]) -> None:
    for name in names:
        if name not in known:
            raise PolicyError(f"[jobs] algorithms: unknown {name!r}; known are {', '.join(known)}")
