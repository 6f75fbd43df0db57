"""Everyday files give the clusters of the pooled table, or one line on what to do."""

import json
import re
from functools import cache

import numpy as np
import pytest
from sklearn.cluster import KMeans
from sklearn.preprocessing import StandardScaler
from tests.app.messy import AFTER, BEFORE, Kind
from typer.testing import CliRunner

from unpooled.app.cli import app

runner = CliRunner()


def test_more_than_sixty_kinds_half_of_them_written_before_the_reader():
    assert len(BEFORE) >= 35
    assert len(BEFORE) + len(AFTER) >= 60
    names = [kind.name for kind in BEFORE + AFTER]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("kind", BEFORE + AFTER, ids=lambda kind: kind.name)
def test_a_messy_file(kind: Kind, tmp_path):
    for name, content in kind.files.items():
        (tmp_path / name).write_bytes(content)
    paths = [str(tmp_path / name) for name in kind.files]
    out = ["--out", str(tmp_path / "run")] if kind.error else []
    done = runner.invoke(app, ["fit", *paths, "-k", "3", "--restarts", "3", "--json", *out, *kind.options])
    if kind.error:
        assert done.exit_code == 1, (done.output, done.exception)
        assert done.stderr.count("\n") == 1
        assert done.stderr.startswith("unpooled: ")
        assert re.search(kind.error, done.stderr)
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kind.files)
        return
    assert done.exit_code == 0, (done.stderr, done.exception)
    result = json.loads(done.stdout)
    left_out = {one.get("column") or one.get("site") or "rows": one["why"] for one in result["left_out"]}
    notices = [*result["warnings"], *(f"{what}: {why}" for what, why in left_out.items())]
    for pattern in kind.notices:
        assert any(re.search(pattern, line) for line in notices), (pattern, notices)
    assert set(left_out) == set(kind.left_out)
    if kind.quiet:
        assert not result["warnings"]
    assert set(result["columns"]) == set(kind.used)
    X = np.vstack(list(kind.truth().values()))
    pooled = pooled_result(X.tobytes(), X.shape[1])
    assert result["rows"] == pooled["rows"]
    assert result["inertia"] == pytest.approx(pooled["inertia"], rel=1e-6)
    assert sorted(cluster["rows"] for cluster in result["clusters"]) == pooled["sizes"]


@cache
def pooled_result(rows: bytes, d: int) -> dict[str, object]:
    """The clusters that scikit-learn finds in the pooled table."""
    X = np.frombuffer(rows).reshape(-1, d)
    model = KMeans(3, n_init=5, random_state=0).fit(StandardScaler().fit_transform(X))
    return {"rows": len(X), "inertia": model.inertia_, "sizes": sorted(np.bincount(model.labels_).tolist())}
