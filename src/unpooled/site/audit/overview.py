"""The contents of a site's log: answers by run, their protection, refusals."""

from contextlib import suppress
from dataclasses import dataclass, field, replace
from math import prod
from pathlib import Path
from typing import Any

from unpooled.data.summary_question import AskSummary, SummaryGroups
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import CodecError, LedgerError, ReplyError
from unpooled.privacy.secure_sum.stage_messages import AskMasked
from unpooled.protocol import codec
from unpooled.protocol.exchange import STAGE, Response
from unpooled.site.audit.evidence import Evidence
from unpooled.site.log import (
    CONTINUED,
    COUNTERSIGNED,
    EXPORT,
    NOTICE,
    STUDY,
    LogFault,
    entries,
    unpacked,
    verify,
)


@dataclass
class RunRecord:
    """One run in this site's log."""

    id: str  # with the name of the federation, if the log has several
    federation: str  # its name; "" without a study
    first: str
    last: str = ""
    rounds: set[int] = field(default_factory=set)
    answers: int = 0  # to one query each; several may leave in one message
    refusals: int = 0  # of one query each
    numbers: int = 0
    bytes: int = 0
    masked: int = 0  # answers that can be read only in a sum over sites
    alone: int = 0  # the other answers: each discloses this site's own numbers
    keys: int = 0  # messages of secure sums with keys and shares for the masks, which are not answers
    smallest: float | None = None
    questions: dict[str, int] = field(default_factory=dict)
    reasons: dict[str, int] = field(default_factory=dict)
    tables: list[SummaryTable] = field(default_factory=list)  # summary tables that were transferred


@dataclass(frozen=True)
class FileRecord:
    """One summary file that left, or one deletion notice."""

    line: int  # of the log, from 1
    utc: str
    recipient: str
    fingerprint: str  # of the recipient's key
    title: str  # of the study
    purpose: str
    expires: str
    columns: tuple[str, ...]
    people: int
    groups: int
    bytes: int
    encrypted: bool
    by: str
    file: str  # the digest of the file
    recalled: bool = False  # a deletion notice names it


@dataclass
class LogReport:
    """The contents of one log, and its faults."""

    path: Path
    site: str
    policies: list[str]
    protections: list[str]  # "summary", "dp", "raw", as the site was opened
    summaries: list[str]  # digests of the summary tables that it answered from
    runs: list[RunRecord]
    countersigned: int  # heads that the coordinator signed; those with a wrong signature are faults
    lines: int
    faults: list[LogFault]
    spent: dict[str, float] | None
    studies: list[str] = field(default_factory=list)  # decisions about studies, line by line
    unchecked: list[str] = field(default_factory=list)  # what could not be checked, and why
    exports: list[FileRecord] = field(default_factory=list)  # summary files that left
    names: list[str] = field(default_factory=list)  # under which the site was opened, by its federations

    @property
    def known_as(self) -> str:
        """The names of the site in its federations."""
        return " alias ".join(self.names) or self.site

    @property
    def intact(self) -> bool:
        return not self.faults


