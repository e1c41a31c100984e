"""Text to token ids and back, from the vocabulary inside a GGUF file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

CONTROL = 3  # token type of <|im_start|> and the like in a GGUF vocabulary

#: What the model was trained to find before a chat without a system message.
DEFAULT_SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"


class Message(NamedTuple):
    """One turn of a chat; `role` is "system", "user" or "assistant"."""

    role: str
    content: str


class Tokenizer:
    """Byte-level BPE; digits are split one by one first, as the model was trained.

    Parameters
    ----------
    tokens : sequence of str
        Token of each id.
    merges : sequence of str
        Pairs to join, best first, each ``"left right"``.
    control : sequence of int
        Ids of control tokens. `encode` never makes them from text: a user who types
        ``<|im_end|>`` must not end her turn.
    end : int
        Id that ends a message.
    """

    def __init__(
        self,
        tokens: Sequence[str],
        merges: Sequence[str],
        control: Sequence[int],
        end: int,
    ) -> None:
        from tokenizers import Tokenizer as Backend
        from tokenizers import decoders, models, pre_tokenizers

        pairs = [(left, right) for left, right in (m.split(" ") for m in merges)]
        vocabulary = {token: i for i, token in enumerate(tokens)}
        self._backend = Backend(models.BPE(vocab=vocabulary, merges=pairs))
        self._backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Digits(individual_digits=True),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        self._backend.decoder = decoders.ByteLevel()
        self._control = {tokens[i]: i for i in control}
        self._control_ids = set(control)
        self.end = end

    @classmethod
    def from_gguf(cls, path: Path) -> Tokenizer:
        """Read the vocabulary of a GGUF file.

        Raises
        ------
        ValueError
            When its tokenizer is not a byte-level BPE.
        """
        from gguf import GGUFReader

        reader = GGUFReader(path)

        def value(key: str) -> object:
            field = reader.get_field(f"tokenizer.ggml.{key}")
            return None if field is None else field.contents()

        if (model := value("model")) != "gpt2":
            raise ValueError(
                f"{path.name} has a {model!r} tokenizer, not byte-level BPE"
            )
        types = value("token_type")
        control = [i for i, kind in enumerate(types) if kind == CONTROL]  # type: ignore[arg-type, var-annotated]
        return cls(value("tokens"), value("merges"), control, value("eos_token_id"))  # type: ignore[arg-type]

    def encode(self, text: str) -> list[int]:
        """Return the ids of plain text; what looks like a control token is text too."""
        return list(self._backend.encode(text, add_special_tokens=False).ids)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids; control tokens are left out."""
        plain = [i for i in ids if i not in self._control_ids]
        return str(self._backend.decode(plain, skip_special_tokens=False))

    def chat(self, messages: Iterable[Message], reply: bool = True) -> list[int]:
        """Return the ids of a chat in the model's template.

        Parameters
        ----------
        messages : iterable of Message
            The turns; a default system message is put first when there is none.
        reply : bool
            End with the opening of the assistant's turn.
        """
        turns = [Message(*message) for message in messages]
        if not turns or turns[0].role != "system":
            turns.insert(0, Message("system", DEFAULT_SYSTEM))
        start, end = self._control["<|im_start|>"], self._control["<|im_end|>"]
        ids: list[int] = []
        for role, content in turns:
            ids += [start, *self.encode(f"{role}\n{content}"), end, *self.encode("\n")]
        if reply:
            ids += [start, *self.encode("assistant\n")]
        return ids
