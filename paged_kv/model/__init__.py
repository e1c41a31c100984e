"""A real language model over the student's pool: Llama in numpy, weights, tokenizer."""

from __future__ import annotations

from pathlib import Path

from paged_kv.model.config import LlamaConfig
from paged_kv.model.llama import Llama
from paged_kv.model.tokenizer import Message, Tokenizer
from paged_kv.model.weights import WeightsNotFound, find, read

__all__ = [
    "Llama",
    "LlamaConfig",
    "Message",
    "Tokenizer",
    "WeightsNotFound",
    "find",
    "load",
    "read",
]


def load(name: str | Path) -> tuple[Llama, Tokenizer]:
    """Load a chat model: ``"smollm2-135m"``, or the path of a GGUF file.

    Raises
    ------
    WeightsNotFound
        With the command that installs the weights.
    """
    path = find(name)
    return Llama(*read(path)), Tokenizer.from_gguf(path)
