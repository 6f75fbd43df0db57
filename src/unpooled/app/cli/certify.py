"""``unpooled certify``: how far the clustering of a run is from the best possible."""

import json
from decimal import ROUND_FLOOR, Context
from pathlib import Path
from typing import Annotated

import typer

Effort = Annotated[
    str, typer.Option(help="Time against tightness: quick, normal or thorough; each repeats bit for bit.")
]


def certify(
    folder: Annotated[Path, typer.Argument(help="The folder of a run.")],
    effort: Effort = "normal",
    time_limit: Annotated[
        float | None,
        typer.Option(help="Seconds for the search that follows for few rows; a bound cut by it may differ."),
    ] = None,
    tolerance: Annotated[float, typer.Option(help="Stop when the gap is below this share.")] = 1e-4,
    as_json: Annotated[bool, typer.Option("--json", help="Print the certificate as JSON.")] = False,
) -> None:
    """Prove how much better another clustering could be, at most.

    The files are read again and nothing is suppressed: the certificate is about all their rows, or about the
    copies if the run was one on copies.
    """
    from unpooled.app.certify_result import certificate_of, words
    from unpooled.app.run_folder import RunFolder
    from unpooled.app.run_job import progress

    kept = RunFolder(folder)
    result = kept.load_result()
    kept.check_unchanged(result.job)
    with progress(quiet=as_json) as observer:
        proof = certificate_of(
            result, effort, tolerance=tolerance, time_limit=time_limit, report=observer.activity
        )
    n, k = result.agreement.used, result.k
    if as_json:
        names = "inertia given_inertia lower_bound gap given_gap condition proved boxes seconds sites missing"
        certificate = {name: getattr(proof, name) for name in names.split()}
        typer.echo(json.dumps({**certificate, "sentence": words(proof, result), "k": k, "rows": n}))
        return
    where = "in the copies of" if result.job.protect == "summary" else "at"
    typer.echo(
        f"k = {k}, {n:,.0f} rows {where} {len(proof.sites)} sites: inertia {proof.input_inertia:.6g} in "
        "prepared columns."
    )
    typer.echo(words(proof, result))
    typer.echo(f"Proved: no {k} centres go below {_below(proof.lower_bound)} ({proof.condition}).")
    if proof.input_gap <= tolerance:
        typer.echo(f"This clustering is within {100 * tolerance:g} % of the best possible.")
    elif proof.inertia < proof.input_inertia:
        typer.echo(f"The search found better centres, of inertia {proof.inertia:.6g}.")
    elif effort != "thorough":
        typer.echo("A tighter bound may be found with --effort thorough.")


def _below(value: float) -> str:
    """The number in six digits, rounded down.

    >>> _below(3.5799996), _below(0.0)
    ('3.57999', '0')
    """
    return f"{float(Context(6, ROUND_FLOOR).create_decimal(value)):.6g}"
