"""Between processes on this machine: seconds per exchange, and NVFLARE's own k-means on the same rows."""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import pairwise_distances_argmin_min
from tests.machines.network import Network

from unpooled.app.job import Job, RemoteRunOptions
from unpooled.app.run_remote import RemoteRun
from unpooled.data import PreparationOptions
from unpooled.federation.progress_file import ProgressFile
from unpooled.federation.provisioning.federation_folder import FederationFolder, new_run_name
from unpooled.federation.provisioning.follow_run import follow
from unpooled.protocol.run_loop import run_from_checkpoint

K, D, ROWS = 20, 784, 400  # clusters, columns, rows per site
_RECIPE_ROUNDS = 10

_CLIENT = """
import argparse
import numpy as np
import nvflare.client as flare
from sklearn.cluster import MiniBatchKMeans, kmeans_plusplus
parser = argparse.ArgumentParser()
parser.add_argument("--folder")
parser.add_argument("--k", type=int)
args = parser.parse_args()
flare.init()
X = np.load(f"{args.folder}/{flare.get_site_name()}.npy")
while flare.is_running():
    model = flare.receive()
    if model is None:
        break
    if model.current_round == 0:  # rows of the site, as they are
        params = {"center": kmeans_plusplus(X, args.k, random_state=0)[0], "count": np.zeros(args.k)}
    else:
        start = model.params["center"]
        local = MiniBatchKMeans(args.k, init=start, n_init=1, max_iter=1, batch_size=len(X), random_state=0,
                                reassignment_ratio=0).fit(X)
        params = {"center": local.cluster_centers_, "count": local._counts}
        np.save(f"{args.folder}/centers.npy", start)
    flare.send(flare.FLModel(params=params, params_type=flare.ParamsType.FULL, metrics={"metrics": 0.0}))
"""

_RECIPE = """
import sys
from nvflare.app_opt.sklearn.recipes.kmeans import KMeansFedAvgRecipe
from nvflare.recipe import SimEnv
folder, sites, k, rounds = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
recipe = KMeansFedAvgRecipe(min_clients=sites, num_rounds=rounds, n_clusters=k,
                            train_script=f"{folder}/client.py", train_args=f"--folder {folder} --k {k}")
recipe.execute(SimEnv(num_clients=sites, workspace_root=f"{folder}/sim"))
"""


def write_rows(folder: Path, sites: int) -> dict[str, Path]:
    """A file per site, of overlapping clusters that every site has its own share of."""
    rng = np.random.default_rng(0)
    centers = rng.normal(0, 0.5, (K, D))
    files = {}
    for i in range(1, sites + 1):
        shares = rng.dirichlet(np.ones(K))
        X = centers[rng.choice(K, ROWS, p=shares)] + rng.standard_normal((ROWS, D))
        files[f"site-{i}"] = folder / f"site-{i}.npy"
        np.save(files[f"site-{i}"], X)
    return files


def inertia(files: dict[str, Path], centers: np.ndarray) -> float:
    X = np.concatenate([np.load(path) for path in files.values()])
    return float((pairwise_distances_argmin_min(X, centers)[1] ** 2).sum())


def ours(folder: Path, files: dict[str, Path]) -> tuple[list[float], float, float]:
    """Seconds of every exchange, seconds of the run, inertia."""
    network = Network(folder / "network", files)
    try:
        network.up()
        federation = FederationFolder.read(network.home)
        remote = RemoteRunOptions(str(network.home), new_run_name(), federation.sites)
        job = Job(
            (),
            (K,),
            preparation_options=PreparationOptions(scale="none"),
            n_init=1,
            min_cluster_size=1,
            remote=remote,
        )
        prepared = RemoteRun.from_job(job, federation)
        begin = time.perf_counter()
        checkpoint = follow(federation, prepared.task, prepared.terms, patience=60.0)
        took = time.perf_counter() - begin
        seconds = ProgressFile(checkpoint.parent).read()["seconds"]
        centers = run_from_checkpoint(checkpoint, job.algorithm).state.centers
    finally:
        network.close()
    return seconds, took, inertia(files, centers)


def recipe(folder: Path, files: dict[str, Path]) -> tuple[float, float] | None:
    """Seconds of the run and inertia of NVFLARE's recipe; None if it does not run."""
    (folder / "client.py").write_text(_CLIENT)
    words = [sys.executable, "-c", _RECIPE, folder, len(files), K, _RECIPE_ROUNDS]
    begin = time.perf_counter()
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=400, cwd=folder)
    if done.returncode:
        print(f"    NVFLARE's recipe failed here: {done.stderr.strip().splitlines()[-1]}", flush=True)
        return None
    return time.perf_counter() - begin, inertia(files, np.load(folder / "centers.npy"))


def main() -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    print(str(__doc__).splitlines()[0])
    for sites, target in ((3, 0.1), (10, 0.3)):
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            (folder / "network").mkdir()
            files = write_rows(folder, sites)
            seconds, took, own_inertia = ours(folder, files)
            what = f"seconds per exchange, K {K}, d {D}, {sites} sites, median of {len(seconds)}"
            print(
                f"  {what:60} target at most {target:5.2f}   measured {statistics.median(seconds):5.3f}",
                flush=True,
            )
            print(f"    unpooled: {took:.1f} s, inertia {own_inertia:.0f}, rows sent 0")
            theirs = recipe(folder, files) if sites == 3 else None
            if theirs is not None:
                print(
                    f"    NVFLARE's recipe: {theirs[0]:.1f} s for {_RECIPE_ROUNDS} rounds in its simulator, "
                    f"inertia {theirs[1]:.0f}, rows sent {K * sites} (in round 0)",
                    flush=True,
                )


if __name__ == "__main__":
    main()
