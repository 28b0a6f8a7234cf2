"""Writes `remap_ssd/_figures.pyi`, the types of figures and columns for type checkers, from the records of the simulator.

    python python/tests/figures.py

`test_types.py` fails if the file is not what this makes.
"""

import pathlib

from remap_ssd import _schema

HEAD = '''# mypy: disable-error-code="override"
"""Types of figures and names of columns, from the records of the simulator: written by `python/tests/figures.py`."""

from typing import Literal, Optional, TypedDict, overload

from ._results import Record, Values
'''

SCALARS = {"boolean": "bool", "integer": "int", "number": "float", "text": "str"}


class Classes:
    """The classes of records, those within others first."""

    def __init__(self):
        self.texts = {}

    def type_of(self, of, inside_list=False):
        """A type as an annotation; records become classes, in lists dicts."""
        if isinstance(of, str):
            return SCALARS[of]
        ((kind, inner),) = of.items()
        if kind == "optional":
            return f"Optional[{self.type_of(inner, inside_list)}]"
        if kind == "list":
            return f"list[{self.type_of(inner, True)}]"
        if kind == "map":
            return "Values" if not inside_list else f"dict[str, {self.type_of(inner, True)}]"
        name, fields = inner
        if name not in self.texts:
            typed = [(field, self.type_of(one, inside_list)) for field, one in fields]
            self.texts[name] = (typed_dict if inside_list else record)(name, typed)
        return name


def typed_dict(name, fields):
    return f"class {name}(TypedDict):\n" + "".join(f"    {field}: {of}\n" for field, of in fields)


def record(name, fields):
    """A class with the fields as attributes, and by key."""
    lines = [f"class {name}(Record):", *(f"    {field}: {of}" for field, of in fields)]
    by_type = {}
    for field, of in fields:
        by_type.setdefault(of, []).append(field)
    for of, names in by_type.items():
        lines += ["    @overload"] if len(by_type) > 1 else []
        lines.append(f"    def __getitem__(self, name: {literal(names)}) -> {of}: ...")
    return "\n".join(lines) + "\n"


def literal(names):
    return f"Literal[{', '.join(repr(name).replace(chr(39), chr(34)) for name in names)}]"


def text():
    classes = Classes()
    classes.type_of({"record": ["RunSummary", _schema.run_fields()]})
    columns = _schema.columns()
    options = ("key", "program_version", "sources", "run", "scheme")
    plain = [(name, of["optional"]) for name, of in columns if name not in options and not name.startswith("option.")]
    figures = [name for name, of in plain if of in ("integer", "number")]
    aliases = [
        ("Column", [name for name, _ in columns]),
        ("Figure", figures),
        ("SampleName", [name for name, _ in _schema.sample_fields()]),
    ]
    parts = [HEAD, *classes.texts.values(), *(f"{name} = {literal(names)}\n" for name, names in aliases)]
    return "\n".join(parts)


if __name__ == "__main__":
    path = pathlib.Path(__file__).parents[1] / "remap_ssd" / "_figures.pyi"
    path.write_text(text(), encoding="utf-8")
