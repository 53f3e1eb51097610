"""The errors kvphase raises on purpose; each carries the command line's exit code."""

from __future__ import annotations


class KvphaseError(Exception):
    """Base of every expected failure: one clear sentence, no traceback for the user.

    Attributes:
        exit_code: What the command line exits with.
    """

    exit_code = 70


class UsageError(KvphaseError):
    """Wrong usage or bad input (a file, an option, a target): exit code 2."""

    exit_code = 2


class RuntimeFault(KvphaseError):
    """The model could not be reached or gave unusable answers: exit code 3."""

    exit_code = 3


class TransientFault(RuntimeFault):
    """A failure of one request that may pass when the question is asked again.

    Raised by runtimes for a broken connection, a 5xx or a torn answer after the prefix was known
    to be cached, so that asking again costs a suffix. A prefill that failed is never one of these.

    Attributes:
        wait: Seconds after which the server says that it may be asked again; None if it does not.
        untouched: The server had not begun to work on it, so that asking again costs nothing.
    """

    wait: float | None = None
    untouched: bool = False


class StoreError(UsageError):
    """A run file that cannot be used: damaged, locked, of another run or another schema version."""


class Interrupted(KvphaseError):
    """The user stopped the run; what was measured is kept: exit code 130."""

    exit_code = 130
