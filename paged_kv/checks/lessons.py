"""Where the course teaches what a case checks."""

from __future__ import annotations

from paged_kv.messages import tr


def pool() -> str:
    """Return the place of pool, free list and reference counts."""
    return tr("09.1, “The block pool”")


def block_table() -> str:
    """Return the place of logical and physical blocks."""
    return tr("09.1, “Logical and physical blocks”")


def attention() -> str:
    """Return the place of attention over one contiguous K and V."""
    return tr("09.2, “Attention over pages”")


def online_softmax() -> str:
    """Return the place of the running maximum and denominator."""
    return tr("09.2, “Online softmax”")


def sharing() -> str:
    """Return the place of fork and reference counts."""
    return tr("09.3, “Fork and reference counts”")


def copy_on_write() -> str:
    """Return the place of copy-on-write."""
    return tr("09.3, “Copy-on-write”")
