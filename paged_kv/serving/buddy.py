"""The buddy allocator: contiguous chunks, each a power of two."""

from __future__ import annotations

from paged_kv.spec import whole


class BuddyAllocator:
    """Hands out contiguous chunks of slots whose sizes are powers of two.

    A chunk is made by halving a larger one; when both halves are free again they
    become one. Unlike equal blocks, chunks of different sizes leave free pieces that
    are too small for the next request: external fragmentation.

    Parameters
    ----------
    num_slots : int
        Slots in all, not necessarily a power of two.

    Raises
    ------
    ValueError
        For a number of slots below 1.

    Notes
    -----
    Knuth, The Art of Computer Programming, volume 1, section 2.5. The SOSP'23 paper
    assumes this allocator for its Orca baselines (section 6.1).
    """

    def __init__(self, num_slots: int) -> None:
        self.num_slots = whole("num_slots", num_slots, 1)
        self._order_at: dict[int, int] = {}  # start of a chunk in use: log2 of its size
        orders = self.num_slots.bit_length()
        # Free chunks of each order, as dicts: ordered, and O(1) to remove from.
        self._free: list[dict[int, None]] = [{} for _ in range(orders)]
        start = 0
        for order in reversed(range(orders)):  # the binary digits of num_slots
            if self.num_slots >> order & 1:
                self._free[order][start] = None
                start += 1 << order

    def allocate(self, size: int) -> int | None:
        """Take a chunk of at least `size` slots; None where no free one is that long.

        Returns
        -------
        int or None
            Its first slot. The chunk is `chunk_size(size)` slots long.

        Raises
        ------
        ValueError
            For a size that is not a whole number of at least 1.
        """
        wanted = self.chunk_size(size).bit_length() - 1
        for order in range(wanted, len(self._free)):
            if self._free[order]:
                start, _ = self._free[order].popitem()
                while order > wanted:
                    order -= 1
                    self._free[order][start + (1 << order)] = None
                self._order_at[start] = wanted
                return start
        return None

    def release(self, start: int) -> None:
        """Give back the chunk that starts at `start`, and join it with its buddies.

        Raises
        ------
        ValueError
            When no chunk in use starts there.
        """
        if start not in self._order_at:
            raise ValueError(f"no chunk in use starts at slot {start}")
        order = self._order_at.pop(start)
        while (buddy := start ^ (1 << order)) in self._free[order]:
            del self._free[order][buddy]
            start = min(start, buddy)
            order += 1
        self._free[order][start] = None

    @staticmethod
    def chunk_size(size: int) -> int:
        """Slots of the chunk that a request for `size` slots gets.

        Raises
        ------
        ValueError
            As `allocate`.
        """
        return 1 << (whole("size", size, 1) - 1).bit_length()

    @property
    def largest(self) -> int:
        """Slots of the largest free chunk; a longer request does not fit."""
        free = [order for order, starts in enumerate(self._free) if starts]
        return 1 << free[-1] if free else 0

    @property
    def free(self) -> int:
        """Free slots, in whatever pieces."""
        return self.num_slots - sum(1 << order for order in self._order_at.values())

    def chunks(self) -> list[tuple[int, int, bool]]:
        """Return (first slot, slots, in use) of every chunk, from slot 0 on."""
        used = [(start, 1 << order, True) for start, order in self._order_at.items()]
        free = [
            (start, 1 << order, False)
            for order, starts in enumerate(self._free)
            for start in starts
        ]
        return sorted(used + free)
