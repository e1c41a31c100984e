"""The block explorer follows requests that a cache admits."""

import pytest

from paged_kv.allocator import OutOfBlocks
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


@pytest.mark.parametrize("make", [PrefixCache, RadixCache])
def test_a_refused_request_is_named(make):
    pool = nan_pool(2, 4)
    cache = make(pool)
    with record(pool, cache) as history:
        for name in ("A", "B", "B"):
            with pytest.raises(OutOfBlocks):
                cache.admit(name, range(14))
        with pytest.raises(OutOfBlocks):
            cache.admit(seq_id="C", tokens=range(14))
    assert [history.step(i).event.asked_for for i in range(1, len(history))] == [
        "A",
        "B",
        "C",
    ]
    text = repr(draw(history, step=2))
    assert "admit ×2 B is impossible" in text
    assert f"admit {make.__name__}" not in text
    assert ">B</span>" in draw(history, step=2)._repr_html_()
