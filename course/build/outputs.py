"""Stored outputs: what is dropped, and what is refused."""

import re
from collections.abc import Iterator
from typing import Any

KERNELSPEC = {
    "display_name": "Python 3 (ipykernel)",
    "language": "python",
    "name": "python3",
}
METADATA = {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}}
# Model ids are random, and a stale one shows "model not found" on opening.
_DROPPED = "application/vnd.jupyter.widget-view+json"

_ADDRESS = re.compile(r"0x[0-9a-fA-F]{6,}|\bobject at\b")
_PATH = re.compile(
    r"""(?:^|[\s"'(=])(?:/[\w.-]+/[\w.-]+|[A-Za-z]:\\\w|file://)""", re.M
)
_TAG = re.compile(r"<(style|script)\b.*?</\1>|</?[a-zA-Z!][^>]*>", re.S)
_PICTURE = re.compile(r"<(?:img|svg)\b[^>]*>")
# Words beside it say the same, or its own do.
_SAYS = re.compile(r"""aria-hidden="true"|(?:alt|aria-label(?:ledby)?)=["'][^"']""")
# A Russian «с» is a unit only at the end of a phrase, else a preposition.
_SECONDS = re.compile(
    r"(?<![\w.])\d[\d.,]*\s?(?:(?:[mnuµμ]?s|sec|seconds?|мс|мкс|нс|секунд\w*)\b"
    r"|с(?=\s*(?:[.,;:)|]|$)))",
    re.M,
)
_CYRILLIC = re.compile(r"[\u0400-\u04ff]+")


def output_texts(cell: Any) -> Iterator[str]:
    """Yield every text that a code cell has stored: streams, text/plain, text/html."""
    for output in cell.get("outputs", []):
        if "text" in output:
            yield output["text"]
        for mime, text in output.get("data", {}).items():
            if mime.startswith("text/"):
                yield text


def normalise(notebook: Any) -> None:
    """Drop in place what differs from one run to the next."""
    notebook.metadata = type(notebook.metadata)(METADATA)
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            output.get("data", {}).pop(_DROPPED, None)


def output_problems(notebook: Any, lang: str) -> list[str]:
    """Return ``[cell] fault`` for everything a stored notebook must not hold."""
    problems = []
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    run = [cell for cell in cells if cell.source.strip()]
    for count, cell in enumerate(run, start=1):
        faults = []
        if cell.execution_count != count:
            faults.append(f"not run in order ({cell.execution_count}, not {count})")
        for output in cell.outputs:
            faults += _output_faults(output)
        for text in output_texts(cell):
            faults += _text_faults(text, lang, cell.metadata.get("tags", []))
        problems += [f"[{cell.id}] {fault}" for fault in dict.fromkeys(faults)]
        if cell.execution_count != count or any(
            o.output_type == "error" for o in cell.outputs
        ):
            break  # what follows did not run
    return problems


def _output_faults(output: Any) -> list[str]:
    if output.output_type == "error":
        return [f"an exception: {output.ename}: {output.evalue}"]
    if output.output_type == "stream":
        return [f"stderr: {output.text.strip()}"] if output.name == "stderr" else []
    if not output.data:
        return ["an output without text (a widget needs its text/plain)"]
    if _DROPPED in output.data:
        return ["a widget view, whose model is gone"]
    plain = output.data.get("text/plain", "")
    if plain.startswith("<Figure size") and "image/png" not in output.data:
        return ["a figure without its image"]
    described = output.metadata.get("image/png", {}).get("alt", "").strip()
    if "image/png" in output.data and not described:
        return ["a figure without alternative text (`paged_kv.figures.style` sets it)"]
    mute = [
        tag
        for tag in _PICTURE.findall(output.data.get("text/html", ""))
        if not _SAYS.search(tag)
    ]
    if mute:
        return [f"a picture without alternative text: {mute[0]}"]
    return []


def _text_faults(text: str, lang: str, tags: list[str]) -> list[str]:
    shown = _TAG.sub(" ", text)
    searches = [("a memory address", _ADDRESS, text), ("an absolute path", _PATH, text)]
    if "computed-time" not in tags:
        searches.append(("seconds", _SECONDS, shown))
    if lang == "en":
        searches.append(("Russian in an English output", _CYRILLIC, shown))
    return [
        f"{fault}: {match[0].strip()!r}"
        for fault, pattern, where in searches
        if (match := pattern.search(where))
    ]
