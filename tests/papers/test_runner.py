"""Tasks: any order, any process, stopped and gone on with, and the table is the same."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from reproduction.catalogue import NAMES, chosen, find
from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Presentation, Results, Task
from reproduction.result_store import Store
from reproduction.result_table import ResultTable, row
from reproduction.runner import finish

from unpooled.errors import CheckpointError, InputError

NAME = "triebe-epochs"


def command(out: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "unpooled", "reproduce", NAME, "--runs", "2", "--out", str(out), *more]


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


def test_killed_in_the_middle_and_gone_on_with_gives_the_same_table(tmp_path):
    straight, broken = tmp_path / "straight", tmp_path / "broken"
    subprocess.run(command(straight, "--jobs", "1"), check=True, capture_output=True)
    (tmp_path / "waits").mkdir()
    (tmp_path / "waits" / "sitecustomize.py").write_text(WAITS)
    running = subprocess.Popen(
        command(broken, "--jobs", "2"),
        env={**os.environ, "PYTHONPATH": str(tmp_path / "waits")},
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
    subprocess.run(command(broken, "--jobs", "2"), check=True, capture_output=True)
    assert tables_of(broken) == tables_of(straight)
    assert tables_of(straight)
    assert {path: path.stat().st_mtime_ns for path in kept} == kept  # what was done was not done again


def counting(calls: list[int], version: int = 1) -> Experiment:
    """Two configurations; a number a run, which knows its settings and its run alone."""

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
    with pytest.raises(CheckpointError, match="not a result: remove it"):
        finish([experiment], Sources(), tmp_path, quick=True)
    other = json.loads(whole)
    other["settings"] = {"a": 7}
    store.path(task).write_text(json.dumps(other))
    with pytest.raises(CheckpointError, match="the result of another task"):
        finish([experiment], Sources(), tmp_path, quick=True)


def test_all_that_a_result_depends_on_names_it():
    one = Task("a", 1, {"k": 1, "m": 2}, range(2))
    assert one.digest == Task("a", 1, {"m": 2, "k": 1}, range(2)).digest
    others = [
        Task("b", 1, one.settings, one.runs),
        Task("a", 2, one.settings, one.runs),
        Task("a", 1, {"k": 1, "m": 3}, one.runs),
        Task("a", 1, one.settings, range(2, 4)),
    ]
    assert len({t.digest for t in (one, *others)}) == 5


def test_every_experiment_is_there_by_its_name():
    assert [find(name).name for name in NAMES] == list(NAMES)
    assert [e.name for e in chosen("triebe")] == ["triebe-fraction", "triebe-epochs", "triebe-rate"]
    assert [e.name for e in chosen("garst-fig4,stallmann-g2")] == ["garst-fig4", "stallmann-g2"]
    with pytest.raises(InputError, match="no experiment 'garst-fig2': they are garst-fig1"):
        chosen("garst-fig2")
    with pytest.raises(InputError, match="runs must be >= 1, got 0"):
        find(NAME).tasks(Sources(), False, 0)


def said(*arguments: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "unpooled", *arguments], capture_output=True, text=True, check=False
    )


def test_the_command_lists_and_says_what_is_missing(tmp_path):
    listed = said("--list")
    assert all(name in listed.stdout for name in ("garst-fig1", "holzer-mnist", "stallmann-g2"))
    missing = said("reproduce", "holzer-mnist", "--out", str(tmp_path / "out"))
    assert missing.returncode == 1
    assert "mnist is looked for as mnist_train_writers.npz" in missing.stderr
    assert not (tmp_path / "out").exists()
    nowhere = said("reproduce", "holzer-mnist", "--data", str(tmp_path / "nowhere"))
    assert "there is no such folder" in nowhere.stderr
