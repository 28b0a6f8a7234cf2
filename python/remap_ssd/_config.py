"""Configuration of a device."""

from __future__ import annotations

import json
import os
import re
from functools import lru_cache
from typing import Any, Union

from . import _native
from ._errors import UsageError, not_found
from ._results import Values
from ._values import plain


def _of_values(keys: dict[str, Any]) -> tuple[str, str]:
    """A device from its values. Errors name values, not lines of the generated text."""
    try:
        return _native.config_of_json(json.dumps(plain("config", keys)))
    except UsageError as error:
        raise UsageError(re.sub(r"\bline \d+: ", "", str(error))) from None


class Config:
    """Configuration of a device: geometry, latencies, firmware. Validated and immutable.

    >>> small = Config("fast21-32g", scale="1/64", scheme="nlog", flash={"read_ns": 40_000})
    >>> small.firmware.log_bytes, small.addressable_pages
    >>> compare(config=small.replace(gc_free=0.2))

    A preset (``presets()`` lists them) with some values replaced.
    The names are those of a device file (``print(config.to_toml())``): ``name``, ``addressable``, ``queue_depth``, ``content``,
    and the tables ``geometry``, ``flash``, ``nvram``, ``hash``, ``link``, ``controller``, ``background``, ``timing`` and ``firmware``, each a dict of those
    values that differ. Names of ``firmware`` may be given without it (``scheme``, ``log_bytes``, ``dedup``, ``gc_policy``, ...).
    Values are replaced first; ``scale`` then shrinks the device with its remapping metadata.

    Times are in nanoseconds, sizes in bytes, addresses in pages of 4 KiB.

    Raises ``UsageError`` (a ``ValueError``), with the command line's sentence, if the device cannot work.
    """

    __slots__ = ("_toml", "_value", "_addressable")

    def __init__(self, preset: str = "fast21-32g", *, scale: Union[str, float, None] = None, **values: Any) -> None:
        keys: dict[str, Any] = {"preset": preset}
        firmware = _firmware_names()
        for name, value in values.items():
            if name in firmware:
                keys.setdefault("firmware", {})[name] = value
            elif isinstance(value, dict):
                keys[name] = {**keys.get(name, {}), **value}
            else:
                keys[name] = value
        if scale is not None:
            keys["scale"] = scale
        self._set(*_of_values(keys))

    def _set(self, toml: str, value: str) -> None:
        known = json.loads(value)
        self._toml, self._value, self._addressable = toml, known["device"], known["addressable_pages"]

    @classmethod
    def _of(cls, toml: str, value: str) -> "Config":
        config = object.__new__(cls)
        config._set(toml, value)
        return config

    @classmethod
    def from_toml(cls, text: str) -> "Config":
        """Parses the text of a device file. ``UsageError`` gives the error and its line."""
        return cls._of(*_native.config_of_toml(text))

    @classmethod
    def load(cls, path: Union[str, "os.PathLike[str]"]) -> "Config":
        """Reads a device file. ``NotFound`` or ``OSError`` if it cannot be read, ``UsageError`` if it does not describe a device."""
        try:
            with open(path, encoding="utf-8") as file:
                text = file.read()
        except FileNotFoundError:
            raise not_found(os.fspath(path)) from None
        try:
            return cls.from_toml(text)
        except UsageError as error:
            raise UsageError(f"{os.fspath(path)}: {error}") from None

    def replace(self, **values: Any) -> "Config":
        """A copy with some values replaced, named as in ``Config(...)``; ``scale`` is a share of this device."""
        firmware = _firmware_names()
        keys = self.to_dict()
        for name, value in values.items():
            if name in firmware:
                keys["firmware"][name] = value
            elif isinstance(value, dict):
                keys[name] = {**keys.get(name, {}), **value}
            else:
                keys[name] = value
        return self._of(*_of_values(keys))

    def to_toml(self) -> str:
        """A device file that reads back as this device; pass it to the command line by ``--config``."""
        return self._toml

    def to_dict(self) -> dict[str, Any]:
        """A copy of all values."""
        return json.loads(json.dumps(self._value))

    @property
    def addressable_pages(self) -> int:
        """Logical pages that workloads address: ``addressable`` of ``firmware.lpns``."""
        return self._addressable

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(Values(self._value), name)

    def __getitem__(self, name: str) -> Any:
        return Values(self._value)[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self._value})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Config) and self._value == other._value

    def __hash__(self) -> int:
        return hash(self._toml)

    def __repr__(self) -> str:
        return f"<Config {self.name}: {self.firmware.scheme}, {self.firmware.lpns} logical pages>"

    def __reduce__(self) -> Any:
        return (Config.from_toml, (self._toml,))


def presets() -> list[Values]:
    """The ready-made devices: ``name``, ``about``, ``assumed`` (values missing in its source), ``checked`` (what it was compared with) and ``device``.

    >>> [preset.name for preset in presets()]
    """
    return [Values(preset) for preset in json.loads(_native.presets())]


@lru_cache(maxsize=1)
def _firmware_names() -> frozenset[str]:
    return frozenset(json.loads(_native.presets())[0]["device"]["firmware"])
