"""``unpooled.cluster``: the job of ``unpooled fit`` from Python, on tables in memory, files or databases."""

import sys
import warnings
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Unpack

from unpooled.app.cluster_arguments import (
    ClusterArguments,
    check_names_of,
    check_threads,
    documents_options,
    ks_of,
    named_in_python,
    named_sites,
)
from unpooled.app.job import Job
from unpooled.app.keep_names import read_names
from unpooled.app.model import Labels, Model, unknown_categories
from unpooled.app.outputs import check, run_output
from unpooled.app.private_result import PrivateResult
from unpooled.app.progress import progress as line_of_progress
from unpooled.app.result import ClusterResult, JobResult
from unpooled.app.run_folder import RunFolder
from unpooled.app.run_job import execute
from unpooled.app.summary_file_job import summary_files_of
from unpooled.data import PreparationOptions, Table
from unpooled.data.readers import Reading, read_table
from unpooled.errors import InputError
from unpooled.html.formatting import cluster_letter
from unpooled.privacy.microaggregation import SummarySettings
from unpooled.storage.atomic_files import write_atomically
from unpooled.typing import FloatArray, IntArray

_ONE_TABLE = "data"  # the name of a table that is not in a mapping


@named_in_python
@documents_options
def cluster(
    data: object,
    n_clusters: int | str | Iterable[int] = "auto",
    *,
    out: str | Path | None = None,
    overwrite: bool = False,
    verbose: bool = False,
    n_threads: int | None = None,
    **options: Unpack[ClusterArguments],
) -> "Result":
    """Cluster tables as if they were pooled; every entry of ``data`` is a site, under its name.

    The job is that of ``unpooled fit``: the model, the history and the report have the same bytes as from
    files with the same rows.

    Parameters
    ----------
    data : mapping or table
        The rows of each site, by its name: a DataFrame of pandas or polars, an Arrow table, anything with
        Arrow's stream interface, a 2-D array, a sparse matrix of scipy, the name of a file, or a
        ``Database``. One table instead of a mapping is split by ``site_column``.
    n_clusters : int, range, list or text
        The number of clusters, or several to compare: ``3``, ``range(2, 7)``, ``"2..6"``, ``"auto"``.
    **options
    out : path or None
        The folder for the results; it must be empty, or ``overwrite`` must be True.
    overwrite : bool
        Whether results in ``out`` may be replaced.
    verbose : bool
        Show a line of progress if the standard error is a terminal.
    n_threads : int or None
        Threads for simulated sites; None takes all cores.

    Returns
    -------
    Result
        The clustering with its tables, report and model.

    Raises
    ------
    InputError
        If the data or an argument cannot be used.

    Examples
    --------
    >>> import numpy as np
    >>> from unpooled import cluster
    >>> tables = {"north": np.array([[0.0], [9.0], [0.1]]), "south": np.array([[0.2], [9.2], [9.1]])}
    >>> cluster(tables, n_clusters=2).k
    2
    """
    sites = data if isinstance(data, Mapping) else {_ONE_TABLE: data}
    check_names_of(options)
    if not isinstance(data, Mapping) and options.get("site_column") is None:
        raise InputError(
            'one table is one site. Name it, {"north": table}, or pass site_column="hospital" to split it'
        )
    if not sites:
        raise InputError('data has no site. Pass a table by site, {"north": table, "south": ...}')
    sites = named_sites(sites)
    check_threads(n_threads)
    if options.get("names"):
        read_names(Path(str(options["names"])))
    job = Job.from_options(
        tuple(sites),
        ks_of(n_clusters),
        Reading.from_arguments(options),
        SummarySettings.from_arguments(options),
        PreparationOptions.from_arguments(options),
        **Job.values_from_arguments(options),
        tables=sites,
    )
    folder = RunFolder(Path(out)) if out is not None else None
    if folder is not None:
        named = [options["names"]] if options.get("names") else []
        read = [Path(given) for given in [*sites.values(), *named] if isinstance(given, str | Path)]
        check(run_output(folder), inputs=read, overwrite=overwrite)
    with line_of_progress(quiet=not verbose) as observer:
        found = execute(job, folder, observer, new=True, threads=n_threads)
    return Result(found, _library(sites.values()), data)


def _library(tables: Iterable[Any]) -> str:
    """The library whose tables a result gives: that of the first table that came from one."""
    for table in tables:
        home = type(table).__module__.partition(".")[0]
        if home in ("pandas", "polars", "pyarrow"):
            return home
    return "pandas" if "pandas" in sys.modules else "polars" if "polars" in sys.modules else "pyarrow"


