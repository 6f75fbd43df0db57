"""A run on disk: whole or not at all, resumed to the bit, and never mistaken for another's."""

import errno
import hashlib
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from helpers import bits
from unpooled.algorithms import DWF, Lloyd, MiniBatch, Restarts
from unpooled.errors import CheckpointError, InputError
from unpooled.federation import Simulation
from unpooled.protocol import checkpoint, codec, run
from unpooled.protocol.questions.cluster_sums import Moments

ALGORITHM = DWF(k=3, init="random", learning_rate=0.3, momentum=0.5, min_rounds=15, max_rounds=15)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "run.unpooled"


@pytest.fixture
def saved(rows, path):
    """A checkpoint after round 4."""
    run(ALGORITHM, Simulation.from_rows(rows), seed=3, checkpoint=path, max_rounds=4)
    return path


def test_what_is_saved_comes_back(saved, rows):
    loaded = checkpoint.load(saved)
    assert loaded.round == 4
    assert loaded.seed == 3
    assert loaded.sites == tuple(sorted(rows))
    assert loaded.figures.shape == (5, 2)
    checkpoint.save(saved, loaded)
    assert bits(checkpoint.load(saved)) == bits(loaded)


@pytest.mark.parametrize("stop", range(16))
def test_interrupted_after_any_round_the_bits_are_the_same(rows, path, stop):
    straight = run(ALGORITHM, Simulation.from_rows(rows), seed=3)
    part = run(ALGORITHM, Simulation.from_rows(rows), seed=3, checkpoint=path, max_rounds=stop)
    assert (part.rounds, part.finished) == (stop, stop == 15)
    whole = run(ALGORITHM, Simulation.from_rows(rows), seed=3, checkpoint=path)
    assert bits(whole.state) == bits(straight.state)
    assert whole.sent() == straight.sent()
    assert [r.movement for r in whole.history] == [r.movement for r in straight.history]
    assert whole.id == part.id


def test_a_finished_run_is_not_run_again(rows, path):
    asked = []

    class Counting(Simulation):
        def ask(self, request_id, asks):
            asked.append(request_id)
            return super().ask(request_id, asks)

    first = run(ALGORITHM, Counting.from_rows(rows), checkpoint=path)
    count = len(asked)
    again = run(ALGORITHM, Counting.from_rows(rows), checkpoint=path)
    assert bits(again.state) == bits(first.state)
    assert len(asked) == count > 0
    assert again.finished


def test_restarts_and_partial_participation_resume_too(rows, path):
    algorithm = Restarts(MiniBatch(k=3, participation=0.5, batch=5, max_rounds=6), 3)
    straight = run(algorithm, Simulation.from_rows(rows), seed=1)
    for _ in range(straight.rounds + 1):
        done = run(algorithm, Simulation.from_rows(rows), seed=1, checkpoint=path, max_rounds=1)
    assert bits(done.state) == bits(straight.state)
    assert [r.numbers for r in done.history] == [r.numbers for r in straight.history]


# ---------------------------------------------------------------- what is refused


def resume(path, rows, algorithm=ALGORITHM, seed=3):
    return run(algorithm, Simulation.from_rows(rows), seed=seed, checkpoint=path)


def test_truncated_at_any_length(saved, rows):
    data = saved.read_bytes()
    for size in [*range(60), *range(60, len(data), 37), len(data) - 1]:
        saved.write_bytes(data[:size])
        with pytest.raises(
            CheckpointError, match=r"truncated or was altered|not an unpooled checkpoint|of version"
        ):
            resume(saved, rows)


def test_altered_anywhere(saved, rows):
    data = saved.read_bytes()
    for place in [*range(54), *range(54, len(data), 41), len(data) - 1]:
        broken = bytearray(data)
        broken[place] ^= 1
        saved.write_bytes(broken)
        with pytest.raises(CheckpointError, match=r"run\.unpooled: "):
            resume(saved, rows)


def test_longer_than_it_was(saved, rows):
    saved.write_bytes(saved.read_bytes() + b"\0")
    with pytest.raises(CheckpointError, match=r"truncated or was altered \(\d+ bytes\)"):
        resume(saved, rows)


def test_another_version(saved, rows):
    saved.write_bytes(saved.read_bytes().replace(b"checkpoint 1\n", b"checkpoint 27\n", 1))
    with pytest.raises(CheckpointError, match="checkpoint of version 27, this is version 1"):
        resume(saved, rows)


def test_another_file(path, rows):
    path.write_bytes(b"PK\3\4 something else")
    with pytest.raises(CheckpointError, match="not an unpooled checkpoint"):
        resume(path, rows)


def test_a_folder(tmp_path, rows):
    with pytest.raises(CheckpointError, match=os.strerror(errno.EISDIR)):
        resume(tmp_path, rows)


