"""A scheduler small enough to compare caches with: requests go through one, counted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from paged_kv.allocator import OutOfBlocks
from paged_kv.caching import NeverFits
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.sequence import Sequence
from paged_kv.serving.prefix_workload.requests import PrefixRequest
from paged_kv.spec import whole

T = TypeVar("T")


class Served(NamedTuple):
    """One request that went through `replay`.

    Attributes
    ----------
    number : int
        Its place in the order of arrival, from 0.
    n_cached : int
        Tokens of its prompt that were found.
    """

    number: int
    n_cached: int


def replay(
    cache: PrefixCache | RadixCache,
    requests: Iterable[PrefixRequest],
    *,
    running: int = 1,
    waiting: int = 1,
    longest_prefix_first: bool = False,
) -> list[Served]:
    """Send requests through a cache and count tokens; no K and V are written.

    Parameters
    ----------
    cache : PrefixCache or RadixCache
    requests : iterable of PrefixRequest
    running : int
        Requests that hold their blocks at a time. The first to come is the first to
        finish; also sooner, when the next one finds no room.
    waiting : int
        Requests that the scheduler sees and may choose from.
    longest_prefix_first : bool
        Whether it chooses the one with the longest cached prefix. By default it takes
        the one that waits longest.

    Returns
    -------
    list of Served
        In the order served; ``cache.stats`` sums up.

    Raises
    ------
    NeverFits
        For a prompt that the whole pool cannot hold.
    OutOfBlocks
        For a prompt that leaves no room for its answer.
    """
    running, waiting = whole("running", running, 1), whole("waiting", waiting, 1)
    arriving = enumerate(requests)
    queue = list(islice(arriving, waiting))
    active: deque[Sequence] = deque()
    found: list[Served] = []

    def with_room(action: Callable[[], T]) -> T:
        while True:
            try:
                return action()
            except OutOfBlocks as error:
                if isinstance(error, NeverFits) or not active:
                    raise
                active.popleft().free()

    while queue:
        best = 0
        if longest_prefix_first:
            cached = [cache.match(request.prompt)[1] for _, request in queue]
            best = cached.index(max(cached))
        number, request = queue.pop(best)
        queue += islice(arriving, 1)
        while len(active) >= running:
            active.popleft().free()
        seq, n_cached = with_room(partial(cache.admit, request.name, request.prompt))
        cache.publish(seq, request.prompt)
        with_room(partial(seq.reserve, len(request.answer)))
        cache.publish(seq, np.concatenate([request.prompt, request.answer]))
        active.append(seq)
        found.append(Served(number, n_cached))
    while active:
        active.popleft().free()
    return found
