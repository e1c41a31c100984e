"""The radix tree as text and as HTML."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from html import escape

from paged_kv.messages import tr, trn
from paged_kv.radix_tree import RadixNode, RadixTree

Decode = Callable[[list[int]], str]

MAX_SHOWN = 12  # tokens or blocks of one node

# The colours of the page, light or dark, where it has some. The id in `:not` makes
# these rules stronger than those of a page that resets its lists.
STYLE = """<style>
.pkv-tree:not(#_){background:var(--jp-layout-color0,#fff);
color:var(--jp-ui-font-color0,#1a1a1a);padding:8px 0;font-size:14px;line-height:1.7;
overflow-x:auto}
.pkv-tree:not(#_) ul{list-style:none;margin:0 0 0 10px;padding:0 0 0 14px;
border-left:1px solid #8a8a8a}
.pkv-tree:not(#_) code{background:none;color:inherit;padding:1px 6px;
border:1px solid #8a8a8a;border-radius:4px}
.pkv-tree:not(#_) .locked>code{background:#0072b2;border-color:#0072b2;color:#fff}
.pkv-tree:not(#_) small{font-size:12px;margin-left:4px}
</style>"""


def render(tree: RadixTree, *, html: bool = False, decode: Decode | None = None) -> str:
    """Return the tree as lines of text or as nested lists of HTML.

    Parameters
    ----------
    tree : RadixTree
    html : bool
    decode : callable, optional
        Turns the token ids of a run into text.
    """
    decode = decode or _ids
    nodes = list(tree.nodes())
    title = _title(nodes)
    if not html:
        return "\n".join([title, *_lines(tree.root, decode, "")])
    return f'{STYLE}<div class="pkv-tree">{title}{_list(tree.root, decode)}</div>'


def _title(nodes: list[RadixNode]) -> str:
    n_blocks = sum(len(node.blocks) for node in nodes)
    locked = sum(len(node.blocks) for node in nodes if node.locks)
    blocks = trn("{n} block", "{n} blocks", n_blocks)
    return tr(
        "Radix tree: {blocks}, {locked} of them locked", blocks=blocks, locked=locked
    )


def _lines(node: RadixNode, decode: Decode, indent: str) -> Iterator[str]:
    children = list(node.children.values())
    for child in children:
        last = child is children[-1]
        branch = "└─" if last else "├─"
        yield f"{indent}{branch} {_run(child, decode)}  ({_facts(child)})"
        yield from _lines(child, decode, indent + ("   " if last else "│  "))


def _list(node: RadixNode, decode: Decode) -> str:
    items = "".join(
        f"<li{' class=locked' if child.locks else ''}>"
        f"<code>{escape(_run(child, decode))}</code> <small>{_facts(child)}</small>"
        f"{_list(child, decode)}</li>"
        for child in node.children.values()
    )
    return f"<ul>{items}</ul>" if items else ""


def _run(node: RadixNode, decode: Decode) -> str:
    run = node.tokens.tolist()
    return decode(run[:MAX_SHOWN]) + (" …" if len(run) > MAX_SHOWN else "")


def _facts(node: RadixNode) -> str:
    first = node.blocks[:MAX_SHOWN]
    shown = _ids(first) + (" …" if len(node.blocks) > MAX_SHOWN else "")
    facts = [
        trn("block {blocks}", "blocks {blocks}", len(first), blocks=shown),
        tr("used at {time:g}", time=node.last_used),
    ]
    if node.hits:
        facts.append(trn("{n} hit", "{n} hits", node.hits))
    if node.locks:
        facts.append(trn("locked by {n} request", "locked by {n} requests", node.locks))
    return "; ".join(facts)


def _ids(ids: list[int]) -> str:
    return " ".join(map(str, ids))
