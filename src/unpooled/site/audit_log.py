"""The audit of a site: every answer in its log before it leaves, and the evidence that binds log and ledger.

A line holds the questions, the answer byte for byte, its protection, and the last link of the ledger. The
line that opens a site also has the digests of its summary table, its policy and its study, and the version of
the software.
"""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.privacy.secure_sum.stage_messages import from_hex
from unpooled.protocol import codec
from unpooled.protocol.declarations import Count, figures
from unpooled.protocol.exchange import STAGE, Request, RequestId, Response, countersignable
from unpooled.protocol.messages import MaskedElsewhere, Refusal, Reply, SiteId
from unpooled.site.chained_file import ChainedFile
from unpooled.site.ledger import Ledger
from unpooled.site.log import CONTINUED, COUNTERSIGNED, Base64Payload, Log, unpacked
from unpooled.site.log_files import lines, parsed, protections, tail
from unpooled.site.policy import Policy
from unpooled.site.site import digest, request_digest

SUMS = "sums"  # the protection of a relay: it sends sums over its sites


def check_audit_trail(log: Log, ledger: Ledger, registry: ChainedFile | None = None) -> None:
    """Raise LedgerError unless log, ledger and registry have the entries by which each names another.

    The ledger is written before the log has the answer, so it may be ahead by what a kill cut off. From here
    on its links name the head of the log.
    """
    _check_marks(log, ledger, registry)
    ledger.log_head = log.mark
    _check_contents(log, ledger)


def _check_marks(log: Log, ledger: Ledger, registry: ChainedFile | None) -> None:
    for file, chain in (("ledger", ledger), ("registry", registry)):
        number, _, head = ("" if chain is None else chain.last_log_head).partition(":")
        if head and log.hash_at(int(number)) != head:
            raise LedgerError(
                f"{log.path}: the log is lost, or older than the {file}: its line {int(number) + 1} is not "
                f"the one that the {file} names. Nothing is answered."
            )
    audit_trail: dict[str, ChainedFile | None] = {"ledger": ledger, "registry": registry}
    for line in tail(log.path):
        entry = parsed(line, log.path)
        for name in [name for name in audit_trail if name in entry]:
            chain = audit_trail.pop(name)
            if chain is None or not chain.has(entry[name]):
                file = "registry of people" if name == "registry" else name
                raise LedgerError(
                    f"{log.path.parent}: the {file} is lost, or older than the log: line {entry['seq'] + 1} "
                    f"of the log names an entry that the {name} lacks. Nothing is answered."
                )
        if "ledger" in entry and entry["kind"] != CONTINUED:  # it names all files that there were
            return


def _check_contents(log: Log, ledger: Ledger) -> None:
    """Raise LedgerError unless the ledger holds what it wrote."""
    try:
        ledger.check()
    except LedgerError as error:
        raise LedgerError(f"{log.path.parent}: {error}. Nothing is answered.") from None


def check_protection(path: Path, mode: str) -> None:
    """Raise LedgerError if the protection of earlier answers does not go with ``mode``.

    Differential privacy after exact answers promises nothing, and exact answers afterwards void its promise.
    """
    if not path.exists():
        return
    for before in sorted(protections(_read(path))):
        if (before == "dp") != (mode == "dp"):
            how = "with" if before == "dp" else "without"
            why = (
                "another mode would void the promise of differential privacy"
                if before == "dp"
                else "differential privacy would promise nothing any more"
            )
            raise LedgerError(
                f"{path.parent}: the site answered {how} differential privacy before "
                f'(mode = "{before}"), and {why}. Use a folder of its own.'
            )


def _read(path: Path) -> Iterator[dict[str, Any]]:
    """The lines of a log that name a protection, from the first; an unfinished last line is not read."""
    for line in lines(path):
        if b'"kind":"release"' in line:  # not read in full: it may be long
            yield {"kind": "release", "spent": b'"spent":null' not in line}
        elif b'"kind":"opening"' in line or b'"kind":"continued"' in line:
            with contextlib.suppress(ValueError):
                yield json.loads(line)