def test_another_message_in_a_checkpoints_clothes(path, rows):
    body = codec.encode(Moments(*np.ones((3, 1))))
    path.write_bytes(b"unpooled checkpoint 1\n" + hashlib.sha256(body).digest() + body)
    with pytest.raises(CheckpointError, match=r"expected Checkpoint, got Moments"):
        resume(path, rows)


@pytest.mark.parametrize(
    "other", [Lloyd(k=3), replace(ALGORITHM, k=4), replace(ALGORITHM, momentum=0.6), Restarts(ALGORITHM, 2)]
)
def test_another_algorithm_or_other_settings(saved, rows, other):
    with pytest.raises(CheckpointError, match="another algorithm or other settings"):
        resume(saved, rows, other)


def test_another_start_is_another_setting(path, rows):
    init = np.arange(6.0).reshape(3, 2)
    run(Lloyd(k=3, init=init), Simulation.from_rows(rows), checkpoint=path)
    with pytest.raises(CheckpointError, match="other settings"):
        run(Lloyd(k=3, init=init + 1), Simulation.from_rows(rows), checkpoint=path)


def test_another_seed(saved, rows):
    with pytest.raises(CheckpointError, match="checkpoint of seed 3, this run has seed 4"):
        resume(saved, rows, seed=4)


def test_other_sites(saved, rows):
    fewer = {s: X for s, X in rows.items() if s != "site-1"}
    with pytest.raises(CheckpointError, match="checkpoint of 4 sites, this run has 3; not in both: site-1"):
        resume(saved, fewer)
    with pytest.raises(CheckpointError, match="not in both: site-1, site-x"):
        resume(saved, {**fewer, "site-x": rows["site-1"]})


def test_what_is_refused_stays_as_it_was(saved, rows):
    before = saved.read_bytes()
    with pytest.raises(CheckpointError):
        resume(saved, rows, seed=4)
    assert saved.read_bytes() == before


def test_a_missing_folder_is_named_before_anything_runs(rows, tmp_path):
    asked = []

    class Counting(Simulation):
        def ask(self, request_id, asks):
            asked.append(request_id)
            return super().ask(request_id, asks)

    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        run(ALGORITHM, Counting.from_rows(rows), checkpoint=tmp_path / "nowhere" / "run")
    assert asked == []


# ---------------------------------------------------------------- atomic


def test_a_write_that_fails_leaves_the_old_file_and_nothing_else(saved, monkeypatch):
    before = saved.read_bytes()

    def full(source, target):
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="disk full"):
        checkpoint.write_atomically(saved, b"new")
    assert saved.read_bytes() == before
    assert list(saved.parent.iterdir()) == [saved]


PROGRAM = """
import signal
import sys
import numpy as np
from pathlib import Path
from unpooled.algorithms import DWF
from unpooled.federation import Simulation
from unpooled.protocol import run
from unpooled.protocol import codec

rng = np.random.default_rng(7)
rows = {f"s{i}": rng.normal(size=(40, 3)) + rng.integers(4, size=(40, 1)) for i in range(5)}
algorithm = DWF(k=4, learning_rate=0.05, momentum=0.8, local_steps=2, tol=0.0, max_rounds=400, window=10_000,
                participation=3)
reported = []
def tell(record):
    reported.append(record.round)
    print(record.round, flush=True)
    if len(reported) == int(sys.argv[3]):
        signal.pause()  # until it is killed
done = run(algorithm, Simulation.from_rows(rows), seed=11, checkpoint=sys.argv[1] or None, progress=tell)
history = tuple((r.movement, r.inertia, r.numbers) for r in done.history)
Path(sys.argv[2]).write_bytes(codec.encode((done.state, history)))
"""


def start(checkpoint_at: Path | str, result: Path, most: int = 0) -> subprocess.Popen[str]:
    """A run in a process of its own; it waits after ``most`` rounds, if given."""
    command = [sys.executable, "-c", PROGRAM, str(checkpoint_at), str(result), str(most)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_killed_again_and_again_it_ends_with_the_same_bits(tmp_path):
    path, result, undisturbed = tmp_path / "run", tmp_path / "result", tmp_path / "undisturbed"
    straight = start("", undisturbed)
    reached = []
    for more in (1, 30, 77):
        process = start(path, result, more + 20)
        reported = [int(process.stdout.readline()) for _ in range(more)]
        process.send_signal(signal.SIGKILL)  # while it runs on and writes
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        reached.append(checkpoint.load(path).round)
        assert reached[-1] >= reported[-1]  # at least the last round that was reported is on disk, whole
    assert reached == sorted(set(reached))
    assert reached[-1] < 400
    process = start(path, result)
    first = int(process.stdout.readline())
    process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert first == reached[-1] + 1
    straight.stdout.read()
    straight.stdout.close()
    assert straight.wait() == 0
    assert result.read_bytes() == undisturbed.read_bytes()
