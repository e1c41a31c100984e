"""Where the course teaches what a case checks: lesson and section."""

from __future__ import annotations

from paged_kv.messages import tr


def blocks() -> str:
    """Return the place of the pool, the block table and the slots."""
    return tr("09.1, “Three requests in one pool”")


def run_out() -> str:
    """Return the place of what happens without a free block."""
    return tr("09.1, “When the blocks run out”")


def slots() -> str:
    """Return the place of the last, partial block."""
    return tr("09.2, “Forty tokens in three blocks”")


def online_softmax() -> str:
    """Return the place of the running maximum and denominator."""
    return tr("09.2, “Why softmax does not split”")


def heads() -> str:
    """Return the place of query heads and their KV heads."""
    return tr("09.2, “Which head reads which”")


def sharing() -> str:
    """Return the place of fork, reference counts and copy-on-write."""
    return tr("09.3, “Fork and copy-on-write”")


def boundary() -> str:
    """Return the place of when a copy is needed, and of the ten forks."""
    return tr("09.3, “The block boundary decides”")
