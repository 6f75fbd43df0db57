"""Everything that unpooled raises on purpose.

::

    UnpooledError
    ├── InputError          what was handed in cannot be used (also a ValueError)
    │   ├── SchemaMismatchError  sites do not have the same columns; carries the differences as a table
    │   └── TooFewPeopleError   a site has fewer persons than a group of its copy needs
    ├── CodecError        bytes that are not one of our messages (also a ValueError)
    ├── CheckpointError   a checkpoint that is damaged, or of another run or version (also a ValueError)
    ├── ForecastRefusedError   so much noise, for so few rows, that differential privacy would find no clusters
    ├── MissingExtraError      a package is not installed; says which extra has it (also an ImportError)
    ├── ModelError        a saved model that is damaged or of another version (also a ValueError)
    ├── PolicyError       a site's policy that cannot be read; names the file, section and key (a ValueError)
    ├── LedgerError       a site's ledger, log or copy that is damaged, or in use by another process
    ├── NotApprovedError       a site's copy that nobody approved yet: it answers nothing before
    ├── ReplyError          a reply that no honest site could send; the round goes on without it
    ├── TooFewAnswersError     an exchange that fewer sites answered than the quorum asks
    ├── EngineError      the engine between machines does not do what it was told
    │   └── EngineUnreachableError    its server cannot be reached, or lost the run: another try may do
    ├── SiteFailedError        a site raised; names the site, the round and the question
    └── Refused           raised at a site to decline a question, with a reason it lets others see
"""


class UnpooledError(Exception):
    """The root: catch this to catch all that unpooled raises on purpose."""


class InputError(UnpooledError, ValueError):
    """Input that cannot be used; the message names what, where, and both numbers."""


class SchemaMismatchError(InputError):
    """Sites do not have the columns alike. ``table``: a heading, then each column that differs, by site."""

    def __init__(self, message: str, table: tuple[tuple[str, ...], ...] = ()) -> None:
        super().__init__(message)
        self.table = table


class TooFewPeopleError(InputError):
    """A site has fewer persons than a group of its copy needs: it has no copy, and does not answer."""


class CodecError(UnpooledError, ValueError):
    """Bytes that are not a message of ours, or a message that does not fit its type."""


class CheckpointError(UnpooledError, ValueError):
    """A checkpoint that is truncated, altered, or belongs to another run or version."""


class ForecastRefusedError(UnpooledError, ValueError):
    """A private clustering that would drown in noise; says which epsilon, or how many rows, would do."""


class MissingExtraError(UnpooledError, ImportError):
    """A package that this needs is not installed; the message names the extra that has it."""


class ModelError(UnpooledError, ValueError):
    """A saved model, or the folder of a run, that is damaged, not one of ours, or of another version."""


class PolicyError(UnpooledError, ValueError):
    """A site's policy that cannot be read or makes no sense."""


class LedgerError(UnpooledError, RuntimeError):
    """A site's ledger or log that is damaged, in use by another process, or belongs to another site."""


class NotApprovedError(UnpooledError, RuntimeError):
    """A site's copy that nobody approved yet; until then the site answers nothing."""


class ReplyError(UnpooledError, ValueError):
    """A reply of the wrong kind or shape, or with impossible numbers."""


class TooFewAnswersError(UnpooledError, RuntimeError):
    """Fewer sites answered than the quorum asks."""


class SiteFailedError(UnpooledError, RuntimeError):
    """A question raised an error at a site."""


class QueryRefusedError(UnpooledError):
    """A site declines to answer; the text is the reason it allows to be shown."""


class EngineError(UnpooledError, RuntimeError):
    """The engine that carries a run between machines does not do what it was told."""


class EngineUnreachableError(EngineError):
    """The engine's server cannot be reached, or lost the run; another try may do."""
