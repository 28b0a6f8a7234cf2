"""SQLite databases on a device that can remap, for Python's own ``sqlite3``.

    import remap_ssd.sqlite

    db = remap_ssd.sqlite.connect("app.db", device="disk")       # a device in the folder `disk`, made if there is none
    db = remap_ssd.sqlite.connect("app.db", device="256MiB")     # in the memory of this process
    db = remap_ssd.sqlite.connect("app.db", device="127.0.0.1:4420")     # served by `remap-ssd serve`

``connect`` takes and returns what ``sqlite3.connect`` does. Drivers with an argument for a URI take that of ``uri``, after ``load``.

Invariants: the extension is loaded once in a process, by Python's ``sqlite3`` or, where that was built without extensions, by the SQLite
that it has loaded; exceptions have the extension's reason. Absent: SQLites other than Python's (APSW loads ``extension`` itself), and the
extension's own rules, which docs/sqlite.md has.
"""

from __future__ import annotations

import ctypes
import functools
import os
import pathlib
import re
import shutil
import sqlite3
import sysconfig
import threading
import urllib.parse
from collections.abc import Mapping
from typing import Any, Callable, Optional, Union

__all__ = ["Connection", "Cursor", "connect", "extension", "load", "program", "uri"]

Device = Union[str, int, "os.PathLike[str]", Mapping[str, Any]]

_EXTENSION = "libremap_ssd_sqlite.so"
_SIZE = re.compile(r"\d+ ?([KMGT]i?B?|B)")
_ADDRESS = re.compile(r"[^/]+:\d+")

_loading = threading.Lock()
_reason: Optional[Callable[[int], Optional[bytes]]] = None


def program() -> str:
    """The path of the program ``remap-ssd``: ``$REMAP_SSD``, the one that was installed with this package, or the one in the path."""
    named = os.environ.get("REMAP_SSD")
    installed = pathlib.Path(sysconfig.get_path("scripts")) / "remap-ssd"
    path = named or (str(installed) if installed.is_file() else shutil.which("remap-ssd"))
    if not path:
        raise FileNotFoundError("there is no remap-ssd: install a wheel that has it, put it into the path, or set REMAP_SSD to it")
    return path


def extension() -> str:
    """The path of SQLite's extension: ``$REMAP_SSD_SQLITE``, the one in this package, or the one beside the program."""
    named = os.environ.get("REMAP_SSD_SQLITE")
    if named:
        places = [pathlib.Path(named)]
    else:
        places = [pathlib.Path(__file__).with_name(_EXTENSION)]
        try:
            places.append(pathlib.Path(program()).resolve().with_name(_EXTENSION))
        except FileNotFoundError:
            pass
    for place in places:
        if place.is_file():
            return str(place.absolute())
    looked = " nor ".join(str(place) for place in places)
    raise FileNotFoundError(
        f"there is no {looked}: install a wheel that has it, or build it (cargo build --release -p remap-ssd-sqlite) and set REMAP_SSD_SQLITE to it"
    )


def load() -> None:
    """Loads the extension into Python's SQLite, once in a process; ``connect`` does this itself.

    After it, ``sqlite3.connect(uri(...), uri=True)`` works anywhere in the process, such as in Django.
    """
    global _reason
    with _loading:
        if _reason is not None:
            return
        path = extension()
        if hasattr(sqlite3.Connection, "enable_load_extension"):
            # It stays loaded when this connection is closed.
            loader = sqlite3.connect(":memory:")
            try:
                loader.enable_load_extension(True)
                loader.load_extension(path)
            finally:
                loader.close()
        else:
            _load_by_sqlite(path)

        # The same library: the system loads a file once.
        reason = ctypes.CDLL(path).remap_ssd_sqlite_reason
        reason.argtypes, reason.restype = [ctypes.c_int], ctypes.c_char_p
        _reason = reason


def _load_by_sqlite(path: str) -> None:
    """Loads an extension by calling the SQLite that ``sqlite3`` is linked with: this Python leaves the functions out."""
    import _sqlite3

    # A library's handle also finds the functions of the libraries that it is linked with.
    sqlite = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
    db, message = ctypes.c_void_p(), ctypes.c_char_p()
    try:
        opened = sqlite.sqlite3_open(b":memory:", ctypes.byref(db))
        enable, load_extension = sqlite.sqlite3_enable_load_extension, sqlite.sqlite3_load_extension
    except AttributeError as error:
        raise sqlite3.NotSupportedError(
            f"this Python's sqlite3 was built without extensions, and hides its SQLite ({error}); use another Python, or the package apsw"
        ) from None
    try:
        enable(db, 1)
        result = load_extension(db, os.fsencode(path), None, ctypes.byref(message)) if opened == 0 else opened
        if result != 0:
            why = message.value.decode(errors="replace") if message.value else f"SQLite result {result}"
            raise sqlite3.OperationalError(why)
    finally:
        sqlite.sqlite3_free(message)
        sqlite.sqlite3_close(db)


