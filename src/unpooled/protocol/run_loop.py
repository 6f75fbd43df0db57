"""A run: an algorithm over a federation, round by round, with checkpoints on disk on request.

>>> from unpooled.federation import Simulation
>>> from unpooled.algorithms import Lloyd
>>> rows = {"a": np.array([[0.0], [0.2]]), "b": np.array([[5.0], [5.2], [5.4]])}
>>> done = run(Lloyd(k=2), Simulation.from_rows(rows), seed=1)
>>> sorted(done.state.centers.ravel().round(3).tolist())
[0.1, 5.2]
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic

import numpy as np

from unpooled.errors import CheckpointError, InputError
from unpooled.protocol import checkpoint as disk
from unpooled.protocol import codec
from unpooled.protocol.algorithm import Algorithm, S, State
from unpooled.protocol.exchange import Federation, RoundLog, round_rng, run_protocol
from unpooled.protocol.messages import SiteId


@dataclass(frozen=True, eq=False)
class RoundRecord:
    """One round of a run. Round 0 is the start."""

    round: int
    movement: float
    inertia: float
    exchanges: int
    sent: Mapping[SiteId, tuple[int, int]]  # (numbers, bytes) that each site sent that answered
    silent: dict[SiteId, str]  # sites that were asked and did not answer, with the reason

    @property
    def answered(self) -> tuple[SiteId, ...]:
        return tuple(self.sent)

    @property
    def numbers(self) -> dict[SiteId, int]:
        """How many numbers each site sent."""
        return {site: numbers for site, (numbers, _) in self.sent.items()}

    @property
    def bytes(self) -> dict[SiteId, int]:
        """How many bytes each site sent."""
        return {site: size for site, (_, size) in self.sent.items()}


@dataclass(frozen=True, eq=False)
class Run(Generic[S]):
    """The result of ``run``: the last state and the history of all rounds.

    Parameters
    ----------
    state : State
        The last state; ``state.centers`` and ``state.inertia`` are those of the clustering.
    history : tuple of RoundRecord
        The start and every round: which sites answered, and what each sent.
    finished : bool
        Whether the algorithm ended by its own rule, or by the largest number of rounds.
    id : str
        The name of the run, by which sites recognise its requests.
    closing : RoundRecord or None
        The question after the last round, e.g. for the final inertia.

    Examples
    --------
    >>> from unpooled.algorithms import Lloyd
    >>> from unpooled.federation import Simulation
    >>> done = run(Lloyd(k=1), Simulation.from_rows({"north": np.array([[0.0], [9.0]])}))
    >>> done.finished, len(done.history) - done.rounds
    (True, 1)
    """

    state: S
    history: tuple[RoundRecord, ...]
    finished: bool
    id: str = field(default="")
    closing: RoundRecord | None = None

    @property
    def rounds(self) -> int:
        """The number of rounds after the start."""
        return len(self.history) - 1

    @property
    def exchanges(self) -> int:
        """The number of round trips of all rounds and of the closing question."""
        return sum(record.exchanges for record in self.records)

    @property
    def records(self) -> tuple[RoundRecord, ...]:
        """The history and, if there was one, the closing question."""
        return self.history if self.closing is None else (*self.history, self.closing)

    def sent(self) -> dict[SiteId, tuple[int, int]]:
        """Return (numbers, bytes) that each site sent over the whole run."""
        sums: dict[SiteId, tuple[int, int]] = {}
        for record in self.records:
            for site, (numbers, size) in record.sent.items():
                before = sums.get(site, (0, 0))
                sums[site] = (before[0] + numbers, before[1] + size)
        return sums


def run(
    algorithm: Algorithm[S],
    federation: Federation,
    *,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    max_rounds: int | None = None,
    quorum: float = 0.5,
    progress: Callable[[RoundRecord], None] | None = None,
    name: str | None = None,
) -> Run[S]:
    """Run an algorithm to its end, or for at most ``max_rounds`` more rounds.

    Parameters
    ----------
    algorithm : Algorithm
        The method, e.g. ``Lloyd(k=3)``.
    federation : Federation
        The sites, e.g. ``Simulation.from_rows(rows)``.
    seed : int
        The seed of the coordinator's draws and of the sites' draws.
    checkpoint : path or None
        Write the state there after every round. If the file exists, the run goes on from it and ends with the
        same bits as a run that was never interrupted. A checkpoint of another algorithm, seed or federation
        is refused.
    max_rounds : int or None
        The largest number of rounds of this call; the run can go on from its checkpoint.
    quorum : float
        The share of the asked sites that must answer, from 0 to 1.
    progress : callable or None
        Called with every round's RoundRecord.
    name : str or None
        The identity of the run at the sites. A run that is started again under the same name repeats its
        requests, and the sites repeat their answers.

    Returns
    -------
    Run
        The last state and the history of all rounds.

    Raises
    ------
    InputError
        If the seed or the quorum cannot be used.
    CheckpointError
        If the checkpoint is of another run.
    TooFewAnswersError
        If fewer sites answer than the quorum.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled.algorithms import Lloyd
    >>> from unpooled.federation import Simulation
    >>> rows = {"north": np.array([[0.0], [9.0]]), "south": np.array([[0.2], [9.2]])}
    >>> sorted(run(Lloyd(k=2), Simulation.from_rows(rows), seed=1).state.centers.round(2).tolist())
    [[0.1], [9.1]]
    """
    sites = tuple(sorted(federation.sites))
    if not isinstance(seed, int | np.integer) or seed < 0:
        raise InputError(f"seed must be a non-negative integer, got {seed!r}")
    if not 0 <= quorum <= 1:
        raise InputError(f"quorum must be a share between 0 and 1, got {quorum}")
    if federation.secure:
        _check_full(algorithm, len(sites))
    original, algorithm = algorithm, algorithm.build()
    log = _History(name or secrets.token_hex(8), original, sites, int(seed))
    path = Path(checkpoint) if checkpoint is not None else None
    if path is not None and not path.parent.is_dir():
        raise InputError(f"checkpoint {path}: there is no folder {path.parent}")
    state: S | None = log.restore(path) if path is not None and path.exists() else None
    remaining = max_rounds

    while True:
        number = len(log.records)
        if state is not None:
            if algorithm.ended(state, number - 1):
                return Run(state, tuple(log.records), True, log.run)
            if remaining is not None and remaining <= 0:
                return Run(state, tuple(log.records), False, log.run)
            remaining = None if remaining is None else remaining - 1
        round_log = RoundLog()
        rng = round_rng(log.seed, number)
        steps = algorithm.start(sites, rng) if state is None else algorithm.round(state, sites, rng)
        state = run_protocol(
            steps, federation, run=log.run, seed=log.seed, number=number, quorum=quorum, round_log=round_log
        )
        if not isinstance(state, State):
            raise InputError(
                f"{type(state).__name__} is not a State. Derive it, e.g. class {type(state).__name__}(State)"
            )
        record = log.add(state, round_log)
        if path is not None:
            log.save(path, state)
        if progress is not None:
            progress(record)


def _check_full(algorithm: Algorithm[S], sites: int) -> None:
    """InputError unless all sites take part in every round of a run with secure sums."""
    share = algorithm.innermost.participation
    if not (share == 1.0 if isinstance(share, float) else share >= sites):
        raise InputError(
            f"participation={share:g} and secure sums exclude each other: sums over different sites would "
            "disclose single ones by subtraction"
        )


def run_from_checkpoint(path: str | Path, algorithm: Algorithm[S]) -> Run[S]:
    """Return the run in a checkpoint without a federation, for inspection; it cannot be continued."""
    saved = disk.load(Path(path))
    log = _History(saved.run, algorithm, saved.sites, saved.seed)
    state: S = log.restore(Path(path))
    ended = algorithm.build().ended(state, len(log.records) - 1)
    return Run(state, tuple(log.records), ended, log.run)


def _digest(algorithm: object) -> str:
    return hashlib.sha256(codec.encode(algorithm)).hexdigest()


class _History:
    """The growing history of a run, which can be saved and restored."""

    def __init__(self, run: str, algorithm: object, sites: tuple[SiteId, ...], seed: int) -> None:
        self.run, self._algorithm, self.sites, self.seed = run, algorithm, sites, seed
        self.records: list[RoundRecord] = []

    def add(self, state: State, round_log: RoundLog) -> RoundRecord:
        sent = round_log.sent
        if self.records and self.records[-1].sent == sent:
            sent = self.records[-1].sent  # the same object, so that save() writes it once
        record = RoundRecord(
            len(self.records),
            float(state.movement),
            float(state.inertia),
            round_log.exchanges,
            sent,
            round_log.silent,
        )
        self.records.append(record)
        return record

    def save(self, path: Path, state: State) -> None:
        distinct: list[tuple[tuple[str, ...], Any]] = []
        index: list[int] = []
        seen: dict[int, int] = {}
        for record in self.records:
            key = id(record.sent)
            if key not in seen:
                seen[key] = len(distinct)
                table = np.array(list(record.sent.values()), dtype=np.int64)
                distinct.append((record.answered, table.reshape(-1, 2)))
            index.append(seen[key])
        disk.save(
            path,
            disk.Checkpoint(
                run=self.run,
                algorithm=_digest(self._algorithm),
                sites=self.sites,
                seed=self.seed,
                round=len(self.records) - 1,
                state=state,
                figures=np.array([[r.movement, r.inertia] for r in self.records]).reshape(-1, 2),
                exchanges=np.array([r.exchanges for r in self.records], dtype=np.int64),
                answered=tuple(distinct),
                answered_in=np.array(index, dtype=np.int64),
                silent=tuple(r.silent for r in self.records),
            ),
        )

    def restore(self, path: Path) -> Any:
        """Load the history of a checkpoint and return its state; CheckpointError if it is of another run."""
        saved = disk.load(path)
        if saved.algorithm != _digest(self._algorithm):
            raise CheckpointError(f"{path}: checkpoint of another algorithm or other settings")
        if saved.seed != self.seed:
            raise CheckpointError(f"{path}: checkpoint of seed {saved.seed}, this run has seed {self.seed}")
        if saved.sites != self.sites:
            odd = sorted(set(saved.sites) ^ set(self.sites))
            raise CheckpointError(
                f"{path}: checkpoint of {len(saved.sites)} sites, this run has {len(self.sites)}; "
                f"not in both: {', '.join(odd[:5])}"
            )
        tables = [
            {site: (int(numbers), int(size)) for site, (numbers, size) in zip(sites, table, strict=True)}
            for sites, table in saved.answered
        ]
        self.run = saved.run
        for number in range(saved.round + 1):
            movement, inertia = map(float, saved.figures[number])
            sent = tables[int(saved.answered_in[number])]
            exchanges = int(saved.exchanges[number])
            self.records.append(RoundRecord(number, movement, inertia, exchanges, sent, saved.silent[number]))
        return saved.state
