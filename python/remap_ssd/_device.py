"""One device, step by step in virtual time."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple, Optional, Sequence, Union

from . import _native
from ._config import Config
from ._results import Values

#: Content of a page: ``None`` if it is not mapped (zeroes), the number that represents it, its 4096 bytes, or
#: ``"unknown"`` on a device that stores no contents.
Content = Union[int, bytes, str, None]


class Completion(NamedTuple):
    """Submission and end of a command, in ns of virtual time."""

    start_ns: int
    done_ns: int

    @property
    def latency_ns(self) -> int:
        """Time from submission to end."""
        return self.done_ns - self.start_ns


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
    ``content="bytes"``, 4096 bytes. Addresses are logical pages of 4 KiB, from 0 to ``logical_pages`` - 1.

    >>> device = Device(Config(scale="1/64", scheme="remap-ssd"))
    >>> device.write(0, 7).latency_ns
    >>> device.remap(100, 0)          # page 100 shares the flash page of page 0
    >>> survivor = device.cut(seed=1)
    >>> survivor.read(100)

    config
        A ``Config``; by default preset ``fast21-32g`` at ``scale="1/64"``.
    power_cuts
        ``False`` disables ``cut``; commands then cost less real time and memory.

    Commands raise ``Refused`` with the device's reason (out of range, read-only, ...); they take time nevertheless. An atomic
    or long command that is refused may have been executed in part. Errors in arguments are ``ValueError``, ``TypeError`` or
    ``OverflowError``.
    """

    __slots__ = ("_native", "recovery")

    #: Result of recovery: a record with ``mapped``, ``lost``, ``aborted``, ...; ``None`` for a new device.
    recovery: Optional[Values]

    def __init__(self, config: Optional[Config] = None, *, power_cuts: bool = True) -> None:
        config = config or Config(scale="1/64")
        self._native = _native.Device(config.to_toml(), power_cuts)
        self.recovery = None

    @classmethod
    def _of(cls, native: Any, recovery: str) -> "Device":
        device = object.__new__(cls)
        device._native, device.recovery = native, Values(json.loads(recovery))
        return device

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"], *, power_cuts: bool = True) -> "Device":
        """The device in an image (``save``, or ``compare(save_aged=...)``), powered on; time restarts from 0.

        Raises ``Failed`` if there is none, or it cannot be recovered.
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
        content: Union[int, bytes, Sequence[int], Sequence[bytes]],
        *,
        home: Optional[int] = None,
        wait: bool = True,
    ) -> Completion:
        """Writes one page, or with a sequence of contents consecutive pages in one request.

        ``home`` is the page to which this one will be remapped later; scheme ``wal-ssd`` needs it.
        """
        contents = [content] if isinstance(content, (int, bytes, bytearray)) or hasattr(content, "item") else content
        return Completion(*self._native.write(lpn, [_plain(one) for one in contents], home, wait))

    def read(self, lpn: int, *, wait: bool = True) -> Content:
        """Content of a page."""
        return self._native.read(lpn, 1, wait)[1][0]

    def read_pages(self, lpn: int, pages: int, *, wait: bool = True) -> list[Content]:
        """Contents of consecutive pages, read in one request."""
        return self._native.read(lpn, pages, wait)[1]

    def trim(self, lpn: int, pages: int = 1, *, wait: bool = True) -> Completion:
        """Deallocates pages: they read as zeroes (``None``)."""
        return Completion(*self._native.trim(lpn, pages, wait))

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
        return Completion(*self._native.remap(target, source, pages, relocate, atomic, wait))

    def flush(self, *, wait: bool = True) -> Completion:
        """Makes everything acknowledged durable."""
        return Completion(*self._native.flush(wait))

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
        self._native.idle(ns)
        return self._native.now_ns

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
        return Device._of(*self._native.cut(seed))

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
        place = self._native.place(lpn)
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


def _plain(content: Any) -> Union[int, bytes]:
    if isinstance(content, (bytearray, memoryview)):
        return bytes(content)
    return content.item() if hasattr(content, "item") else content
