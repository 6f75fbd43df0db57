"""Summary tables on workers: one partition gives the table of one process, and a restart the same groups."""

import json
import os
import pickle
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest

from unpooled.algorithms import Lloyd
from unpooled.app.cli import app
from unpooled.data import PreparationOptions, Table
from unpooled.data.schema import AskSchema
from unpooled.data.summary_table import SummaryTable
from unpooled.errors import InputError, TooFewPeopleError
from unpooled.evaluation.analysis import Analysis
from unpooled.federation import Simulation
from unpooled.federation.workers import (
    RowPartition,
    WorkerFederation,
    distributed_summary,
    parquet_partitions,
    summary_partitions,
)
from unpooled.federation.workers.worker_federation import workers_of
from unpooled.privacy.microaggregation import SummarySettings, microaggregate
from unpooled.protocol import run
from unpooled.protocol.algorithm import each
from unpooled.protocol.exchange import run_protocol

N, PARTS = 120, 4
SETTINGS = SummarySettings(person="who", min_group_size=5)


def visits(seed, n=N):
    """The visits of n // 2 people, named after the seed: no two seeds have a person in common."""
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


def tables_of(parts):
    """The summary tables of partitions, as a worker holds them."""
    return [part.rows() for part in parts]


def union(parts):
    """The summary tables of all partitions as one."""
    every = tables_of(parts)
    return replace(
        every[0],
        people=np.concatenate([table.people for table in every]),
        known=np.concatenate([table.known for table in every]),
        means={name: np.concatenate([table.means[name] for table in every]) for name in every[0].means},
        counts={name: np.concatenate([table.counts[name] for table in every]) for name in every[0].counts},
    )


def centers(federation):
    return run(Analysis(PreparationOptions(), (Lloyd(k=2),)), federation, seed=1).state.description.centers


def digests(parts):
    return [table.digest for table in tables_of(parts)]


@pytest.fixture(scope="module")
def threads():
    with ThreadPoolExecutor(2) as pool:
        yield pool


@pytest.fixture(scope="module")
def expected(threads):
    return summary_partitions({"hospital": partitions()}, threads, SETTINGS)["hospital"]


def test_one_partition_gives_the_summary_table_of_one_process(threads):
    made = summary_partitions({"a": RowPartition(visits, (1,)), "b": RowPartition(drawn, (1,))}, threads)
    (a,), (b,) = tables_of(made["a"]), tables_of(made["b"])
    assert a.digest == microaggregate(visits(1)).digest
    own = microaggregate(drawn(1))
    assert np.array_equal(b.means, own.matrix())
    assert np.array_equal(b.people, own.people)
    arrays = Simulation.from_rows({"b": b.means}, {"b": b.people}, within={"b": b.within}, exact_sums=True)
    on_workers = WorkerFederation({"b": made["b"]}, threads)
    assert (run(Lloyd(k=2), on_workers).state.centers == run(Lloyd(k=2), arrays).state.centers).all()


def test_the_site_answers_as_one_that_has_all_groups(threads, expected):
    federation = WorkerFederation({"hospital": expected}, threads)
    schema = run_protocol(each(federation.sites, AskSchema()), federation)["hospital"]
    whole = union(expected)
    assert schema.protection == ("summary", whole.made)
    assert schema.rows[0] == whole.people.sum() == PARTS * N / 2
    assert schema.categories[schema.names.index("sex")] == ("f", "m")
    assert federation.rows == len(whole)
    one = Simulation.from_rows({"hospital": whole}, exact_sums=True)
    np.testing.assert_allclose(centers(federation), centers(one), rtol=1e-12)


class Interrupted:
    """Workers for which ``act`` is called before one of their exchanges."""

    def __init__(self, workers, act, exchange):
        self._workers, self._act, self._remaining = workers, act, exchange

    def hold(self, parts):
        self._workers.hold(parts)

    def reduce(self, do, inputs, add):
        self._remaining -= 1
        if self._remaining == 0:
            self._act()
        return self._workers.reduce(do, inputs, add)


def interrupt(monkeypatch, act, exchange):
    monkeypatch.setattr(
        distributed_summary, "workers_of", lambda executor: Interrupted(workers_of(executor), act, exchange)
    )


