"""Rows on workers: the bits of one process, with every executor, and even if a worker is killed."""

import json
import os
import pickle
import signal
import threading
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest

from helpers import EXACT
from unpooled.algorithms import KFed, Lloyd
from unpooled.app.cli import app
from unpooled.data import Table
from unpooled.data.readers import Reading
from unpooled.data.schema import AskSchema
from unpooled.errors import EngineError, InputError, SiteFailedError
from unpooled.federation import LocalFederation, Simulation
from unpooled.federation.relay.relay import Relay
from unpooled.federation.relay.relay_policy import RelayRules
from unpooled.federation.workers import (
    Processes,
    RowPartition,
    WorkerFederation,
    dask_cluster,
    parquet_partitions,
)
from unpooled.federation.workers.partition import HeldPartition, PartialAnswer
from unpooled.federation.workers.worker_federation import workers_of
from unpooled.federation.workers.worker_share import _kept
from unpooled.protocol import run
from unpooled.protocol.algorithm import Ask, each, total
from unpooled.protocol.exchange import Federation, RequestId, run_protocol
from unpooled.protocol.questions.cluster_sums import AskClusterSums, AskMoments

PARTS, N = 6, 300


def made(seed, n=N):
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(n, 3)) + np.array([[0.0] * 3, [9.0] * 3, [-9.0, 9.0, 0.0]])[rng.integers(3, size=n)]
    )


def wrong(kind):
    if kind == "failing":
        raise OSError("no such disk")
    return {"flat": np.zeros(4), "list": [1.0]}[kind]


def partitions():
    return [RowPartition(made, (seed,)) for seed in range(PARTS)]


def here(exact_sums=True):
    return Simulation.from_rows(
        {f"all/{i:04}": p.rows() for i, p in enumerate(partitions())}, exact_sums=exact_sums
    )


def centers(federation):
    return run(Lloyd(k=3), federation, seed=1).state.centers


class Killing(Federation):
    """A federation for which ``act`` is called before one of its exchanges."""

    def __init__(self, federation, act, exchange):
        self._federation, self._act, self._remaining = federation, act, exchange
        self.sites = federation.sites

    def ask(self, request_id, asks):
        self._remaining -= 1
        if self._remaining == 0:
            self._act()
        return self._federation.ask(request_id, asks)


def test_partitions_in_processes_give_the_bits_of_one_process(processes):
    one_site = centers(WorkerFederation({"all": partitions()}, processes))
    assert (one_site == centers(here())).all()
    np.testing.assert_allclose(one_site, centers(here(exact_sums=False)), rtol=1e-12)


def test_a_process_that_is_killed_is_replaced_and_its_partitions_are_read_again(processes):
    federation = WorkerFederation({"all": partitions()}, processes)

    def kill():
        (pid,) = processes.slots[1]._processes
        os.kill(pid, signal.SIGKILL)

    assert (centers(Killing(federation, kill, 3)) == centers(here())).all()


def test_dask_gives_the_bits_of_one_process_even_if_workers_are_killed_in_the_middle(client):
    federation = WorkerFederation({"all": partitions()}, client)
    killed = []

    def kill():
        pid = sorted(client.run(os.getpid).values())[0]
        killed.append(pid)
        threading.Timer(0.01, os.kill, (pid, signal.SIGKILL)).start()

    assert (centers(Killing(federation, kill, 3)) == centers(here())).all()
    assert killed
    with pytest.raises(
        InputError, match=r"^bad: rows must be an array, a Table or a SummaryTable, got a list$"
    ):
        WorkerFederation({"bad": RowPartition(wrong, ("list",))}, client)


