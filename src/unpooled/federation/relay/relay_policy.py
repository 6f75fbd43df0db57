"""The policy of a relay, i.e. of a federation that takes part in another one: its rules, and their TOML file.

``RelayRules`` decide what it passes up, and from how many sites and people on. ``DownstreamRules`` decide how
it asks its members, and how long it waits for them. ``RelayPolicy`` is the whole file.
"""

import tomllib
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from unpooled.data.merged_schema import COLUMNS
from unpooled.errors import InputError, PolicyError
from unpooled.optimality.questions import AskNode
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES
from unpooled.protocol import codec
from unpooled.protocol.messages import Question, Summable
from unpooled.protocol.questions.cluster_sums import AskClusterSums
from unpooled.site.policy import Studies, section
from unpooled.storage.file_format import FORMAT, format_error

MAX_SECURE_MEMBERS = 30  # members that sum securely with each other
TEMPLATE = f"""\
# The rules of a relay, i.e. of a federation that takes part in another one: what it passes up.
# unpooled site join north national.json --downstream region --policy THIS-FILE

format = {FORMAT}

[relay]
min_sites = 3             # fewest sites of a sum that goes up; of a member that is a relay, its sites count
exact = false             # false: it answers from one summary of its members' groups; true: it passes up
                          # exact sums, from which nearly all groups of single members can be computed
min_contributors = 1      # exact: fewest sites with rows of a cluster that goes up; 1: discloses all
min_people = 1            # fewest people of the summary; exact: of a count that goes up, and of its sums
quorum = 0.5              # share of the members that must answer, and of their people in the summary
columns = "same"          # columns of the members: "same", "common" (those that all have) or "any"
fixed_membership = false  # exact: true: every sum of a run is over the sites of its first sum, or is refused
secure = false            # true: the relay answers only in secure sums of the federation above
forwarded = []            # exact: names of questions for single replies that it answers with the sum

[downstream]
secure = false            # true, needs exact: it reads only the sum of its members,
                          # {MIN_SITES} to {MAX_SECURE_MEMBERS} of them
deadline = 40.0           # seconds that a member has for an answer: less than the federation above allows (by
                          # default 60), and less again at every further relay below
wait = 60.0               # seconds to wait for the server and for unconnected members when a run opens
contact = ""              # contact of the relay; members read it in each study that it passes on to them

[studies]
approve = "ask"           # "ask": a person decides on each study; "known": these purposes are approved
purposes = []             # word for word, or "*" for all studies of the federation above
"""

DUAL_QUESTIONS = (codec.name_of(AskNode), codec.name_of(AskClusterSums))
"""Questions that ``RelayRules.forwarded`` must name for the dual methods to run over a tree."""


@dataclass(frozen=True)
class RelayRules:
    """The rules of a relay: what it passes up, and from how many sites and people on.

    Parameters
    ----------
    min_sites
        Fewest sites of a sum; of a member that is a relay, its sites count.
    min_contributors
        With ``exact``: fewest sites that have rows of a cluster, or of another cell of a sum; a cell with
        fewer is suppressed.
    min_people
        Fewest people of a count and of the sums that belong to it; below that they are suppressed.
    exact
        Pass up exact sums over the members' answers, so that a tree gives the bits of a flat federation. The
        federation above can then compute nearly all groups of single members. By default the relay answers
        from one summary of its members' groups, three or more to a row.
    quorum
        Share of the members that must answer, and of their people that the summary must describe.
    columns
        How the members' columns must agree, as in PreparationOptions: "same", "common" or "any".
    fixed_membership
        With ``exact``: every sum of a run is over the same sites as its first sum, or is refused.
    forwarded
        With ``exact``: questions for single replies that the relay answers with the sum, as one site.
    secure
        Answer only in the secure sums of the federation above, except for the schema.
    """

    min_sites: int = 3
    min_contributors: int = 1
    min_people: int = 1
    exact: bool = False
    quorum: float = 0.5
    columns: str = "same"
    fixed_membership: bool = False
    forwarded: tuple[str, ...] = ()
    secure: bool = False

    def __post_init__(self) -> None:
        for key in ("min_sites", "min_contributors", "min_people"):
            if getattr(self, key) < 1:
                raise InputError(f"{key} must be 1 or more, got {getattr(self, key)}")
        for key, default in (("min_contributors", 1), ("fixed_membership", False), ("forwarded", ())):
            if not self.exact and getattr(self, key) != default:
                raise InputError(
                    f"{key} is a rule about exact sums, and without exact = true a relay answers from one "
                    f"summary of its members. Set exact = true, or leave {key} out."
                )
        if self.min_contributors > self.min_sites:
            raise InputError(
                f"min_contributors of {self.min_contributors} is above min_sites of {self.min_sites}: a cell "
                "cannot have more sites than its sum"
            )
        if not 0 <= self.quorum <= 1:
            raise InputError(f"quorum must be a share between 0 and 1, got {self.quorum}")
        if self.columns not in COLUMNS:
            raise InputError(f"columns must be one of {', '.join(COLUMNS)}, got {self.columns!r}")
        for name in self.forwarded:
            question = codec.class_named(name)
            if question is None or not issubclass(question, Question):
                raise InputError(f"forwarded: there is no question {name!r}")
            if not issubclass(question.reply_type(), Summable) and question is not AskNode:
                raise InputError(f"forwarded: replies to {name} have no sum, so they would go up one by one")

    @property
    def digest(self) -> str:
        return sha256(repr(self).encode()).hexdigest()


