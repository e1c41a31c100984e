"""Tables of numbers for people: HTML in a notebook, plain text elsewhere."""

from __future__ import annotations

import html
import math
from collections.abc import Sequence

from paged_kv.messages import language, tr
from paged_kv.serving.simulator import Result

_STYLE = (
    "border-collapse:collapse;font-variant-numeric:tabular-nums;color:#1a1a1a;"
    "background:#ffffff"
)
_CELL = "padding:.25em .7em;border-bottom:1px solid #d9d9d9;text-align:"


def number(value: float, digits: int = 0) -> str:
    """Return `value` in the current language: 1 234,5 or 1,234.5; NaN is a dash."""
    if math.isnan(value):
        return "–"
    text = f"{value:,.{digits}f}"
    if language() == "ru":
        return text.replace(",", "\N{NO-BREAK SPACE}").replace(".", ",")
    return text


class Table:
    """A table with a caption; the first column and the first row are headings.

    Parameters
    ----------
    heads : sequence of str
        Column heads.
    rows : sequence of sequence of str
        Cells, as many per row as there are heads.
    caption : str
        What the table shows.

    Raises
    ------
    ValueError
        For a row of another length.
    """

    def __init__(
        self, heads: Sequence[str], rows: Sequence[Sequence[str]], caption: str
    ) -> None:
        for row in rows:
            if len(row) != len(heads):
                raise ValueError(f"row {row} has {len(row)} cells, not {len(heads)}")
        self.heads, self.rows, self.caption = heads, rows, caption

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
    heads = [
        tr("system"),
        tr("tokens, %"),
        tr("reservation, %"),
        tr("internal, %"),
        tr("external and other, %"),
        tr("mean batch"),
        tr("preemptions"),
        tr("tokens/s"),
        tr("latency, s per token"),
    ]
    rows = [
        [
            system_name(r.system),
            *(number(100 * share, 1) for share in r.shares.values()),
            number(r.mean_batch, 2),
            number(r.preemptions),
            number(r.tokens_per_second),
            number(r.normalised_latency, 3),
        ]
        for r in results
    ]
    if caption is None:
        caption = ", ".join(dict.fromkeys(r.workload.name for r in results))
    return Table(heads, rows, caption)
