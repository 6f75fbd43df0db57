"""The audit of a site: every answer is in the log before it leaves, and a restart gives it again."""

import json
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import numpy as np

from unpooled.core import codec
from unpooled.core.declarations import Count, figures
from unpooled.core.envelope import Answer, Envelope, Turn
from unpooled.core.messages import LeftMasked, Refusal, Reply, SiteId
from unpooled.privacy.dp.accounting import epsilon_of
from unpooled.site.differencing import Differencing
from unpooled.site.ledger import Ledger
from unpooled.site.log import COUNTERSIGNED, Log, Packed, tail, unpacked
from unpooled.site.policy import Policy
from unpooled.site.site import digest, request_digest


class AuditLog:
    """The door's audit: writes every answer into the log before it leaves, and remembers the last ones."""

    def __init__(self, name: SiteId, policy: Policy, ledger: Ledger, log: Log | None) -> None:
        self._name, self._policy, self._ledger, self._log = name, policy, ledger, log
        self.watch: Differencing | None = None
        self._countersigned = ""
        self._views: set[str] = set()
        if log is not None:
            log.append("opening", site=name, policy=policy.digest, version=version("unpooled"))

    def __call__(self, post: Envelope, answer: Answer) -> str:
        """The head of the log with this answer in it."""
        if self._log is None:
            return ""
        if post.countersigned and post.countersigned != self._countersigned:
            number, head, signature = (*post.countersigned.split(":"), "", "")[:3]
            self._log.append(COUNTERSIGNED, number=number, head=head, signature=signature)
            self._countersigned = post.countersigned
        refused = [r.reason for r in answer.replies if isinstance(r, Refusal)]
        payload = codec.encode(replace(answer, head=""))
        head = self._log.append(
            "refusal" if len(refused) == len(answer.replies) else "release",
            run=post.turn.run,
            seed=post.turn.seed,
            round=post.turn.round,
            exchange=post.turn.exchange,
            request=request_digest(post),
            asked=[
                {
                    "question": codec.name_of(type(part.question)),
                    "verb": part.verb,
                    "payload": Packed(codec.encode(part.question)),
                    "view": None if part.view is None else digest(part.view),
                }
                for part in post.parts
            ],
            views=self._new_views(post),
            refused=refused,
            shapes=[_shapes(reply) for reply in answer.replies],
            masked=any(isinstance(reply, LeftMasked) for reply in answer.replies),
            smallest=_smallest(answer.replies),
            close_cells=0 if self.watch is None else self.watch.pairs,
            spent=self._spent(),
            policy=self._policy.digest,
            digest=sha256(payload).hexdigest(),
            payload=Packed(payload),
        )
        return f"{self._log.seq}:{head}"

    def _new_views(self, post: Envelope) -> dict[str, Packed]:
        """The views of this envelope that the log does not hold yet; after that their digests will do."""
        new = {digest(part.view): part.view for part in post.parts if part.view is not None}
        new = {name: view for name, view in new.items() if name not in self._views}
        self._views |= set(new)
        return {name: Packed(codec.encode(view)) for name, view in new.items()}

    def close(self) -> None:
        self._ledger.close()
        if self._log is not None:
            self._log.close()

    def _spent(self) -> dict[str, float] | None:
        if not self._policy.private:
            return None
        delta = self._policy.dp.delta
        spent = epsilon_of(self._ledger.spent() ** 0.5, delta)
        return {"epsilon": spent, "left": max(self._policy.dp.epsilon_total - spent, 0.0), "delta": delta}

    def answered(self) -> dict[tuple[Turn, str], Answer]:
        """The answers of the latest round in the log, which a restarted coordinator may ask for again."""
        found: dict[tuple[Turn, str], Answer] = {}
        if self._log is None:
            return found
        latest: tuple[str, int] | None = None
        for line in tail(self._log.path):
            entry = json.loads(line)
            if entry["kind"] not in ("release", "refusal"):
                continue
            if latest is None:
                latest = (entry["run"], entry["round"])
            if (entry["run"], entry["round"]) != latest:
                break
            turn = Turn(entry["run"], entry["seed"], entry["round"], entry["exchange"])
            answer: Answer = codec.decode(unpacked(entry["payload"]), expect=Answer)
            found[turn, entry["request"]] = replace(answer, head=f"{entry['seq']}:{entry['hash']}")
        return found


def _shapes(reply: Reply) -> dict[str, list[int]]:
    return {
        name: list(value.shape)
        for name in codec.field_names(type(reply))
        if isinstance(value := getattr(reply, name), np.ndarray)
    }


def _smallest(replies: tuple[Reply, ...]) -> float | None:
    """The smallest count that any reply shows, None where none does."""
    counts: list[Any] = [
        value[value > 0]
        for reply in replies
        for name, said in figures(type(reply)).items()
        if isinstance(said, Count) and (value := getattr(reply, name)).size
    ]
    shown = np.concatenate([c.ravel() for c in counts]) if counts else np.zeros(0)
    return float(shown.min()) if len(shown) else None
