"""Tasks: in any order, in any process, stopped and continued, they give the same table."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reproduction.catalogue import COMPARE, NAMES, find, select
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Presentation, Results, Task
from reproduction.result_store import Store
from reproduction.result_table import ResultTable, row
from reproduction.runner import finish
from reproduction.worker import do_all

from unpooled.errors import CheckpointError, InputError, SiteFailedError

NAME = "holzer-fig1"  # four tasks of milliseconds
ROOT = Path(__file__).parents[2]


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "reproduction", NAME, "--runs", "2", "--out", str(out), *more]


def tables_of(out: Path) -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in (out / NAME).glob("*.csv")}


def done_in(out: Path) -> list[Path]:
    return list((out / "results" / NAME).glob("*.json"))


WAITS = """
import signal
from reproduction.result_store import Store
save = Store.save
def saved(store, task, *more):
    save(store, task, *more)
    if len([*store.path(task).parent.glob("*.json")]) >= 2:
        signal.pause()
Store.save = saved
"""  # every process that saves the second result or a later one waits until it is killed


def test_a_run_that_was_killed_continues_and_gives_the_same_table(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    subprocess.run(command(straight, "--jobs", "1"), check=True, capture_output=True, cwd=ROOT)
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "sitecustomize.py").write_text(WAITS)
    running = subprocess.Popen(
        command(broken, "--jobs", "2"),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{tmp_path / 'waits'}{os.pathsep}{ROOT}"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    while len(done_in(broken)) < 2:
        assert running.poll() is None
        time.sleep(0.01)
    os.killpg(running.pid, signal.SIGKILL)
    running.wait()
    kept = {path: path.stat().st_mtime_ns for path in done_in(broken)}
    assert 2 <= len(kept) < len(done_in(straight))
    assert not (broken / NAME).exists()
    subprocess.run(command(broken, "--jobs", "2"), check=True, capture_output=True, cwd=ROOT)
    assert tables_of(broken) == tables_of(straight)
    assert tables_of(straight)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # finished tasks were not done again


def counting(calls: list[int], version: int = 1) -> Experiment:
    """Two configurations with one number per run, which depends on the settings and the run alone."""

    def perform(settings, runs, sources):
        calls.extend(runs)
        return {"value": [100.0 * settings["a"] + number for number in runs]}

    def present(results: Results, sources: Sources, quick: bool) -> Presentation:
        rows = tuple(row((str(a),), results.values({"a": a}, "value")) for a in (1, 2))
        return Presentation((ResultTable("t", "values", ("a",), rows),))

    return Experiment(
        "counting",
        "nobody",
        "counts",
        full=6,
        quick=2,
        block=2,
        configurations=lambda sources, quick: [{"a": 1}, {"a": 2}],
        perform=perform,
        present=present,
        version=version,
    )


def test_a_quick_run_is_the_beginning_of_a_full_one(tmp_path):
    calls: list[int] = []
    experiment = counting(calls)
    (quick,) = finish([experiment], Sources(), tmp_path, quick=True)
    assert calls == [0, 1, 0, 1]
    assert [r.ours for r in quick.presented.tables[0].rows] == [100.5, 200.5]
    (full,) = finish([experiment], Sources(), tmp_path)
    assert sorted(calls[4:]) == [2, 2, 3, 3, 4, 4, 5, 5]
    assert [r.ours for r in full.presented.tables[0].rows] == [102.5, 202.5]
    finish([experiment], Sources(), tmp_path)
    assert len(calls) == 12
    finish([counting(calls, version=2)], Sources(), tmp_path, quick=True)
    assert len(calls) == 16  # another version is another result


def test_a_damaged_or_foreign_result_is_named(tmp_path):
    experiment = counting([])
    finish([experiment], Sources(), tmp_path, quick=True)
    store, (task, *_) = Store(tmp_path), experiment.tasks(Sources(), True)
    whole = store.path(task).read_text()
    store.path(task).write_text(whole[:40])
    with pytest.raises(CheckpointError, match=r"is not a result\. Remove it to compute it again"):
        finish([experiment], Sources(), tmp_path, quick=True)
    other = json.loads(whole)
    other["settings"] = {"a": 7}
    store.path(task).write_text(json.dumps(other))
    with pytest.raises(CheckpointError, match=r"is the result of another task\. Remove it"):
        finish([experiment], Sources(), tmp_path, quick=True)


def test_a_result_is_named_by_all_that_it_depends_on():
    one = Task("a", 1, {"k": 1, "m": 2}, range(2))
    assert one.digest == Task("a", 1, {"m": 2, "k": 1}, range(2)).digest
    others = [
        Task("b", 1, one.settings, one.runs),
        Task("a", 2, one.settings, one.runs),
        Task("a", 1, {"k": 1, "m": 3}, one.runs),
        Task("a", 1, one.settings, range(2, 4)),
    ]
    assert len({t.digest for t in (one, *others)}) == 5


def test_experiments_are_found_by_name():
    assert [find(name).name for name in (*NAMES, COMPARE)] == [*NAMES, COMPARE]
    of_triebe = ["triebe-fraction", "triebe-epochs", "triebe-rate", "triebe-progress"]
    assert [e.name for e in select("triebe")] == of_triebe
    assert [e.name for e in select("garst-fig4,stallmann-g2")] == ["garst-fig4", "stallmann-g2"]
    with pytest.raises(InputError, match=r"no experiment 'garst-fig2'\. The experiments are garst-fig1"):
        select("garst-fig2")
    with pytest.raises(InputError, match=r"the number of runs must be at least 1\. It is 0\."):
        find(NAME).tasks(Sources(), False, 0)


def test_a_failing_task_is_named_by_the_worker(tmp_path):
    """A task that a worker cannot do ends the run with the experiment, its settings and the reason."""
    task = Task("garst-fig5", 4, {"method": "FKM", "data": "generated"}, range(1))
    with pytest.raises(SiteFailedError, match=r"garst-fig5, .*FKM.*: The data set garst-femnist is missing"):
        do_all([find("garst-fig5")], [task, task], Sources(), Store(tmp_path), 2)
