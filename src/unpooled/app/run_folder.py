"""The folder of a run: the job, the checkpoint, the model, the result and the report.

Every file in it is written atomically. After a kill the folder holds a job and a checkpoint, from which
``unpooled resume`` continues.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from unpooled import __version__
from unpooled.app.job import Job
from unpooled.app.local_sites import NO_FACTS, ReadingFacts
from unpooled.app.model import Model, load
from unpooled.app.result import ClusterResult, JobResult, result_of
from unpooled.app.result_names import NO_NAMES
from unpooled.app.result_names import load as load_names
from unpooled.errors import CodecError, InputError, ModelError
from unpooled.optimality.certificate import Certificate
from unpooled.protocol import codec
from unpooled.protocol.run_loop import Run, run_from_checkpoint
from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.file_format import FORMAT, format_error
from unpooled.storage.portable_paths import located, portable
from unpooled.storage.spreadsheet import csv_text

R = TypeVar("R", bound=JobResult)
_FILES = (
    "job.json",
    "checkpoint",
    "model.unpooled",
    "preparation.json",
    "history.csv",
    "result.json",
    "report.html",
    "certificate",
    "names.json",
)


class RunFolder:
    """The files of a run in its folder."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.job, self.checkpoint, self.model, self.preparation, self.history, *rest = (
            path / name for name in _FILES
        )
        self.result, self.report, self.certificate, self.names = rest

    @property
    def files(self) -> tuple[Path, ...]:
        """All files that a run writes."""
        return tuple(self.path / name for name in _FILES)

    def inputs(self, *outputs: Path) -> list[Path]:
        """Return the files that must not be overwritten: the run's own, those it read, and such outputs.

        The run may have been started in another folder. Therefore an output with the same name, size and
        modification time as a file that the run read counts as that file.
        """
        prints = self._job_json()["fingerprints"]
        read = [(Path(file), size, changed) for file, size, changed in prints if size]
        known = {(path.name, size, changed) for path, size, changed in read}
        existing = [(path, path.stat()) for path in outputs if path.is_file()]
        same = [path for path, now in existing if (path.name, now.st_size, now.st_mtime_ns) in known]
        return [*self.files, *(path for path, _, _ in read), *same]

    # ------------------------------------------------------------ writing

    def begin(self, job: Job) -> bool:
        """Write the job; return True if this created the folder."""
        created = not self.path.exists()
        self.path.mkdir(parents=True, exist_ok=True)
        self.tidy()
        for path in self.files:
            path.unlink(missing_ok=True)
        content = {
            "format": FORMAT,
            "unpooled": __version__,
            "begun": job.begun,
            "job": _renamed(job, lambda folder: portable(folder, folder, self.path)).to_json(),
            "fingerprints": job.fingerprint(),
        }
        self._write_json(self.job, content)
        return created

    def tidy(self) -> None:
        """Remove the temporary files that a kill during a write left behind."""
        for name in _FILES:
            for temporary in self.path.glob(f".{name}.*"):
                temporary.unlink()

    def give_up(self, created: bool) -> None:
        """Remove the job of a run that failed before its first checkpoint, and the folder if ``created``."""
        if self.checkpoint.exists():
            return
        self.job.unlink(missing_ok=True)
        if created:
            self.path.rmdir()

    def finish(self, result: JobResult) -> None:
        """Write the outputs of the run; the result last, because it marks the run as finished."""
        from unpooled.app import model

        model.save(self.model, result.model())
        if result.preparation_json is not None:
            self._write_json(self.preparation, result.preparation_json)
        write_atomically(self.history, history_csv(result).encode(), shared=True)
        page = result.report()
        if page is not None:
            write_atomically(self.report, page.encode(), shared=True)
        if result.names != NO_NAMES:
            self._write_json(self.names, result.names.to_json())
        self._write_json(self.result, result.to_dict())

    def _write_json(self, path: Path, value: object) -> None:
        text = json.dumps(value, indent=1, ensure_ascii=False) + "\n"
        write_atomically(path, text.encode(), shared=path != self.job)

    # ------------------------------------------------------------ reading

    def load_job(self) -> Job:
        """Return the job of the run; raise ModelError if the folder does not hold a run."""
        content = self._job_json()
        job = replace(Job.from_json(content["job"]), begun=str(content.get("begun", "")))
        return _renamed(job, lambda folder: located(folder, self.path))

    def check_unchanged(self, job: Job) -> None:
        """Raise InputError if a file of the job changed since the run began."""
        content = self._job_json()
        if job.remote is not None and not self.checkpoint.exists() and content["unpooled"] != __version__:
            raise InputError(
                f"{self.path}: unpooled {content['unpooled']} began the run and this is {__version__}, but "
                "all sites of a run need the same version. Finish it with that version (pip install "
                f"unpooled=={content['unpooled']}, everywhere), or start anew with unpooled federation run."
            )
        for file, size, changed in content["fingerprints"]:
            if size is None:
                raise InputError(
                    f"{file}: rows of a server, a pipe or a table in memory may have changed since the run "
                    "began. Start a new run."
                )
            if not Path(file).exists():
                raise InputError(f"{file}: no such file, and the run began with it. Restore the file.")
            now = Path(file).stat()
            if [now.st_size, now.st_mtime_ns] != [size, changed]:
                raise InputError(
                    f"{file} was changed since the run began. Start a new run with unpooled fit."
                )

    def _job_json(self) -> dict[str, Any]:
        if not self.path.is_dir():
            raise ModelError(f"{self.path}: no such folder")
        if not self.job.exists():
            raise ModelError(f"{self.path}: not the folder of a run (it has no job.json)")
        try:
            content: dict[str, Any] = json.loads(self.job.read_text(encoding="utf-8"))
            number = content.get("format")
        except (ValueError, AttributeError) as error:
            raise ModelError(f"{self.job}: cannot be read ({error})") from error
        if wrong := format_error(number):
            raise ModelError(f"{self.path}: a run of {wrong}")
        return content

    def load_result(self) -> ClusterResult:
        """Return the result of the run, which must be finished, and without noise."""
        job = self.load_job()
        if job.epsilon is not None:
            raise InputError(
                f"{self.path}: a private run has no report, because a report needs sums without noise"
            )
        result = self.load_any_result(job)
        assert isinstance(result, ClusterResult)
        return self.with_certificate(result)

    def load_any_result(self, job: Job) -> JobResult:
        """Return the result of a finished run, with or without noise, as the run itself left it."""
        if self.checkpoint.exists() and not self.result.exists():
            raise self._not_finished()
        facts = self._facts() if self.result.exists() else NO_FACTS
        return replace(result_of(job, self.load_run(job, facts), facts), names=load_names(self.names))

    def _facts(self) -> ReadingFacts:
        """Return what the run learnt from its sources before it began."""
        try:
            return ReadingFacts.from_json(
                json.loads(self.result.read_text(encoding="utf-8")).get("reading", {})
            )
        except (ValueError, AttributeError, TypeError) as error:
            raise ModelError(f"{self.result}: cannot be read ({error})") from error

    def keep_certificate(self, result: ClusterResult) -> None:
        """Store the certificate of a finished run, and write the outputs again with it."""
        assert result.later_proof is not None
        write_atomically(self.certificate, codec.encode(result.later_proof))
        self.finish(result)

    def with_certificate(self, result: R) -> R:
        """Return the result with the stored certificate, if there is one."""
        if not isinstance(result, ClusterResult) or not self.certificate.exists():
            return result
        try:
            proof = codec.decode(self.certificate.read_bytes(), expect=Certificate)
        except CodecError as error:
            raise ModelError(f"{self.certificate}: cannot be read ({error})") from error
        return replace(result, later_proof=proof)

    def load_run(self, job: Job, facts: ReadingFacts) -> Run[Any]:
        """Return the job's run, which must be finished."""
        if not self.checkpoint.exists():
            raise ModelError(
                f"{self.path}: the run has not begun. Begin it with unpooled resume {self.path}."
            )
        run = run_from_checkpoint(self.checkpoint, job.algorithm_for(facts.ks))
        if not run.finished:
            raise self._not_finished()
        return run

    def _not_finished(self) -> ModelError:
        return ModelError(
            f"{self.path}: the run is not finished. Continue it with unpooled resume {self.path}."
        )

    def load_model(self) -> Model:
        """Return the run's model."""
        self._job_json()
        if not self.model.exists():
            raise ModelError(
                f"{self.path}: the run has no model yet. Continue it with unpooled resume {self.path}."
            )
        return load(self.model)


def _renamed(job: Job, rename: Callable[[str], str]) -> Job:
    """Return the job with another name of its federation's folder, which may move together with the run."""
    if job.remote is None or not job.remote.federation:
        return job
    return replace(job, remote=replace(job.remote, federation=rename(job.remote.federation)))


def history_csv(result: JobResult) -> str:
    """Return the table of rounds: one line each."""
    rows: list[list[object]] = [["round", "movement", "inertia", "exchanges", "sites", "numbers", "bytes"]]
    for r in result.run.history:
        numbers, size = sum(r.numbers.values()), sum(r.bytes.values())
        moved, inertia = f"{r.movement:.9g}", f"{r.inertia:.9g}"
        rows.append([r.round, moved, inertia, r.exchanges, len(r.answered), numbers, size])
    return csv_text(rows)
