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
    converted = float(value)
    return converted if math.isfinite(converted) else str(converted)


def array(values: Any) -> dict[str, Any]:
    """Shape and digest of an array, float64 or int64, little-endian, C order; its values if they are few."""
    converted = np.asarray(values)
    kind = "<i8" if converted.dtype.kind in "iub" else "<f8"
    converted = np.ascontiguousarray(converted, dtype=kind)
    described: dict[str, Any] = {"shape": list(converted.shape), "sha256": sha256(converted.tobytes())}
    if kind == "<f8" and converted.size <= FEW:
        described["values"] = [number(v) for v in converted.ravel()]
    return described


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
    """Centres, history, and what each site of a Run sent."""
    history = done.records
    sent = {site: list(pair) for site, pair in sorted(done.sent().items())}
    described: dict[str, Any] = {
        "rounds": done.rounds,
        "exchanges": done.exchanges,
        "finished": done.finished,
        "centers": array(done.state.centers),
        "inertia": number(history[-1].inertia),
        "inertias": {"sha256": array([r.inertia for r in history])["sha256"]},
        "movements": {"sha256": array([r.movement for r in history])["sha256"]},
        "sent": sent if len(sent) <= 5 else {"sha256": of_json(sent)},
        "sent in all": [sum(n for n, _ in sent.values()), sum(b for _, b in sent.values())],
        "sent by round": {"sha256": of_json([sorted(r.sent.items()) for r in history])},
    }
    silent = {r.round: r.silent for r in history if r.silent}
    if silent:
        described["silent"] = {"sha256": of_json(silent)}
    stated = {name: plain(value) for name, value in a.stated(done.state).items()}
    return {**described, "state": stated} if stated else described


def of_model(model: Any, X: Any, messages: list[str]) -> dict[str, Any]:
    """A fitted estimator: its run, its labels and distances, and its warnings."""
    described = {"run": of_run(model.run_), "centers": {"sha256": array(model.cluster_centers_)["sha256"]}}
    names = ("inertia_", "objective_", "n_rounds_", "lower_bound_", "gap_", "bound_condition_", "epsilon_")
    described |= {name: plain(getattr(model, name)) for name in names if hasattr(model, name)}
    if hasattr(model, "labels_"):
        described["labels"] = {"sha256": array(model.labels_)["sha256"]}
        described["sizes"] = np.bincount(model.labels_).tolist()
    described["predicted"] = {"sha256": array(model.predict(X))["sha256"]}
    described["distances"] = {"sha256": array(model.transform(X))["sha256"]}
    described["score"] = number(model.score(X))
    if hasattr(model, "predict_proba"):
        described["memberships"] = {"sha256": array(model.predict_proba(X))["sha256"]}
    if messages:
        described["warned"] = messages
    return described


def of_log(path: Path) -> dict[str, Any]:
    """A site's log without its dates: what was asked and sent, and that it is whole."""
    lines = [dict(entry) for _, entry in a.entries(path)]
    asked = Counter(f"{part['verb']} {part['question']}" for line in lines for part in line.get("asked", ()))
    payloads = [a.unpacked(line["payload"]) for line in lines if "payload" in line]
    return {
        "lines": len(lines),
        "kinds": dict(sorted(Counter(line["kind"] for line in lines).items())),
        "asked": dict(sorted(asked.items())),
        "refused": sorted({reason for line in lines for reason in line.get("refused", ())}),
        "bytes": sum(map(len, payloads)),
        "payloads": {"sha256": sha256(b"".join(payloads))},
        "contents": {
            "sha256": of_json([{k: v for k, v in x.items() if k not in _VOLATILE} for x in lines]),
        },
        "policy": {"sha256": lines[0]["policy"]},
        "faults": [str(fault) for fault in a.verify(path)],
    }


def text(content: str | bytes) -> dict[str, Any]:
    """A text without the package's version and the name of a run: its length and digest."""
    data = content.encode() if isinstance(content, str) else content
    data = re.sub(rb"<dd>[0-9a-f]{16}</dd>", b"<dd>RUN</dd>", data)
    data = data.replace(f"unpooled {a.__version__}".encode(), b"unpooled VERSION")
    data = data.replace(datetime.now(UTC).date().isoformat().encode(), b"TODAY")  # of summary tables
    return {"bytes": len(data), "sha256": sha256(data)}


def of_result(result: dict[str, Any]) -> dict[str, Any]:
    """The JSON that ``unpooled fit`` gives: all of it as a digest, and the main numbers."""
    whole = json.loads(json.dumps(result).replace(a.__version__, "VERSION"))
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
    """The files of a run's folder; the job without the dates of its files."""
    described: dict[str, Any] = {"files": sorted(p.name for p in path.iterdir())}
    described["result"] = of_result(json.loads((path / "result.json").read_text(encoding="utf-8")))
    job = json.loads((path / "job.json").read_text(encoding="utf-8"))["job"]
    job |= {"absent": [], "blank": []}  # recorded when they were settings; now they are facts of the result
    described["job"] = {"sha256": of_json(job)}
    for name in ("history.csv", "preparation.json", "report.html"):
        if (path / name).exists():
            described[name] = text((path / name).read_bytes())
    body = (path / "model.unpooled").read_bytes().partition(b"\n")[2][32:]  # after its head and checksum
    described["model.unpooled"] = text(body)
    return described
