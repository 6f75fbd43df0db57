"""MNIST and FEMNIST, from a local file or from OpenML or Hugging Face.

A local file is an ``.npz`` with ``X`` (n, 784) of whole numbers from 0 to 255 and ``y`` (n,), and, if rows
have an owner, ``client`` or ``writer`` (n,); or Keras' ``mnist.npz``; or a Parquet file of Flower's FEMNIST.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from unpooled.errors import InputError
from unpooled.typing import IntArray


@dataclass(frozen=True, eq=False)
class Images:
    """Images as bytes, with their labels and their owners."""

    pixels: npt.NDArray[np.uint8]  # (n, 784)
    y: IntArray  # (n,)
    owner: IntArray | None  # (n,) writer or client, if known

    def rows(self, dtype: type[np.floating[Any]] = np.float32) -> npt.NDArray[Any]:
        """Return (n, 784) pixels from 0 to 1."""
        scaled: npt.NDArray[Any] = self.pixels.astype(dtype) / dtype(255)
        return scaled


def load_mnist(path: Path | None = None, *, cache: Path | None = None) -> Images:
    """Return the 60,000 training images, from a local file or from OpenML (``mnist_784``).

    Downloads are kept in ``cache``.
    """
    if path is not None:
        return read_images(path)
    from sklearn.datasets import fetch_openml

    home = None if cache is None else str(cache)
    X, y = fetch_openml("mnist_784", version=1, as_frame=False, return_X_y=True, data_home=home)
    # the training set is the first 60,000 rows of the 70,000
    return _images(np.asarray(X[:60_000]), np.asarray(y[:60_000]).astype(np.int64), None, "mnist_784")


def load_femnist(path: Path | None = None, *, cache: Path | None = None) -> Images:
    """Return FEMNIST with its writers, from a local file or from Hugging Face (``flwrlabs/femnist``).

    The latter needs the package ``datasets``. Downloads are kept in ``cache``.
    """
    if path is not None:
        return read_images(path)
    try:
        from datasets import load_dataset
    except ImportError:
        raise InputError(
            "FEMNIST from Hugging Face needs the package datasets. Install it with pip install datasets, "
            "or name a local .npz or .parquet file."
        ) from None
    table = load_dataset("flwrlabs/femnist", split="train", cache_dir=None if cache is None else str(cache))
    pixels = np.stack([np.asarray(image, dtype=np.uint8).ravel() for image in table["image"]])
    writers = np.unique(np.asarray(table["writer_id"]), return_inverse=True)[1]
    return _images(pixels, np.asarray(table["character"]), writers, "flwrlabs/femnist")


def read_images(path: Path) -> Images:
    """Return images from a local file, .npz or .parquet."""
    if not path.is_file():
        raise InputError(f"{path}: there is no such file. Check the path.")
    if path.suffix == ".parquet":
        return _parquet(path)
    try:
        with np.load(path, allow_pickle=False) as stored:
            found = {name: stored[name] for name in stored.files}
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path} is not an .npz file of arrays. Save the arrays with numpy.savez."
        ) from error
    if "x_train" in found:  # Keras
        return _images(found["x_train"].reshape(len(found["x_train"]), -1), found["y_train"], None, str(path))
    missing = {"X", "y"} - set(found)
    if missing:
        raise InputError(
            f"{path} has no array {', '.join(sorted(missing))}, but {', '.join(sorted(found))}. Name the "
            "pixels X and the labels y."
        )
    owner = found.get("client", found.get("writer"))
    return _images(found["X"], found["y"], owner, str(path))


def _parquet(path: Path) -> Images:
    """Flower's FEMNIST as Hugging Face stores it: image as PNG bytes, writer_id, character."""
    try:
        import io

        import pyarrow.parquet as pq
        from PIL import Image
    except ImportError:
        raise InputError(
            f"{path}: reading it needs the packages pyarrow and pillow. Install them with "
            "pip install pyarrow pillow."
        ) from None
    table = pq.read_table(path).to_pydict()
    missing = {"image", "writer_id", "character"} - set(table)
    if missing:
        raise InputError(f"{path} has no column {', '.join(sorted(missing))}. Use Flower's FEMNIST.")
    pixels = [
        np.asarray(Image.open(io.BytesIO(cell["bytes"])).convert("L")).ravel() for cell in table["image"]
    ]
    writers = np.unique(np.asarray(table["writer_id"]), return_inverse=True)[1]
    labels = np.unique(np.asarray(table["character"]), return_inverse=True)[1]
    return _images(np.stack(pixels), labels, writers, str(path))


def _images(
    pixels: npt.NDArray[Any], y: npt.NDArray[Any], owner: npt.NDArray[Any] | None, where: str
) -> Images:
    pixels, y = np.asarray(pixels), np.asarray(y)
    if pixels.ndim != 2 or len(pixels) != len(y) or (owner is not None and len(owner) != len(y)):
        raise InputError(
            f"{where}: pixels of shape {pixels.shape} do not fit {len(y)} labels. Give one row of pixels per "
            "label."
        )
    if not (pixels.min() >= 0 and pixels.max() <= 255):
        raise InputError(
            f"{where}: pixels are from {pixels.min()} to {pixels.max()}. Scale them to 0 to 255."
        )
    owners = None if owner is None else np.asarray(owner).astype(np.int64)
    return Images(pixels.astype(np.uint8), y.astype(np.int64), owners)
