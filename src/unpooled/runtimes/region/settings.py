"""The settings of a federation in the place of a site, and the study that it passes on to its members."""

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from unpooled.core.disk import write_atomically
from unpooled.core.messages import SiteId
from unpooled.core.portable_paths import located, portable
from unpooled.runtimes.coordinator_run import PassingTask
from unpooled.runtimes.provisioning.federation_folder import FederationFolder
from unpooled.runtimes.region.rules import Below, RegionRules, load_rules
from unpooled.site.identity import identity_in
from unpooled.site.site_process import RunTerms
from unpooled.site.study import Study, signable

_LONGEST = 480  # characters of a text of a study


@dataclass(frozen=True)
class RegionSettings:
    """The settings of a federation that takes part in another one. They never leave it.

    The file names paths within the folder relative to itself, so the folder can be moved.
    """

    site: SiteId  # its name above
    federation: str  # the folder of the federation below
    folder: str  # its log, its studies and its keys as a member
    policy: str | None = None  # the file of its rules
    authority: str = ""  # the public key of the coordinator above, hexadecimal

    @classmethod
    def read(cls, path: Path) -> "RegionSettings":
        settings = cls(**json.loads(path.read_text(encoding="utf-8")))
        return replace(settings, **{name: located(file, path.parent) for name, file in settings._paths()})

    def write(self, path: Path) -> None:
        paths = {name: portable(file, self.folder, path.parent) for name, file in self._paths()}
        write_atomically(path, (json.dumps(asdict(self) | paths, indent=1) + "\n").encode())

    def _paths(self) -> list[tuple[str, str]]:
        """The settings that are paths, by name."""
        named = (("folder", self.folder), ("federation", self.federation), ("policy", self.policy))
        return [(name, file) for name, file in named if file]

    def rules(self) -> RegionRules:
        return RegionRules() if self.policy is None else load_rules(Path(self.policy))

    def approver(self, purpose: str) -> str:
        """The rules, in words, if they approve studies of this purpose; "" if a person is to."""
        rules = self.rules()
        return f"the rules {rules.digest[:16]}" if rules.studies.cover(purpose) else ""


def is_region(path: Path) -> bool:
    """True if the settings in a file are those of a federation in the place of a site."""
    try:
        return "federation" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def passed_on(study: Study, below: FederationFolder, site: SiteId, rules: Below) -> RunTerms:
    """A study from above as the members below are asked to approve it, signed by their coordinator.

    It is the same run, purpose, method and questions, and names the study above, by whom it is asked and
    through whom. It depends on nothing else: passed on again, it is the same study.
    """
    identity, name = identity_in(below.path), below.address.federation
    contact = rules.contact or "its coordinator"
    above = study.federation or "a federation above"
    through = f"passed on by {name}, which is {site} in {above}; its study {study.digest[:16]} there"
    own = replace(
        study,
        federation=name,
        title=f"{_cut(study.title, _LONGEST - len(through) - 3)} ({through})",
        contact=_cut(f"{study.contact}; at {name}: {contact}", _LONGEST),
        secure=rules.secure,
        authority=identity.public.hex(),
    )
    return RunTerms.now(own, identity.sign(signable(own.digest)).hex())


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"


def task_below(study: Study, below: FederationFolder, rules: RegionRules) -> PassingTask:
    """The task of the run below: it has the name of the run above."""
    left = (datetime.fromisoformat(study.expires) - datetime.now(UTC)).total_seconds()
    return PassingTask(study.run, below.sites, rules.relay.quorum, rules.below.deadline, max(left, 1.0))
