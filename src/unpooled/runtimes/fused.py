"""The fused path of ``InProcess``: the stacked rows of plain sites, for all of which one call answers."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, cast

import numpy as np
import numpy.typing as npt

from unpooled.core import codec
from unpooled.core.arrays import FloatArray, Rows
from unpooled.core.exchange import Gathered, SiteSeeds, Summed, Turn, gather, size
from unpooled.core.messages import Question, Reply, SiteId
from unpooled.core.protocol import Ask, View, has_holes
from unpooled.core.stack import Stack, Stacked, fold
from unpooled.core.subtotal import subtotal
from unpooled.errors import BadInput, BadReply
from unpooled.privacy import Spending
from unpooled.privacy.dp.noise import Noise, Simulated

_HELD: set[type[Any]] = set()  # classes of user-defined questions whose declarations were checked
_BLOCK_NUMBERS = 1_000_000  # numbers of replies held at once while summing over sites: 8 MB


class PlainSite(NamedTuple):
    """The rows of a site without rules of its own."""

    name: SiteId
    rows: Any  # an array, a Table or a Copy
    weights: FloatArray | None
    within: FloatArray | None
    grouped: bool
    minimum: int


class Pool:
    """The stacked rows of plain sites; one kernel call answers for all of them."""

    def __init__(
        self,
        names: tuple[SiteId, ...],
        X: Rows,
        offsets: npt.NDArray[np.int64],
        weights: FloatArray | None,
        *,
        minimum: int = 1,
        threads: int = 1,
        exact: bool = False,
        grouped: bool = False,
        within: FloatArray | None = None,
        tables: Sequence[Any] = (),
    ) -> None:
        self._names, self._X, self._offsets, self._weights = names, X, offsets, weights
        self._minimum, self._threads, self._exact, self._grouped = minimum, threads, exact, grouped
        self._tables = list(tables)  # of all sites, where they hold tables or copies
        self._own_within = within  # (S, d) of arrays of groups
        self._within = within  # under the last view
        self._latest: View | None = None  # the view of the last question
        self._viewed_rows: Rows | None = None  # the rows under that view
        self._memory: dict[str, _Memories] = {}
        self._asked = (names, names)  # the sites of the last ask, as given and sorted

    @classmethod
    def of(cls, sites: Sequence[PlainSite], threads: int, exact: bool = False) -> "Pool":
        """The rows of sites, stacked in their order."""
        every = [site.rows for site in sites]
        tables = [X for X in every if not isinstance(X, np.ndarray)]
        insides = [site.within for site in sites if site.within is not None]
        return cls(
            tuple(site.name for site in sites),
            every[0] if tables or len(every) == 1 else _stacked(every),
            np.concatenate([[0], np.cumsum([len(X) for X in every])]).astype(np.int64),
            _side_by_side([(site.weights, len(site.rows)) for site in sites]),
            minimum=sites[0].minimum,
            threads=threads,
            exact=exact,
            grouped=sites[0].grouped,
            within=np.stack(insides) if insides else None,
            tables=tables,
        )

    @cached_property
    def _index(self) -> dict[SiteId, int]:
        return {name: i for i, name in enumerate(self._names)}

    def gather(self, turn: Turn, part: int, ask: Ask[Any]) -> Gathered[Any]:
        question = ask.question
        if not isinstance(question, Question):
            return gather(ask, self._separately(turn, part, ask), self._exact)
        if ask.sites is not self._asked[0]:  # a run asks for the same ones over and over
            self._asked = ask.sites, tuple(sorted(ask.sites))
        sites = self._asked[1]
        if type(question) not in _HELD and not type(question).__module__.startswith("unpooled."):
            self._hold(question, turn, part, ask)
        answers = map(question.answer_all, self._stacks(turn, part, ask.view, sites, question))
        if ask.verb == "each":
            return Gathered(sites, [reply for block in answers for reply in block])
        sizes: set[tuple[int, int]] = set()

        def measured() -> Iterator[Any]:
            for block in answers:
                if not sizes or not isinstance(block, Stacked):  # stacked replies are all alike
                    sizes.add(size(block[0]))
                yield block

        if self._exact:
            total = subtotal(measured())
            return Summed(sites, sum=total.reply(question.reply_type()), size=max(sizes), unrounded=total)
        return Summed(sites, sum=fold(measured()), size=max(sizes))

    def _hold(self, question: Question[Any], turn: Turn, part: int, ask: Ask[Any]) -> None:
        """Check the declarations of a new class of question against one site's reply."""
        name, missing = codec.name_of(type(question)), question.undeclared()
        if missing:
            raise BadInput(f"{name} does not declare {missing}; a real site would refuse it")
        (stack,) = self._stacks(turn, part, ask.view, ask.sites[:1], question)
        try:
            question.check_reply(question.answer(replace(stack, memory=({},))))
        except BadReply as error:
            raise BadInput(f"what {name} sends is not what it declares: {error}") from error
        _HELD.add(type(question))

    def _separately(self, turn: Turn, part: int, ask: Ask[Any]) -> dict[SiteId, Reply]:
        """Replies to a separate question for every site."""
        replies: dict[SiteId, Reply] = {}
        for site in ask.sites:
            question = ask.question_for(site)
            (stack,) = self._stacks(turn, part, ask.view, (site,), question)
            replies[site] = question.answer(stack)
        return replies

    def _stacks(
        self, turn: Turn, part: int, view: View | None, sites: tuple[SiteId, ...], question: Question[Any]
    ) -> Iterator[Stack]:
        """The asked sites' rows, in blocks of sites whose replies fit in memory together."""
        if self._tables and view is None:
            yield from self._raw(turn, part, sites)
            return
        X, memory = self._viewed(view), self._remembered(turn.run)
        within = self._within if view is not None else self._own_within
        every = len(sites) == len(self._names)
        chosen = range(len(sites)) if every else [self._index[site] for site in sites]
        block = max(1, _BLOCK_NUMBERS // max(1, question.reply_numbers(X.shape[1])))
        for a in range(0, len(chosen), block):
            selected = chosen[a : a + block]
            rows, offsets, weights = self._taken(X, selected)
            yield Stack(
                X=rows,
                offsets=offsets,
                weights=weights,
                seeds=SiteSeeds(turn, part, sites[a : a + block]),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.of(selected),
                noise=_simulated(question, len(selected)),
                grouped=self._grouped,
                within=None if within is None else within[list(selected)],
                holes=has_holes(view, question),
            )

    def _taken(self, X: Rows, chosen: Sequence[int]) -> tuple[Rows, npt.NDArray[np.int64], FloatArray | None]:
        """Rows, offsets and weights of chosen sites: a view if the sites are contiguous, else a copy."""
        if isinstance(chosen, range):
            offsets = self._offsets[chosen[0] : chosen[-1] + 2]
            span = slice(offsets[0], offsets[-1])
            return X[span], offsets - offsets[0], None if self._weights is None else self._weights[span]
        spans = [slice(self._offsets[i], self._offsets[i + 1]) for i in chosen]
        offsets = np.concatenate([[0], np.cumsum([s.stop - s.start for s in spans])]).astype(np.int64)
        weights = None if self._weights is None else np.concatenate([self._weights[s] for s in spans])
        return np.concatenate([X[s] for s in spans]), offsets, weights

    def _viewed(self, view: View | None) -> Rows:
        if view is None:
            return self._X
        if view is self._latest and self._viewed_rows is not None:
            return self._viewed_rows
        self._viewed_rows = None  # free the old rows before the new ones are made
        if self._tables and self._grouped:
            self._viewed_rows = self._copies_under(view)
        elif self._tables:
            self._viewed_rows, self._offsets = cast(Any, view).stack(self._tables)
        else:
            self._viewed_rows = view.apply(self._X)
            if self._own_within is not None:
                self._within = self._own_within / view.scaling()[1] ** 2
        self._latest = view
        return self._viewed_rows

    def _copies_under(self, view: View) -> Rows:
        """The groups of all copies under a view, one site after the other; their weights are the view's."""
        seen = [view.shown(copy, None, None) for copy in self._tables]
        counts = [len(rows) for rows, _, _ in seen]
        self._offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
        self._weights = _side_by_side([(weights, len(rows)) for rows, weights, _ in seen])
        self._within = np.stack([cast(FloatArray, within) for _, _, within in seen])
        return np.concatenate([rows for rows, _, _ in seen])

    def _raw(self, turn: Turn, part: int, sites: tuple[SiteId, ...]) -> Iterator[Stack]:
        """Unprepared tables, site by site, since their columns may still differ."""
        memory = self._remembered(turn.run)
        for i in (self._index[site] for site in sites):
            yield Stack(
                X=self._tables[i],
                offsets=np.array([0, len(self._tables[i])]),
                weights=None,
                seeds=SiteSeeds(turn, part, (self._names[i],)),
                minimum=self._minimum,
                threads=self._threads,
                memory=memory.of((i,)),
                grouped=self._grouped,
            )

    def _remembered(self, run: str) -> "_Memories":
        if run not in self._memory:
            self._memory = {run: _Memories({}, range(len(self._names)))}
        return self._memory[run]


class _Memories(Sequence[dict[str, Any]]):
    """The memories of sites within a run: each a dict that is made when it is first looked at."""

    def __init__(self, known: dict[int, dict[str, Any]], sites: Sequence[int]) -> None:
        self._known, self._sites = known, sites

    def of(self, sites: Sequence[int]) -> Any:
        """Those of some sites, by their numbers."""
        return _Memories(self._known, sites)

    def __len__(self) -> int:
        return len(self._sites)

    def __getitem__(self, at: Any) -> Any:
        if isinstance(at, slice):
            return self.of(self._sites[at])
        return self._known.setdefault(self._sites[at], {})


def _simulated(question: Question[Any], sites: int) -> tuple[Noise, ...]:
    """The noise that each of so many sites adds to its reply; none where the question takes none."""
    if not isinstance(question, Spending):
        return ()
    return Simulated().spend([question.spends] * sites, [1.0] * sites)


def _side_by_side(parts: Sequence[tuple[FloatArray | None, int]]) -> FloatArray | None:
    """The weights of several sites one after the other, 1 where a site has none; None if no site has any."""
    if all(weights is None for weights, _ in parts):
        return None
    return np.concatenate([np.ones(n) if w is None else w for w, n in parts])


def _stacked(arrays: Sequence[Rows]) -> Rows:
    """The rows of all sites in one array; not copied if they are already contiguous in memory."""
    base = arrays[0].base
    if base is not None and all(a.base is base for a in arrays) and base.flags.c_contiguous:
        end = arrays[0].__array_interface__["data"][0]
        for a in arrays:
            if a.__array_interface__["data"][0] != end or not a.flags.c_contiguous:
                break
            end += a.nbytes
        else:
            start = arrays[0].__array_interface__["data"][0] - base.__array_interface__["data"][0]
            if base.ndim == 2 and base.dtype == arrays[0].dtype and base.shape[1] == arrays[0].shape[1]:
                first = start // max(1, base.strides[0])
                joined: Rows = base[first : first + sum(map(len, arrays))]
                return joined
    return np.concatenate(arrays)
