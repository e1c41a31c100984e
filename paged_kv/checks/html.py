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
.pkv.pkv.pkv { --pkv-ink: var(--jp-ui-font-color0, CanvasText);
  --pkv-paper: var(--jp-layout-color0, Canvas);
  --pkv-mark: var(--pkv-ink);
  max-width: 860px; padding: 10px 16px; border: 1px solid var(--pkv-mark);
  border-left-width: 6px; border-radius: 6px; color: var(--pkv-ink);
  background: var(--pkv-paper); font: 14px/1.5 var(--jp-ui-font-family, sans-serif); }
.pkv.pkv.pkv[data-state="passed"] { --pkv-mark: #009E73; }
.pkv.pkv.pkv[data-state="wrong"] { --pkv-mark: #D55E00; }
.pkv.pkv.pkv[data-state="raised"] { --pkv-mark: #D55E00; border-left-style: double; }
.pkv.pkv.pkv[data-state="not-started"] { --pkv-mark: #0072B2;
  border-left-style: dashed; }
.pkv.pkv.pkv h4 { margin: 0 0 4px; font-size: 15px; font-weight: 600; }
.pkv.pkv.pkv p { margin: 0 0 8px; font-size: 15px; }
.pkv.pkv.pkv .pkv-part { display: grid; grid-template-columns: 120px 1fr;
  gap: 0 12px; align-items: baseline; margin: 0 0 6px; }
.pkv.pkv.pkv h5 { margin: 0; font-size: 12px; font-weight: 600; }
.pkv.pkv.pkv ul { margin: 0; padding-left: 20px; }
.pkv.pkv.pkv pre { margin: 0; padding: 6px 10px; overflow-x: auto; border-radius: 4px;
  color: var(--pkv-ink); background: var(--jp-layout-color2, rgb(128 128 128 / 15%));
  font: 13px/1.45 var(--jp-code-font-family, monospace); }
.pkv.pkv.pkv code { color: inherit; background: none; padding: 0;
  font: 13px/1.45 var(--jp-code-font-family, monospace); }
.pkv.pkv.pkv :is(p, li, .pkv-line) code { padding: 0 3px; white-space: nowrap;
  border-radius: 3px;
  background: var(--jp-layout-color2, rgb(128 128 128 / 15%)); }
"""


def render(report: Report) -> str:
    """Return the report as one HTML element with `data-state` and `data-code`."""
    state = report.state.replace(" ", "-")
    body = "".join(_section(section) for section in report.sections)
    return (
        f'<section class="pkv" data-state="{state}" data-code="{escape(report.code)}" '
        f'lang="{report.language}">\n<style>{STYLE}</style>\n'
        f'<h4><span aria-hidden="true">{SIGNS[report.state]} </span>'
        f"{escape(report.title)}</h4>\n"
        f"<p>{_prose(report.message)}</p>\n{body}</section>"
    )


def render_note(note: Note) -> str:
    """Return a hint or the progress as one HTML element."""
    body = "".join(
        f"<pre><code>{escape(dedent(p))}</code></pre>\n"
        if p.startswith(" ")
        else f"<p>{_prose(p)}</p>\n"
        for p in note.paragraphs
    )
    return (
        f'<section class="pkv" lang="{note.language}">\n<style>{STYLE}</style>\n'
        f"<h4>{escape(note.title)}</h4>\n{body}</section>"
    )


def _section(section: Section) -> str:
    if section.is_code:
        body = "<pre><code>" + escape("\n".join(section.lines)) + "</code></pre>"
    elif len(section.lines) == 1:
        body = f'<div class="pkv-line">{_prose(section.lines[0])}</div>'
    else:
        body = (
            "<ul>" + "".join(f"<li>{_prose(x)}</li>" for x in section.lines) + "</ul>"
        )
    return f'<div class="pkv-part"><h5>{escape(section.label)}</h5>\n{body}</div>\n'


def _prose(text: str) -> str:
    """Return text in HTML, with `code` between backticks set as code."""
    return re.sub("`([^`]+)`", r"<code>\1</code>", escape(text))
