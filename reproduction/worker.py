"""Execution of tasks, in this process or by workers: processes that read tasks as lines of JSON.

A worker is ``python -m reproduction.worker OUT DATA``: it reads one task per line from stdin, and writes one
line when it is done; results go to the store. It ends when its stdin ends, so that a worker outlives the run
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
from contextlib import suppress
from pathlib import Path

from reproduction.data_sources import Sources
from reproduction.experiment import Experiment, Task
from reproduction.result_store import Store
from unpooled.errors import SiteFailedError, UnpooledError

Progress = Callable[[Task], None]

_ROOT = Path(__file__).parent.parent  # holds this package, which is not installed


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
    """Do all tasks, and call ``progress`` with every finished one."""
    if jobs <= 1 or len(tasks) <= 1:
        by_name = {experiment.name: experiment for experiment in experiments}
        for task in tasks:
            do(by_name[task.experiment], task, sources, store)
            progress(task)
        return
    _do_in_parallel(tasks, sources, store, min(jobs, len(tasks)), progress)


def _do_in_parallel(
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
                line = [task.experiment, task.version, task.settings, task.runs.start, task.runs.stop]
                worker.stdin.write(json.dumps(line) + "\n")
                worker.stdin.flush()
                answer = worker.stdout.readline()
                if answer != "done\n":
                    reason = answer.strip() or f"the worker ended with code {worker.wait()}"
                    raise SiteFailedError(f"{task.experiment}, {task.settings}: {reason}")
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
            finished = done.get()
            if isinstance(finished, BaseException):
                raise finished
            if finished is None:
                running -= 1
            else:
                progress(finished)
    finally:
        stop.set()
        for worker in workers:
            worker.kill()
            worker.wait()
        for thread in threads:
            thread.join()
        for worker in workers:
            for pipe in (worker.stdin, worker.stdout):
                with suppress(OSError):  # a line that was not read any more
                    pipe.close()  # type: ignore[union-attr]


def _worker(sources: Sources, store: Store) -> "subprocess.Popen[str]":
    folder = str(sources.folder) if sources.folder is not None else ""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-m", "reproduction.worker", str(store.folder), folder],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **threads, "PYTHONPATH": path},
    )


def main() -> None:
    """Do the tasks on stdin until it ends."""
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
