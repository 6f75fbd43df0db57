"""The rules of a federation that takes part in another one: a TOML file with comments, as a site's policy."""

import tomllib
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from unpooled.errors import InputError, PolicyError
from unpooled.federation.relay.relay import MAX_SECURE_MEMBERS, RelayRules
from unpooled.privacy.secure_sum.sum_settings import MIN_SITES
from unpooled.site.policy import Studies, section

VERSION = 1

TEMPLATE = f"""\
# The rules of a federation that is a member of another one: what it passes up, and from whom on.
# unpooled site join national.json --downstream region --policy THIS-FILE

version = {VERSION}

[relay]
min_sites = 3        # a sum goes up if it is over so many sites; of federations below, their sites count
min_contributors = 1       # a cluster that fewer sites have rows of does not go up; 1: as a flat federation
min_people = 1      # counts of fewer persons do not go up, nor the sums that belong to them
quorum = 0.5         # the share of the members that must answer
columns = "same"     # of the members: "same", "common" (those that all have) or "any"
fixed_membership = false      # true: every sum of a run is over the sites of its first one, or is not given
secure = false       # true: it answers in secure sums of the federation above only
forwarded = []          # questions for single replies that it answers with the sum, by name; usually none

[downstream]
secure = false       # true: the members, 3 to {MAX_SECURE_MEMBERS}, sum securely, and the region reads their sum alone
deadline = 40.0      # seconds that a member has for an answer; less than the federation above allows (60, if
                     # it says nothing), and less again at every federation further down
wait = 60.0          # seconds to wait for the server and for members that are not connected, when a run opens
contact = ""         # who answers for the region; members read it in each study that it passes on to them

[studies]
approve = "ask"      # "ask": somebody answers for each study; "known": the purposes below are approved
purposes = []        # word for word, or "*" for all of the federation above
"""


@dataclass(frozen=True)
class DownstreamRules:
    """How the members of a region are asked, how long they are waited for, and who answers for it."""

    secure: bool = False
    deadline: float = 40.0
    wait: float = 60.0
    contact: str = ""


@dataclass(frozen=True)
class RelayPolicy:
    """All rules of a federation that is a member of another one."""

    version: int = VERSION
    relay: RelayRules = field(default_factory=RelayRules)
    downstream: DownstreamRules = field(default_factory=DownstreamRules)
    studies: Studies = field(default_factory=Studies)

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise PolicyError(f"version {self.version}, this release reads version {VERSION}")
        if not 0 < self.downstream.deadline <= 86400:
            raise PolicyError(
                f"[downstream] deadline must be between 0 and 86400 seconds, got {self.downstream.deadline:g}"
            )
        if not 0 <= self.downstream.wait <= 86400:
            raise PolicyError(
                f"[downstream] wait must be between 0 and 86400 seconds, got {self.downstream.wait:g}"
            )
        if self.downstream.secure and self.relay.min_contributors > 1:
            raise PolicyError(
                "[downstream] secure and [relay] min_contributors exclude each other: in secure sums nobody sees which "
                "sites have rows of a cluster"
            )
        if len(self.downstream.contact) > 200 or not self.downstream.contact.isprintable():
            raise PolicyError("[downstream] contact must be one line of up to 200 characters")
        if (self.studies.approve == "known") is not bool(self.studies.purposes):
            raise PolicyError('[studies] approve = "known" and purposes belong together')

    def check_members(self, count: int) -> None:
        """InputError if so many members cannot sum securely, and are to."""
        if self.downstream.secure and not MIN_SITES <= count <= MAX_SECURE_MEMBERS:
            raise InputError(
                f"{count} members, and [downstream] secure = true is for {MIN_SITES} to {MAX_SECURE_MEMBERS}: fewer could read "
                "each other's numbers, more are divided into several regions"
            )

    @property
    def digest(self) -> str:
        parts = (self.relay.digest, repr(self.downstream), self.studies.approve, repr(self.studies.purposes))
        return sha256("\n".join(parts).encode()).hexdigest()


def is_relay_policy(path: Path) -> bool:
    """True if a file is about a federation that joins another one, and not a site's policy."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return bool({"relay", "downstream"} & values.keys())


def load_relay_policy(path: Path) -> RelayPolicy:
    """The rules in a file; PolicyError names the file, the section and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: not a text file in UTF-8") from None
    return parse_relay_policy(text, str(path))


def parse_relay_policy(text: str, where: str = "rules") -> RelayPolicy:
    """
    >>> parse_relay_policy("version = 1\\n[relay]\\nmin_sites = 2").relay.min_sites
    2
    >>> parse_relay_policy("version = 1\\n[relay]\\nquorum = 2")
    Traceback (most recent call last):
    ...
    unpooled.errors.PolicyError: rules: [relay] quorum must be a share between 0 and 1, got 2.0
    """
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise PolicyError(f"{where}: not TOML: {error}") from error
    if "version" not in values:
        raise PolicyError(f"{where}: version is missing; this release reads version {VERSION}")
    try:
        rules: RelayPolicy = section(RelayPolicy, values)
        return rules
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None
    except InputError as error:
        raise PolicyError(f"{where}: [relay] {error}") from None