def read(
    path: str | Path,
    log_heads: dict[int, str] | None = None,
    *,
    only_look: bool = False,
    policy: Path | None = None,
) -> LogReport:
    """Read the log at ``path`` and check each line against the chain and, if given, ``log_heads``.

    With ``only_look`` nothing in the folder is written or locked, because a site may be answering. ``policy``
    is the file of the site's rules; by default policy.toml next to the log.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "log.jsonl"
    if not path.is_file():
        raise LedgerError(f"{path}: there is no log. Give the log of a site, or its folder.")
    runs: dict[tuple[str, str], RunRecord] = {}  # by federation and name
    opening: dict[str, Any] = {}  # the line that opened the site last
    record = LogReport(path, "", [], [], [], [], 0, 0, verify(path, log_heads), None)
    if log_heads is None:
        record.unchecked.append(
            "whether the end was cut off: the coordinator's log_heads.jsonl shows it (--log-heads)"
        )
    elif log_heads:
        record.unchecked.append(
            f"whether the log was cut off after line {max(log_heads) + 1}: the log heads reach no further"
        )
    evidence = Evidence(record, only_look=only_look, policy=policy)
    for number, entry in entries(path):
        record.lines += 1
        if entry is None:
            continue
        kind = entry.get("kind")
        evidence.see(number, entry)
        if number == 1 and kind == CONTINUED:
            record.unchecked.append(
                f"the first {entry.get('seq')} lines: their files (log-*.jsonl) are not next to the log"
            )
        if kind in ("opening", CONTINUED):
            opening, record.site = entry, str(entry.get("site", ""))
            if record.site not in record.names:
                record.names.append(record.site)
            for found, name in (
                (record.policies, "policy"),
                (record.protections, "protection"),
                (record.summaries, "summary"),
            ):
                if entry.get(name) and entry[name] not in found:
                    found.append(str(entry[name]))
        elif kind == STUDY:
            record.site = record.site or str(entry.get("site", ""))
            record.studies.append(_decided(entry))
        elif kind == COUNTERSIGNED:
            record.countersigned += 1
        elif kind == EXPORT:
            with suppress(KeyError, TypeError, ValueError):  # a damaged line is already among the faults
                record.exports.append(_exported(entry))
        elif kind == NOTICE:
            named = set(map(str, entry.get("files", ())))
            record.exports = [
                replace(one, recalled=one.recalled or one.file in named) for one in record.exports
            ]
        elif kind in ("release", "refusal"):
            name = str(entry.get("run"))
            began = RunRecord(name, str(opening.get("federation", "")), entry["utc"])
            run = runs.setdefault((str(opening.get("authority", "")), name), began)
            try:
                _add(run, entry)
            except (KeyError, TypeError, ValueError, AttributeError, CodecError, ReplyError):
                continue  # a damaged line is already among the faults
            record.spent = entry.get("spent") or record.spent
    record.runs = list(runs.values())
    if len({authority for authority, _ in runs}) > 1:
        for run in record.runs:
            run.id = f"{run.id} in {run.federation or 'a federation without a study'}"
    evidence.finish()
    return record


def _numbers(asked: dict[str, Any], shapes: dict[str, list[int]]) -> int:
    """The count of numbers in a reply, masked or not, without keys, shares and signatures."""
    if asked["verb"] != STAGE:
        return sum(map(prod, shapes.values()))
    masked = asked["question"] == codec.name_of(AskMasked)
    return shapes["data"][1] - 1 if masked else 0  # of (words, numbers and a check)


def _decided(entry: dict[str, Any]) -> str:
    """A decision about a study, in a sentence."""
    why = f": {entry['reason']}" if entry.get("reason") else ""
    contact = entry.get("contact") or "not stated"
    asked = f"asked by {entry.get('federation') or 'another program'}, contact {contact}"
    what = f"{entry.get('title')}, {asked} (run {entry.get('run')}, digest {str(entry.get('study'))[:16]}),"
    return f"{str(entry.get('utc'))[:19]} UTC: {what} {entry.get('decision')} by {entry.get('by')}{why}"


def _exported(entry: dict[str, Any]) -> FileRecord:
    values: dict[str, Any] = {"line": int(entry["seq"]) + 1}
    values |= {name: int(entry[name]) for name in ("people", "groups", "bytes")}
    texts = ("utc", "recipient", "fingerprint", "title", "purpose", "expires", "by", "file")
    values |= {name: str(entry[name]) for name in texts}
    columns = tuple(map(str, entry["columns"]))
    return FileRecord(columns=columns, encrypted=bool(entry["encrypted"]), **values)


def _add(run: RunRecord, entry: dict[str, Any]) -> None:
    run.last = entry["utc"]
    run.rounds.add(int(entry["round"]))
    for reason in entry["refused"]:
        run.reasons[reason] = run.reasons.get(reason, 0) + 1
    run.refusals += len(entry["refused"])
    if entry["kind"] == "refusal":
        return
    run.numbers += sum(map(_numbers, entry["asked"], entry["shapes"]))
    run.bytes += len(entry["payload"]) * 3 // 4
    for asked in entry["asked"]:
        name = asked["question"]
        run.questions[name] = run.questions.get(name, 0) + 1
        if asked["refused"]:
            continue
        if asked["verb"] == STAGE:
            run.keys += name != codec.name_of(AskMasked)
            continue
        run.answers += 1
        run.masked += asked["masked"]
        run.alone += not asked["masked"]
    if codec.name_of(AskSummary) in run.questions:
        replies = codec.decode(unpacked(entry["payload"]), expect=Response).replies
        groups = [reply for reply in replies if isinstance(reply, SummaryGroups)]
        run.tables += [one.table() for one in groups]
        run.numbers += sum(one.numbers - 1 for one in groups)  # less the number of sites, which has a shape
    if entry["smallest"] is not None:
        run.smallest = min(entry["smallest"], run.smallest or entry["smallest"])
