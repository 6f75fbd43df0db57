"""``unpooled certify``: how far the clustering of a run is from the best possible."""

import json
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from pathlib import Path
from typing import Annotated

import typer

from unpooled.errors import BadInput


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
    if result.agreement.preparation.keeps_holes:
        raise BadInput(
            "the run kept missing cells, and a certificate needs rows without them: fit with --missing fill "
            "or drop"
        )
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
            name: getattr(proof, name)
            for name in ("inertia", "given_inertia", "lower_bound", "gap", "given_gap", "condition", "proved")
        }
        typer.echo(
            json.dumps({**certificate, "k": k, "rows": n, "parts": proof.parts, "seconds": proof.seconds})
        )
        return
    typer.echo(f"{what}: inertia {proof.given_inertia:.6g} in prepared columns.")
    below = f"no {k} centres go below {_digits(proof.lower_bound, ROUND_FLOOR)}"
    distance = f"at most {_digits(100 * proof.given_gap, ROUND_CEILING, 2)} % from the best possible"
    if proof.given_gap <= tolerance:
        typer.echo(
            f"Proved: {below}; this clustering is within {100 * tolerance:g} % of the best possible "
            f"({proof.condition})."
        )
    elif proof.proved:
        typer.echo(
            f"Proved: {below}; the search found centres of inertia {proof.inertia:.6g}, within "
            f"{100 * tolerance:g} % of the best possible ({proof.condition}). This clustering is {distance}."
        )
    else:
        typer.echo(
            f"Not closed in {time_limit:g} seconds: {below}, so this clustering is {distance} "
            f"({proof.condition}). "
            "A tighter proof is out of reach at this size, or needs a longer --time-limit."
        )


def _digits(value: float, rounding: str, digits: int = 6) -> str:
    """The number in so many digits, rounded to the safe side.

    >>> _digits(3.5799996, ROUND_FLOOR), _digits(0.0101, ROUND_CEILING, 2), _digits(0.0, ROUND_FLOOR)
    ('3.57999', '0.011', '0')
    """
    return f"{float(Context(digits, rounding).create_decimal(value)):.{digits}g}"
