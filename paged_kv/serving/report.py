"""Tables of numbers for people: HTML in a notebook, plain text elsewhere."""

from __future__ import annotations

import html
import math
from collections.abc import Iterable, Mapping, Sequence

from paged_kv.messages import language, tr
from paged_kv.serving.simulator import Result

# No colours of its own: the page knows whether it is light or dark.
_STYLE = "border-collapse:collapse;font-variant-numeric:tabular-nums"
_CELL = "padding:.25em .7em;border-bottom:1px solid #8080805a;text-align:"


def number(value: float, digits: int = 0) -> str:
    """Return `value` in the current language: 1 234,5 or 1,234.5; NaN is a dash."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if not text.strip("-0.,"):
        text = text.removeprefix("-")  # no negative zero
    text = text.replace("-", "\N{MINUS SIGN}")
    if language() == "ru":
        return text.replace(",", "\N{NO-BREAK SPACE}").replace(".", ",")
    return text


def percent(share: float, digits: int = 0) -> str:
    """Return a share of 1 in percent, in the current language: 12,5 % or 12.5%."""
    sign = "\N{NO-BREAK SPACE}%" if language() == "ru" else "%"
    return number(100 * share, digits) + sign


def size(n_bytes: float, digits: int = 2) -> str:
    """Return a number of bytes in the binary unit that suits it, e.g. ``1.5 MiB``."""
    units = (tr("B"), tr("KiB"), tr("MiB"), tr("GiB"), tr("TiB"))
    power = 0
    while abs(n_bytes) >= 1024 and power < len(units) - 1:
        n_bytes /= 1024
        power += 1
    if n_bytes == round(n_bytes, digits) // 1:
        digits = 0
    return f"{number(n_bytes, digits)}\N{NO-BREAK SPACE}{units[power]}"


class Table:
    """A table with a caption; the first column and the heads are headings.

    Parameters
    ----------
    columns : mapping of str to iterable of object
        Cells by column head, each shown as ``str`` gives it.
    caption : str
        What the table shows.

    Raises
    ------
    ValueError
        When the columns differ in length.
    """

    def __init__(self, columns: Mapping[str, Iterable[object]], caption: str) -> None:
        cells = {
            head: [str(cell) for cell in column] for head, column in columns.items()
        }
        lengths = {head: len(column) for head, column in cells.items()}
        if len(set(lengths.values())) > 1:
            raise ValueError(f"columns differ in length: {lengths}")
        self.heads = list(cells)
        self.rows = list(zip(*cells.values(), strict=True))
        self.caption = caption

    @classmethod
    def from_rows(
        cls, heads: Sequence[str], rows: Iterable[Sequence[object]], caption: str
    ) -> Table:
        """Return the table of these rows, each as long as `heads`, at least one.

        Raises
        ------
        ValueError
            When a row has more or fewer cells than there are heads.
        """
        rows = list(rows)
        for row in rows:
            if len(row) != len(heads):
                raise ValueError(f"{len(heads)} heads, but a row of {list(row)}")
        return cls(dict(zip(heads, zip(*rows, strict=True), strict=True)), caption)

    def __repr__(self) -> str:
        columns = list(zip(self.heads, *self.rows, strict=True))
        widths = [max(map(len, column)) for column in columns]
        lines = [
            "  ".join(
                cell.ljust(width) if i == 0 else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(row, widths, strict=True))
            ).rstrip()
            for row in (self.heads, *self.rows)
        ]
        return "\n".join([self.caption, *lines])

    def _repr_html_(self) -> str:
        def cells(row: Sequence[str], tag: str) -> str:
            first, *others = map(html.escape, row)
            scope = "col" if tag == "th" else "row"
            parts = [f'<th scope="{scope}" style="{_CELL}left">{first}</th>']
            attribute = ' scope="col"' if tag == "th" else ""
            parts += [
                f'<{tag}{attribute} style="{_CELL}right">{cell}</{tag}>'
                for cell in others
            ]
            return f"<tr>{''.join(parts)}</tr>"

        body = "".join(cells(row, "td") for row in self.rows)
        caption = f'<caption style="{_CELL}left">{html.escape(self.caption)}</caption>'
        return (
            f'<table style="{_STYLE}">{caption}<thead>{cells(self.heads, "th")}</thead>'
            f"<tbody>{body}</tbody></table>"
        )


def system_name(name: str) -> str:
    """Return the name of a system in the current language."""
    return tr("Paged") if name == "Paged" else name


def summary(results: Sequence[Result], caption: str | None = None) -> Table:
    """Return the summary of several simulations, one system per row.

    Shares are percent of the slots (see `Result.shares`).
    """
    columns: dict[str, list[str]] = {
        tr("system"): [system_name(r.system) for r in results]
    }
    heads = (
        tr("tokens, %"),
        tr("reservation, %"),
        tr("internal, %"),
        tr("external and other, %"),
    )
    for i, head in enumerate(heads):
        columns[head] = [number(100 * [*r.shares.values()][i], 1) for r in results]
    columns[tr("mean batch")] = [number(r.mean_batch, 2) for r in results]
    columns[tr("preemptions")] = [number(r.preemptions) for r in results]
    columns[tr("tokens/s")] = [number(r.tokens_per_second) for r in results]
    columns[tr("latency, s per token")] = [
        number(r.normalised_latency, 3) for r in results
    ]
    if caption is None:
        caption = ", ".join(dict.fromkeys(r.workload.name for r in results))
    return Table(columns, caption)
