"""Matplotlib figures of the notebooks, labelled in the language in use.

Each function returns a closed figure: as the last line of a cell, or through
``display``, it shows once. The background is opaque, so that dark themes show it too.
"""

from paged_kv.figures.exercises import (
    block_size_tradeoff,
    blocks_by_forks,
    token_weights,
)

__all__ = [
    "block_size_tradeoff",
    "blocks_by_forks",
    "token_weights",
]