class Result:
    """A finished clustering: its answer, tables for programs, the report for people, the model for new rows.

    ``cluster`` returns it. Tables come in the caller's own library: pandas, polars or pyarrow. A cluster has
    a label, which counts from 0, the largest cluster, and a letter: A for label 0.

    Parameters
    ----------
    found : JobResult
        All that is known of the run.
    library : str
        The library of the tables.
    data : mapping or table
        The rows that were clustered, as ``cluster`` was given them.

    Examples
    --------
    >>> import numpy as np
    >>> result = cluster({"north": np.array([[0.0], [0.2], [9.0]])}, n_clusters=2)
    >>> result.labels["north"].tolist()
    [0, 0, 1]
    """

    def __init__(self, found: JobResult, library: str, data: object) -> None:
        self.job_result = found  # all that is known of the run
        self._library = library
        self._data = data

    @property
    def k(self) -> int:
        """The number of clusters."""
        return len(self.model.centers)

    @property
    def headline(self) -> str:
        """The answer in two sentences, and the certificate in words where one was asked for."""
        return " ".join(filter(None, [*self.job_result.headline(), self.job_result.certified]))

    @property
    def model(self) -> Model:
        """The preparation and the centres: all that assigns a row to a cluster."""
        return self.job_result.model()

    @property
    def labels(self) -> Any:
        """The label of every row of the data: (n,) from 0, the largest cluster; -1 for rows left out.

        One array if the data were one table, else a dictionary with an array for each site.
        """
        found = {name: assigned.labels for name, assigned in self._assigned.items()}
        return found if isinstance(self._data, Mapping) else found[_ONE_TABLE]

    @property
    def centers(self) -> Any:
        """A table: the centre of every cluster, with columns in their own units, and shares of categories."""
        columns: dict[str, list[Any]] = {"label": list(range(self.k)), "cluster": self._letters}
        if isinstance(self.job_result, PrivateResult):
            found = self.job_result
            names, centers = found.method.columns, found.run.state.centers[found.order]
        else:
            model = self.model
            outputs = model.preparation.outputs
            names = tuple(f"{column} = {category}" if category else column for column, category in outputs)
            centers = model.preparation.undo(model.centers)
        for name, values in zip(names, centers.T.tolist(), strict=True):
            columns[_free(name, columns, "column")] = values
        return self._table(columns)

    @property
    def sizes(self) -> Any:
        """A table: every cluster with its rows (or people), its share, and its rows at every site."""
        model, found = self.model, self.job_result
        total = max(float(model.sizes.sum()), 1.0)
        unit = found.unit if isinstance(found, ClusterResult) else "rows"
        columns: dict[str, list[Any]] = {
            "label": list(range(self.k)),
            "cluster": self._letters,
            unit: [float(size) for size in model.sizes],
            "share": [float(size) / total for size in model.sizes],
        }
        if isinstance(found, ClusterResult) and not found.job.aggregate_only:
            for i, site in enumerate(found.description.sites):
                columns[_free(site, columns, "site")] = [found.size_at(i, j) for j in range(self.k)]
        return self._table(columns)

    @property
    def profile(self) -> Any:
        """A table: every cluster and column (or category), the most distinctive first, in its own unit.

        ``value`` is the cluster's mean or share, ``overall`` that of all rows, ``effect`` their difference in
        standard deviations of all rows. With differential privacy there are centres only.
        """
        if isinstance(self.job_result, PrivateResult):
            state, order = self.job_result.run.state, self.job_result.order
            names = self.job_result.method.columns
            cells = [
                (i, cluster_letter(i), name, float(state.centers[j][c]))
                for i, j in enumerate(order)
                for c, name in enumerate(names)
            ]
            heads = ("label", "cluster", "column", "value")
            return self._table(dict(zip(heads, map(list, zip(*cells, strict=True)), strict=True)))
        assert isinstance(self.job_result, ClusterResult)
        traits = [(j, t) for j in range(self.k) for t in self.job_result.traits(j)]
        return self._table(
            {
                "label": [j for j, _ in traits],
                "cluster": [cluster_letter(j) for j, _ in traits],
                "column": [t.column for _, t in traits],
                "category": [t.category or None for _, t in traits],
                **{f: [getattr(t, f) for _, t in traits] for f in ("value", "spread", "overall", "effect")},
            }
        )

    @named_in_python
    def predict(self, table: object) -> IntArray:
        """Return the label of every row of a new table.

        Parameters
        ----------
        table : table
            Rows with the columns of the model, of any kind that ``cluster`` takes.

        Returns
        -------
        ndarray of int, of shape (n,)
            Labels from 0, the largest cluster; -1 for rows that are left out.
        """
        rows = self._read(table, "new rows")
        for sentence in unknown_categories(self.model, rows):
            warnings.warn(sentence, stacklevel=3)
        return self._assign(rows).labels

    @named_in_python
    def memberships(self, table: object) -> FloatArray:
        """Return the memberships (n, k) of the rows of a new table in fuzzy clusters; nan for rows left out.

        Parameters
        ----------
        table : object
            The rows, as for ``predict``.

        Returns
        -------
        numpy.ndarray
            A row for every row of the table, which sums to 1.

        Raises
        ------
        InputError
            If the method was not ``"fuzzy"``.
        """
        return self.model.memberships(self._read(table, "new rows"))

    @named_in_python
    def report(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write the report, one HTML file that opens offline.

        Parameters
        ----------
        path : path
            The file to write.
        overwrite : bool
            Whether an existing file may be replaced.

        Returns
        -------
        Path
            The file.

        Raises
        ------
        InputError
            If the run was private, or the file exists already.
        """
        page, target = self.job_result.report(), Path(path)
        if page is None:
            raise InputError("there is no report with epsilon: it would need sums without noise")
        tables = (self.job_result.job.tables or {}).values()
        check(target, inputs=[t for t in tables if isinstance(t, str | Path)], overwrite=overwrite)
        write_atomically(target, page.encode(), shared=True)
        return target

    def to_dict(self) -> dict[str, Any]:
        """Return the result for programs, as ``unpooled fit --json`` prints it."""
        return self.job_result.to_dict()

    def to_frame(self) -> Any:
        """Return a table of all rows that were clustered: site, row, label, cluster and distance.

        ``row`` is the position of the row in its table, from 0; ``distance`` is that to the centre in
        prepared columns. If the data were one table there is no column ``site``.
        """
        columns: dict[str, list[Any]] = {n: [] for n in ("site", "row", "label", "cluster", "distance")}
        for name, (labels, distances) in self._assigned.items():
            columns["site"] += [name] * len(labels)
            columns["row"] += range(len(labels))
            columns["label"] += labels.tolist()
            columns["cluster"] += [cluster_letter(j) if j >= 0 else None for j in labels.tolist()]
            columns["distance"] += distances.tolist()
        if not isinstance(self._data, Mapping):
            del columns["site"]
        return self._table(columns)

    @cached_property
    def _assigned(self) -> dict[str, Labels]:
        """The label and the distance of every row of the data, by site."""
        job = self.job_result.job
        if files := summary_files_of(job):
            raise InputError(f"{files[0]} holds groups of people, and labels are of rows: the site has them")
        tables = (job.tables or {}).items()
        return {name: self._assign(self._read(table, name)) for name, table in tables}

    def _read(self, table: object, name: str) -> Table:
        return read_table(table, self.model.reading(self.job_result.job.reading), name)

    def _assign(self, rows: Table) -> Labels:
        options = self.job_result.job.preparation_options
        return self.model.predict(rows, lacking=options.columns == "any")

    @property
    def _letters(self) -> list[str]:
        return [cluster_letter(j) for j in range(self.k)]

    def _table(self, columns: dict[str, list[Any]]) -> Any:
        if self._library == "pandas":
            import pandas

            return pandas.DataFrame(columns)
        if self._library == "polars":
            import polars

            return polars.DataFrame(columns)
        import pyarrow

        return pyarrow.table(columns)

    def _rows(self) -> tuple[list[str], list[list[str]]]:
        """The head and the rows of the small table that a terminal or a notebook shows."""
        if isinstance(self.job_result, PrivateResult):
            return ["cluster", "rows", *self.job_result.method.columns], self.job_result.rows()
        assert isinstance(self.job_result, ClusterResult)
        sizes = self.job_result.sizes
        apart = [
            [cluster_letter(j), f"{sizes[j]:.0f}", self.job_result.distinctive_traits(j)]
            for j in range(self.k)
        ]
        return ["cluster", self.job_result.unit, "what sets it apart"], apart

    @property
    def _warnings(self) -> tuple[str, ...]:
        return self.job_result.warnings if isinstance(self.job_result, ClusterResult) else ()

    def __repr__(self) -> str:
        head, rows = self._rows()
        warnings = [f"warning: {text}" for text in self._warnings]
        return "\n".join([self.headline, *("  ".join(row) for row in [head, *rows]), *warnings])

    def _repr_html_(self) -> str:
        from unpooled.html.rendering import render

        head, rows = self._rows()
        left = (0,) if isinstance(self.job_result, PrivateResult) else (0, 2)
        return render(
            "notebook.html",
            headline=self.headline,
            head=head,
            rows=rows,
            left=left,
            warnings=self._warnings,
        )


def _free(name: str, columns: Mapping[str, Any], kind: str) -> str:
    """Return a name for a column of a table: with its kind before it if the name is taken."""
    return name if name not in columns else f"{kind} {name}"
