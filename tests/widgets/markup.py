"""HTML as a tree, strict about what a browser would silently mend."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = {"br", "col", "hr", "img", "input"}


@dataclass
class Node:
    """One element; `text` is all text below it."""

    tag: str
    attributes: dict[str, str]
    children: list[Node | str] = field(default_factory=list)

    @property
    def text(self) -> str:
        parts = (c if isinstance(c, str) else c.text for c in self.children)
        return "" if self.tag == "style" else "".join(parts)

    @property
    def words(self) -> str:
        """The text with single spaces, as one reads it without a style sheet."""
        return " ".join(self.text.split())

    @property
    def classes(self) -> set[str]:
        return set(self.attributes.get("class", "").split())

    def all(self, tag: str = "", cls: str = "") -> list[Node]:
        """Return the elements below with that tag and class, in order."""
        found = []
        for child in self.children:
            if isinstance(child, Node):
                if tag in ("", child.tag) and (not cls or cls in child.classes):
                    found.append(child)
                found += child.all(tag, cls)
        return found

    def one(self, tag: str = "", cls: str = "") -> Node:
        (found,) = self.all(tag, cls)
        return found


class _Parser(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open = [Node("", {})]

    def handle_starttag(self, tag, attrs):
        node = Node(tag, {name: value or "" for name, value in attrs})
        assert len(node.attributes) == len(attrs), f"attribute twice in <{tag}>"
        self.open[-1].children.append(node)
        if tag not in VOID:
            self.open.append(node)

    def handle_startendtag(self, tag, attrs):
        self.open[-1].children.append(Node(tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open[-1].tag == tag, f"</{tag}> closes <{self.open[-1].tag}>"
        self.open.pop()

    def handle_data(self, data):
        self.open[-1].children.append(data)


def parse(html: str) -> Node:
    """Return the tree; AssertionError for tags that do not match."""
    parser = _Parser()
    parser.feed(html)
    parser.close()
    (root,) = parser.open
    return root


def ids(data_b: str) -> list[int]:
    """Return the blocks that a `data-b` names: "3-5 8" → 3, 4, 5, 8."""
    found = []
    for part in data_b.split():
        first, _, last = part.partition("-")
        found += range(int(first), int(last or first) + 1)
    return found
