"""The recording on disk, the machine it was made on, and how two results differ."""

import importlib.metadata
import json
import math
import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import threadpoolctl
from tests.recorded import adapter as a

PATH = Path(__file__).parent / "recorded.json"
_FLAGS = ("avx2", "avx512f", "fma")
_PACKAGES = ("numpy", "scipy", "scikit-learn", "clarabel")
_CLOSE, _ZERO = 1e-6, 1e-9


def fingerprint() -> dict[str, Any]:
    """What the last bit of a result may depend on besides the code."""
    info = Path("/proc/cpuinfo")
    flags = info.read_text(encoding="utf-8").split() if info.exists() else []
    blas = {
        f"{pool['internal_api']} {pool.get('architecture', '')}".strip()
        for pool in threadpoolctl.threadpool_info()
        if pool["user_api"] == "blas"
    }
    return {
        "machine": platform.machine(),
        "flags": [flag for flag in _FLAGS if flag in flags],
        "kernels": f"{a.BACKEND} {a.ISA}",
        "blas": sorted(blas),
        "libc": " ".join(platform.libc_ver()),
        **{name: importlib.metadata.version(name) for name in _PACKAGES},
    }


def load() -> dict[str, Any]:
    """{"fingerprint": ..., "cases": {name: results}}."""
    found: dict[str, Any] = json.loads(PATH.read_text(encoding="utf-8"))
    return found


def save(recording: dict[str, Any]) -> None:
    """One line a case, so that a change shows as one."""
    lines = [f"  {json.dumps(name)}: {json.dumps(results)}" for name, results in recording["cases"].items()]
    head = f'{{\n "fingerprint": {json.dumps(recording["fingerprint"])},\n "cases": {{\n'
    PATH.write_text(head + ",\n".join(lines) + "\n }\n}\n", encoding="utf-8")


def differences(was: Any, now: Any, *, exact: bool, at: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(key, recorded, now) of all that differs.

    Exact: to the last bit. Otherwise floats to a relative 1e-6, and digests and whole numbers
    (rounds, bytes, sizes) are ignored: another machine rounds differently, and may need a round more.
    """
    if isinstance(was, dict) and isinstance(now, dict):
        for key in dict.fromkeys((*was, *now)):
            if exact or key != "sha256":
                yield from differences(
                    was.get(key, "nothing"),
                    now.get(key, "nothing"),
                    exact=exact,
                    at=f"{at}.{key}".lstrip("."),
                )
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for i, (one, other) in enumerate(zip(was, now, strict=True)):
            yield from differences(one, other, exact=exact, at=f"{at}[{i}]")
    elif not _same(was, now, exact):
        yield at, was, now


def _same(was: Any, now: Any, exact: bool) -> bool:
    if exact or not (_is_number(was) and _is_number(now)):
        return json.dumps(was) == json.dumps(now)
    if isinstance(was, int) and isinstance(now, int):
        return True
    return math.isclose(was, now, rel_tol=_CLOSE, abs_tol=_ZERO)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def summary(name: str, found: list[tuple[str, Any, Any]], max_lines: int = 20) -> str:
    """The differences of a case in words."""
    lines = [f"  {key}: recorded {_short(was)}, now {_short(now)}" for key, was, now in found[:max_lines]]
    more = [f"  and {len(found) - max_lines} more"] if len(found) > max_lines else []
    return "\n".join([f"{name}: {len(found)} keys differ", *lines, *more])


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 120 else f"{text[:117]}..."
