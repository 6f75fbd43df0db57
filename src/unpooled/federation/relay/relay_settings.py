"""The settings of a relay between machines, and the study that it passes on to its members."""

import json
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from unpooled.data.summary_question import AskSummary
from unpooled.federation.coordinator_run import ForwardTask
from unpooled.federation.provisioning.federation_folder import FederationFolder
from unpooled.federation.relay.relay_policy import RelayPolicy, load_relay_policy
from unpooled.protocol import codec
from unpooled.protocol.messages import SiteId
from unpooled.site.identity import identity_in
from unpooled.site.policy import POLICY
from unpooled.site.session import MembershipFile, RunTerms, read_settings, write_settings
from unpooled.site.study import Study, signable
from unpooled.storage.portable_paths import located, portable

_MAX_TEXT = 480  # characters of a text of a study


@dataclass(frozen=True)
class RelaySettings:
    """The settings of a federation that takes part in another one. They stay on its machine.

    The folder of its federation and its rules are the same for all federations above (``settings.json``).
    The file names paths within the folder relative to itself, so the folder can be moved.
    """

    site: SiteId  # its name in the federation above
    downstream: str  # the folder of its own federation
    folder: str  # of its log and its keys as a member
    policy: str | None = None  # the file of its rules; None: the default rules
    authority: str = ""  # the public key of the coordinator above, hexadecimal
    membership: str = ""  # the subfolder of the federation above, with its studies

    @classmethod
    def read(cls, path: Path) -> "RelaySettings":
        """Return the settings in one federation above, by the file in ``path`` (``MembershipFile``)."""
        own = MembershipFile.read(path)
        settings = cls.of_folder(Path(own.folder))
        return replace(settings, site=own.site, authority=own.authority, membership=own.membership)

    @classmethod
    def of_folder(cls, folder: Path) -> "RelaySettings":
        """Return the settings of a relay, without those of one federation above."""
        downstream = located(read_settings(folder)["downstream"], folder)
        return cls("", downstream, str(folder), str(folder / POLICY))

    def write(self) -> None:
        """Write the settings that all federations above have in common into the relay's folder."""
        folder = Path(self.folder)
        write_settings(folder, {"downstream": portable(self.downstream, folder, folder)})

    def rules(self) -> RelayPolicy:
        return RelayPolicy() if self.policy is None else load_relay_policy(Path(self.policy))

    def approver(self, purpose: str) -> str:
        """Return a name of the rules if they approve studies of this purpose, or "" if a person must."""
        rules = self.rules()
        return f"the rules {rules.digest[:16]}" if rules.studies.covers(purpose) else ""


def is_relay(path: Path) -> bool:
    """Return True if the settings in a file (``settings.json``) are those of a relay, and not of a site."""
    try:
        return "downstream" in json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False


def forwarded_terms(
    study: Study, downstream: FederationFolder, site: SiteId, policy: RelayPolicy
) -> RunTerms:
    """Return a study from above as the members are asked to approve it, signed by their coordinator.

    Run, purpose and method are the same. So are the questions of a relay with exact sums; any other relay
    asks only for the summary table. The title names the study above, who asks and through
    whom. Nothing else enters, so a study that is passed on again is the same study.
    """
    identity, name = identity_in(downstream.path), downstream.address.federation
    rules, table = policy.downstream, codec.name_of(AskSummary)
    sums = tuple((name, most) for name, most in study.questions if name != table)  # no table is passed up
    contact = rules.contact or "its coordinator"
    above = study.federation or "a federation above"
    through = f"passed on by {name}, which is {site} in {above}; its study {study.digest[:16]} there"
    own = replace(
        study,
        federation=name,
        title=f"{_cut(study.title, _MAX_TEXT - len(through) - 3)} ({through})",
        contact=_cut(f"{study.contact}; at {name}: {contact}", _MAX_TEXT),
        questions=sums if policy.relay.exact else ((table, 0),),
        work=study.work if policy.relay.exact else (),
        secure=rules.secure,
        authority=identity.public.hex(),
    )
    return RunTerms.from_study(own, identity.sign(signable(own.digest)).hex())


def _cut(text: str, max_length: int) -> str:
    return text if len(text) <= max_length else f"{text[: max_length - 1]}…"


def downstream_task(study: Study, downstream: FederationFolder, rules: RelayPolicy) -> ForwardTask:
    """Return the task of the downstream run, which has the name of the run above."""
    remaining = (datetime.fromisoformat(study.expires) - datetime.now(UTC)).total_seconds()
    return ForwardTask(
        study.run, downstream.sites, rules.relay.quorum, rules.downstream.deadline, max(remaining, 1.0)
    )