def test_a_process_that_is_killed_makes_the_same_groups_again(monkeypatch, processes, threads, expected):
    def kill():
        (pid,) = processes.slots[1]._processes
        os.kill(pid, signal.SIGKILL)

    interrupt(monkeypatch, kill, 4)
    made = summary_partitions({"hospital": partitions()}, processes, SETTINGS)["hospital"]
    kill()  # the process in its place has no groups yet
    result = centers(WorkerFederation({"hospital": made}, processes))
    assert digests(made) == digests(expected)
    assert (result == centers(WorkerFederation({"hospital": expected}, threads))).all()


def test_dask_makes_the_same_groups_if_a_worker_is_killed(monkeypatch, client, threads, expected):
    killed = []

    def kill():
        pid = sorted(client.run(os.getpid).values())[0]
        killed.append(pid)
        threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()

    interrupt(monkeypatch, kill, 5)
    made = summary_partitions({"hospital": partitions()}, client, SETTINGS)["hospital"]
    result = centers(WorkerFederation({"hospital": made}, client))
    assert killed
    assert digests(made) == digests(expected)
    assert (result == centers(WorkerFederation({"hospital": expected}, threads))).all()


def test_fit_by_dask_with_summary_tables(client, file, tmp_path, capfd):
    """A CSV file gives the table of one process; a Parquet file is in several partitions, by person."""
    assert len(parquet_partitions(file, person="who")) > 2
    more = ["-k", "2", "--json", "--protect", "summary", "--person", "who", "--min-group-size", "5"]
    for files, inertia in (([tmp_path / "small.csv"], 0.0), ([file, tmp_path / "small.csv"], 0.1)):
        results = []
        for how in (["--dask", client.scheduler.address], ["--exact-sums"]):
            app(["fit", *map(str, files), *more, *how], standalone_mode=False)
            results.append(json.loads(capfd.readouterr().out))
        assert [one.pop("exchanges") == 1 for one in results] == [False, True]  # workers answer each query
        for one in results:
            one.pop("command", None)
            for site in one["sites"]:
                assert (site.pop("numbers_sent"), site.pop("bytes_sent")) > (0, 0)
        if not inertia:
            assert results[0] == results[1]
            continue
        for one, two in zip(results[0]["sites"], results[1]["sites"], strict=True):
            for name in ("inertia_per_row", "centre_moves_without_it"):
                assert one.pop(name) == pytest.approx(two.pop(name), rel=inertia)
            assert one == two
        assert [site["rows"] for site in results[0]["sites"]] == [500, N / 2]


@pytest.fixture
def file(tmp_path, monkeypatch):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    monkeypatch.setattr(parquet_partitions, "__kwdefaults__", {"person": "", "cells": 800})
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


def test_a_partition_of_too_few_people_is_merged_with_its_neighbour(threads):
    few = [RowPartition(visits, (seed, n)) for seed, n in enumerate((6, N, 4, 4, 0, 8))]
    made = summary_partitions({"hospital": few}, threads, SETTINGS)["hospital"]
    every = tables_of(made)
    assert len(every) == 2
    assert [int(table.people.sum()) for table in every] == [63, 8]
    left_out = {}
    alone = summary_partitions({"a": few[:1], "b": few[1]}, threads, SETTINGS, left_out.__setitem__)
    assert list(alone) == ["b"]
    assert left_out == {"a": "there are fewer than 5 people, too few for a summary table"}
    arrays = [RowPartition(drawn, (seed, n)) for seed, n in enumerate((3, 40))]
    (rows,) = tables_of(summary_partitions({"a": arrays}, threads)["a"])
    assert rows.people.sum() == 43


def some_visits(first, end, seed):
    """One visit of each of some people."""
    x = np.random.default_rng(seed).normal(size=end - first)
    return Table.from_columns({"who": [f"P{i}" for i in range(first, end)], "x": x})


