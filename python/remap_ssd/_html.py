"""Tables for notebooks. Absent: what is in them."""

from __future__ import annotations

from html import escape
from typing import Any, Iterable, Optional, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[Any]], title: Optional[str] = None) -> str:
    """A table with the first column as the names of rows."""
    lines = ["<table>"]
    if title is not None:
        lines.append(f"<caption>{escape(title)}</caption>")
    lines.append("<thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr></thead><tbody>")
    for first, *others in rows:
        cells = "".join(f'<td style="text-align: right">{escape(shown(value))}</td>' for value in others)
        lines.append(f"<tr><th>{escape(shown(first))}</th>{cells}</tr>")
    return "\n".join([*lines, "</tbody></table>"])


def shown(value: Any) -> str:
    """A value for readers: four digits, and commas between thousands."""
    if value is None:
        return "–"
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
