"""Style sheets stay with their widget, and pictures read without any."""

import random
import re
from importlib.resources import files

import pytest

from paged_kv.widgets import (
    BlockExplorer,
    FragmentationView,
    KVCalculator,
    Playground,
    SoftmaxStepper,
    compare,
    draw,
)
from paged_kv.widgets.page import root_classes
from paged_kv.widgets.prefix_tree import PrefixTree
from paged_kv.widgets.quantizer import QuantizerBench
from tests.widgets.markup import parse
from tests.widgets.runs import mixed, shared_prompt
from tests.widgets.students import ListPool, NoCopySequence

SHEETS = {
    path.name: path.read_text("utf-8")
    for path in files("paged_kv.widgets").iterdir()
    if path.name.endswith(".css")
}
MADE = {
    "explorer": lambda: BlockExplorer(shared_prompt(), step=16),
    "map": lambda: draw(mixed(1024, 20, random.Random(1), operations=60)),
    "playground": Playground,
    "calculator": KVCalculator,
    "fragmentation": lambda: FragmentationView(step=30),
    "stepper": lambda: SoftmaxStepper(step=2, rescale=False, mask=False),
    "quantiser": QuantizerBench,
    "tree": lambda: PrefixTree(["a b c", "a b d"], asked=2),
    "beside": lambda: compare("09.3", ListPool, NoCopySequence),
}


def html(thing):
    still = thing.picture() if hasattr(thing, "picture") else thing
    return still._repr_html_()


def top_level(css):
    """Return the selectors outside all braces, comments left out."""
    css = re.sub(r"/\*.*?\*/", "", css, flags=re.S)
    while re.search(r"\{[^{}]*\}", css):
        css = re.sub(r"\{[^{}]*\}", ";", css)
    return [part.strip() for part in css.split(";") if part.strip()]


@pytest.mark.parametrize("name", sorted(SHEETS.keys() - {"base.css"}))
def test_a_sheet_stands_below_the_class_of_its_name(name):
    (selector,) = top_level(SHEETS[name])
    *_, last = root_classes(name)
    assert re.fullmatch(rf"(\.pkv){{3}}(\.\w+)*\.{last}", selector)
    # No way out of the nesting, and no rule that knows no nesting.
    assert not re.search(r"[^{};\s]\s*&|@(?!container)", SHEETS[name])


def test_the_common_sheet_stands_below_the_common_class():
    for selector in top_level(SHEETS["base.css"]):
        assert re.match(r"\.pkv\b|@media \(prefers-color-scheme", selector)


@pytest.mark.parametrize("name", MADE)
def test_the_root_has_the_class_of_each_sheet(name):
    thing = MADE[name]()
    page = html(thing)
    root = parse(page).children[0]
    used = [sheet for sheet in SHEETS if SHEETS[sheet].strip() in page]
    assert len(used) > 1
    expected = set(root_classes(*(set(used) - {"base.css"})))
    assert root.classes == expected
    if hasattr(thing, "picture"):
        assert expected <= set(thing._dom_classes)


@pytest.mark.parametrize("name", MADE)
def test_without_a_style_sheet_nothing_is_said_that_only_labels_a_drawing(name):
    root = parse(html(MADE[name]()))
    for drawing in root.all("svg"):
        assert drawing.text == ""
        # Presentation attributes give way to a style sheet, and only to one.
        assert drawing.attributes["width"] == drawing.attributes["height"] == "0"
        assert not re.search(r"width|height", drawing.attributes.get("style", ""))
    folded = {id(node) for d in root.all("details") for node in d.all()}
    for node in root.all():
        if "aria-hidden" in node.attributes and id(node) not in folded:
            assert node.text.strip() in ("", "→"), node
