"""The types of a run's fields and the columns of tables, as Arrow has them.

They come from the records that the program writes as JSON (``_native.schema``). Invariant: a table of runs has the same columns with the
same types, whatever was measured; what is missing is null. Absent: values.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Iterable, Optional

from . import _native
from ._errors import UsageError, hint

if TYPE_CHECKING:
    import pyarrow


@lru_cache(maxsize=1)
def _known() -> Any:
    return json.loads(_native.schema())


def run_fields() -> list[tuple[str, Any]]:
    """The fields of a run, by name, with their types."""
    return _fields(_known()["run"])


def columns() -> list[tuple[str, Any]]:
    """The columns of a sweep, in order, with their types; ``scheme``, which the folders' names have, is the last one."""
    return [*_known()["columns"], ("scheme", "text")]


def chosen(names: Optional[Iterable[str]]) -> list[tuple[str, Any]]:
    """The columns of these names, or all; ``UsageError`` for a name that is none."""
    known = dict(columns())
    if names is None:
        return list(known.items())
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise UsageError(f"there is no column `{name}`{hint(name, list(known))}")
    return [(name, known[name]) for name in wanted]


def _fields(of: Any) -> list[tuple[str, Any]]:
    """The fields of a record."""
    _, fields = of["record"]
    return [(name, inner) for name, inner in fields]


def sample_fields() -> list[tuple[str, Any]]:
    """The fields of a point of the time series."""
    return _fields(dict(run_fields())["samples"]["list"])


def arrow(fields: Iterable[tuple[str, Any]]) -> "pyarrow.Schema":
    """Arrow's schema of fields."""
    pyarrow = arrow_package("tables")
    return pyarrow.schema([(name, _type(of)) for name, of in fields])


def _type(of: Any) -> Any:
    pyarrow = arrow_package("tables")
    if isinstance(of, str):
        return {"boolean": pyarrow.bool_(), "integer": pyarrow.int64(), "number": pyarrow.float64(), "text": pyarrow.string()}[of]
    ((kind, inner),) = of.items()
    if kind == "optional":
        return _type(inner)
    if kind == "list":
        return pyarrow.list_(_type(inner))
    if kind == "map":
        # Requests refused, by reason.
        return pyarrow.list_(pyarrow.struct([("reason", pyarrow.string()), ("requests", _type(inner))]))
    return pyarrow.struct([(name, _type(field)) for name, field in _fields(of)])


def arrow_package(whose: str) -> Any:
    """pyarrow, or an error that says what needs it."""
    try:
        import pyarrow
    except ImportError:
        raise ImportError(f"{whose} need pyarrow: pip install pyarrow") from None
    return pyarrow