@pytest.mark.parametrize("place", [0, 1])
def test_attack_people_of_two_small_partitions_are_counted_once_when_these_are_merged(threads, place):
    """Attack: three people in two partitions, six by count; merged they would be a group of three."""
    few = [RowPartition(some_visits, (0, 3, seed)) for seed in range(2)]
    parts = [RowPartition(some_visits, (10, 110, 2))]
    parts[place:place] = few
    every = tables_of(summary_partitions({"hospital": parts}, threads, SETTINGS)["hospital"])
    sizes = np.concatenate([table.people for table in every])
    assert sizes.sum() == 103
    assert sizes.min() >= 5
    left_out = {}
    both = {"few": few, "hospital": RowPartition(some_visits, (10, 110, 2))}
    assert list(summary_partitions(both, threads, SETTINGS, left_out.__setitem__)) == ["hospital"]
    assert left_out == {"few": "there are fewer than 5 people, too few for a summary table"}


def test_the_same_rows_in_other_partitions_have_other_groups(threads):
    """A known limit (docs/workers.md): a person who has two such tables can subtract them."""
    parts = partitions()
    two = [RowPartition(distributed_summary.joined_rows, tuple(parts[i : i + 2])) for i in (0, 2)]
    tables = [
        union(summary_partitions({"hospital": own}, threads, SETTINGS)["hospital"]) for own in (parts, two)
    ]
    assert tables[0].people.sum() == tables[1].people.sum()
    ages = [set(zip(one.people, one.means["age"], one.means["pressure"], strict=True)) for one in tables]
    assert ages[0] != ages[1]


def saved_rows(path):
    return np.load(path)


@pytest.mark.parametrize("named", [True, False])
def test_attack_rows_that_changed_since_the_table_was_made_are_not_disclosed(threads, tmp_path, named):
    """Attack: one value changes and the groups are made again; the difference of sums would be the change."""
    X = drawn(1)
    np.save(tmp_path / "a.npy", X)
    load = saved_table if named else saved_rows
    parts = [RowPartition(load, (tmp_path / "a.npy",)), RowPartition(drawn_table if named else drawn, (2,))]
    made = summary_partitions({"hospital": parts}, threads, SummarySettings(min_group_size=5))["hospital"]
    first = [pickle.dumps(rows) for rows in tables_of(made)]
    assert [pickle.dumps(rows) for rows in tables_of(made)] == first  # made again, from the same rows
    X[7] += 3.0
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match="its rows are not those of which the summary table was made"):
        made[0].rows()
    message = "hospital/0000: its rows are not those of which the summary table was made"
    with pytest.raises(InputError, match=message):
        WorkerFederation({"hospital": made}, threads)


def saved_table(path):
    return Table.from_columns(dict(zip("xy", saved_rows(path).T, strict=True)))


def drawn_table(seed):
    return Table.from_columns(dict(zip("xy", drawn(seed).T, strict=True)))


def test_invalid_partitions_are_reported_in_one_line(threads, expected):
    twice = [RowPartition(visits, (1,)), RowPartition(visits, (1,))]
    for rows, kind, message in (
        ({"a": twice}, InputError, "a: 60 of its people have rows in several partitions"),
        ({"a": RowPartition(visits, (1, 4))}, TooFewPeopleError, "a: there are fewer than 5 people"),
        ({"a": RowPartition(drawn, (1,))}, InputError, "a: there is no column 'who'"),
        ({"a": expected}, InputError, "a/0000: it is a summary table already"),
        ({"a": drawn(1)}, InputError, "a: rows on workers must be given as a RowPartition"),
    ):
        with pytest.raises(kind, match=message):
            summary_partitions(rows, threads, SETTINGS)
    with pytest.raises(InputError, match="no site has enough people for a summary table"):
        summary_partitions({"a": RowPartition(visits, (1, 4))}, threads, SETTINGS, print)


def test_what_is_pickled_is_the_plan_and_never_rows(expected):
    data = pickle.dumps(expected[0])
    assert len(data) < 5000
    assert b"P0-1" not in data
    assert isinstance(pickle.loads(data).rows(), SummaryTable)


def test_groups_are_handed_over_once_and_not_made_again(threads):
    made = summary_partitions({"hospital": partitions()}, threads, SETTINGS)["hospital"]
    assert len(distributed_summary._made) == PARTS
    first = digests(made)
    assert distributed_summary._made == {}
    assert digests(made) == first
