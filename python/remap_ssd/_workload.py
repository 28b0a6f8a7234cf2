"""Requests made one by one by a Python function: a workload of ``compare``.

Invariant: each row that is passed on is valid, and an error names the command by its number. Absent: pages (the native half makes them
of the rows).
"""

from __future__ import annotations

from operator import index
from typing import Any, Callable, Hashable, Iterable, Iterator, Mapping, NamedTuple, Optional, Sequence, Union

from ._errors import UsageError, hint

# Names of requests, and their letters in the trace file.
VERBS = {
    "read": "R",
    "write": "W",
    "write_part": "P",
    "trim": "D",
    "remap": "C",
    "relocate": "M",
    "flush": "F",
}
LETTERS = {**VERBS, **{letter: letter for letter in VERBS.values()}}

#: Commands passed on at a time.
_BATCH = 256

#: Longest remap, in pages.
_REMAP_MAX = (1 << 16) - 1


class Command(NamedTuple):
    """A command of a workload, or a row of a ``Trace``; a tuple of the first of these, or a dict with these names, is one as well.

    >>> Command("write", 0, 4)                      # four pages with contents that no other page has
    >>> ("write", 8, 1, "a")                        # contents with the same fingerprint are equal
    >>> Command("remap", 100, 4, source=0)
    >>> {"op": "read", "lpn": 100, "pages": 4}
    """

    op: str
    """``read``, ``write``, ``write_part``, ``trim``, ``remap``, ``relocate`` or ``flush``."""
    lpn: int = 0
    """First logical page; of a remap, the first target."""
    pages: int = 1
    fingerprint: Any = None
    """Equal for equal contents: any hashable value, and for several pages a list of one for each. Without it no other page has the content."""
    source: Optional[int] = None
    """First source page of a remap."""
    time_ns: int = 0
    """When it arrives, with ``arrivals="trace"``."""


CommandLike = Union[Command, tuple[Any, ...], Mapping[str, Any]]
Workload = Callable[[int], Iterable[CommandLike]]


def as_command(given: Any) -> Command:
    """A command from a tuple or a dict."""
    if isinstance(given, Command):
        return given
    if isinstance(given, Mapping):
        unknown = [str(name) for name in given if name not in Command._fields]
        if unknown:
            raise UsageError(f"`{unknown[0]}` is no part of a command{hint(unknown[0], list(Command._fields))}")
        if "op" not in given:
            raise UsageError(f"`op` is missing in {dict(given)!r}")
        return Command(**{str(name): value for name, value in given.items()})
    if isinstance(given, (tuple, list)) and 0 < len(given) <= len(Command._fields):
        return Command(*given)
    raise UsageError(f"{given!r} is no command: give a `Command`, a tuple ({', '.join(Command._fields)}) or a dict")


def batches(make: Workload) -> Callable[[int], Iterator[list[tuple[int, int, int, int, int, Sequence[int]]]]]:
    """The function's commands on a device with a number of pages, as rows for the native half."""

    def begin(pages: int) -> Iterator[list[tuple[int, int, int, int, int, Sequence[int]]]]:
        commands = make(pages)
        if not hasattr(commands, "__iter__"):
            raise UsageError(f"the workload returned {commands!r}: it must return commands, or yield them")
        contents, batch, before = _Contents(), [], 0
        for number, given in enumerate(commands):
            try:
                row = _row(as_command(given), pages, contents, before)
            except (TypeError, ValueError) as error:
                raise UsageError(f"command {number} of the workload: {error}") from None
            before = row[4]
            batch.append(row)
            if len(batch) == _BATCH:
                yield batch
                batch = []
        if batch:
            yield batch

    return begin


class _Contents:
    """Numbers of contents: equal for equal fingerprints, new without one."""

    def __init__(self) -> None:
        self._known: dict[Hashable, int] = {}
        self._last = 0

    def of(self, fingerprint: Hashable) -> int:
        number = None if fingerprint is None else self._known.get(fingerprint)
        if number is None:
            self._last = number = self._last + 1
            if fingerprint is not None:
                self._known[fingerprint] = number
        return number


def _row(command: Command, pages: int, contents: _Contents, before: int) -> tuple[int, int, int, int, int, Sequence[int]]:
    letter = LETTERS.get(command.op) if isinstance(command.op, str) else None
    if letter is None:
        raise UsageError(f"{command.op!r} is no request: use {', '.join(VERBS)}{hint(str(command.op), list(VERBS))}")
    at = _within("time_ns", command.time_ns, 1 << 62)
    if at < before:
        raise UsageError(f"`time_ns` is {at}, and {before} in the command before: times never decrease")
    if letter == "F":
        return (ord(letter), 0, 0, 0, at, ())

    count, is_remap = index(command.pages), letter in "CM"
    if count < 1 or (letter == "P" and count != 1) or (is_remap and count > _REMAP_MAX):
        raise UsageError(f"`pages` is {count}: {'1' if letter == 'P' else f'1 to {_REMAP_MAX}' if is_remap else '1 or more'}")
    first = _extent("lpn", command.lpn, count, pages)
    if is_remap and command.source is None:
        raise UsageError("a remap needs `source`, its first source page")
    source = _extent("source", command.source, count, pages) if is_remap else 0
    return (ord(letter), first, count, source, at, _numbers(command, letter, count, contents))


def _numbers(command: Command, letter: str, count: int, contents: _Contents) -> Sequence[int]:
    """The contents of the pages that a command writes."""
    if letter == "P":
        return [contents.of(None)]
    if letter != "W":
        return ()
    given = command.fingerprint
    own = given if isinstance(given, list) else [given] * count if count == 1 or given is None else None
    if own is None or len(own) != count:
        raise UsageError(f"a write of {count} pages has a list of {count} fingerprints, and not {given!r}")
    return [contents.of(one) for one in own]


def _within(name: str, value: Any, end: int) -> int:
    number = index(value)
    if not 0 <= number < end:
        raise UsageError(f"`{name}` is {number}: it must be at least 0 and below {end}")
    return number


def _extent(name: str, first: Any, count: int, pages: int) -> int:
    number = _within(name, first, pages)
    if number + count > pages:
        raise UsageError(f"`{name}` is {number}: {count} pages from there end beyond the {pages} pages of the device")
    return number
