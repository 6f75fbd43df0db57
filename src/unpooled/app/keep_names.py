"""Names of columns and clusters in later runs: from a file, or from an earlier run whose clusters match."""

from dataclasses import replace
from pathlib import Path

from unpooled.app.match_clusters import match_clusters
from unpooled.app.result import ClusterResult, JobResult
from unpooled.app.result_names import Names
from unpooled.app.run_folder import RunFolder
from unpooled.errors import InputError
from unpooled.html.formatting import cluster_letter


def read_names(path: Path) -> Names | ClusterResult:
    """Return the names in a file, or the earlier run in a folder; InputError if a run cannot begin with them.

    Clusters have names only after a run: a file names columns.
    """
    if path.is_dir():
        return RunFolder(path).load_result()
    names = Names.read(path)
    if names.clusters:
        raise InputError(
            f"{path}: names clusters, and a run has none before it ends. Use unpooled names RUN {path} after "
            "the run, and --names RUN for later runs: they keep the names of clusters that match."
        )
    return names


def with_names(result: JobResult, given: Names | ClusterResult) -> JobResult:
    """Return the result with names: those given, or those of the clusters of an earlier run that match."""
    if isinstance(given, Names):
        return replace(result, names=given)
    if not isinstance(result, ClusterResult):
        return replace(result, names=Names(given.names.columns))
    clusters = {
        cluster_letter(match.new): given.names.clusters[cluster_letter(match.old)]
        for match in match_clusters(given, result).matched
        if cluster_letter(match.old) in given.names.clusters
    }
    return replace(result, names=Names(given.names.columns, clusters))


def check_names(result: ClusterResult, names: Names) -> None:
    """Raise InputError for names of columns or clusters that a result does not have."""
    columns = {*result.agreement.columns, *(o.column for o in result.outcomes)}
    shown = {cluster_letter(j) for j in range(result.k)}
    for section, keys, known in (("column", names.columns, columns), ("cluster", names.clusters, shown)):
        if odd := [key for key in keys if key not in known]:
            raise InputError(f"the run has no {section} {odd[0]}; it has {', '.join(sorted(known))}")
