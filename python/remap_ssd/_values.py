"""Values of Python's kinds of numbers and lists as JSON has them, which the native half reads.

Absent: which values are valid.
"""

from __future__ import annotations

import json
import math
import os
from decimal import Decimal
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Iterable, Mapping

from ._errors import UsageError


def as_json(name: str, value: Any) -> str:
    """An option's value as JSON. ``UsageError`` names the option if its value is no number, text or list of them."""
    try:
        return json.dumps(plain(name, value), allow_nan=False)
    except ValueError as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"`{name}` must be a finite number, and not {value!r}") from None


def plain(name: str, value: Any) -> Any:
    """A value of JSON: scalars of NumPy, pandas and Arrow as numbers, fractions, paths as text, arrays and series as lists."""
    if value is None or isinstance(value, (str, bool, int)):
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, Mapping):
        return {key: plain(str(key), inner) for key, inner in value.items()}
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Fraction) and value.denominator != 1 and name == "scale":
        return f"{value.numerator}/{value.denominator}"
    if isinstance(value, (Real, Decimal)):
        return _number(value)
    # Of Arrow, and of NumPy and pandas: arrays and series have `item` too.
    if hasattr(value, "as_py"):
        return plain(name, value.as_py())
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:
        return plain(name, value.item())
    if isinstance(value, Iterable) and not isinstance(value, (bytes, bytearray, memoryview)):
        return [plain(name, one) for one in value]
    raise UsageError(f"`{name}` must be text, a number, or a list of them, and not {value!r}")


def _number(value: Any) -> Any:
    number = float(value)
    is_whole = not isinstance(value, float) and math.isfinite(number) and value == int(value)
    return int(value) if is_whole else number
