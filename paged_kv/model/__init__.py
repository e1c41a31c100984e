"""A real language model over the student's pool, and an engine that serves it.

Read in this order: `config`, `llama`, `cache` (where the model meets the pool),
`generation`, `chat`, then `requests`, `scheduler` and `engine` (continuous batching).
`weights` and `tokenizer` read files, `adapter` lets a student's own classes be used,
and `measure` takes the numbers of the lesson.
"""

from __future__ import annotations

from pathlib import Path

from paged_kv.model.chat import Chat
from paged_kv.model.config import LlamaConfig
from paged_kv.model.engine import Engine
from paged_kv.model.generation import generate
from paged_kv.model.llama import Llama
from paged_kv.model.requests import Answer, Request
from paged_kv.model.tokenizer import Message, Tokenizer
from paged_kv.model.weights import (
    WeightsNotFound,
    find,
    open_gguf,
    read_gguf,
    read_safetensors,
)

__all__ = [
    "Answer",
    "Chat",
    "Engine",
    "Llama",
    "LlamaConfig",
    "Message",
    "Request",
    "Tokenizer",
    "WeightsNotFound",
    "generate",
    "load",
]


def load(name: str | Path) -> tuple[Llama, Tokenizer]:
    """Load a chat model and its tokenizer.

    Parameters
    ----------
    name : str or Path
        ``"smollm2-135m"``, the path of a GGUF file, or that of a folder with
        ``config.json``, ``tokenizer.json`` and safetensors.

    Raises
    ------
    WeightsNotFound
        With the command that installs the weights.
    ValueError
        For a model or a tokenizer of another type.
    """
    path = find(name)
    if path.is_dir():
        return Llama(*read_safetensors(path)), Tokenizer.from_folder(path)
    reader = open_gguf(path)  # slow, mostly for the vocabulary: once for both
    return Llama(*read_gguf(reader)), Tokenizer.from_gguf(reader)