def test_fit_by_dask_is_fit_with_exact_sums(client, file, capfd, tmp_path):
    path, columns = file
    np.savetxt(tmp_path / "small.csv", columns["age"][:300], header="age", comments="")
    words = ["fit", str(path), str(tmp_path / "small.csv"), "-k", "2", "--columns", "age", "--json"]
    results = []
    for more in (["--dask", client.scheduler.address], ["--exact-sums"]):
        app([*words, *more], standalone_mode=False)
        results.append(json.loads(capfd.readouterr().out))
    for one in results:
        one.pop("command", None)
    assert results[0] == results[1]


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--secure"], "--dask does not go with --secure: workers of one owner have no secrets"),
        (["--epsilon", "1", "--bounds", "age=0:9"], "--dask does not go with --epsilon"),
        (["--protect", "raw"], "--dask does not go with --protect raw"),
        (["--certify", "quick"], "--dask does not go with --certify"),
        (["--site-column", "sex"], "--dask does not go with --site-column"),
        (["--exclude", "agge"], "no file has a column agge"),
        ([], "no Dask scheduler answers at tcp://127.0.0.1:1"),
    ],
)
def test_fit_refuses_options_that_dask_does_not_support(more, message, file, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(dask_cluster, "_CONNECT_TIMEOUT", 0.2)
    out = tmp_path / "out"
    words = ["fit", str(file[0]), "-k", "2", "--dask", "tcp://127.0.0.1:1", "--out", str(out), *more]
    with pytest.raises(SystemExit) as ended:
        app(words)
    (line,) = capfd.readouterr().err.strip().splitlines()
    assert ended.value.code == 1
    assert line.startswith("unpooled: ")
    assert message in line
    assert not out.exists()


def test_any_executor_will_do_and_a_pool_of_processes_keeps_its_fair_share(processes):
    with ThreadPoolExecutor(2) as threads:
        assert (centers(WorkerFederation({"all": partitions()}, threads)) == centers(here())).all()
        assert len(_kept) == PARTS
    pool = workers_of(ProcessPoolExecutor(4, get_context("spawn")))
    assert pool._n_processes == 4
    with pytest.raises(InputError, match="executor must be Processes, a Dask Client or"):
        workers_of("tcp://host")


def test_the_error_of_a_pool_that_lost_a_process_names_the_alternative():
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        federation = WorkerFederation({"all": partitions()}, pool)
        (pid,) = pool._processes
        os.kill(pid, signal.SIGKILL)
        with pytest.raises(EngineError, match=r"Use Processes\(n\), which replaces a lost process"):
            centers(federation)


def test_what_is_pickled_is_the_description_and_never_rows():
    held = HeldPartition(3, "all/0003", RowPartition(made, (3,)))
    assert held.federation.rows == N
    data = pickle.dumps(held)
    assert len(data) < 400
    again = pickle.loads(data)
    assert again._federation is None
    assert (again.number, again.federation.rows) == (3, N)


def test_several_sites_some_in_several_partitions_answer_each_as_one():
    rows = {"north": partitions()[:4], "south": partitions()[4]}
    with ThreadPoolExecutor(1) as pool:
        federation = WorkerFederation(rows, pool)
        assert federation.sites == ("north", "south")
        assert federation.rows_of == {"north": 4 * N, "south": N}
        replies = run_protocol(each(federation.sites, AskMoments()), federation)
        whole = Simulation.from_rows(
            {"north": np.concatenate([p.rows() for p in rows["north"]])}, exact_sums=True
        )
        assert replies["north"].mass == 4 * N
        np.testing.assert_allclose(
            replies["north"].mean, run_protocol(total(("north",), AskMoments()), whole).mean, rtol=1e-12
        )
        (aggregate,) = federation.ask(RequestId("r", 0, 0, 0), (Ask("total", ("south",), AskMoments()),))
        assert (aggregate.sites, aggregate.partial_sum().sites) == (("south",), 1)
        assert aggregate.sent()["south"][0] > 0
        with pytest.raises(InputError, match=r"AskLocalMeans .* north is in 4 partitions"):
            run(KFed(k=2), federation)
        alone = WorkerFederation({"north": rows["north"][0], "south": rows["south"]}, pool)
        plain = Simulation.from_rows({"north": rows["north"][0].rows(), "south": rows["south"].rows()})
        assert (
            run(KFed(k=2), alone, seed=1).state.centers == run(KFed(k=2), plain, seed=1).state.centers
        ).all()


def test_a_site_on_workers_is_a_member_of_a_federation_by_a_relay():
    with ThreadPoolExecutor(1) as pool:
        downstream = WorkerFederation({"all": partitions()}, pool)
        refused = LocalFederation([Relay("north", downstream, EXACT)])
        with pytest.raises(Exception, match="1 of its sites answered, and north answers for 3"):
            centers(refused)  # six partitions are one site
        tree = LocalFederation([Relay("north", downstream, RelayRules(exact=True, min_sites=1))])
        assert (centers(tree) == centers(here())).all()


def test_invalid_rows_are_reported_in_one_line():
    parts = partitions()
    with ThreadPoolExecutor(1) as pool:
        for rows, more, message in (
            ({"a": made(0)}, {}, "a: rows on workers must be given as a RowPartition"),
            ({"a": []}, {}, "a: a site needs at least one partition, got 0"),
            ({}, {}, "a federation needs at least one site, got 0"),
            ({"a": parts[:2]}, {"min_cluster_size": 5}, "a: min_cluster_size=5 is a rule about all rows"),
            (
                {"a": RowPartition(wrong, ("flat",))},
                {},
                r"a: rows must be an array \(n, d\) of floats, got \(4,\) of float64",
            ),
        ):
            with pytest.raises(InputError, match=message):
                WorkerFederation(rows, pool, **more)
        with pytest.raises(SiteFailedError, match="a: OSError: no such disk"):
            WorkerFederation({"a": RowPartition(wrong, ("failing",))}, pool)
    with pytest.raises(InputError, match="workers must be at least 1, got 0"):
        Processes(0)


def test_partial_answers_are_merged_in_order():
    first, second = PartialAnswer(b"", ((0, b"x"),), (1, 2)), PartialAnswer(b"", ((1, b"y"),), (1, 3))
    assert PartialAnswer.merged([first, second]).each == ((0, b"x"), (1, b"y"))


@pytest.fixture
def file(tmp_path):
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    rng = np.random.default_rng(0)
    columns = {
        "who": [f"p{i}" for i in rng.integers(0, 80, 1000)],
        "age": rng.normal(size=1000),
        "sex": rng.choice(["f", "m"], 1000),
    }
    path = tmp_path / "big.parquet"
    parquet.write_table(arrow.table(columns), path, row_group_size=100)
    return path, columns


def test_row_groups_are_partitions_and_rows_of_a_person_stay_together(file):
    path, columns = file
    parts = parquet_partitions(path, cells=900)
    assert len(parts) == 4
    tables = [part.rows() for part in parts]
    assert np.array_equal(np.concatenate([t.values[:, 1] for t in tables]), columns["age"])
    by_person = [part.rows() for part in parquet_partitions(path, person="who", cells=900)]
    ids = [{t.categories["who"][int(code)] for code in t.values[:, 0]} for t in by_person]
    assert sum(len(t) for t in by_person) == 1000
    assert sum(map(len, ids)) == len(set().union(*ids)) == 80
    with pytest.raises(InputError, match="there is no column 'id'"):
        parquet_partitions(path, person="id", cells=900)[0].rows()
    with pytest.raises(InputError, match="not a Parquet file"):
        parquet_partitions(__file__)


def test_the_schema_of_a_site_is_that_of_its_partitions(file):
    path, _ = file
    reading = Reading(exclude=("who",))
    with ThreadPoolExecutor(1) as pool:
        federation = WorkerFederation({"big": parquet_partitions(path, reading, cells=900)}, pool)
        schema = run_protocol(each(federation.sites, AskSchema()), federation)["big"]
        assert (schema.names, schema.kinds, schema.rows[0]) == (("age", "sex"), ("number", "category"), 1000)
        other = RowPartition(Table.from_columns, ({"age": [1.0]},))
        odd = WorkerFederation({"big": [*parquet_partitions(path, reading, cells=900), other]}, pool)
        with pytest.raises(InputError, match="big: its partitions have different columns: sex"):
            run_protocol(each(odd.sites, AskSchema()), odd)


def test_only_asked_sites_answer_each_its_own_question():
    with ThreadPoolExecutor(1) as pool:
        federation = WorkerFederation({"a": partitions()[0], "b": partitions()[1]}, pool)
        own = {"a": AskClusterSums(np.zeros((1, 1, 3))), "b": AskClusterSums(np.ones((1, 2, 3)))}
        replies = run_protocol(each(federation.sites, own.__getitem__), federation)
        assert {site: reply.mass.shape for site, reply in replies.items()} == {"a": (1, 1), "b": (1, 2)}
