"""A report as HTML that can be read without its style, on light and dark pages."""

from __future__ import annotations

import re
from html import escape
from textwrap import dedent

from paged_kv.checks.report import Note, Report, Section

# A sign beside the colour: nothing is told by colour alone.
SIGNS = {"not started": "○", "raised": "!", "wrong": "✗", "passed": "✓"}

# JupyterLab styles the output of cells; the tripled class outweighs it. Without
# JupyterLab the fallbacks follow the page's own colours.
STYLE = """
.pkv-report.pkv-report.pkv-report {
  --ink: var(--jp-ui-font-color0, CanvasText);
  --shade: var(--jp-layout-color2, rgb(128 128 128 / 15%));
  --mark: var(--ink);
  --mono: 13px/1.45 var(--jp-code-font-family, monospace);
  max-width: 860px; padding: 10px 16px; border: 1px solid var(--mark);
  border-left-width: 6px; border-radius: 6px; color: var(--ink);
  background: var(--jp-layout-color0, Canvas);
  font: 14px/1.5 var(--jp-ui-font-family, sans-serif);
  &[data-state="passed"] { --mark: #009E73; }
  &[data-state="wrong"] { --mark: #D55E00; }
  &[data-state="raised"] { --mark: #D55E00; border-left-style: double; }
  &[data-state="not-started"] { --mark: #0072B2; border-left-style: dashed; }
  & p { margin: 0 0 8px; font-size: 15px; }
  & .title { margin: 0 0 4px; font-weight: 600; }
  & .part { display: grid; grid-template-columns: 120px 1fr; gap: 0 12px;
    align-items: baseline; margin: 0 0 6px; }
  & .label { font-size: 12px; font-weight: 600; }
  & ul { margin: 0; padding-left: 20px; list-style: disc; }
  & pre { margin: 0; padding: 6px 10px; overflow-x: auto; border-radius: 4px;
    color: var(--ink); background: var(--shade); font: var(--mono); }
  & code { color: inherit; background: none; padding: 0; font: var(--mono); }
  & :is(p, li, .line) code { padding: 0 3px; white-space: nowrap; border-radius: 3px;
    background: var(--shade); }
}
"""


def render(report: Report) -> str:
    """Return the report as one HTML element with `data-state` and `data-code`.

    Its title is no heading element: JupyterLab would list it among the notebook's.
    """
    state = report.state.replace(" ", "-")
    body = "".join(_section(section) for section in report.sections)
    return (
        f'<section class="pkv-report" data-state="{state}" '
        f'data-code="{escape(report.code)}" lang="{report.language}">\n'
        f"<style>{STYLE}</style>\n"
        f'<p class="title"><span aria-hidden="true">{SIGNS[report.state]} </span>'
        f"{escape(report.title)}</p>\n"
        f"<p>{prose(report.message)}</p>\n{body}</section>"
    )


def render_note(note: Note) -> str:
    """Return a hint or the progress as one HTML element."""
    body = "".join(
        f"<pre><code>{escape(dedent(p))}</code></pre>\n"
        if p.startswith(" ")
        else f"<p>{prose(p)}</p>\n"
        for p in note.paragraphs
    )
    return (
        f'<section class="pkv-report" lang="{note.language}">\n<style>{STYLE}</style>\n'
        f'<p class="title">{escape(note.title)}</p>\n{body}</section>'
    )


def _section(section: Section) -> str:
    if section.is_code:
        body = "<pre><code>" + escape("\n".join(section.lines)) + "</code></pre>"
    elif len(section.lines) == 1:
        body = f'<div class="line">{prose(section.lines[0])}</div>'
    else:
        body = "<ul>" + "".join(f"<li>{prose(x)}</li>" for x in section.lines) + "</ul>"
    label = f'<div class="label">{escape(section.label)}</div>'
    return f'<div class="part">{label}\n{body}</div>\n'


def prose(text: str) -> str:
    """Return text in HTML, with `code` between backticks set as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
