"""Write the files that the next version must read, once, at a release: ``python -m tests.kept 0.2``."""

import json
import os
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
from tests.kept.reading import answered, asked, predicted
from typer.testing import CliRunner

from unpooled.app.cli import app
from unpooled.core import checkpoint
from unpooled.core.messages import Refusal
from unpooled.site.open_site import open_site
from unpooled.site.policy import parse

RULES = "version = 2\n[protect]\nauto = true\nperson = 'id'\n"


def write(home: Path) -> None:
    home.mkdir()
    os.chdir(home)
    rng = np.random.default_rng(0)
    for name in ("east", "west"):
        ages, pressures = rng.choice([30, 70], 30), rng.choice([110, 150], 30)
        lines = [
            f"{a + rng.normal(0, 3):.0f},{p + rng.normal(0, 4):.0f},{rng.choice(['f', 'm'])}"
            for a, p in zip(ages, pressures, strict=True)
        ]
        Path(f"{name}.csv").write_text("\n".join(["age,pressure,sex", *lines, ""]))
    saved, rounds = checkpoint.save, []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            checkpoint, "save", lambda path, state: (saved(path, state), rounds.append(path.read_bytes()))
        )
        done = CliRunner().invoke(app, ["fit", "east.csv", "west.csv", "-k", "3", "--out", "run"])
    assert done.exit_code == 0, done.output
    assert len(rounds) > 2
    Path("run/report.html").unlink()  # it is made anew
    Path("half").mkdir()  # the same run, killed after its first round
    shutil.copy("run/job.json", "half")
    Path("half/checkpoint").write_bytes(rounds[0])
    Path("policy.toml").write_text(RULES)
    table = {
        "id": [f"P{i}" for i in range(40)],
        "age": rng.normal(50, 9, 40).round(),
        "pressure": rng.normal(130, 9, 40).round(),
    }
    site = open_site("north", table, parse(RULES), "site")
    assert not isinstance(answered(site), Refusal)
    expected = {"answer": asked(site), "labels": predicted(Path())}
    site.close()
    Path("site/log.jsonl.holder").unlink()
    Path("expected.json").write_text(json.dumps(expected) + "\n")


if __name__ == "__main__":
    write(Path(__file__).parent / sys.argv[1])
