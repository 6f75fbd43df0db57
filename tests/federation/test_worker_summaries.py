"""Copies on workers: one partition is the copy of one process, and a killed worker makes the same groups."""

import json
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from unpooled import Lloyd, Simulation, run
from unpooled.app.cli import app
from unpooled.data import PreparationOptions, Table
from unpooled.data.schema import AskSchema
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.evaluation.analysis import Analysis
from unpooled.federation.workers import (
    RowPartition,
    distributed_summary,
    parquet_partitions,
    summary_partitions,
)
from unpooled.federation.workers.worker_federation import workers_of
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol.algorithm import each
from unpooled.protocol.exchange import run_protocol

N, PARTS = 120, 4
SETTINGS = SummarySettings(person="who", min_group_size=5)


def visits(seed, n=N):
    """The visits of n // 2 persons, named after the seed: no two seeds have a person in common."""
    rng = np.random.default_rng(seed)
    old = rng.random(n) < 0.5
    return Table.from_columns(
        {
            "who": [f"P{seed}-{i}" for i in rng.permutation(np.repeat(np.arange(n // 2), 2))],
            "age": np.where(rng.random(n) < 0.05, np.nan, np.where(old, 70.0, 35.0) + rng.normal(0, 4, n)),
            "pressure": np.where(old, 150.0, 120.0) + rng.normal(0, 5, n),
            "sex": rng.choice(["f", "m", "x"], n, p=[0.5, 0.49, 0.01]),
        }
    )


def drawn(seed, n=N):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)) + 9.0 * rng.integers(0, 2, size=(n, 1))


def partitions():
    return [RowPartition(visits, (seed,)) for seed in range(PARTS)]


def held(parts):
    """The copies of partitions, as a worker would hold them."""
    return [part.rows() for part in parts]


def union(parts):
    """The copies of all partitions as one."""
    every = held(parts)
    return replace(
        every[0],
        people=np.concatenate([c.people for c in every]),
        known=np.concatenate([c.known for c in every]),
        means={name: np.concatenate([c.means[name] for c in every]) for name in every[0].means},
        counts={name: np.concatenate([c.counts[name] for c in every]) for name in every[0].counts},
    )


def centers(federation):
    return run(Analysis(PreparationOptions(), (Lloyd(k=2),)), federation, seed=1).state.description.centers


def digests(parts):
    return [copy.digest for copy in held(parts)]


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def expected(threads):
    return summary_partitions({"hospital": partitions()}, threads, SETTINGS)["hospital"]


def test_one_partition_is_the_copy_of_one_process(threads):
    made = summary_partitions({"a": RowPartition(visits, (1,)), "b": RowPartition(drawn, (1,))}, threads)
    (a,), (b,) = held(made["a"]), held(made["b"])
    assert a.digest == microaggregate(visits(1)).digest
    own = microaggregate(drawn(1))
    assert np.array_equal(b.means, own.matrix())
    assert np.array_equal(b.people, own.people)
    arrays = Simulation.from_rows({"b": b.means}, {"b": b.people}, within={"b": b.within}, exact_sums=True)
    found = Simulation.from_rows({"b": made["b"]}, executor=threads)
    assert (run(Lloyd(k=2), found).state.centers == run(Lloyd(k=2), arrays).state.centers).all()


def test_the_site_answers_as_one_that_has_all_groups(threads, expected):
    federation = Simulation.from_rows({"hospital": expected}, executor=threads)
    schema = run_protocol(each(federation.sites, AskSchema()), federation)["hospital"]
    whole = union(expected)
    assert schema.protection == ("summary", whole.made)
    assert schema.rows[0] == whole.people.sum() == PARTS * N / 2
    assert schema.categories[schema.names.index("sex")] == ("f", "m")
    assert federation.rows == len(whole)
    one = Simulation.from_rows({"hospital": whole}, exact_sums=True)
    np.testing.assert_allclose(centers(federation), centers(one), rtol=1e-12)


class Struck:
    """Workers before one of whose exchanges something is done."""

    def __init__(self, workers, act, exchange):
        self._workers, self._act, self._left = workers, act, exchange

    def hold(self, parts):
        self._workers.hold(parts)

    def reduce(self, do, inputs, add):
        self._left -= 1
        if self._left == 0:
            self._act()
        return self._workers.reduce(do, inputs, add)


def struck(monkeypatch, act, exchange):
    monkeypatch.setattr(
        distributed_summary, "workers_of", lambda executor: Struck(workers_of(executor), act, exchange)
    )


def test_a_process_that_is_killed_makes_the_same_groups_again(monkeypatch, processes, threads, expected):
    def kill():
        (pid,) = processes.slots[1]._processes
        os.kill(pid, signal.SIGKILL)

    struck(monkeypatch, kill, 4)
    made = summary_partitions({"hospital": partitions()}, processes, SETTINGS)["hospital"]
    kill()  # whoever comes in its place has no groups yet
    found = centers(Simulation.from_rows({"hospital": made}, executor=processes))
    assert digests(made) == digests(expected)
    assert (found == centers(Simulation.from_rows({"hospital": expected}, executor=threads))).all()


def test_dask_makes_the_same_groups_where_a_worker_is_killed(monkeypatch, client, threads, expected):
    killed = []

    def kill():
        pid = sorted(client.run(os.getpid).values())[0]
        killed.append(pid)
        threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()

    struck(monkeypatch, kill, 5)
    made = summary_partitions({"hospital": partitions()}, client, SETTINGS)["hospital"]
    found = centers(Simulation.from_rows({"hospital": made}, executor=client))
    assert killed
    assert digests(made) == digests(expected)
    assert (found == centers(Simulation.from_rows({"hospital": expected}, executor=threads))).all()


def test_fit_by_dask_with_copies(client, file, tmp_path, capfd):
    """A CSV file is the copy of one process; a Parquet file is in several partitions, by person."""
    assert len(parquet_partitions(file, person="who")) > 2
    more = ["-k", "2", "--json", "--protect", "summary", "--person", "who", "--min-group-size", "5"]
    for files, inertia in (([tmp_path / "small.csv"], 0.0), ([file, tmp_path / "small.csv"], 0.1)):
        found = []
        for how in (["--dask", client.scheduler.address], ["--exact-sums"]):
            app(["fit", *map(str, files), *more, *how], standalone_mode=False)
            found.append(json.loads(capfd.readouterr().out))
        for one in found:
            one.pop("command", None)
        if not inertia:
            assert found[0] == found[1]
            continue
        for one, two in zip(found[0]["sites"], found[1]["sites"], strict=True):
            assert {**one, "inertia_per_row": 0, "numbers_sent": 0, "bytes_sent": 0} == {
                **two,
                "inertia_per_row": 0,
                "numbers_sent": 0,
                "bytes_sent": 0,
            }
            assert one["inertia_per_row"] == pytest.approx(two["inertia_per_row"], rel=inertia)
        assert [site["rows"] for site in found[0]["sites"]] == [500, N / 2]


@pytest.fixture
def file(tmp_path, monkeypatch):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    from unpooled.federation.workers import parquet_partitions as partitions_of_files

    monkeypatch.setattr(
        partitions_of_files.parquet_partitions, "__kwdefaults__", {"person": "", "cells": 800}
    )
    for path, seed, n in ((tmp_path / "big.parquet", 1, 1000), (tmp_path / "small.csv", 2, N)):
        table = visits(seed, n)
        columns = {
            "who": [table.categories["who"][int(c)] for c in table.values[:, 0]],
            "age": table.values[:, 1],
        }
        columns["pressure"] = table.values[:, 2]
        if path.suffix == ".csv":
            lines = [",".join(map(str, row)) for row in zip(*columns.values(), strict=True)]
            path.write_text("\n".join([",".join(columns), *lines]) + "\n")
        else:
            parquet.write_table(arrow.table(columns), path, row_group_size=100)
    return tmp_path / "big.parquet"


def test_a_partition_of_too_few_persons_is_put_with_its_neighbour(threads):
    few = [RowPartition(visits, (seed, n)) for seed, n in enumerate((6, N, 4, 4, 0, 8))]
    made = summary_partitions({"hospital": few}, threads, SETTINGS)["hospital"]
    every = held(made)
    assert len(every) == 2
    assert [int(copy.people.sum()) for copy in every] == [63, 8]
    alone = summary_partitions({"a": few[:1], "b": few[1]}, threads, SETTINGS, told := {}.__setitem__)
    assert list(alone) == ["b"]
    assert told.__self__ == {"a": "there are fewer than 5 persons: too few for a copy"}
    arrays = [RowPartition(drawn, (seed, n)) for seed, n in enumerate((3, 40))]
    (rows,) = held(summary_partitions({"a": arrays}, threads)["a"])
    assert rows.people.sum() == 43


def some_visits(first, end, seed):
    """One visit of each of some persons."""
    x = np.random.default_rng(seed).normal(size=end - first)
    return Table.from_columns({"who": [f"P{i}" for i in range(first, end)], "x": x})


@pytest.mark.parametrize("place", [0, 1])
def test_attack_persons_of_two_small_partitions_are_counted_once_when_these_are_put_together(threads, place):
    """Attack: three persons in two partitions, six by count; put together they would be a group of three."""
    few = [RowPartition(some_visits, (0, 3, seed)) for seed in range(2)]
    parts = [RowPartition(some_visits, (10, 110, 2))]
    parts[place:place] = few
    every = held(summary_partitions({"hospital": parts}, threads, SETTINGS)["hospital"])
    sizes = np.concatenate([copy.people for copy in every])
    assert sizes.sum() == 103
    assert sizes.min() >= 5
    told = {}
    both = {"few": few, "hospital": RowPartition(some_visits, (10, 110, 2))}
    assert list(summary_partitions(both, threads, SETTINGS, told.__setitem__)) == ["hospital"]
    assert told == {"few": "there are fewer than 5 persons: too few for a copy"}


def test_the_same_rows_in_other_partitions_have_other_groups(threads):
    """The limit that the page names: two such copies in the same hands can be subtracted."""
    parts = partitions()
    two = [RowPartition(distributed_summary.joined_rows, tuple(parts[i : i + 2])) for i in (0, 2)]
    found = [
        union(summary_partitions({"hospital": own}, threads, SETTINGS)["hospital"]) for own in (parts, two)
    ]
    assert found[0].people.sum() == found[1].people.sum()
    ages = [set(zip(one.people, one.means["age"], one.means["pressure"], strict=True)) for one in found]
    assert ages[0] != ages[1]


def kept_rows(path):
    return np.load(path)


@pytest.mark.parametrize("named", [True, False])
def test_attack_rows_that_changed_since_the_copy_was_made_are_not_shown(threads, tmp_path, named):
    """Attack: one value changes and the groups are made again; the difference of sums would be his change."""
    X = drawn(1)
    np.save(tmp_path / "a.npy", X)
    load = kept_table if named else kept_rows
    parts = [RowPartition(load, (tmp_path / "a.npy",)), RowPartition(drawn_table if named else drawn, (2,))]
    made = summary_partitions({"hospital": parts}, threads, SummarySettings(min_group_size=5))["hospital"]
    first = [pickle.dumps(rows) for rows in held(made)]
    assert [pickle.dumps(rows) for rows in held(made)] == first  # made again, of the same rows
    X[7] += 3.0
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match="its rows are not those of which the copy was made"):
        made[0].rows()
    with pytest.raises(InputError, match="hospital/0000: its rows are not those of which the copy was made"):
        Simulation.from_rows({"hospital": made}, executor=threads)


def kept_table(path):
    return Table.from_columns(dict(zip("xy", kept_rows(path).T, strict=True)))


def drawn_table(seed):
    return Table.from_columns(dict(zip("xy", drawn(seed).T, strict=True)))


def test_what_cannot_be_is_said_in_one_line(threads, expected):
    twice = [RowPartition(visits, (1,)), RowPartition(visits, (1,))]
    for rows, kind, message in (
        ({"a": twice}, InputError, "a: 60 of its persons have rows in several partitions"),
        ({"a": RowPartition(visits, (1, 4))}, TooFewPeopleError, "a: there are fewer than 5 persons"),
        ({"a": RowPartition(drawn, (1,))}, InputError, "a: there is no column 'who'"),
        ({"a": expected}, InputError, "a/0000: it is a copy already"),
        ({"a": drawn(1)}, InputError, "a: rows on workers are described by how to read them"),
    ):
        with pytest.raises(kind, match=message):
            summary_partitions(rows, threads, SETTINGS)
    with pytest.raises(InputError, match="no site has enough persons for a copy"):
        summary_partitions({"a": RowPartition(visits, (1, 4))}, threads, SETTINGS, print)


def test_what_is_pickled_is_the_plan_and_never_rows(expected):
    data = pickle.dumps(expected[0])
    assert len(data) < 5000
    assert b"P0-1" not in data
    assert isinstance(pickle.loads(data).rows(), SummaryTable)


def test_groups_that_were_made_are_given_once_and_not_made_again(threads, monkeypatch):
    made = summary_partitions({"hospital": partitions()}, threads, SETTINGS)["hospital"]
    assert len(distributed_summary._made) == PARTS
    first = digests(made)
    assert distributed_summary._made == {}
    assert digests(made) == first
