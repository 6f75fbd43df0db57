"""The log as a step of a site's chain: every answer is in the log before it leaves.

A line holds the questions, the answer byte for byte, its protection, and the last link of the ledger. The
line that opens a site also has the digests of its summary table, its policy and its study, and the version of
the software.
"""

from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from typing import Any, Protocol

import numpy as np

from unpooled.errors import LedgerError, QueryRefusedError
from unpooled.privacy.dp.accounting import gdp_epsilon
from unpooled.protocol import codec
from unpooled.protocol.crypto_labels import from_hex
from unpooled.protocol.declarations import Count, figures
from unpooled.protocol.exchange import STAGE, Request, RequestId, Response, countersignable
from unpooled.protocol.messages import MaskedElsewhere, Refusal, Reply, SiteId
from unpooled.site.chain import Exchange, Guard
from unpooled.site.chain_steps import Recorder
from unpooled.site.ledger import Ledger
from unpooled.site.log import COUNTERSIGNED, Base64Payload, Log, unpacked
from unpooled.site.log_files import parsed, tail
from unpooled.site.policy import Policy

_SOURCE = ("protection", "summary", "policy", "study", "authority")  # in the lines that open a site
SUMS = "sums"  # the protection of a relay: it sends sums over its sites


class Rules(Protocol):
    """The rules under which answers are given, as the log names them: a site's policy, or a relay's rules."""

    @property
    def digest(self) -> str: ...


class AuditLog(Recorder):
    """The recorder of a site: writes every answer into its log before it leaves, and returns the last ones.

    Without a ``log``, for simulation, nothing is written.
    """

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
        federation: str = "",
    ) -> None:
        self._bound: dict[str, Any] = {"registry": registry} if registry else {}  # its last link
        self._name, self._ledger, self._log, self._authority = name, ledger, log, authority
        held = policy if isinstance(policy, Policy) else None
        self._policy, self._budget = policy.digest, held.dp if held is not None and held.private else None
        protection = SUMS if held is None else held.protect.mode
        self._from = (protection, summary, policy.digest, study, "" if authority is None else authority.hex())
        self._federation = federation  # its name, for people
        self._countersigned = ""
        self._transforms: set[str] = set()  # in the log

    def record_opening(self) -> None:
        """Write that the site is open, and what it answers from, before it answers anything."""
        if self._log is None:
            return
        protection, summary, policy, study, authority = self._from
        self._log.append(
            "opening",
            site=self._name,
            policy=policy,
            protection=protection,
            summary=summary,  # the digest of the summary table that the site answers from
            study=study,  # the digest of the approved study
            version=version("unpooled"),
            federation=self._federation,
            authority=authority,  # the federation, by the public key of its coordinator
            ledger=self._mark(),
            **self._bound,
        )

    @property
    def next_line(self) -> int:
        """The number, from 1, of the next line of the log."""
        assert self._log is not None
        return self._log.seq + 2

    def record_export(self, kind: str, **fields: object) -> None:
        """Write that a file leaves, before it does."""
        assert self._log is not None
        self._log.append(
            kind, site=self._name, policy=self._policy, ledger=self._mark(), **self._bound, **fields
        )

    def _mark(self) -> str:
        return "" if self._ledger is None else self._ledger.mark

    def check_head(self, request: Request) -> None:
        """Refuse a request if its countersignature is forged, or names a line that the log does not have.

        Then the log was cut, the site was restored from an old backup, or it has two folders: its answer
        could differ from an earlier one. The refusal is not logged, so that the newest log can still be put
        back.
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
        if (own := self._log.hash_at(int(number))) == head:
            return
        if own:
            raise QueryRefusedError(
                f"the coordinator has received another line {int(number) + 1} of this site's log than this "
                "log has: two folders of this site are in use, or this one was restored from an old backup. "
                "Nothing is answered until the newest log is back."
            )
        raise QueryRefusedError(
            f"the coordinator has received line {int(number) + 1} of this site's log, and the log lacks it: "
            "the log was cut, restored from an old backup, or another folder of this site has answered. "
            "Nothing is answered until the newest log is back."
        )

    def record(self, exchange: Exchange, response: Response) -> str:
        return self._write(exchange, response, failed=False)

    def record_failure(self, exchange: Exchange, response: Response) -> str:
        try:
            return self._write(exchange, response, failed=True)
        except LedgerError:  # e.g. a full disk, which may be what failed
            return ""

    def _write(self, exchange: Exchange, answer: Response, failed: bool) -> str:
        """Write an answer into the log; returns the new head of the log, or "" without a log."""
        if self._log is None:
            return ""
        request = exchange.request
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
            request=request.digest,
            asked=[
                {
                    "question": codec.name_of(type(part.question)),
                    "verb": part.verb,
                    "payload": Base64Payload(codec.encode(part.question)),
                    "transform": None if part.transform is None else codec.digest(part.transform),
                    "masked": part.verb == STAGE or isinstance(reply, MaskedElsewhere),
                    "refused": isinstance(reply, Refusal),
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
            **({"downstream": exchange.member_failures} if exchange.member_failures else {}),
            **({"sum_members": list(exchange.sum_members)} if exchange.sum_members else {}),
            digest=sha256(payload).hexdigest(),
            payload=Base64Payload(payload),
        )
        return f"{self._log.seq}:{head}"

    def _new_transforms(self, request: Request) -> dict[str, Base64Payload]:
        """The transforms of this request that the log does not have yet; later lines name their digests."""
        transforms = [part.transform for part in request.parts if part.transform is not None]
        new = {name: one for one in transforms if (name := codec.digest(one)) not in self._transforms}
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

        Only answers from the site's present source to this federation count: after a change of protection,
        summary table, rules or study a question is answered anew, or refused.
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
                if tuple(map(entry.get, _SOURCE)) != self._from:
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


class LogHeadGuard(Guard):
    """Refuse a request if the coordinator has lines of the log that the log lacks."""

    name = "log head"

    def __init__(self, log: AuditLog) -> None:
        self._log = log

    def check(self, exchange: Exchange) -> None:
        self._log.check_head(exchange.request)


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
