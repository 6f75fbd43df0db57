"""``unpooled certify``: how far the clustering of a run is from the best possible."""

import json
from pathlib import Path
from typing import Annotated

import typer


def certify(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    time_limit: Annotated[
        float, typer.Option(help="Seconds; after that the best bound so far is given.")
    ] = 60.0,
    tolerance: Annotated[float, typer.Option(help="Stop when the gap is below this share.")] = 1e-4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Prove how far a clustering is from the best possible; for some dozen rows per site.

    The files are read again and nothing is suppressed: the certificate is about all their rows, or about the
    copies if the run was one on copies.
    """
    from dataclasses import replace

    from unpooled.app.run_folder import RunFolder
    from unpooled.optimum.certify import certify as prove

    kept = RunFolder(folder)
    result = kept.load_result()
    kept.check_unchanged(result.job)
    job = result.job if result.job.protect == "copy" else replace(result.job, protect="none")
    federation = job.federation(threads=1)
    proof = prove(
        federation,
        result.description.centers,
        view=result.agreement.preparation,
        tolerance=tolerance,
        time_limit=time_limit,
    )
    n, k = result.agreement.used, result.k
    where = "in the copies of" if job.protect == "copy" else "at"
    what = f"k = {k}, {n:,.0f} rows {where} {len(federation.sites)} sites"
    if as_json:
        certificate = {
            name: getattr(proof, name) for name in ("inertia", "lower_bound", "gap", "condition", "proved")
        }
        typer.echo(
            json.dumps({**certificate, "k": k, "rows": n, "parts": proof.parts, "seconds": proof.seconds})
        )
        return
    typer.echo(f"{what}: inertia {proof.inertia:.6g} in prepared columns.")
    if proof.proved:
        typer.echo(
            f"Proved: no {k} centres go below {proof.lower_bound:.6g}; this clustering is within "
            f"{100 * tolerance:g} % of the best possible ({proof.condition})."
        )
    else:
        typer.echo(
            f"Not closed in {time_limit:g} seconds: no {k} centres go below {proof.lower_bound:.6g}, so this "
            f"clustering is at most {100 * proof.gap:.2g} % from the best possible ({proof.condition}). "
            "A tighter proof is out of reach at this size, or needs a longer --time-limit."
        )
