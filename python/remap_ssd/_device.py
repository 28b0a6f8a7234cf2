"""One device, step by step in virtual time."""

from __future__ import annotations

import json
import os
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, Optional, Sequence, Union

from . import _native
from ._config import Config
from ._errors import UsageError
from ._results import Values
from ._trace import Trace, as_trace

if TYPE_CHECKING:
    import numpy

#: Content of a page: ``None`` if it is not mapped (zeroes), the number that represents it, its 4096 bytes, or
#: ``"unknown"`` on a device that stores no contents.
Content = Union[int, bytes, str, None]

#: Bytes of a page.
PAGE_BYTES = 4096

#: Largest number of a page, and largest 64-bit number.
_LPN_MAX, _WORD_MAX = (1 << 32) - 1, (1 << 64) - 1


class Completion(NamedTuple):
    """Submission and end of a command, in ns of virtual time."""

    start_ns: int
    done_ns: int

    @property
    def latency_ns(self) -> int:
        """Time from submission to end."""
        return self.done_ns - self.start_ns


class Read(Completion):
    """Submission and end of a read, with what it read.

    >>> done = device.read(5, wait=False)
    >>> done.content, done.latency_ns
    """

    #: Contents of the pages, in order.
    contents: list[Content]

    def __new__(cls, start_ns: int, done_ns: int, contents: list[Content]) -> "Read":
        read = tuple.__new__(cls, (start_ns, done_ns))
        read.contents = contents
        return read

    @property
    def content(self) -> Content:
        """Content of the page, if it was one."""
        if len(self.contents) != 1:
            raise UsageError(f"{len(self.contents)} pages were read: `contents` has them")
        return self.contents[0]

    def __repr__(self) -> str:
        return f"Read(start_ns={self.start_ns}, done_ns={self.done_ns}, contents={self.contents!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Read) and tuple(self) == tuple(other) and self.contents == other.contents

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = Completion.__hash__

    def __reduce__(self) -> Any:
        return (Read, (self.start_ns, self.done_ns, self.contents))


class Replay(NamedTuple):
    """What a device did with the requests of a trace, one element for each."""

    start_ns: "numpy.ndarray[Any, Any]"
    """Virtual time at which each was submitted."""
    done_ns: "numpy.ndarray[Any, Any]"
    """Virtual time at which each ended."""
    refused: dict[int, str]
    """The requests that the device refused, by their row, with its reasons."""

    @property
    def latency_ns(self) -> "numpy.ndarray[Any, Any]":
        """Time from submission to end."""
        return self.done_ns - self.start_ns

    def __repr__(self) -> str:
        return f"<Replay of {len(self.start_ns)} requests, {len(self.refused)} refused>"


class Place(NamedTuple):
    """Location of a logical page."""

    superblock: int
    offset: int
    """Page of the superblock."""
    ppn: int
    """Flash page of the device."""


