"""Open a site under its policy: rows, rules, ledger, log, and the memory of what it answered last.

All of it lies in one folder of the site's own. A site that was killed and opened again gives the same bytes
for the same turn, and is not charged for it again.
"""

import json
from dataclasses import replace
from hashlib import sha256
from importlib.metadata import version
from math import inf
from pathlib import Path
from typing import Any

import numpy as np

from unpooled import codec
from unpooled.codec import FloatArray
from unpooled.declarations import Count, figures
from unpooled.errors import LedgerError, PolicyError, Refused
from unpooled.messages import Hidden, Refusal, Reply, Rows, SiteId
from unpooled.privacy import Limits as Allowance
from unpooled.privacy import Spending
from unpooled.privacy.accounting import epsilon_of, mu_of
from unpooled.protocol import Answer, Envelope, Turn
from unpooled.site.differencing import Differencing
from unpooled.site.grouping import Grouping
from unpooled.site.guards import Allowed, Centroids, Rounded, Sight, Sizes, SumsOnly
from unpooled.site.ledger import Ledger, Limits
from unpooled.site.log import Log, Packed, tail, unpacked
from unpooled.site.policy import Policy
from unpooled.site.questions import SCHEMA
from unpooled.site.site import Guard, Labels, Mask, Site, digest, request_digest

SIZES = Allowance(left=inf)  # of noisy replies; the ledger looks after what is left


def open_site(
    name: SiteId,
    X: Rows,
    policy: Policy,
    *,
    folder: str | Path | None = None,
    weights: FloatArray | None = None,
    member: Any = None,
    threads: int = 1,
) -> Site:
    """A site that enforces ``policy`` and keeps its ledger and log in ``folder``.

    Without a folder nothing is written, and limits count within this process only: for simulation.
    ``member`` is the site's part in secure sums (``secure_sum.member.Member``): who it is, and whom it pins;
    by default what ``roster.toml`` in the folder says, if there is one.
    """
    if policy.site.id and policy.site.id != name:
        raise LedgerError(f"the policy is that of site {policy.site.id}, opened as {name}")
    home = Path(folder) if folder is not None else None
    if home is not None:
        home.mkdir(parents=True, exist_ok=True)
    ledger = Ledger(None if home is None else home / "ledger.sqlite", name)
    books = Books(name, policy, ledger, None if home is None else Log(home / "log.jsonl"))
    differencing = policy.disclosure.differencing
    guards: list[Guard] = [Allowed(policy), Sight(), Sizes(policy), Centroids(policy)]
    mask = _mask(name, policy, home, member)
    if policy.aggregation.secure == "required" and mask is None:
        guards.append(SumsOnly())
    if differencing != "off":
        books.watch = Differencing(
            ledger, policy.disclosure.min_cluster_size, refuse=differencing == "refuse"
        )
        guards.append(books.watch)
    grouped = policy.disclosure.group_rows
    guards += [Rounded(policy), Charging(policy, ledger)]  # charged last: what is refused costs nothing
    return Site(
        name,
        X,
        weights,
        min_cluster_size=max(policy.disclosure.min_cluster_size, grouped),
        guards=guards,
        blur=Grouping(ledger, grouped) if grouped else None,
        mask=mask,
        audit=books,
        threads=threads,
        max_message_bytes=policy.wire.max_message_bytes,
        answered=books.answered(),
    )


def _mask(name: SiteId, policy: Policy, home: Path | None, member: Any) -> Mask | None:
    """The site's part in secure sums, as its policy says."""
    rule = policy.aggregation
    if rule.secure == "off":
        return None
    if member is None and home is not None and (home / "roster.toml").exists():
        from unpooled.secure_sum.pinning import member_in

        member = member_in(name, home, min_sites=rule.min_sites)
    if member is None:
        return None
    from unpooled.site.masking import Masking

    if member.min_sites < rule.min_sites:
        raise PolicyError(f"the policy asks for sums over {rule.min_sites} sites, got {member.min_sites}")
    return Masking(member, required=rule.secure == "required", shown=tuple(map(codec.name_of, SCHEMA)))


class Charging(Guard):
    """No turn of the past, no more than the policy allows, every release in the ledger before it leaves."""

    def __init__(self, policy: Policy, ledger: Ledger) -> None:
        self._policy, self._ledger = policy, ledger
        budget = mu_of(policy.dp.epsilon_total, policy.dp.delta) ** 2 if policy.private else 0.0
        self._limits = Limits(policy.jobs.max_runs, policy.jobs.max_rounds, budget)

    def before(self, post: Envelope, views: tuple[Rows, ...]) -> None:
        latest = self._ledger.latest(post.turn.run)
        if post.turn.round < latest:
            raise Refused(f"round {post.turn.round} is over: round {latest} was answered")
        self._price(post)

    def leaving(self, post: Envelope, views: tuple[Rows, ...], labels: tuple[Labels | None, ...]) -> None:
        self._ledger.charge(post.turn, request_digest(post), self._price(post), self._limits)

    def _price(self, post: Envelope) -> float:
        """What this envelope spends of the privacy budget."""
        spends = 0.0
        for part in post.parts:
            if isinstance(part.question, Spending):
                part.question.check(SIZES)
                spends += part.question.spends
            elif self._policy.private:
                raise Refused(
                    f"the policy asks for differential privacy, and {codec.name_of(type(part.question))} "
                    "is answered without noise"
                )
        return spends


class Books:
    """The door's audit: writes every answer into the log before it leaves, and remembers the last ones."""

    def __init__(self, name: SiteId, policy: Policy, ledger: Ledger, log: Log | None) -> None:
        self._name, self._policy, self._ledger, self._log = name, policy, ledger, log
        self.watch: Differencing | None = None
        self._sealed = ""
        self._views: set[str] = set()
        if log is not None:
            log.append("opening", site=name, policy=policy.digest, version=version("unpooled"))

    def __call__(self, post: Envelope, answer: Answer) -> str:
        """The head of the log with this answer in it."""
        if self._log is None:
            return ""
        if post.seal and post.seal != self._sealed:
            number, head, signature = (*post.seal.split(":"), "", "")[:3]
            self._log.append("seal", number=number, head=head, signature=signature)
            self._sealed = post.seal
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
            masked=any(isinstance(reply, Hidden) for reply in answer.replies),
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
