"""The block explorer follows requests that a cache admits."""

import pytest

from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.widgets import draw, record
from tests.caches.contents import nan_pool


@pytest.mark.parametrize("make", [PrefixCache, RadixCache])
def test_admitted_sequences_are_followed(make):
    pool = nan_pool(10, 4)
    cache = make(pool)
    with record(pool, cache) as history:
        first, _ = cache.admit("first", range(14))
        cache.publish(first, range(14))
        second, _ = cache.admit("second", [*range(8), 50, 51])
        first.free()
    kinds = [history.step(i).event.kind for i in range(len(history))]
    assert [kind for kind in kinds if kind != "publish"] == [
        "start",
        "admit",
        "admit",
        "free",
    ]
    assert "admit first" in repr(draw(history, step=1))
    text = repr(draw(history))
    assert f"second (10): {second.block_table}" in text
    assert type(cache) is make
