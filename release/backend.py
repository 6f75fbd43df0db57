"""The build backend: scikit-build-core, and a bill of materials (CycloneDX, PEP 770) in every wheel.

``UNPOOLED_PURE=1`` builds the wheel for any machine, without the compiled kernels (see ``pyproject.toml``).
"""

import base64
import hashlib
import os
import time
import zipfile
from pathlib import Path
from typing import Any

from sbom import bill
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from scikit_build_core.build import build_wheel as _build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]


def build_wheel(folder: str, settings: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """Build a wheel in ``folder``, add its bill of materials, and return its file name."""
    name = _build_wheel(folder, settings, metadata)
    with_bill(Path(folder) / name)
    return name


def with_bill(wheel: Path) -> None:
    """Rewrite the wheel with ``sboms/unpooled.cdx.json`` in its metadata, and one date for every file."""
    with zipfile.ZipFile(wheel) as old:
        entries = [(info, old.read(info)) for info in old.infolist()]
    record = next(info.filename for info, _ in entries if info.filename.endswith(".dist-info/RECORD"))
    home = record.rpartition("/")[0]
    metadata = next(data for info, data in entries if info.filename == f"{home}/METADATA")
    compiled = any("_native" in info.filename for info, _ in entries)
    name, content = f"{home}/sboms/unpooled.cdx.json", bill(metadata.decode(), compiled)
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    line = f"{name},sha256={digest},{len(content)}\n".encode()
    draft = wheel.with_suffix(".draft")
    try:
        with zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as new:
            for info, data in entries:
                if info.filename == record:
                    new.writestr(_entry(name, 0o644), content)
                    data = line + data
                new.writestr(_entry(info.filename, info.external_attr >> 16), data)
        os.replace(draft, wheel)
    finally:
        draft.unlink(missing_ok=True)


def _entry(name: str, mode: int) -> zipfile.ZipInfo:
    date = max(int(os.environ.get("SOURCE_DATE_EPOCH", "1580601600")), 315532800)  # zip begins in 1980
    entry = zipfile.ZipInfo(name, time.gmtime(date)[:6])
    entry.compress_type = zipfile.ZIP_DEFLATED
    entry.create_system = 3  # Unix, so that the bytes do not depend on the machine that builds
    entry.external_attr = (mode or 0o644) << 16
    return entry
