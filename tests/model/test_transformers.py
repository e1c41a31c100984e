"""The model computes what the transformers library computes."""

import numpy as np
import pytest

from paged_kv.model import Engine, Llama, LlamaConfig, Message, generate, load
from paged_kv.model.weights import find
from paged_kv.pool import BlockPool
from tests.model.dense import forward
from tests.model.test_tokenizer import TEXTS

pytestmark = pytest.mark.transformers

PROMPTS = {
    "english": "The quick brown fox jumps over the lazy dog. In a small village,",
    "story": "Once upon a time there was a princess who lived in a tall tower and",
    "russian": "Жил-был старик со своей старухой у самого синего моря. Однажды",
    "code": "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "json": '{"name": "Alice", "age": 30, "languages": ["Python", "C"], "address":',
}


@pytest.fixture(scope="module")
def reference(smollm):
    """Return transformers' Llama with its own reading of the same file."""
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    transformers.utils.logging.disable_progress_bar()
    c = smollm[0].config
    sizes = {
        "num_hidden_layers": c.n_layers,
        "num_attention_heads": c.n_heads,
        "num_key_value_heads": c.n_kv_heads,
        "head_dim": c.head_dim,
        "hidden_size": c.d_model,
        "intermediate_size": c.d_ff,
        "vocab_size": c.vocab_size,
        "rope_theta": c.rope_theta,
        "rms_norm_eps": c.norm_eps,
        "max_position_embeddings": c.context,
        "tie_word_embeddings": True,
    }
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**sizes))
    path = str(find("smollm2-135m"))
    theirs = load_gguf_checkpoint(path, return_tensors=True, model_to_load=model)
    assert sizes.items() <= theirs["config"].items()
    loaded = model.load_state_dict(theirs["tensors"], strict=False)
    assert loaded.missing_keys == ["lm_head.weight"]  # tied to the embedding
    assert loaded.unexpected_keys == []
    return model.eval()


@pytest.fixture(scope="module")
def their_tokenizer():
    import transformers

    path = find("smollm2-135m")
    return transformers.AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)


def their_logits(model, ids: list[int]) -> np.ndarray:
    import torch

    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].numpy()


def test_logits_over_a_prompt_of_100_tokens(smollm, reference):
    model, tokenizer = smollm
    ids = tokenizer.encode(" ".join(PROMPTS.values()))[:100]
    assert len(ids) == 100
    expected = their_logits(reference, ids)
    assert np.abs(forward(model, ids) - expected).max() <= 2e-3


@pytest.fixture(scope="module")
def continuations(smollm):
    """Return each prompt's ids and its next 64, served in one batch from the pool."""
    model, tokenizer = smollm
    engine = Engine(model, num_blocks=40)
    requests = {
        name: engine.submit(tokenizer.encode(prompt), max_tokens=64)
        for name, prompt in PROMPTS.items()
    }
    engine.run()
    return {
        name: (request.prompt, request.answers[0].tokens)
        for name, request in requests.items()
    }


@pytest.mark.parametrize("name", PROMPTS)
def test_64_greedy_tokens(reference, continuations, name):
    prompt, ours = continuations[name]
    assert len(ours) == 64
    # One pass over all: theirs are greedy too if each of ours is their best next one.
    theirs = their_logits(reference, prompt + ours).argmax(axis=-1)
    assert ours == theirs[len(prompt) - 1 : -1].tolist()


def test_one_at_a_time_the_tokens_are_the_same(smollm, continuations):
    model, _ = smollm
    c = model.config
    prompt, expected = continuations["code"]
    pool = BlockPool(8, c.n_layers, c.n_kv_heads, c.head_dim)
    assert list(generate(model, prompt, pool, max_tokens=24)) == expected[:24]


# Their conversion of a GGUF vocabulary does not set digits apart first, which shows
# where a blank precedes one that has a merge with it, such as ½.
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_ids_of_a_text(smollm, their_tokenizer, text):
    assert smollm[1].encode(text) == their_tokenizer.encode(text)


@pytest.mark.parametrize("reply", [True, False])
@pytest.mark.parametrize(
    "turns",
    [
        [Message("user", "hi")],
        [Message("system", "Be brief."), Message("user", "Кто ты? 42")],
        [
            Message("user", "a"),
            Message("assistant", "b\nc"),
            Message("user", "d"),
        ],
    ],
)
def test_ids_of_a_chat(smollm, their_tokenizer, turns, reply):
    theirs = their_tokenizer.apply_chat_template(
        [turn._asdict() for turn in turns], add_generation_prompt=reply
    )
    assert smollm[1].chat(turns, reply) == theirs["input_ids"]


@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "head_dim", "tied"),
    [(8, 2, 16, False), (6, 6, 10, True), (4, 1, 32, False)],
)
def test_random_models_of_other_sizes(tmp_path, n_heads, n_kv_heads, head_dim, tied):
    """Saved by transformers, and read back from the folder."""
    import torch
    import transformers
    from tokenizers import Tokenizer, models

    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=99,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=n_heads,
        num_key_value_heads=n_kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=tied,
        rope_theta=5_000.0,
        rms_norm_eps=1e-3,
        initializer_range=0.3,
        max_position_embeddings=128,
    )
    theirs = transformers.LlamaForCausalLM(config).eval()
    theirs.save_pretrained(tmp_path)
    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(
        str(tmp_path / "tokenizer.json")
    )
    ours, _ = load(tmp_path)
    assert isinstance(ours, Llama)
    assert ours.config == LlamaConfig(
        3, n_heads, n_kv_heads, head_dim, 48, 80, 99, 5_000.0, 1e-3, 128
    )
    assert ("lm_head" in ours.weights) is not tied
    ids = np.random.default_rng(0).integers(0, 99, 40).tolist()
    expected = their_logits(theirs, ids)
    np.testing.assert_allclose(forward(ours, ids), expected, atol=1e-3)
    pool = BlockPool(4, 3, n_kv_heads, head_dim)
    best = expected[-1].argmax()
    assert list(generate(ours, ids, pool, max_tokens=1)) == [best]
