"""The command line. Each command imports what it needs when it runs, so that ``unpooled --help`` is fast.

Exit codes: 0 for success, 1 for an error with one line on stderr, 2 for wrong usage; ``status`` has more.
"""

from unpooled.app.cli import (  # noqa: F401  (these modules add commands to site and federation)
    export_command,
    federation_run,
    join_commands,
    receive_commands,
    review_commands,
    status_commands,
    table_commands,
)
from unpooled.app.cli import options as o
from unpooled.app.cli.commands import Commands, OnLinux, WithAdvancedOptions, in_order
from unpooled.app.cli.compare_command import compare
from unpooled.app.cli.federation_commands import federation
from unpooled.app.cli.fit_command import fit, resume
from unpooled.app.cli.research_commands import example, methods
from unpooled.app.cli.result_commands import certify, compare_runs, export, names, predict, release
from unpooled.app.cli.site_commands import site

_ANALYSE = ("fit", "predict", "export", "names", "compare-runs", "certify", "resume", "release")
_RESEARCH = ("compare", "methods", "example")

app = Commands(
    cls=in_order(*_ANALYSE, "site", "federation", *_RESEARCH),
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    help="Cluster data that cannot be pooled.",
    epilog="Begin with: unpooled example heart, then "
    "unpooled fit heart_disease.csv --site-column site --exclude num --categorical cp,restecg,slope,thal "
    "--na chol=0 -k 2..6 --report report.html",
)
app.callback()(o.version)

app.command(rich_help_panel="Analyse", cls=WithAdvancedOptions)(fit)
app.command(rich_help_panel="Analyse")(predict)
app.command(rich_help_panel="Analyse")(export)
app.command(rich_help_panel="Analyse")(names)
app.command(rich_help_panel="Analyse")(compare_runs)
app.command(rich_help_panel="Analyse")(certify)
app.command(rich_help_panel="Analyse")(resume)
app.command(rich_help_panel="Analyse", cls=OnLinux)(release)
_SITE = (
    "init",
    "policy",
    "summarize",
    "review",
    "approve",
    "decline",
    "export",
    "join",
    "start",
    "stop",
    "answer",
    "confirm",
    "status",
)
_RECORDS = ("log", "dpia", "keys", "erase", "prune", "backup", "restore")
app.add_typer(site, name="site", cls=in_order(*_SITE, *_RECORDS), rich_help_panel="Site")
_BY_FILES = ("key", "receive")
_FEDERATION = (
    *_BY_FILES,
    "init",
    "invite",
    "admit",
    "serve",
    "run",
    "watch",
    "status",
    "remove",
    "export-job",
)
app.add_typer(federation, name="federation", cls=in_order(*_FEDERATION), rich_help_panel="Coordinate")
app.command(rich_help_panel="Research", cls=WithAdvancedOptions)(compare)
app.command(rich_help_panel="Research")(methods)
app.command(rich_help_panel="Research")(example)