class Rules(Protocol):
    """The rules under which answers are given, as the log names them: a site's policy, or a relay's rules."""

    @property
    def digest(self) -> str: ...


class AuditLog:
    """The audit of a site: writes every answer into the log before it leaves, and returns the last ones."""

    def __init__(
        self,
        name: SiteId,
        policy: Rules,
        ledger: Ledger | None,
        log: Log | None,
        *,
        summary: str = "",
        registry: str = "",
        authority: bytes | None = None,
        study: str = "",
    ) -> None:
        self._bound: dict[str, Any] = {"registry": registry} if registry else {}  # its last link
        self._name, self._ledger, self._log, self._authority = name, ledger, log, authority
        held = policy if isinstance(policy, Policy) else None
        self._policy, self._budget = policy.digest, held.dp if held is not None and held.private else None
        protection = SUMS if held is None else held.protect.mode
        self._from = (protection, summary, policy.digest, study)
        self.downstream = ""  # of a relay: which members did not answer, and why
        self.sum_members: tuple[SiteId, ...] = ()  # of a relay: the members that its sums are over
        self._countersigned = ""
        self._transforms: set[str] = set()  # in the log
        if log is not None:
            log.append(
                "opening",
                site=name,
                policy=policy.digest,
                protection=protection,
                summary=summary,  # the digest of the summary table that the site answers from
                study=study,  # the digest of the approved study
                version=version("unpooled"),
                authority="" if authority is None else authority.hex(),
                ledger=self._mark(),
                **self._bound,
            )

    def _mark(self) -> str:
        return "" if self._ledger is None else self._ledger.mark

    def check_request(self, request: Request) -> None:
        """Refuse a request if its countersignature is forged, or names a line that the log does not have.

        Then the log was cut, or the site restored from an old backup: its answer could differ from an earlier
        one. The refusal is not logged, so that the newest log can still be put back.
        """
        if self._log is None or not request.countersigned or request.countersigned == self._countersigned:
            return
        number, head, signature = (*request.countersigned.split(":"), "", "")[:3]
        if self._authority is None:
            return
        from unpooled.privacy.secure_sum.crypto import is_signed

        statement = countersignable(self._name, f"{number}:{head}")
        if not is_signed(self._authority, statement, from_hex(signature)) or not number.isdigit():
            raise QueryRefusedError("the log's head is not countersigned by the authority of this federation")
        if self._log.hash_at(int(number)) != head:
            raise QueryRefusedError(
                f"the coordinator has received line {int(number) + 1} of this site's log, and the log lacks "
                "it: the log was cut, or restored from an old backup. Nothing is answered until the newest "
                "log is back."
            )

    def failed(self, request: Request, answer: Response) -> str:
        """Log a response without an answer; if it is asked again, the question is tried again."""
        try:
            return self(request, answer, failed=True)
        except LedgerError:  # e.g. a full disk, which may be what failed
            return ""

    def __call__(self, request: Request, answer: Response, failed: bool = False) -> str:
        """Log an answer; returns the new head of the log, or "" without a log."""
        if self._log is None:
            return ""
        if request.countersigned and request.countersigned != self._countersigned:
            number, head, signature = (*request.countersigned.split(":"), "", "")[:3]
            self._log.append(COUNTERSIGNED, number=number, head=head, signature=signature)
            self._countersigned = request.countersigned
        refused = [r.reason for r in answer.replies if isinstance(r, Refusal)]
        payload = codec.encode(replace(answer, head=""))
        head = self._log.append(
            "refusal" if len(refused) == len(answer.replies) else "release",
            run=request.request_id.run,
            seed=request.request_id.seed,
            round=request.request_id.round,
            exchange=request.request_id.exchange,
            request=request_digest(request),
            asked=[
                {
                    "question": codec.name_of(type(part.question)),
                    "verb": part.verb,
                    "payload": Base64Payload(codec.encode(part.question)),
                    "transform": None if part.transform is None else digest(part.transform),
                    "masked": part.verb == STAGE or isinstance(reply, MaskedElsewhere),
                }
                for part, reply in zip(request.parts, answer.replies, strict=True)
            ],
            transforms=self._new_transforms(request),
            refused=refused,
            shapes=[_shapes(reply) for reply in answer.replies],
            masked=any(isinstance(reply, MaskedElsewhere) for reply in answer.replies),
            smallest=_smallest(answer.replies),
            spent=self._spent(),
            failed=failed,
            policy=self._policy,
            ledger=self._mark(),
            **self._bound,
            **({"downstream": self.downstream} if self.downstream else {}),
            **({"sum_members": list(self.sum_members)} if self.sum_members else {}),
            digest=sha256(payload).hexdigest(),
            payload=Base64Payload(payload),
        )
        return f"{self._log.seq}:{head}"

    def _new_transforms(self, request: Request) -> dict[str, Base64Payload]:
        """The transforms of this request that the log does not have yet; later lines name their digests."""
        new = {digest(part.transform): part.transform for part in request.parts if part.transform is not None}
        new = {name: transform for name, transform in new.items() if name not in self._transforms}
        self._transforms |= set(new)
        return {name: Base64Payload(codec.encode(transform)) for name, transform in new.items()}

    def close(self) -> None:
        if self._ledger is not None:
            self._ledger.close()
        if self._log is not None:
            self._log.close()

    def _spent(self) -> dict[str, float] | None:
        if self._budget is None or self._ledger is None:
            return None
        delta = self._budget.delta
        spent = gdp_epsilon(self._ledger.spent() ** 0.5, delta)
        return {"epsilon": spent, "remaining": max(self._budget.epsilon_total - spent, 0.0), "delta": delta}

    def answered(self) -> dict[tuple[RequestId, str], Response]:
        """The answers of the latest round in the log, which a restarted coordinator may ask for again.

        Only answers from the site's present source count: after a change of protection, summary table, rules
        or study a question is answered anew, or refused.
        """
        answers: dict[tuple[RequestId, str], Response] = {}
        if self._log is None:
            return answers
        since: dict[tuple[RequestId, str], Response] = {}  # the opening of which is not read yet
        latest: tuple[str, int] | None = None
        over = False
        for line in tail(self._log.path):
            if b'"kind":"opening"' in line or b'"kind":"continued"' in line:
                entry = parsed(line, self._log.path)
                if tuple(map(entry.get, ("protection", "summary", "policy", "study"))) != self._from:
                    break
                answers |= since
                since = {}
            if over:
                if not since:
                    break
                continue
            entry = parsed(line, self._log.path)
            if entry["kind"] not in ("release", "refusal") or entry.get("failed"):
                continue
            if latest is None:
                latest = (entry["run"], entry["round"])
            over = (entry["run"], entry["round"]) != latest
            if not over:
                request_id = RequestId(entry["run"], entry["seed"], entry["round"], entry["exchange"])
                answer: Response = codec.decode(unpacked(entry["payload"]), expect=Response)
                since[request_id, entry["request"]] = replace(answer, head=f"{entry['seq']}:{entry['hash']}")
        return answers


def _shapes(reply: Reply) -> dict[str, list[int]]:
    return {
        name: list(value.shape)
        for name in codec.field_names(type(reply))
        if isinstance(value := getattr(reply, name), np.ndarray)
    }


def _smallest(replies: tuple[Reply, ...]) -> float | None:
    """The smallest count in any reply; None if no reply has a count."""
    counts: list[Any] = [
        value[value > 0]
        for reply in replies
        for name, figure in figures(type(reply)).items()
        if isinstance(figure, Count) and (value := getattr(reply, name)).size
    ]
    every = np.concatenate([c.ravel() for c in counts]) if counts else np.zeros(0)
    return float(every.min()) if len(every) else None
