"""The account that runs this program, for records of who did something."""

import contextlib
import getpass


def account() -> str:
    """Return the name of the account that runs this program, or "" if it has none."""
    with contextlib.suppress(OSError, KeyError, ImportError):  # Windows has no list of accounts
        return getpass.getuser()
    return ""
