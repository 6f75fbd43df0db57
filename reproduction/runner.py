"""Running of experiments, from their tasks to their tables and figures."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

from reproduction.data_sources import FILES, Sources
from reproduction.experiment import Experiment, Task
from reproduction.output import FinishedExperiment
from reproduction.result_store import Store
from reproduction.worker import Progress, do_all

WatchProgress = Callable[[int], AbstractContextManager[Progress]]
"""Number of tasks -> a context with a function that is called with every finished task."""


def unwatched(count: int) -> AbstractContextManager[Progress]:
    """Return a watch that shows nothing."""
    return nullcontext(lambda task: None)


def finish(
    experiments: Sequence[Experiment],
    sources: Sources,
    out: Path,
    *,
    quick: bool = False,
    runs: int | None = None,
    jobs: int = 1,
    watch: WatchProgress = unwatched,
) -> list[FinishedExperiment]:
    """Do the tasks that are not yet in the store under ``out``, and present all results.

    Parameters
    ----------
    experiments
        What to run, in this order.
    sources
        The authors' own data, if there are any.
    out
        The folder of the store.
    quick
        Do the smaller number of runs of each experiment.
    runs
        The number of runs of every configuration, if given.
    jobs
        The number of parallel processes.
    watch
        Shows the progress.

    Returns
    -------
    list of FinishedExperiment
        One for every experiment.
    """
    store = Store(out)
    tasks = {e.name: e.tasks(sources, quick, runs) for e in experiments}
    todo = [task for of_experiment in tasks.values() for task in of_experiment if not store.has(task)]
    with watch(len(todo)) as progress:
        do_all(experiments, todo, sources, store, jobs, progress)
    return [_finished(e, tasks[e.name], sources, store, quick) for e in experiments]


def _finished(
    e: Experiment, tasks: list[Task], sources: Sources, store: Store, quick: bool
) -> FinishedExperiment:
    presented = e.present(store.results(tasks), sources, quick)
    max_runs = max((task.runs.stop // int(task.settings.get("times", 1)) for task in tasks), default=0)
    used = [FILES[name] for name in FILES if any(_mentions(task, FILES[name]) for task in tasks)]
    data = f"data: {', '.join(used)}" if used else f"data {e.data}"
    return FinishedExperiment(e, presented, max_runs, store.seconds(tasks), data)


def _mentions(task: Task, file: str) -> bool:
    return any(isinstance(value, str) and value.startswith(file) for value in task.settings.values())
