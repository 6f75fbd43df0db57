"""The rules of a federation that takes part in another one: a TOML file with comments, as a site's policy."""

import tomllib
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

from unpooled.errors import BadInput, PolicyError
from unpooled.privacy.secure_sum.settings import MIN_SITES
from unpooled.runtimes.relay import CELL, RelayRules
from unpooled.site.policy import Studies, section

VERSION = 1

TEMPLATE = f"""\
# The rules of a federation that is a member of another one: what it passes up, and from whom on.
# unpooled join national.json --federation region --policy THIS-FILE

version = {VERSION}

[relay]
min_sites = 3        # a sum goes up if it is over so many sites; of federations below, their sites count
cell_sites = 1       # a cluster that fewer sites have rows of does not go up; 1: as a flat federation
min_persons = 1      # counts of fewer persons do not go up, nor the sums that belong to them
quorum = 0.5         # the share of the members that must answer
columns = "same"     # of the members: "same", "common" (those that all have) or "any"
one_set = false      # true: every sum of a run is over the sites of its first one, or is not given
secure = false       # true: it answers in secure sums of the federation above only
passes = []          # questions for single replies that it answers with the sum, by name; usually none

[below]
secure = false       # true: the members, 3 to {CELL}, sum securely, and the region reads their sum alone
deadline = 40.0      # seconds that a member has for an answer; less than the federation above allows (60, if
                     # it says nothing), and less again at every federation further down
wait = 60.0          # seconds to wait for the server and for members that are not connected, when a run opens
contact = ""         # who answers for the region; members read it in each study that it passes on to them

[studies]
approve = "ask"      # "ask": somebody answers for each study; "known": the purposes below are approved
purposes = []        # word for word, or "*" for all of the federation above
"""


@dataclass(frozen=True)
class Below:
    """How the members of a region are asked, how long they are waited for, and who answers for it."""

    secure: bool = False
    deadline: float = 40.0
    wait: float = 60.0
    contact: str = ""


@dataclass(frozen=True)
class RegionRules:
    """All rules of a federation that is a member of another one."""

    version: int = VERSION
    relay: RelayRules = field(default_factory=RelayRules)
    below: Below = field(default_factory=Below)
    studies: Studies = field(default_factory=Studies)

    def __post_init__(self) -> None:
        if self.version != VERSION:
            raise PolicyError(f"version {self.version}, this release reads version {VERSION}")
        if not 0 < self.below.deadline <= 86400:
            raise PolicyError(
                f"[below] deadline must be between 0 and 86400 seconds, got {self.below.deadline:g}"
            )
        if not 0 <= self.below.wait <= 86400:
            raise PolicyError(f"[below] wait must be between 0 and 86400 seconds, got {self.below.wait:g}")
        if self.below.secure and self.relay.cell_sites > 1:
            raise PolicyError(
                "[below] secure and [relay] cell_sites exclude each other: in secure sums nobody sees which "
                "sites have rows of a cluster"
            )
        if len(self.below.contact) > 200 or not self.below.contact.isprintable():
            raise PolicyError("[below] contact must be one line of up to 200 characters")
        if (self.studies.approve == "known") is not bool(self.studies.purposes):
            raise PolicyError('[studies] approve = "known" and purposes belong together')

    def check_members(self, count: int) -> None:
        """BadInput if so many members cannot sum securely, and are to."""
        if self.below.secure and not MIN_SITES <= count <= CELL:
            raise BadInput(
                f"{count} members, and [below] secure = true is for {MIN_SITES} to {CELL}: fewer could read "
                "each other's numbers, more are divided into several regions"
            )

    @property
    def digest(self) -> str:
        said = (self.relay.digest, repr(self.below), self.studies.approve, repr(self.studies.purposes))
        return sha256("\n".join(said).encode()).hexdigest()


def are_rules(path: Path) -> bool:
    """True if a file is about a federation that joins another one, and not a site's policy."""
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return bool({"relay", "below"} & values.keys())


def load_rules(path: Path) -> RegionRules:
    """The rules in a file; PolicyError names the file, the section and the key."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: not a text file in UTF-8") from None
    return parse_rules(text, str(path))


def parse_rules(text: str, where: str = "rules") -> RegionRules:
    """
    >>> parse_rules("version = 1\\n[relay]\\nmin_sites = 2").relay.min_sites
    2
    >>> parse_rules("version = 1\\n[relay]\\nquorum = 2")
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
        rules: RegionRules = section(RegionRules, values)
        return rules
    except PolicyError as error:
        raise PolicyError(f"{where}: {error}") from None
    except BadInput as error:
        raise PolicyError(f"{where}: [relay] {error}") from None
