"""The exceptions of this package; the native half raises them too.

``Error`` is the base of all. Each is also the exception that Python has for its kind, so that ``except ValueError`` and
``except FileNotFoundError`` work. Absent: values of a wrong type, which are ``TypeError`` as everywhere in Python.
"""

from __future__ import annotations

import errno
import re
from typing import Optional


class Error(Exception):
    """Base of the errors of this package.

    >>> try:
    ...     remap_ssd.compare(trace="disk.csv", schemes=["none"])
    ... except remap_ssd.Error as error:
    ...     print(error)
    disk.csv: No such file or directory (os error 2)
    """

    __module__ = "remap_ssd"


class UsageError(Error, ValueError):
    """A value is wrong, or does not fit the others; the message names it."""

    __module__ = "remap_ssd"


class Failed(Error, RuntimeError):
    """It could not be done; the message says why."""

    __module__ = "remap_ssd"


class NotFound(Failed, FileNotFoundError):
    """A file or a folder is missing: ``filename``."""

    __module__ = "remap_ssd"

    def __new__(cls, *values: object) -> "NotFound":
        # That of the first base cannot make one; whatever copies errors (Dask's `tblib`) calls it by name.
        return FileNotFoundError.__new__(cls, *values)

    def __init__(self, text: str) -> None:
        super().__init__(text)
        found = re.match(r"(?:invalid value '|\w+ = )?(.+?)(?:' for '[^']*')?: (?:[Nn]o such file|there is no folder)", text)
        self.errno, self.filename = errno.ENOENT, found[1] if found else None

    def __str__(self) -> str:
        return str(self.args[0])


class OutOfMemory(Failed, MemoryError):
    """It would take more memory than there is."""

    __module__ = "remap_ssd"


class Refused(Failed):
    """The device refused a command; the message is its reason."""

    __module__ = "remap_ssd"


class Stopped(Failed):
    """``stop()``, or Ctrl-C in another thread, ended a run."""

    __module__ = "remap_ssd"


def not_found(path: object) -> NotFound:
    """The error for a missing file, with the sentence of the native half."""
    return NotFound(f"{path}: No such file or directory (os error {errno.ENOENT})")


def with_text(error: Exception, text: str) -> Exception:
    """An error of the same kind with another text."""
    for kind in (NotFound, OutOfMemory, Stopped, Refused, UsageError):
        if isinstance(error, kind):
            return kind(text)
    return UsageError(text) if isinstance(error, ValueError) else Failed(text)


def hint(name: str, names: "Optional[list[str]]") -> str:
    """``: did you mean `x`?``, or an empty text."""
    import difflib

    similar = difflib.get_close_matches(name, names or [], n=1)
    return f": did you mean `{similar[0]}`?" if similar else ""
