"""Results as plain JSON: numbers where there are few, digests where there are many."""

import hashlib
import json
import math
import re
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from tests.recorded import adapter as a

FEW = 60  # numbers that are written out
_VOLATILE = ("utc", "prev", "hash", "ledger", "version", "policy", "summary")  # of a line of a log


def sha256(data: bytes | str) -> str:
    """The first half of the digest, 128 bits: enough to tell results apart."""
    return hashlib.sha256(data.encode() if isinstance(data, str) else data).hexdigest()[:32]


def number(value: Any) -> Any:
    """A float as JSON has it, and what JSON has not as text."""
    got = float(value)
    return got if math.isfinite(got) else str(got)


def array(values: Any) -> dict[str, Any]:
    """Shape and digest of an array, float64 or int64, little-endian, C order; its values if they are few."""
    got = np.asarray(values)
    kind = "<i8" if got.dtype.kind in "iub" else "<f8"
    got = np.ascontiguousarray(got, dtype=kind)
    said: dict[str, Any] = {"shape": list(got.shape), "sha256": sha256(got.tobytes())}
    if kind == "<f8" and got.size <= FEW:
        said["values"] = [number(v) for v in got.ravel()]
    return said


def plain(value: Any) -> Any:
    """Any value: arrays described, floats that JSON has, text."""
    if isinstance(value, np.ndarray):
        return array(value)
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float | np.floating):
        return number(value)
    if isinstance(value, np.integer):
        return int(value)
    return value


def of_json(value: Any) -> str:
    """The digest of plain JSON."""
    return sha256(json.dumps(value, sort_keys=True))


def of_run(done: Any) -> dict[str, Any]:
    """Centres, history, and what left each site of a Run."""
    history = done.records
    left = {site: list(pair) for site, pair in sorted(done.sent().items())}
    said: dict[str, Any] = {
        "rounds": done.rounds,
        "exchanges": done.exchanges,
        "finished": done.finished,
        "centers": array(done.state.centers),
        "inertia": number(history[-1].inertia),
        "inertias": {"sha256": array([r.inertia for r in history])["sha256"]},
        "movements": {"sha256": array([r.movement for r in history])["sha256"]},
        "left": left if len(left) <= 5 else {"sha256": of_json(left)},
        "left in all": [sum(n for n, _ in left.values()), sum(b for _, b in left.values())],
        "left by round": {"sha256": of_json([sorted(r.sent.items()) for r in history])},
    }
    silent = {r.round: r.silent for r in history if r.silent}
    if silent:
        said["silent"] = {"sha256": of_json(silent)}
    state = a.inner_state(done.state)
    told = {name: plain(getattr(state, name)) for name in a.STATED if hasattr(state, name)}
    return {**said, "state": told} if told else said


def of_model(model: Any, X: Any, heard: list[str]) -> dict[str, Any]:
    """A fitted estimator: its run, its labels and distances, and its warnings."""
    said = {"run": of_run(model.run_), "centers": {"sha256": array(model.cluster_centers_)["sha256"]}}
    names = ("inertia_", "objective_", "n_rounds_", "lower_bound_", "gap_", "bound_condition_", "epsilon_")
    said |= {name: plain(getattr(model, name)) for name in names if hasattr(model, name)}
    if hasattr(model, "labels_"):
        said["labels"] = {"sha256": array(model.labels_)["sha256"]}
        said["sizes"] = np.bincount(model.labels_).tolist()
    said["predicted"] = {"sha256": array(model.predict(X))["sha256"]}
    said["distances"] = {"sha256": array(model.transform(X))["sha256"]}
    said["score"] = number(model.score(X))
    if hasattr(model, "predict_proba"):
        said["memberships"] = {"sha256": array(model.predict_proba(X))["sha256"]}
    if heard:
        said["warned"] = heard
    return said


def of_log(path: Path) -> dict[str, Any]:
    """A site's log without its dates: what was asked, what left, and that it is whole."""
    lines = [dict(entry) for _, entry in a.entries(path)]
    asked = Counter(f"{part['verb']} {part['question']}" for line in lines for part in line.get("asked", ()))
    payloads = [a.unpacked(line["payload"]) for line in lines if "payload" in line]
    return {
        "lines": len(lines),
        "kinds": dict(sorted(Counter(line["kind"] for line in lines).items())),
        "asked": dict(sorted(asked.items())),
        "refused": sorted({why for line in lines for why in line.get("refused", ())}),
        "bytes": sum(map(len, payloads)),
        "payloads": {"sha256": sha256(b"".join(payloads))},
        "contents": {
            "sha256": of_json([{k: v for k, v in x.items() if k not in _VOLATILE} for x in lines]),
        },
        "policy": {"sha256": lines[0]["policy"]},
        "faults": [str(fault) for fault in a.verify(path)],
    }


def text(said: str | bytes) -> dict[str, Any]:
    """A text without the package's version and the name of a run: its length and digest."""
    data = said.encode() if isinstance(said, str) else said
    data = re.sub(rb"<dd>[0-9a-f]{16}</dd>", b"<dd>RUN</dd>", data)
    data = data.replace(f"unpooled {a.__version__}".encode(), b"unpooled VERSION")
    data = data.replace(datetime.now(UTC).date().isoformat().encode(), b"TODAY")  # of copies
    return {"bytes": len(data), "sha256": sha256(data)}


def of_result(said: dict[str, Any]) -> dict[str, Any]:
    """The JSON that ``unpooled fit`` gives: all of it as a digest, and the main numbers."""
    whole = json.loads(json.dumps(said).replace(a.__version__, "VERSION"))
    for site in whole.get("sites", ()):
        site.pop("summary_made", None)  # a date
    names = ("k", "rounds", "exchanges", "rows_suppressed", "clear", "epsilon", "warnings")
    kept = {name: whole[name] for name in names if name in whole}
    clusters = [{n: c[n] for n in ("rows", "center") if n in c} for c in whole["clusters"]]
    scores = [
        {n: s[n] for n in ("k", "inertia", "silhouette", "stability") if n in s}
        for s in whole.get("scores", ())
    ]
    return {"all": {"sha256": of_json(whole)}, **kept, "clusters": clusters, "scores": scores}


def of_folder(path: Path) -> dict[str, Any]:
    """What a run wrote into its folder; the job without the dates of its files."""
    said: dict[str, Any] = {"files": sorted(p.name for p in path.iterdir())}
    said["result"] = of_result(json.loads((path / "result.json").read_text(encoding="utf-8")))
    said["job"] = {"sha256": of_json(json.loads((path / "job.json").read_text(encoding="utf-8"))["job"])}
    for name in ("history.csv", "preparation.json", "report.html"):
        if (path / name).exists():
            said[name] = text((path / name).read_bytes())
    body = (path / "model.unpooled").read_bytes().partition(b"\n")[2][32:]  # after its head and checksum
    said["model.unpooled"] = text(body)
    return said
