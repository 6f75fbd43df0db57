"""Execution of tasks, in this process or by workers: processes that read tasks as lines of JSON.

A worker is ``python -m reproduction.worker OUT DATA``: one task per line on stdin, one line
back when it is done; results go to the store. It ends when its stdin ends, so that a worker outlives the run
that started it by at most one task. Every worker has one thread, because tasks already run in parallel.
"""

import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Task
from reproduction.result_store import Store
from unpooled.errors import SiteFailedError, UnpooledError

Progress = Callable[[Task], None]


def do(experiment: Experiment, task: Task, sources: Sources, store: Store) -> None:
    """Do one task and save its result."""
    before = time.process_time()
    numbers = experiment.perform(task.settings, task.runs, sources)
    store.save(task, numbers, time.process_time() - before)


def do_all(
    experiments: Sequence[Experiment],
    tasks: Sequence[Task],
    sources: Sources,
    store: Store,
    jobs: int,
    progress: Progress = lambda task: None,
) -> None:
    """Do the tasks that are not in the store; ``progress`` is called with every finished task."""
    if jobs <= 1 or len(tasks) <= 1:
        by = {experiment.name: experiment for experiment in experiments}
        for task in tasks:
            do(by[task.experiment], task, sources, store)
            progress(task)
        return
    _side_by_side(tasks, sources, store, min(jobs, len(tasks)), progress)


def _side_by_side(
    tasks: Sequence[Task], sources: Sources, store: Store, jobs: int, progress: Progress
) -> None:
    todo: queue.SimpleQueue[Task] = queue.SimpleQueue()
    for task in tasks:
        todo.put(task)
    done: queue.SimpleQueue[Task | BaseException | None] = queue.SimpleQueue()
    stop = threading.Event()

    def serve(worker: "subprocess.Popen[str]") -> None:
        assert worker.stdin is not None
        assert worker.stdout is not None
        try:
            while not stop.is_set():
                try:
                    task = todo.get_nowait()
                except queue.Empty:
                    break
                said = [task.experiment, task.version, task.settings, task.runs.start, task.runs.stop]
                worker.stdin.write(json.dumps(said) + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
                if answer != "done\n":
                    why = answer.strip() or f"the worker ended with code {worker.wait()}"
                    raise SiteFailedError(f"{task.experiment}, {task.settings}: {why}")
                done.put(task)
        except BaseException as error:
            done.put(error)
        finally:
            done.put(None)

    workers = [_worker(sources, store) for _ in range(jobs)]
    threads = [threading.Thread(target=serve, args=(worker,), daemon=True) for worker in workers]
    try:
        for thread in threads:
            thread.start()
        running = jobs
        while running:
            got = done.get()
            if isinstance(got, BaseException):
                raise got
            if got is None:
                running -= 1
            else:
                progress(got)
    finally:
        stop.set()
        for worker in workers:
            worker.kill()
            worker.wait()
        for thread in threads:
            thread.join()


def _worker(sources: Sources, store: Store) -> "subprocess.Popen[str]":
    folder = str(sources.folder) if sources.folder is not None else ""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    return subprocess.Popen(
        [sys.executable, "-m", "reproduction.worker", str(store.folder), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **one},
    )


def main() -> None:
    """The main function of a worker process."""
    from reproduction.catalogue import find

    store, sources = Store(Path(sys.argv[1])), Sources(Path(sys.argv[2]) if sys.argv[2] else None)
    for line in sys.stdin:
        name, version, settings, first, last = json.loads(line)
        try:
            do(find(name), Task(name, version, settings, range(first, last)), sources, store)
        except UnpooledError as error:
            print(f"{error}".replace("\n", " "), flush=True)
            continue
        print("done", flush=True)


if __name__ == "__main__":
    main()
