"""A tiny Llama with random weights, and the real one."""

import numpy as np
import pytest

from paged_kv.model import Llama, LlamaConfig, load
from paged_kv.model.llama import shapes
from tests.model.dense import Dense

TINY = LlamaConfig(
    n_layers=2,
    n_heads=6,
    n_kv_heads=3,
    head_dim=8,
    d_model=32,
    d_ff=48,
    vocab_size=61,
    context=256,
)


def random_weights(config: LlamaConfig, seed: int) -> dict[str, np.ndarray]:
    """Return weights that keep activations of about 1 and attention uneven.

    The head is not tied to the embedding: a tied one, at random, repeats its input.
    """
    rng = np.random.default_rng(seed)
    weights = {}
    for name, shape in shapes(config).items():
        spread = 1.5 / np.sqrt(shape[-1]) if len(shape) == 2 else 0.2
        mean = 0 if len(shape) == 2 else 1
        weights[name] = rng.normal(mean, spread, shape).astype(np.float32)
    weights["embed"] *= np.float32(np.sqrt(config.d_model))
    head = rng.normal(0, 0.5, (config.vocab_size, config.d_model))
    weights["lm_head"] = head.astype(np.float32)
    return weights


@pytest.fixture(scope="session")
def tiny() -> Llama:
    return Llama(TINY, random_weights(TINY, seed=1))


@pytest.fixture(scope="session")
def dense(tiny) -> Dense:
    return Dense(tiny)


@pytest.fixture(scope="session")
def smollm():
    """Return model and tokenizer; `make` installs their file."""
    return load("smollm2-135m")
