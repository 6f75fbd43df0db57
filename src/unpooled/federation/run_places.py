"""Where a coordinator's folder has the files of its runs, with a server or without one."""

import contextlib
import json
from pathlib import Path

from unpooled.storage.atomic_files import write_atomically
from unpooled.storage.portable_paths import located, portable


class RunPlaces:
    """The places of runs in the folder of a coordinator."""

    path: Path

    @property
    def runs(self) -> Path:
        """The parent of the folders of runs in progress."""
        return self.path / "runs"

    @property
    def results(self) -> Path:
        return self.path / "results"

    @property
    def log_heads(self) -> Path:
        """The file of all heads of sites' logs that the coordinator received."""
        return self.path / "log_heads.jsonl"

    def note_run(self, run: str, folder: Path) -> None:
        """Record where the files of a run are, if they are not in ``results``."""
        if folder.absolute().parent != self.results:
            self.results.mkdir(exist_ok=True)
            text = json.dumps({"folder": portable(folder, self.path, self.results)}) + "\n"
            write_atomically(self.results / f"{run}.json", text.encode())

    def forget_run(self, run: str) -> None:
        (self.results / f"{run}.json").unlink(missing_ok=True)

    def noted_runs(self) -> dict[str, Path]:
        """Return the folders of all runs that are in ``results``, or recorded there."""
        folders = {path.name: path for path in self.results.glob("[!.]*") if path.is_dir()}
        for file in self.results.glob("[!.]*.json"):
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                noted = json.loads(file.read_text(encoding="utf-8"))["folder"]
                folders[file.stem] = Path(located(noted, self.results))
        return folders
