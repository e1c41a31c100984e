"""Generation without any cache: the whole text is computed anew for each token."""

import numpy as np

from paged_kv.model import Llama


def forward(model: Llama, tokens: list[int]) -> np.ndarray:
    """Return the logits (T, vocab_size) after each token, by plain softmax."""

    def attend(layer, q, k, v):
        group = q.shape[1] // k.shape[1]
        k, v = np.repeat(k, group, axis=1), np.repeat(v, group, axis=1)
        scores = np.einsum("qhd,khd->hqk", q, k) * np.float32(q.shape[2] ** -0.5)
        later = np.triu(np.ones(scores.shape[1:], bool), 1)
        weights = np.exp(np.where(later, -np.inf, scores))
        weights /= weights.sum(axis=-1, keepdims=True)
        return np.einsum("hqk,khd->qhd", weights, v)

    ids = np.array(tokens)
    return model.logits(model.forward(ids, np.arange(len(ids)), attend))


class Dense:
    """Answers of a model, one prompt at a time, remembered between tests."""

    def __init__(self, model: Llama) -> None:
        self.model = model
        self._next: dict[tuple[int, ...], tuple[int, float]] = {}

    def next_token(self, tokens: list[int]) -> tuple[int, float]:
        """Return the best next token, and by how much it beats the second best."""
        key = tuple(tokens)
        if key not in self._next:
            logits = forward(self.model, tokens)[-1]
            second, best = np.sort(logits)[-2:]
            self._next[key] = int(logits.argmax()), float(best - second)
        return self._next[key]

    def answer(self, prompt: list[int], max_tokens: int) -> list[int]:
        """Return the greedy continuation.

        Batches of another shape round differently: where the two best tokens are as
        close as that, either answer would be right and the test would prove nothing.
        """
        tokens = list(prompt)
        for _ in range(max_tokens):
            token, gap = self.next_token(tokens)
            assert gap > 1e-4, "choose another seed: two tokens are nearly equal here"
            tokens.append(token)
        return tokens[len(prompt) :]
