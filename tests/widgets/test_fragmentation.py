"""The fragmentation view, against the simulator and a count of its own."""

import re

import numpy as np
import pytest

from paged_kv.messages import use_language
from paged_kv.serving import (
    CostModel,
    MaxReservation,
    OracleReservation,
    PagedAllocator,
    Pow2Reservation,
    Workload,
    simulate,
)
from paged_kv.widgets import FragmentationView
from paged_kv.widgets.fragmentation_run import external_steps, small_workload
from tests.widgets.markup import parse


@pytest.fixture(autouse=True)
def _english(monkeypatch):
    monkeypatch.setattr("paged_kv.messages._current", None)
    use_language("en")


@pytest.fixture(scope="module")
def view():
    return FragmentationView(oracle=True)


def shown(view):
    return parse(view.picture()._repr_html_())


def rows(table):
    """Return {row head: cells}."""
    return {
        row.one("th").words: [cell.words for cell in row.all("td")]
        for row in table.one("tbody").all("tr")
    }


def tables(view):
    """Return the tables: now, mean, places."""
    return shown(view).all("table", "num")


def numbers(cells):
    return [float(cell.rstrip("%").replace(",", "")) for cell in cells]


def pieces(tree):
    """Return {system: [(kind, first slot, slots)]} of the maps."""
    found = {}
    for section in tree.all("section"):
        (field,) = section.all("div", "memory")
        across = int(re.search(r"--across:(\d+)", field.attributes["style"])[1])
        found[section.attributes["aria-label"]] = [
            (
                piece.attributes["class"].split()[0],
                int(row) * across + int(column),
                int(n),
            )
            for piece in field.all("i")
            for row, column, n in re.findall(
                r"--r:(\d+);--c:(\d+);--n:(\d+)", piece.attributes["style"]
            )
        ]
    return found


STEPS = [0, 1, 20, 56, 91, 139, 140, 141, 200, 300, 426, 427, 428]


@pytest.mark.parametrize("step", STEPS)
def test_the_map_has_each_slot_once_and_as_many_as_the_table_says(view, step):
    view.slider.value = step
    now = rows(tables(view)[0])
    for system, parts in pieces(shown(view)).items():
        taken = [slot for _, first, n in parts for slot in range(first, first + n)]
        assert len(taken) == len(set(taken))
        assert all(0 <= slot < 1024 for slot in taken)
        shares = numbers(now[system][:4])
        for kind, share in zip(("tok", "res", "int"), shares, strict=False):
            slots = sum(n for found, _, n in parts if found == kind)
            assert share == pytest.approx(100 * slots / 1024, abs=0.051)
        assert sum(shares) == pytest.approx(100, abs=0.21)


@pytest.mark.parametrize("step", STEPS)
def test_the_folded_table_says_where_each_request_is(view, step):
    view.slider.value = step
    now = rows(tables(view)[0])
    held = [
        [cell.words for cell in (row.one("th"), *row.all("td"))]
        for row in tables(view)[2].one("tbody").all("tr")
    ]
    for system, cells in now.items():
        of_system = [line for line in held if line[0] == system]
        assert len(of_system) == int(cells[4])
        tokens = sum(int(line[3]) for line in of_system)
        assert numbers(cells)[0] == pytest.approx(100 * tokens / 1024, abs=0.051)


def test_means_are_those_of_the_simulator(view):
    workload = small_workload()
    workload = Workload(np.floor(workload.arrival), workload.prompt, workload.output)
    found = rows(tables(view)[1])
    for make in (MaxReservation, Pow2Reservation, OracleReservation, PagedAllocator):
        system = make(1024, 8 if make is PagedAllocator else 256)
        result = simulate(workload, system, CostModel(1, 0, 1))
        cells = numbers(found[result.system])
        assert cells[:4] == pytest.approx(
            [100 * share for share in result.shares.values()], abs=0.051
        )
        assert cells[4] == pytest.approx(result.mean_batch, abs=0.051)
        assert cells[5] == result.seconds


def test_every_request_gets_all_its_tokens_in_every_system(view):
    total = {
        request: int(tokens) for request, tokens in enumerate(small_workload().total)
    }
    for run in view.runs:
        most = dict.fromkeys(total, 0)
        for moment in run.moments:
            for request in most:
                now = sum(s.tokens for s in moment.spans if s.request == request)
                most[request] = max(most[request], now)
        assert most == total


def test_arrived_requests_run_wait_or_are_done(view):
    arrival = np.floor(small_workload().arrival)
    for run in view.runs:
        finish = run.result.finish
        for step, moment in enumerate(run.moments[:-1]):
            if moment.running:
                arrived = np.count_nonzero(arrival <= step)
                done = np.count_nonzero(finish < step)
                assert moment.running + moment.waiting == arrived - done