class Device:
    """A simulated SSD, new and empty, in virtual time.

    A command is submitted at ``now_ns``. By default the call waits, and ``now_ns`` is then the command's end. With ``wait=False`` time
    does not advance and the command is in flight: more can be submitted at the same time, until ``wait()``. Any number may be in
    flight; the caller limits the queue depth.

    Contents are integers from 1 on that represent 4 KiB each (equal integers are equal contents), or, on a device with
    ``content="bytes"``, whole pages of 4096 bytes. Addresses are logical pages of 4 KiB, from 0 to ``logical_pages`` - 1.

    >>> device = Device(Config(scale="1/64", scheme="remap-ssd"))
    >>> device.write(0, [7, 8, 9]).latency_ns
    >>> device.remap(100, 0)          # page 100 shares the flash page of page 0
    >>> device.read(100).content
    7
    >>> survivor = device.cut(seed=1)
    >>> survivor.read(100).content
    7

    config
        A ``Config``; by default preset ``fast21-32g`` at ``scale="1/64"``.
    power_cuts
        ``False`` disables ``cut``; commands then cost less real time and memory.

    Commands raise ``Refused`` with the device's reason (out of range, read-only, ...); they take time nevertheless. An atomic
    or long command that is refused may have been executed in part. Wrong arguments are ``UsageError`` (a ``ValueError``) or
    ``TypeError``, and name the argument. ``OutOfMemory`` (a ``MemoryError``) if the tables of the device do not fit.

    Commands do not hold the interpreter's lock; those of several threads are executed one after the other.
    """

    __slots__ = ("_native", "_stores_bytes", "recovery")

    #: Result of recovery: a record with ``mapped``, ``lost``, ``aborted``, ...; ``None`` for a new device.
    recovery: Optional[Values]

    def __init__(self, config: Optional[Config] = None, *, power_cuts: bool = True) -> None:
        config = Config(scale="1/64") if config is None else config
        if not isinstance(config, Config):
            raise TypeError(f"`config` is a `Config`, and not {config!r}: `Config({config!r})` is the preset of this name")
        self._use(_native.Device(config.to_toml(), power_cuts), None)

    def _use(self, native: "_native.Device", recovery: Optional[str]) -> None:
        self._native, self._stores_bytes = native, native.stores_bytes()
        self.recovery = None if recovery is None else Values(json.loads(recovery))

    @classmethod
    def _of(cls, native: "_native.Device", recovery: Optional[str] = None) -> "Device":
        device = object.__new__(cls)
        device._use(native, recovery)
        return device

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"], *, power_cuts: bool = True) -> "Device":
        """The device in an image (``save``, or ``compare(save_aged=...)``), powered on; time restarts from 0.

        Raises ``NotFound`` if there is none, ``Failed`` if it cannot be recovered.

        >>> device = Device.load("aged.img", power_cuts=False)
        """
        return cls._of(*_native.Device.load(os.fspath(path), power_cuts))

    def save(self, path: Union[str, "os.PathLike[str]"]) -> None:
        """Writes an image, as after everything in flight has ended; ``compare(age=...)`` and ``remap-ssd inspect`` read it.

        Raises ``Failed`` if it cannot be written, or the scheme's remaps do not survive power loss.
        """
        self._native.save(os.fspath(path))

    # Commands.

    def write(
        self,
        lpn: int,
        content: Union[int, Sequence[int], Sequence[bytes], Any],
        *,
        home: Optional[int] = None,
        wait: bool = True,
    ) -> Completion:
        """Writes consecutive pages in one request: as many as ``content`` has.

        content
            An integer, or a sequence or array of integers, one for each page. On a device with ``content="bytes"``, any
            buffer of whole pages (``bytes``, ``bytearray``, ``memoryview``, an array), or a sequence of them.
        home
            The page to which this one will be remapped later; scheme ``wal-ssd`` needs it.

        >>> device.write(0, 7)
        >>> device.write(0, numpy.arange(1, 65))
        >>> Device(Config(scale="1/64", content="bytes")).write(0, numpy.zeros((2, 4096), numpy.uint8))
        """
        first, to = _lpn("lpn", lpn), None if home is None else _lpn("home", home)
        if self._stores_bytes:
            data = _bytes(content)
            _check_home(to, len(data) // PAGE_BYTES)
            return Completion(*self._native.write_bytes(first, data, to, bool(wait)))
        numbers = _numbers(content)
        _check_home(to, len(numbers))
        return Completion(*self._native.write_numbers(first, numbers, to, bool(wait)))

    def read(self, lpn: int, pages: int = 1, *, wait: bool = True) -> Read:
        """Reads consecutive pages in one request; ``content``, or ``contents``, of the result has what they hold.

        >>> device.read(0).content
        7
        >>> device.read(0, 3).contents
        [7, 8, 9]
        """
        times, found = self._native.read(_lpn("lpn", lpn), _count(pages), bool(wait))
        return Read(*times, found)

    def read_pages(self, lpn: int, pages: int, *, wait: bool = True) -> list[Content]:
        """The contents of consecutive pages: ``read(lpn, pages).contents``."""
        return self.read(lpn, pages, wait=wait).contents

    def trim(self, lpn: int, pages: int = 1, *, wait: bool = True) -> Completion:
        """Deallocates pages: they read as zeroes (``None``)."""
        return Completion(*self._native.trim(_lpn("lpn", lpn), _count(pages), bool(wait)))

    def remap(
        self,
        target: int,
        source: int,
        pages: int = 1,
        *,
        relocate: bool = False,
        atomic: bool = False,
        wait: bool = True,
    ) -> Completion:
        """Maps ``pages`` pages from ``target`` on to the flash pages of those from ``source`` on. No data are transferred.

        ``relocate``: the sources lose their pages. ``atomic``: all pages or none survive a power cut
        (``firmware.entry = "24"``). A remap never fails for lack of metadata: the device then copies.
        """
        to, of = _lpn("target", target), _lpn("source", source)
        return Completion(*self._native.remap(to, of, _count(pages), bool(relocate), bool(atomic), bool(wait)))

    def flush(self, *, wait: bool = True) -> Completion:
        """Makes everything acknowledged durable."""
        return Completion(*self._native.flush(bool(wait)))

    def replay(self, trace: Any, *, queue_depth: Optional[int] = None) -> Replay:
        """Executes the requests of a trace on this device, from ``now_ns`` on, and waits for the last.

        trace
            A ``Trace``, or what ``compare`` takes as one: a table, a dict of columns, a list of ``Command``, a record array.
            With ``time_ns``, each request enters at its own time from now on, and otherwise when there is room in the queue.
        queue_depth
            The most requests in flight; by default any number with ``time_ns``, and without it those of the device.

        Flushes are executed. Pages beyond the device are refused, not folded. Contents without a fingerprint are new. Ctrl-C and
        ``stop()`` end the replay after some thousand requests; those before have happened.

        >>> replayed = device.replay([("write", 0, 8), ("read", 0, 8)])
        >>> replayed.latency_ns.mean()

        Needs ``numpy``.
        """
        import numpy

        rows = as_trace(trace)
        depth = None if queue_depth is None else _whole("queue_depth", queue_depth, 1, _LPN_MAX)
        starts, ends, refused = self._native.replay(*rows._raw(), depth)
        return Replay(numpy.frombuffer(starts, numpy.uint64), numpy.frombuffer(ends, numpy.uint64), dict(refused))

    # Time.

    @property
    def now_ns(self) -> int:
        """Virtual time since power-on, in ns."""
        return self._native.now_ns

    def wait(self) -> int:
        """Waits for all commands in flight; returns the time then, in ns."""
        self._native.wait()
        return self._native.now_ns

    def idle(self, ns: int) -> int:
        """Lets ``ns`` pass without commands, in which the firmware may collect garbage; returns the time then, in ns."""
        self._native.idle(_whole("ns", ns, 0, _WORD_MAX))
        return self._native.now_ns

    def advance_to(self, time_ns: float) -> int:
        """Lets virtual time pass up to ``time_ns``, as by ``idle``, and acknowledges what ends by then; returns the time then, in ns.

        For programs with a clock of their own: before a command at time ``t`` of that clock, ``device.advance_to(t)``; the command,
        submitted with ``wait=False``, ends at its ``done_ns``. ``python/examples/simpy_host.py`` does so with simpy.

        ``UsageError`` for a time in the past, beyond half a nanosecond: a fraction of a nanosecond is rounded.

        >>> device.advance_to(device.now_ns + 1_000_000)
        """
        until, now = _whole("time_ns", round(time_ns), 0, _WORD_MAX), self._native.now_ns
        if until < now:
            raise UsageError(f"`time_ns` is {until}, and the device is at {now}: its time never goes back")
        return self._native.advance_to(until)

    @property
    def in_flight(self) -> int:
        """Commands submitted and not acknowledged."""
        return self._native.pending()[0]

    # Power.

    def cut(self, seed: int = 0) -> "Device":
        """Cuts the power now, and returns the recovered device; its ``recovery`` has the result.

        This device is not changed, so that other cuts of the same moment can be tried: each ``seed``
        selects another subset of operations that reached flash and NVRAM. Under durable schemes, acknowledged commands survive
        any cut; commands in flight may have happened or not, and long ones in part.

        Raises ``Failed`` if recovery is refused, or the device was made with ``power_cuts=False``.
        """
        return Device._of(*self._native.cut(_whole("seed", seed, 0, _WORD_MAX)))

    @property
    def undecided(self) -> int:
        """Operations on flash and NVRAM that a cut now may undo.

        Operations on which no acknowledgement depends, such as garbage collection's, are included until the device is idle.
        """
        return self._native.pending()[1]

    # Inspection.

    @property
    def config(self) -> Config:
        """The device's configuration."""
        return Config.from_toml(self._native.config())

    @property
    def logical_pages(self) -> int:
        """Number of logical pages."""
        return self.stats.logical_pages

    @property
    def stats(self) -> Values:
        """Counters since power-on and fill levels.

        ``firmware``: its counters, in pages unless named otherwise (``host_writes``, ``host_programs``, ``gc_programs``,
        ``remaps``, ``dedup_hits``, ...); ``media``: ``reads``, ``programs`` (pages), ``erases`` (blocks),
        ``nvram_bytes_written``; ``usage``: bytes of remapping metadata, ``used_bytes`` of ``capacity_bytes``, of which
        ``valid_bytes``; ``free_superblocks``; ``usable_pages``; ``read_only``.
        """
        return Values(json.loads(self._native.state()))

    def superblocks(self) -> list[Values]:
        """All superblocks, in the order of their numbers.

        Each has ``id``; ``state`` (free, open, closed, retired); ``stream`` (the writer that fills it); ``live`` and ``capacity`` in pages;
        ``remapped`` (mappings by remaps); ``erases`` of its most erased block; ``bad_blocks``; and for its segment group in
        NVRAM ``segments`` (their number), ``segment_numbers``, ``entries``, ``entry_pages`` and ``flash_pages``.
        """
        return [Values(row) for row in json.loads(self._native.superblocks())]

    def place(self, lpn: int) -> Optional[Place]:
        """Location of a logical page, or ``None`` if it is not mapped. Two logical pages with the same location share it."""
        place = self._native.place(_lpn("lpn", lpn))
        return None if place is None else Place(*place)

    def erase_counts(self) -> list[int]:
        """Erases of each block; those of one superblock are adjacent."""
        return self._native.erase_counts()

    def check(self) -> None:
        """Compares every table of the firmware with every other. ``Failed`` names the contradiction."""
        self._native.check()

    def __repr__(self) -> str:
        config = self.config
        return f"<Device {config.name}: {config.firmware.scheme}, {config.firmware.lpns} logical pages, {self.now_ns} ns>"


def _whole(name: str, value: Any, least: int, most: int) -> int:
    """An integer of an argument."""
    if type(value) is int:
        number = value
    else:
        try:
            number = index(value)
        except TypeError:
            raise TypeError(f"`{name}` is an integer, and not {value!r}") from None
    if not least <= number <= most:
        raise UsageError(f"`{name}` is {number}: it must be {least} to {most}")
    return number


def _lpn(name: str, value: Any) -> int:
    return _whole(name, value, 0, _LPN_MAX)


def _count(pages: Any) -> int:
    return _whole("pages", pages, 0, _LPN_MAX)


def _check_home(home: Optional[int], pages: int) -> None:
    if home is not None and pages > 1:
        raise UsageError("`home` is of one page: pages that name their home are written one by one")


def _numbers(content: Any) -> list[int]:
    """The numbers that represent contents."""
    if hasattr(content, "__index__") and getattr(content, "ndim", 0) == 0:
        return [_whole("content", content, 1, _WORD_MAX)]
    if isinstance(content, (bytes, bytearray, memoryview)):
        raise UsageError(
            "`content` is bytes, and this device stores numbers that represent contents: write integers, or use `Config(content=\"bytes\")`"
        )
    given = content.tolist() if hasattr(content, "tolist") else content
    if isinstance(given, str) or not hasattr(given, "__iter__"):
        raise TypeError(f"`content` is an integer, or a sequence of them, and not {content!r}")
    given = list(given)
    if not given:
        raise UsageError("`content` is empty: a write has at least one page")
    return [_whole("content" if len(given) == 1 else f"content[{at}]", one, 1, _WORD_MAX) for at, one in enumerate(given)]


def _bytes(content: Any) -> bytes:
    """The bytes of whole pages."""
    try:
        data = content if isinstance(content, bytes) else memoryview(content).tobytes()
    except TypeError:
        if not isinstance(content, Sequence) or isinstance(content, str) or not all(_is_buffer(one) for one in content):
            raise _not_bytes(content) from None
        pages = [memoryview(one).tobytes() for one in content]
        for at, page in enumerate(pages):
            if len(page) != PAGE_BYTES:
                raise UsageError(f"`content[{at}]` has {len(page)} bytes, and a page has {PAGE_BYTES}") from None
        data = b"".join(pages)
    if not data:
        raise UsageError("`content` is empty: a write has at least one page")
    if len(data) % PAGE_BYTES:
        raise UsageError(f"`content` has {len(data)} bytes, and a page has {PAGE_BYTES}: a write has whole pages")
    return data


def _is_buffer(value: Any) -> bool:
    try:
        memoryview(value)
    except TypeError:
        return False
    return True


def _not_bytes(content: Any) -> Exception:
    has_numbers = hasattr(content, "__index__") or (isinstance(content, Sequence) and not isinstance(content, str))
    kind = UsageError if has_numbers else TypeError
    return kind(f'`content` is {content!r}, and this device stores bytes (content="bytes"): write {PAGE_BYTES} bytes a page')
