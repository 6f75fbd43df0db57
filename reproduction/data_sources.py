"""Sources of data: generated, or the authors' own in the folder that ``--data`` names."""

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from unpooled.errors import InputError

FILES = {
    "garst": "fedkmeans_synthetic.npz",
    "garst-femnist": "fedkmeans_femnist.npz",
    "holzer": "dwf_synthetic.npz",
    "g2": "g2_dim2_original.npz",
    "mnist": "mnist_train_writers.npz",
    "femnist-iid": "femnist_dwf_iid_100clients.npz",
    "femnist-half-iid": "femnist_dwf_hiid_100clients.npz",
}
"""Data set -> its file in the folder of ``--data``."""


@dataclass(frozen=True)
class Sources:
    """The folder with data, if there is one."""

    folder: Path | None = None

    def __post_init__(self) -> None:
        if self.folder is not None and not self.folder.is_dir():
            raise InputError(f"--data {self.folder}: there is no such folder. Check the path.")

    def has(self, name: str) -> bool:
        """Return True if the authors' own set is available."""
        return self.folder is not None and (self.folder / FILES[name]).is_file()

    def path(self, name: str) -> Path:
        """Return the file of a set, which must exist."""
        if self.folder is None:
            raise InputError(
                f"The data set {name} is missing. Name a folder that holds {FILES[name]} with --data."
            )
        if not self.has(name):
            raise InputError(f"{self.folder}: there is no {FILES[name]}, the data set {name}. Put it there.")
        return self.folder / FILES[name]

    def arrays(self, name: str) -> dict[str, Any]:
        """Return the arrays of a set's file."""
        return _arrays(self.path(name))

    def origin(self, name: str) -> str:
        """Return the source of a set as a configuration records it; it is part of the digest of a result."""
        return f"{FILES[name]}, {self.path(name).stat().st_size} bytes" if self.has(name) else "generated"


@lru_cache(maxsize=2)
def _arrays(path: Path) -> dict[str, Any]:
    with np.load(path, allow_pickle=False) as stored:
        return {key: stored[key] for key in stored.files}
