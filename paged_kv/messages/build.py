"""Compile the Russian catalogues: ``python paged_kv/messages/build.py`` (needs Babel).

A catalogue is written to ``.mo`` beside its ``.po`` because the core reads it with the
standard library alone.
"""

from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path

from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po

HERE = Path(__file__).parent


def compile_catalogue(po: Path) -> bytes:
    """Return the ``.mo`` bytes of a ``.po`` file, the same for the same input."""
    with po.open("rb") as file:
        catalogue = read_po(file, locale="ru")
    # Babel puts the time of reading into the header where the .po has none.
    catalogue.creation_date = datetime(2000, 1, 1, tzinfo=UTC)
    buffer = BytesIO()
    write_mo(buffer, catalogue)
    return buffer.getvalue()


if __name__ == "__main__":
    for path in sorted(HERE.glob("*/*.po")):
        path.with_suffix(".mo").write_bytes(compile_catalogue(path))
