"""The errors of unpooled.

::

    UnpooledError
    ├── InputError                 input that cannot be used (also a ValueError)
    │   ├── SchemaMismatchError    sites do not have the same columns; carries the differences as a table
    │   └── TooFewPeopleError      a site has fewer people than a group of its summary table needs
    ├── CodecError                 bytes that are not a message of unpooled (also a ValueError)
    ├── CheckpointError            a checkpoint that is damaged, or of another run or version (a ValueError)
    ├── ForecastRefusedError       too much noise for so few rows: differential privacy would find no clusters
    ├── MissingExtraError          a package is not installed; names the extra that has it (an ImportError)
    ├── ModelError                 a saved model that is damaged or of another version (also a ValueError)
    ├── PolicyError                a site's policy that cannot be read; names file, section and key
    ├── LedgerError                a site's records that are damaged, or in use by another process
    ├── NotApprovedError           a site's summary table that nobody has approved yet
    ├── ReplyError                 a reply that no honest site could send; the round goes on without it
    ├── TooFewAnswersError         fewer sites answered than the quorum demands
    ├── EngineError                the engine between machines failed
    │   └── EngineUnreachableError its server cannot be reached, or lost the run; another try may succeed
    ├── SiteFailedError            a question failed at a site; names the site, the round and the question
    └── QueryRefusedError          a site refuses a question, with a reason that others may read
"""

# The modules that extras install. A command that lacks one prints install_hint instead of a traceback.
EXTRAS = {
    "adbc_driver_manager": "postgresql",
    "adbc_driver_postgresql": "postgresql",
    "aiohttp": "pages",
    "cryptography": "secure",
    "distributed": "dask",
    "duckdb": "duckdb",
    "matplotlib": "figures",
    "nvflare": "nvflare",
    "onnx": "onnx",
    "onnxruntime": "onnx",
    "openpyxl": "xlsx",
    "pyarrow": "parquet",
}


def install_hint(extra: str) -> str:
    """Return the sentence that says how to install an extra of unpooled.

    >>> install_hint("secure")
    "Install it with pip install '.[secure]' in the folder of unpooled."
    """
    return f"Install it with pip install '.[{extra}]' in the folder of unpooled."


class UnpooledError(Exception):
    """The base class of all errors that unpooled raises on purpose."""


class InputError(UnpooledError, ValueError):
    """Input that cannot be used; the message names what, where, and both numbers."""


class SchemaMismatchError(InputError):
    """Sites do not have the same columns. ``table``: a heading, then each column that differs, by site."""

    def __init__(self, message: str, table: tuple[tuple[str, ...], ...] = ()) -> None:
        super().__init__(message)
        self.table = table


class TooFewPeopleError(InputError):
    """A site has fewer people than a group of its summary table needs, so it cannot answer."""


class CodecError(UnpooledError, ValueError):
    """Bytes that are not a message of unpooled, or a message that does not fit its type."""


class CheckpointError(UnpooledError, ValueError):
    """A checkpoint that is truncated, altered, or belongs to another run or version."""


class ForecastRefusedError(UnpooledError, ValueError):
    """A private clustering that noise would dominate; names an epsilon, or a number of rows, to use."""


class MissingExtraError(UnpooledError, ImportError):
    """A required package is not installed; the message names the extra that has it."""


class ModelError(UnpooledError, ValueError):
    """A saved model, or the folder of a run, that is damaged, of another program, or of another version."""


class PolicyError(UnpooledError, ValueError):
    """A site's policy that cannot be read or contradicts itself."""


class LedgerError(UnpooledError, RuntimeError):
    """A site's ledger or log that is damaged, in use by another process, or belongs to another site."""


class NotApprovedError(UnpooledError, RuntimeError):
    """A site's summary table that nobody has approved yet; until then the site answers no question."""


class ReplyError(UnpooledError, ValueError):
    """A reply of the wrong kind or shape, or with impossible numbers."""


class TooFewAnswersError(UnpooledError, RuntimeError):
    """Fewer sites answered than the quorum demands."""


class SiteFailedError(UnpooledError, RuntimeError):
    """A question raised an error at a site."""


class QueryRefusedError(UnpooledError):
    """A site refuses to answer; the message is the reason that others may read."""


class EngineError(UnpooledError, RuntimeError):
    """The engine that carries a run between machines failed."""


class EngineUnreachableError(EngineError):
    """The engine's server cannot be reached, or lost the run; another try may succeed."""