def test_whoever_waits_was_refused_or_has_just_come(view):
    arrival = np.floor(small_workload().arrival)
    for column, run in enumerate(view.runs):
        unasked = [
            step for step, m in enumerate(run.moments) if m.waiting and not m.refusal
        ]
        for step in unasked:
            assert run.moments[step].waiting == np.count_nonzero(arrival == step)
        view.slider.value = unasked[0]
        assert shown(view).all("p", "why")[column].words.startswith("Just arrived")


def test_external_fragmentation_is_told_where_it_stops_a_request(view):
    steps = external_steps(view.runs)
    assert steps
    for step in (steps[0], steps[-1]):
        view.slider.value = step
        found = [text.words for text in shown(view).all("p", "ext")]
        assert found
        for text in found:
            needed, free, largest = map(
                int,
                re.search(
                    r"needs (\d+) slots in one piece\. (\d+) are free, but the largest "
                    r"piece has (\d+)",
                    text,
                ).groups(),
            )
            assert largest < needed <= free
    everywhere = set(range(view.slider.max + 1))
    for step in sorted(everywhere - set(steps))[::40]:
        view.slider.value = step
        assert not shown(view).all("p", "ext")


def free_pieces(parts, num_slots):
    taken = np.zeros(num_slots, bool)
    for _, first, n in parts:
        taken[first : first + n] = True
    return taken


def test_the_largest_piece_that_is_told_lies_in_the_map(view):
    view.slider.value = external_steps(view.runs)[0]
    for section, (_, parts) in zip(
        shown(view).all("section"), pieces(shown(view)).items(), strict=True
    ):
        for text in section.all("p", "ext"):
            told = re.search(r"(\d+) are free.*has (\d+)", text.words)
            free, largest = map(int, told.groups())
            taken = free_pieces(parts, 1024)
            assert free == np.count_nonzero(~taken)
            whole = taken.reshape(-1, largest)
            assert (~whole.any(axis=1)).any()
            assert taken.reshape(-1, 2 * largest).any(axis=1).all()


def test_without_its_style_sheet_a_picture_says_no_more_than_its_tables(view):
    tree = shown(view)
    for kind in ("memory", "areas"):
        assert {field.text for field in tree.all("div", kind)} == {""}
    assert {axis.text for axis in tree.all("p", "axis")} == {""}


def test_buttons_walk_and_jump():
    view = FragmentationView(step=0)
    assert view.previous.disabled
    view.next.click()
    assert view.slider.value == 1
    view.next_external.click()
    first = view.slider.value
    view.next_external.click()
    assert first < view.slider.value
    assert {first, view.slider.value} <= set(external_steps(view.runs))
    view.slider.value = view.slider.max
    assert view.next.disabled
    assert view.next_external.disabled
    assert "all done at step 140" in repr(view.picture())


def corners(area):
    """Return (percent from the left, percent from the top) of an area's corners."""
    found = re.findall(r"([\d.e-]+)% ([\d.e-]+)%", area.attributes["style"])
    return [(float(x), float(y)) for x, y in found]


def test_areas_stand_on_each_other_and_show_the_moments(view):
    view.slider.value = 56
    for section, run in zip(shown(view).all("section"), view.runs, strict=True):
        lower = None
        for look in ("tok", "res", "int", "oth"):
            for area in section.one("div", "areas").all("i", look):
                points = corners(area)
                upper, back = points[: len(points) // 2], points[len(points) // 2 :]
                if lower is None:
                    assert all(y == 100 for _, y in back)
                else:
                    assert back == lower[::-1]
                lower = upper
        # What is left above all of them is free.
        for x, y in lower:
            moment = run.at(round(x * view.slider.max / 100))
            free = run.num_slots - sum(span.slots for span in moment.spans)
            assert y == pytest.approx(100 * free / run.num_slots, abs=0.01)


def test_other_requests_and_sizes():
    workload = Workload(
        np.array([0.0, 0.4, 60.0]), np.array([5, 9, 1]), np.array([3, 4, 2])
    )
    view = FragmentationView(workload, num_slots=40, max_len=16, block_size=4)
    for step in range(view.slider.max + 1):
        view.slider.value = step
        shown(view)
    view.slider.value = 30  # nobody there, the third comes at 60
    assert [cells[4] for cells in rows(tables(view)[0]).values()] == ["0"] * 3


def test_what_cannot_be_is_refused():
    far = Workload(np.zeros(1), np.array([300]), np.array([9]))
    for arguments, message in (
        ({"num_slots": 8}, "num_slots"),
        ({"num_slots": 5000}, "at most 4096"),
        ({"step": 429}, "step 429 does not exist: the last one is 428"),
        ({"workload": far}, "never fits"),
        ({"block_size": 0}, "block_size"),
    ):
        with pytest.raises(ValueError, match=message):
            FragmentationView(**arguments)
