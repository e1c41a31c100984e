"""The statements of a notebook, and which of them a definition needs."""

from __future__ import annotations
import __future__ as future

import ast
import symtable
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import CodeType

from paged_kv.grading.notebook import CodeCell

_ALL = "*"  # what `from module import *` binds


@dataclass(frozen=True)
class Statement:
    """A statement at the top level of a cell.

    Attributes
    ----------
    cell : int
        The number of its cell.
    node : ast.stmt
        Its syntax tree.
    code : code
        Compiled, to be executed in the notebook's namespace.
    binds, needs : frozenset of str
        Names of the notebook that it sets, and that it or its functions read.
    """

    cell: int
    node: ast.stmt
    code: CodeType
    binds: frozenset[str]
    needs: frozenset[str]


def split(cell: CodeCell) -> list[Statement]:
    """Return the statements of a cell.

    Raises
    ------
    SyntaxError
    """
    flags = 0
    statements = []
    for node in cell.parse().body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                feature = getattr(future, alias.name, None)
                flags |= getattr(feature, "compiler_flag", 0)
        tree = ast.Module([node], [])
        code = compile(tree, cell.file, "exec", flags, dont_inherit=True)
        table = symtable.symtable(ast.unparse(node), cell.file, "exec")
        binds = {s.get_name() for s in table.get_symbols() if _sets(s)}
        if isinstance(node, ast.ImportFrom) and node.names[0].name == _ALL:
            binds = {_ALL}
        needs = frozenset(_read(table))
        statements.append(Statement(cell.number, node, code, frozenset(binds), needs))
    return statements


def needed(statements: Iterable[Statement], names: Iterable[str]) -> list[Statement]:
    """Return, in order, the statements that set `names` or what those need."""
    statements = list(statements)
    wanted = {_ALL, *names}
    while True:
        chosen = [s for s in statements if s.binds & wanted]
        more = wanted.union(*(s.needs for s in chosen))
        if more == wanted:
            return chosen
        wanted = more


def unwritten(node: ast.stmt) -> int:
    """Return how many functions of a definition are still stubs."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    if isinstance(node, ast.ClassDef):
        return sum(unwritten(inner) for inner in node.body)
    return int(isinstance(node, functions) and _is_stub(node.body))


def _is_stub(body: list[ast.stmt]) -> bool:
    """Whether a body does nothing, or ends in `raise NotImplementedError`."""
    last = body[-1]
    if isinstance(last, ast.Raise) and last.exc:
        raised = last.exc.func if isinstance(last.exc, ast.Call) else last.exc
        return isinstance(raised, ast.Name) and raised.id == "NotImplementedError"
    return all(
        isinstance(s, ast.Pass)
        or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))
        for s in body
    )


def _sets(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported()


def _read(table: symtable.SymbolTable, top: bool = True) -> Iterator[str]:
    for symbol in table.get_symbols():
        if symbol.is_referenced() and (top or symbol.is_global()):
            yield symbol.get_name()
    for inner in table.get_children():
        yield from _read(inner, top=False)