@dataclass(frozen=True)
class DownstreamRules:
    """How a relay asks its members, how long it waits for them, and whom they can contact."""

    secure: bool = False
    deadline: float = 40.0
    wait: float = 60.0
    contact: str = ""


@dataclass(frozen=True)
class RelayPolicy:
    """All rules of a federation that is a member of another one."""

    format: int = FORMAT
    relay: RelayRules = field(default_factory=RelayRules)
    downstream: DownstreamRules = field(default_factory=DownstreamRules)
    studies: Studies = field(default_factory=Studies)

    def __post_init__(self) -> None:
        if problem := format_error(self.format):
            raise PolicyError(problem)
        if not 0 < self.downstream.deadline <= 86400:
            raise PolicyError(
                f"[downstream] deadline must be between 0 and 86400 seconds, got {self.downstream.deadline:g}"
            )
        if not 0 <= self.downstream.wait <= 86400:
            raise PolicyError(
                f"[downstream] wait must be between 0 and 86400 seconds, got {self.downstream.wait:g}"
            )
        if self.downstream.secure and not self.relay.exact:
            raise PolicyError(
                "[downstream] secure = true needs [relay] exact = true: a relay that reads only secure sums "
                "cannot summarize its members' groups"
            )
        if self.downstream.secure and self.relay.min_contributors > 1:
            raise PolicyError(
                "[downstream] secure = true needs [relay] min_contributors = 1: in secure sums nobody can "
                "count the sites that have rows of a cluster"
            )
        if len(self.downstream.contact) > 200 or not self.downstream.contact.isprintable():
            raise PolicyError("[downstream] contact must be one line of up to 200 characters")
        if (self.studies.approve == "known") is not bool(self.studies.purposes):
            raise PolicyError('[studies] approve = "known" and purposes belong together')

    def check_members(self, count: int) -> None:
        """Raise InputError if the members must sum securely and their number does not allow it."""
        if self.downstream.secure and not MIN_SITES <= count <= MAX_SECURE_MEMBERS:
            raise InputError(
                f"[downstream] secure = true needs {MIN_SITES} to {MAX_SECURE_MEMBERS} members, got {count}. "
                "Fewer could compute each other's numbers. Divide more among several relays."
            )

    @property
    def digest(self) -> str:
        parts = (self.relay.digest, repr(self.downstream), self.studies.approve, repr(self.studies.purposes))
        return sha256("\n".join(parts).encode()).hexdigest()


def is_relay_policy(path: Path) -> bool:
    """Return True if a file holds the rules of a relay, and not a site's policy."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return bool({"relay", "downstream"} & values.keys())


def load_relay_policy(path: Path) -> RelayPolicy:
    """Read the rules in a file; a PolicyError names the file, the section and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: not a text file in UTF-8") from None
    return parse_relay_policy(text, str(path))


def parse_relay_policy(text: str, where: str = "rules") -> RelayPolicy:
    """Read the rules in a text; ``where`` names the text in errors.

    >>> parse_relay_policy("format = 1\\n[relay]\\nmin_sites = 2").relay.min_sites
    2
    >>> parse_relay_policy("format = 1\\n[relay]\\nquorum = 2")
    Traceback (most recent call last):
    ...
    unpooled.errors.PolicyError: rules: [relay] quorum must be a share between 0 and 1, got 2.0
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    if problem := format_error(values.get("format")):
        raise PolicyError(f"{where}: {problem}. unpooled site init --relay writes rules of format {FORMAT}.")
    try:
        rules: RelayPolicy = section(RelayPolicy, values)
        return rules
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None
    except InputError as error:
        raise PolicyError(f"{where}: [relay] {error}") from None
