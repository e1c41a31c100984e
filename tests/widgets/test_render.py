"""Facts in the HTML: everything that is there is shown, once, in words too."""

import random
import re

import numpy as np
import pytest

from paged_kv import KVCacheSpec, Sequence
from paged_kv.messages import use_language
from paged_kv.widgets import draw, record
from paged_kv.widgets.facts import Facts
from paged_kv.widgets.tables import MAX_ROWS
from tests.widgets.markup import ids, parse
from tests.widgets.runs import Books, mixed, shared_prompt, small_pool

SIZES = [1, 5, 16, 17, 64, 128, 129, 384, 385, 1024, 1025, 4096, 9000]
COPY = 16  # the step of the shared prompt at which req4 copies block 31


@pytest.fixture(autouse=True)
def english():
    use_language("en")
    yield
    use_language("en")


def tree(*args, **options):
    return parse(draw(*args, **options)._repr_html_())


def pool_cells(page):
    return page.one("div", "pool").all(cls="b")


@pytest.fixture(scope="module")
def prompt_run():
    return shared_prompt()


@pytest.mark.parametrize("num_blocks", SIZES)
def test_every_block_is_in_the_pool_once(num_blocks):
    history = mixed(num_blocks, 20, random.Random(num_blocks), prompt=1)
    for index in {0, len(history) // 2, len(history) - 1}:
        shown = [
            block
            for cell in pool_cells(tree(history, step=index))
            for block in ids(cell.attributes["data-b"])
        ]
        assert shown == list(range(num_blocks))


@pytest.mark.parametrize("num_blocks", [64, 256, 1024, 4096])
def test_look_count_and_fill_of_each_block(num_blocks):
    history = mixed(num_blocks, 30, random.Random(7), operations=300)
    facts = Facts(history.at(-1))
    for cell in pool_cells(tree(history)):
        for block in ids(cell.attributes["data-b"]):
            count, fill = int(facts.ref[block]), int(facts.fill[block])
            look = "fr" if count == 0 else "pr" if count == 1 else "sh"
            assert look in cell.classes
            assert ("free" in cell.words) == (count == 0)
            if count > 1 or (count and num_blocks <= 256):
                assert re.search(rf"\b{count}\b", cell.words)
            if count and (fill < 16 or num_blocks <= 256):
                assert f"{fill}/16" in cell.words
            if count == 1:
                assert facts.moment.names[facts.owner[block]] in cell.words


def test_owners_of_a_shared_block_are_named(prompt_run):
    cell = pool_cells(tree(prompt_run, step=COPY))[31]
    assert cell.words.endswith("4/16 sys, req5, req6, req7, req8, req9")
    assert {"p0", "p6", "p10"} <= cell.one("span", "op").classes
    assert "p1" not in cell.one("span", "op").classes


def test_more_owners_than_dashes_are_a_number():
    page = tree(shared_prompt(forks=40, num_blocks=128), step=COPY)
    assert pool_cells(page)[0].words.endswith("16 owners")


def test_owners_beyond_five_repeat_a_colour_with_another_mark(prompt_run):
    names = tree(prompt_run, step=COPY).one("table", "bt").all("span", "nm")
    looks = [tuple(sorted(name.classes - {"nm", "hot"})) for name in names]
    assert len(set(looks)) == len(names) == 11


def test_this_step_is_marked(prompt_run):
    page = tree(prompt_run, step=COPY)
    cells = pool_cells(page)
    assert [i for i, c in enumerate(cells) if "hot" in c.classes] == [36]
    assert "written" in cells[36].words
    assert "↓6" in cells[31].words
    assert page.one("span", "gh").words == "copied from 31 →"
    assert page.one("svg", "cow")
    assert page.one("li", "on").words == "append + copy-on-write req4 31→36"
    fork = pool_cells(tree(prompt_run, step=3))
    assert not any("hot" in cell.classes for cell in fork)  # no block was touched
    assert sum("↑3" in cell.words for cell in fork) == 32


def test_numbers_of_the_exercise(prompt_run):
    before_free = tree(prompt_run, step=21).one("dl", "met")
    numbers = [dd.one("b").words for dd in before_free.all("dd")]
    # 31 shared, the prompt's tail, ten copies; sys itself counts as a sequence here
    assert numbers[:4] == ["42 / 64", "22", "352", "310 blocks = 620 MiB"]
    after = [b.words for b in tree(prompt_run, step=22).one("dl", "met").all("b")]
    assert after[:4] == ["41 / 64", "23", "320", "279 blocks = 558 MiB"]
    last = [b.words for b in tree(prompt_run).one("dl", "met").all("b")]
    assert last[0] == "0 / 64"
    assert last[4] == "0"


def test_waste_is_the_empty_slots_of_listed_blocks():
    pool = small_pool()
    seqs = [Sequence(pool, i) for i in range(3)]
    for seq, n in zip(seqs, (1, 4, 6), strict=True):
        seq.reserve(n)
    fork = seqs[2].fork("fork")
    met = tree(pool, *seqs, fork).one("dl", "met")
    assert met.all("dd")[4].words == "5 of 16: 31.2 %"


@pytest.mark.parametrize(
    ("model", "text"),
    [("llama-3-8b", "= 0.5 MiB"), ("llama-2-7b", "= 2 MiB")],
)
def test_memory_is_that_of_the_chosen_model(model, text):
    pool = small_pool()
    seq = Sequence(pool, "a")
    seq.reserve(4)
    fork = seq.fork("b")
    assert text in tree(pool, seq, fork, model=model).one("dl", "met").words
    spec = KVCacheSpec.preset(model)
    assert text in tree(pool, seq, fork, model=spec).one("dl", "met").words


def test_tables_have_caption_scope_and_one_width():
    rng = random.Random(3)
    histories = [shared_prompt(), mixed(64, 9, rng), mixed(1024, 30, rng)]
    for history in histories:
        for index in (0, 1, len(history) // 2, len(history) - 1):
            for table in tree(history, step=index).all("table"):
                assert table.one("caption").words
                assert all("scope" in th.attributes for th in table.all("th"))
                widths = {
                    sum(
                        int(cell.attributes.get("colspan", 1))
                        for cell in row.children
                        if cell.tag in ("td", "th")
                    )
                    for row in table.all("tr")
                }
                full = max(widths)
                assert widths == {full} or table.classes != {"bt"}


def test_a_row_lists_its_whole_table(prompt_run):
    rng = random.Random(5)
    for history in (prompt_run, mixed(64, 9, rng), mixed(1024, 30, rng)):
        for index in range(1, len(history), 7):
            moment = history.at(index)
            tables = {t.name: t.blocks.tolist() for t in moment.after.tables if t.live}
            rows = tree(history, step=index).one("table", "bt").all("tr")
            seen = set()
            for row in rows:
                if not (names := row.all("span", "nm")) or "gone" in row.classes:
                    continue
                name = names[0].words
                chips = row.all("span", "c")
                listed = [b for chip in chips for b in ids(chip.attributes["data-b"])]
                assert listed == tables[name]
                assert ids(names[0].attributes["data-b"]) == tables[name]
                assert row.one("td", "len").words == str(
                    next(t.length for t in moment.after.tables if t.name == name)
                )
                seen.add(name)
            left = len(tables) - len(seen)
            assert bool(left) == any("more sequence" in row.words for row in rows)
            assert len(rows) <= MAX_ROWS + 2


def test_reserved_and_impossible_entries_are_shown():
    pool = small_pool()
    seq = Sequence(pool, "a")
    seq.reserve(3)
    seq.block_table += [5, 99]
    page = tree(pool, seq)
    assert "+2 reserved" in page.words
    assert "a lists 99, which is no block of the pool." in page.words


def test_the_widget_keeps_its_height_and_a_still_picture_does_not(prompt_run):
    page = tree(prompt_run, step=2)
    assert len(page.one("table", "bt").all("tr")) == 1 + 2


def test_the_timeline_shows_the_steps_around(prompt_run):
    stops = tree(prompt_run, step=COPY).one("ol", "stops")
    steps = [int(li.attributes["data-k"]) for li in stops.all("li")]
    assert steps == list(range(COPY - 5, COPY + 6))
    assert stops.attributes["start"] == str(COPY - 5)
    for index in (0, 2, len(prompt_run) - 1):
        stops = tree(prompt_run, step=index).one("ol", "stops")
        assert stops.one("li", "on").attributes["data-k"] == str(index)
        assert len(stops.all("li")) == 11


@pytest.mark.parametrize("index", [0, 5, COPY, -1])
def test_the_html_is_the_same_each_time_and_names_no_machine(prompt_run, index):
    html = draw(prompt_run, step=index)._repr_html_()
    again = draw(shared_prompt(), step=index)._repr_html_()
    assert html == again
    assert not re.search(r"0x[0-9a-f]{6}|[0-9a-f]{8}-[0-9a-f]{4}-", html)
    assert "http" not in html


def test_names_are_escaped():
    pool = small_pool()
    seq = Sequence(pool, "<b>&\"'")
    seq.reserve(1)
    page = tree(pool, seq)
    assert page.one("table", "bt").one("span", "nm").words == "<b>&\"'"


def test_both_languages_and_nothing_but_them(prompt_run):
    for index in (0, 1, 2, COPY, 22, len(prompt_run) - 1):
        texts = {}
        for code in ("en", "ru"):
            use_language(code)
            picture = draw(prompt_run, step=index)
            page = parse(picture._repr_html_())
            assert page.one("div", "pkv").attributes["lang"] == code
            texts[code] = (page.words, repr(picture))
        for text in texts["en"]:
            assert not re.search("[а-яА-Я]", text)
        for text in texts["ru"]:
            russian = re.sub(r"\w*[a-z]\w*", "", text)
            assert re.search("[а-я]", russian)
            left = set(re.findall(r"[a-zA-Z-]{2,}", text))
            code = {"append", "fork", "free", "sys", "Llama-"}
            assert {word for word in left if not word.startswith("req")} <= code


def test_without_script_and_style_the_text_reads_on(prompt_run):
    page = tree(prompt_run, step=COPY)
    first = page.one("div", "pool").all("th")[1]
    assert first.words == "blocks 16 to 31"
    assert pool_cells(page)[32].words == "32 count 1 7/16 req0"
    assert pool_cells(page)[37].words == "37 free"


def test_a_large_pool_folds_equal_rows():
    pool = Books(4096)
    seq = Sequence(pool, "a")
    with record(pool, seq) as history:
        seq.reserve(40)
    page = tree(history)
    assert [cell.attributes["data-b"] for cell in pool_cells(page)] == [
        "0-1",
        "2",
        "3-127",
        "128-4095",
    ]
    assert "3968 blocks" in page.words


def test_an_arrow_points_into_the_row_of_its_block():
    pool = Books(4096)
    base = Sequence(pool, "base")
    with record(pool, base) as history:
        base.reserve(17)
        fork = base.fork("fork")
        pool.allocate_many(4000)
        fork.reserve(1)
    page = tree(history)
    assert history.step(-1).copied == (1, 4002)
    rows = page.one("div", "pool").all("tr")
    path = page.one("svg", "cow").one("path").attributes["d"]
    (target_row,) = [i for i, r in enumerate(rows) if "4002" in str(r)]
    assert path.endswith(f"V{target_row}H{4002 % 128 + 0.5}")
    assert page.one("svg", "cow").attributes["viewbox"] == f"0 0 128 {len(rows)}"


def test_unknown_models_are_refused():
    with pytest.raises(ValueError, match="unknown model 'gpt'"):
        draw(small_pool(), model="gpt")


def test_text_twin_has_the_same_facts(prompt_run):
    text = repr(draw(prompt_run, step=COPY))
    assert text.splitlines()[0] == "append ×3 req4 copy-on-write 31→36"
    assert "used 37 of 64, free 27, without sharing 352, saved 315 = 630" in text
    assert "req4 (503): [ 0,  1,  2, ..., 29, 30, 36]" in text
    assert np.char.count(text, "\n") > 10
