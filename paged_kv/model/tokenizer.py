"""Text to token ids and back, and the form in which the model expects a chat."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from paged_kv.model.weights import read_field

if TYPE_CHECKING:
    from gguf import GGUFReader

CONTROL = 3  # token type of <|im_start|> and the like in a GGUF vocabulary

#: What the model was trained to find before a chat without a system message.
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Message(NamedTuple):
    """One turn of a chat; `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class Tokenizer:
    """Byte-level BPE and the ChatML template: ``<|im_start|>role … <|im_end|>``.

    Parameters
    ----------
    backend : tokenizers.Tokenizer
        Splits text; told here to treat what looks like a control token as text.
    control : mapping of str to int
        Control tokens. `encode` never makes them from text: a user who types
        ``<|im_end|>`` must not end her turn.
    end : int
        Id that ends a message.
    """

    def __init__(self, backend: Any, control: Mapping[str, int], end: int) -> None:
        backend.encode_special_tokens = True
        self._backend = backend
        self._control = dict(control)
        self.end = end

    @classmethod
    def from_gguf(cls, reader: GGUFReader) -> Tokenizer:
        """Make the tokenizer from the vocabulary inside a GGUF file.

        Raises
        ------
        ValueError
            When it splits text in another way than byte-level BPE, with each digit by
            itself ("smollm") or not ("gpt-2", "default"), or is not all there.
        """
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers

        def value(key: str, *default: Any) -> Any:
            return read_field(reader, f"tokenizer.ggml.{key}", *default)

        model, split = value("model"), value("pre", "default")
        if model != "gpt2" or split not in ("smollm", "gpt-2", "default"):
            raise ValueError(f"a {model!r} tokenizer with {split!r} is not supported")
        tokens = value("tokens")
        pairs = [
            (left, right) for left, right in (m.split(" ") for m in value("merges"))
        ]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        backend = Backend(models.BPE(vocab=vocabulary, merges=pairs))
        steps: list[Any] = [
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
        ]
        if split == "smollm":
            steps.insert(0, pre_tokenizers.Digits(individual_digits=True))
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)
        backend.decoder = decoders.ByteLevel()
        kinds = value("token_type")
        control = {tokens[i]: i for i, kind in enumerate(kinds) if kind == CONTROL}
        return cls(backend, control, value("eos_token_id"))

    @classmethod
    def from_folder(cls, folder: Path) -> Tokenizer:
        """Read ``tokenizer.json`` of a safetensors folder."""
        from tokenizers import Tokenizer as Backend

        text = (folder / "tokenizer.json").read_text(encoding="utf-8")
        added = json.loads(text)["added_tokens"]
        control = {token["content"]: token["id"] for token in added if token["special"]}
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        ends = config["eos_token_id"]  # several, in some models: the first ends a turn
        end = int(ends[0] if isinstance(ends, list) else ends)
        return cls(Backend.from_str(text), control, control.get("<|im_end|>", end))

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text; what looks like a control token is text too."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; control tokens are left out."""
        hidden = set(self._control.values())
        plain = [i for i in ids if i not in hidden]
        return str(self._backend.decode(plain, skip_special_tokens=False))

    def chat(self, messages: Iterable[Message], reply: bool = True) -> list[int]:
        """Return the ids of a chat in the model's template.

        Parameters
        ----------
        messages : iterable of Message
            The turns; a default system message is put first when there is none.
        reply : bool
            End with the opening of the assistant's turn.

        Raises
        ------
        ValueError
            When the model knows no such template.
        """
        turns = [Message(*message) for message in messages]
        if not turns or turns[0].role != "system":
            turns.insert(0, Message("system", DEFAULT_SYSTEM))
        ids = [i for turn in turns for i in self._turn(turn)]
        return ids + self._opening() if reply else ids

    def follow_up(self, question: str) -> list[int]:
        """Return the ids that continue a chat after an answer's last token.

        An answer's own ids stay in the prompt as they were generated: its text, encoded
        again, may fall into other tokens, and then a prefix cache finds nothing.
        """
        end = [self.end, *self.encode("\n")]
        return [*end, *self._turn(Message("user", question)), *self._opening()]

    def _turn(self, turn: Message) -> list[int]:
        # Tokens never reach over the end of a message: here texts may be cut.
        text = self.encode(f"{turn.role}\n{turn.content}")
        return [self._start(), *text, self.end, *self.encode("\n")]

    def _opening(self) -> list[int]:
        return [self._start(), *self.encode("assistant\n")]

    def _start(self) -> int:
        if (start := self._control.get("<|im_start|>")) is None:
            raise ValueError("this model has no <|im_start|>: use `encode` for prompts")
        return start
