"""Checks of the files of a release: names, sizes, contents, bill of materials. Each raises NotReady."""

import base64
import hashlib
import json
import tarfile
import zipfile
from pathlib import Path

from prepare import NotReady

MAX_BYTES = {"any.whl": 1_100_000, ".whl": 2_200_000, ".tar.gz": 2_200_000}  # of a file, by its ending
UNWANTED = ("tests/", "benchmarks/", "reproduction/", "/native/", ".cpp", ".hpp", "__pycache__")


def check_file(path: Path, version: str, folders: tuple[str, ...] = ()) -> str:
    """Check a wheel or an sdist, and return a line about it; no name of ``folders`` may be in it."""
    if not path.name.startswith(f"unpooled-{version}"):
        raise NotReady(f"{path.name}: not of version {version}")
    limit = next(limit for ending, limit in MAX_BYTES.items() if path.name.endswith(ending))
    size = path.stat().st_size
    if size > limit:
        raise NotReady(f"{path.name}: {size:,} bytes, the limit is {limit:,}")
    contents = _wheel(path, folders) if path.suffix == ".whl" else _sdist(path)
    return f"{size:,} bytes of at most {limit:,}; {contents}"


def digest(path: Path) -> str:
    """Return the SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _wheel(path: Path, folders: tuple[str, ...]) -> str:
    with zipfile.ZipFile(path) as wheel:
        names = wheel.namelist()
        content = {name: wheel.read(name) for name in names}
    record = next(name for name in names if name.endswith(".dist-info/RECORD"))
    home = record.rpartition("/")[0]
    for line in content[record].decode().splitlines():
        name, noted, _ = line.rsplit(",", 2)
        if noted and noted != "sha256=" + _base64(hashlib.sha256(content[name]).digest()):
            raise NotReady(f"{path.name}: {name} does not have the digest in RECORD")
    for name, data in content.items():
        if any(part in name for part in UNWANTED):
            raise NotReady(f"{path.name}: {name} does not belong there")
        for folder in folders:
            if folder.encode() in data:
                raise NotReady(f"{path.name}: {name} names a folder of this machine")
    compiled = [name for name in names if "_native" in name]
    if bool(compiled) == path.name.endswith("none-any.whl"):
        raise NotReady(f"{path.name}: compiled kernels and the tag do not fit")
    bill = json.loads(content.get(f"{home}/sboms/unpooled.cdx.json", b"{}"))
    inside = {part["name"] for part in bill.get("components", [])}
    wanted = {"numpy", "scikit-learn", *(("nanobind", "robin-map") if compiled else ())}
    if not wanted <= inside:
        raise NotReady(f"{path.name}: the bill of materials lacks {', '.join(sorted(wanted - inside))}")
    kind = "compiled" if compiled else "numpy"
    return f"{len(names)} files with the digests in RECORD, {kind}, bill of materials of {len(inside)}"


def _sdist(path: Path) -> str:
    with tarfile.open(path) as archive:
        names = [name.partition("/")[2] for name in archive.getnames()]
    for name in ("pyproject.toml", "release/backend.py", "release/sbom.py", "LICENSE", "CMakeLists.txt"):
        if name not in names:
            raise NotReady(f"{path.name}: {name} is missing, and a build needs it")
    if "reproduction/__main__.py" not in names:
        raise NotReady(f"{path.name}: the folder reproduction is missing")
    return f"{len(names)} files"


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