def uri(database: Union[str, "os.PathLike[str]"], device: Optional[Device] = None, *, size: Union[str, int, None] = "1GiB") -> str:
    """The URI of a database; the arguments are those of ``connect``.

    >>> uri("app.db", "127.0.0.1:4420")
    'file:app.db?vfs=remap&device=127.0.0.1%3A4420'
    """
    name = os.fspath(database)
    if name in ("", ":memory:") or name.startswith("file:"):
        raise ValueError(f"{name!r}: give the name of a database on the device, such as 'app.db'; SQLite would not put this one there")
    parameters = {"vfs": "remap", **_place(device, size)}
    return f"file:{urllib.parse.quote(name)}?{urllib.parse.urlencode(parameters, quote_via=urllib.parse.quote)}"


def _place(device: Optional[Device], size: Union[str, int, None]) -> dict[str, str]:
    """The parameters of the URI that say where the database is."""
    if device is None:
        return {}
    if isinstance(device, Mapping):
        return {str(key): str(value) for key, value in device.items()}
    if isinstance(device, int):
        return {"memory": str(device)}
    place = os.fspath(device)
    if isinstance(device, str) and _SIZE.fullmatch(place):
        return {"memory": place.replace(" ", "")}
    if isinstance(device, str) and _ADDRESS.fullmatch(place):
        return {"device": place}
    if not place:
        raise ValueError("device: a folder, a size such as '256MiB', an address such as '127.0.0.1:4420', or a dictionary")
    # Absolute, since the process may change its folder before the next opening.
    folder = {"image": os.path.abspath(place)}
    return folder if size is None else {**folder, "size": str(size).replace(" ", "")}


def connect(
    database: Union[str, "os.PathLike[str]"],
    device: Optional[Device] = None,
    *,
    size: Union[str, int, None] = "1GiB",
    **options: Any,
) -> sqlite3.Connection:
    """Opens or creates a database on a device that can remap.

    ``database`` is its name on the device, which has no directories. ``device`` is one of:

    - the folder of a device (``remap-ssd image create``), as a ``str`` or ``Path``. If it does not exist, it is made with ``size`` bytes, and
      a volume for 256 files; ``size=None`` makes none. One process at a time has a folder open;
    - a size such as ``"256MiB"`` or an ``int`` in bytes: a device in this process's memory, which lives as long as the process. The same size
      is the same device. A child of ``fork`` cannot use it;
    - ``"HOST:PORT"``: the volume on a device that ``remap-ssd serve`` serves to any number of processes;
    - a dictionary with the parameters of the extension's URI, such as ``{"device": "127.0.0.1:4420", "nsid": 2, "secret": "key"}``;
    - ``None``: ``$REMAP_SSD_DEVICE`` or ``$REMAP_SSD_IMAGE``; without them a file of the operating system.

    ``options`` are those of ``sqlite3.connect``: ``timeout``, ``isolation_level``, ``check_same_thread`` and others. As there, a connection is used by the
    thread that made it unless ``check_same_thread=False``, and never by a child of ``fork``, which opens its own.

    Errors are ``sqlite3``'s exceptions; their text ends with the extension's reason, if it has one.

    >>> db = connect("app.db", "64MiB")
    >>> _ = db.execute("CREATE TABLE t(x)")
    """
    load()
    options.setdefault("factory", Connection)
    name = uri(database, device, size=size)
    try:
        return sqlite3.connect(name, uri=True, **options)
    except sqlite3.Error as error:
        raise _explained(error) from None


# SQLite's own words before the message of a failed opening, which only an automatic extension can return.
_OPENING = "automatic extension loading failed: "


def _explained(error: sqlite3.Error) -> sqlite3.Error:
    """The error, with the extension's reason in its text."""
    text = str(error)
    code = getattr(error, "sqlite_errorcode", 0)
    reason = _reason(code) if _reason is not None else None
    if text.startswith(_OPENING):
        error.args = (text[len(_OPENING) :],)
    elif reason and isinstance(error, sqlite3.OperationalError):
        error.args = (f"{text}: {reason.decode(errors='replace')}",)
    return error


def _explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method of ``sqlite3`` whose errors have the reason."""

    @functools.wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return method(self, *args, **kwargs)
        except sqlite3.Error as error:
            raise _explained(error)

    return call


class Cursor(sqlite3.Cursor):
    """A cursor whose errors have the extension's reason."""


class Connection(sqlite3.Connection):
    """A connection whose errors have the extension's reason."""

    def cursor(self, factory: Any = Cursor) -> Any:
        return super().cursor(factory)


for _name in ("execute", "executemany", "executescript", "fetchone", "fetchmany", "fetchall", "__next__"):
    setattr(Cursor, _name, _explaining(getattr(sqlite3.Cursor, _name)))
for _name in ("execute", "executemany", "executescript", "commit", "rollback", "backup", "__exit__", "close"):
    setattr(Connection, _name, _explaining(getattr(sqlite3.Connection, _name)))
