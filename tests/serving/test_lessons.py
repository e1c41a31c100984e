"""What lessons 09.0 to 09.3 say in words is what the code computes."""

import re
from pathlib import Path

import numpy as np
import pytest

from course.build.master import read_master
from paged_kv import KVCacheSpec
from paged_kv.serving import (
    ALPACA,
    SHAREGPT,
    CostModel,
    MaxReservation,
    number,
    paper,
    poisson_workload,
    simulate,
    size,
    summary,
)
from paged_kv.spec import GB, MB, GiB, KiB, MiB

ROOT = Path(__file__).parents[2]
SPEC = KVCacheSpec.preset("llama-3-8b")
BLOCK = SPEC.bytes_per_block()
RESERVED, PAGED = (SPEC.max_sequences(60 * GB, n) for n in (32768, 4096))
ROOFLINE = CostModel.of(SPEC, bandwidth=3.35e12)
GAIN = ROOFLINE.throughput(PAGED, 4096) / ROOFLINE.throughput(RESERVED, 4096)
TOKENS = [row[0] for row in paper.FIGURE_2.values()]


def forked(prompt, forks=10, tokens=3):
    """Return shared and used blocks, and blocks without sharing, by arithmetic."""
    shared, tail = divmod(prompt, 16)
    used = shared + (tail > 0) + forks * -(-(tail + tokens) // 16)
    return shared, used, forks * -(-(prompt + tokens) // 16)


SHARED, USED, ALONE = forked(500)
SAVED = ALONE - USED

# Lesson; Russian and English with places for numbers; the numbers; their decimals
# (None: no separator between thousands). A no-break space is written "~".
CLAIMS = [
    (
        "09_0",
        "{} запросов поместилось",
        "{} requests would fit",
        [SPEC.max_sequences(60 * GiB, 4096)],
        0,
    ),
    ("09_0", "Это {}. Гигабайт", "It makes {}. A gigabyte", [PAGED], 0),
    (
        "09_0",
        "держать {} запросов, настоящие длины — {}:",
        "let us keep {} requests, real lengths let us keep {}:",
        [RESERVED, PAGED],
        0,
    ),
    (
        "09_0",
        "пакет больше в {} раза",
        "a batch {} times as large",
        [PAGED / RESERVED],
        1,
    ),
    ("09_0", "Пакет вырос в {} раза", "batch grew {} times", [PAGED / RESERVED], 1),
    ("09_0", "стало больше в {}.", "tokens per second {} times.", [GAIN], 1),
    ("09_0", "И всё же {} раза", "Still, {} times", [GAIN], 1),
    (
        "09_0",
        "оставляет в кэше {} КиБ, блок из 16 токенов — {} МиБ",
        "leaves {} KiB in the cache, a block of 16 tokens {} MiB",
        [SPEC.bytes_per_token() / KiB, BLOCK / MiB],
        0,
    ),
    (
        "09_0",
        "На {} слотов статьи помещается семь",
        "The paper's {} slots hold seven",
        [paper.NUM_SLOTS],
        0,
    ),
    ("09_0", "то есть {} слотов", "that is {} slots", [paper.NUM_SLOTS], 0),
    (
        "09_0",
        "в среднем {} токен на вопрос и {} на ответ",
        "{} tokens of question and {} of answer on average",
        [SHAREGPT.mean_prompt, SHAREGPT.mean_output],
        0,
    ),
    (
        "09_0",
        "{}–{} % — это **полезная**",
        "{} to {}% is the **useful**",
        [TOKENS[0], TOKENS[2]],
        1,
    ),
    (
        "09_1",
        "держат {} ГиБ данных",
        "hold {} GiB of data",
        [100 * 4096 * SPEC.bytes_per_token() / GiB],
        0,
    ),
    (
        "09_1",
        "в среднем {} слота из каждых",
        "on average {} slots of each",
        [np.mean(range(16))],
        1,
    ),
    (
        "09_1",
        "на {}–{} % медленнее",
        "{} to {}% slower",
        [100 * share for share in paper.ATTENTION_SLOWDOWN],
        0,
    ),
    (
        "09_1",
        "в {}–{} раза больше Oracle",
        "{} to {} times as many as Oracle",
        paper.RATE_RATIOS["Orca (Oracle)"],
        1,
    ),
    ("09_1", "отстоят на {} байт", "are {} bytes apart", [8 * 128 * 2], None),
    (
        "09_1",
        "{} КиБ. В порядке HND",
        "{} KiB, is in a row",
        [16 * 8 * 128 * 2 / KiB],
        0,
    ),
    ("09_3", "занято {} блока, но это разные", "have {} blocks in use", [USED], 0),
    (
        "09_3",
        "При 500 токенах общие {}, остальные {} —",
        "With 500 tokens {} are shared, and the other {} are",
        [SHARED, USED - SHARED],
        0,
    ),
    ("09_3", "остаётся {}. При 512", "and {} remain. With 512", [USED - 1], 0),
    (
        "09_3",
        "При 512 токенах общие все {},",
        "With 512 tokens all {} are shared",
        [forked(512)[0]],
        0,
    ),
    (
        "09_3",
        "не {} блоков, а {}.",
        "not be {} blocks but {}.",
        [ALONE, forked(512)[2]],
        0,
    ),
    (
        "09_3",
        "Сэкономлено {} блоков, то есть {} МиБ, они же {} МБ",
        "saved is {} blocks, which is {} MiB, or {} MB",
        [SAVED, SAVED * BLOCK / MiB, SAVED * BLOCK / MB],
        0,
    ),
    ("09_3", "лежит {} отдельными", "lies in {} separate", [2 * SPEC.n_layers], 0),
    (
        "09_3",
        "в среднем {} токенов, и полных",
        "{} tokens on average, with one full",
        [ALPACA.mean_prompt],
        0,
    ),
]


def prose(lesson, lang):
    (path,) = (ROOT / "course/lessons").glob(f"{lesson}*.py")
    cells = read_master(path, ROOT).cells
    return "\n".join(cell.source for cell in cells if cell.lang == lang)


@pytest.mark.parametrize("lang", ["ru", "en"])
@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim[2])
def test_a_number_in_words_is_the_computed_one(claim, lang, speak):
    lesson, ru, en, values, digits = claim
    speak(lang)
    shown = [str(v) if digits is None else number(v, digits) for v in values]
    wanted = {"ru": ru, "en": en}[lang].format(*shown)
    spaces = {"\N{NO-BREAK SPACE}": " "}
    text = prose(lesson, lang).translate(str.maketrans(spaces))
    assert wanted.translate(str.maketrans(spaces)) in text


def test_seven_buffers_fit_into_the_papers_slots():
    a = MaxReservation(paper.NUM_SLOTS)
    assert sum(a.admit(i, 10, 10) for i in range(20)) == 7


def test_lost_shares_of_earlier_systems_are_60_to_80_percent():
    lost = [100 - tokens for tokens in TOKENS[:3]]
    assert 60 <= min(lost) <= max(lost) <= 80


def test_weights_and_the_limit_of_the_roofline(speak):
    speak("en")
    assert size(SPEC.weight_bytes()) == "14.96\N{NO-BREAK SPACE}GiB"
    limit = ROOFLINE.bandwidth / (4096 * SPEC.bytes_per_token())
    assert round(limit) == 6240
    assert round(GAIN, 2) == 2.60


def test_touching_a_block_is_three_to_four_tokens():
    assert 3 <= paper.BLOCK_COST <= 4


@pytest.mark.parametrize("lang", ["ru", "en"])
def test_the_recipe_for_a_real_trace_works(lang, tmp_path, monkeypatch):
    w = poisson_workload(ALPACA, 5, 40)
    rows = zip(w.arrival, w.prompt, w.output, strict=True)
    lines = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    lines += [f"{a},{p},{o}" for a, p, o in rows]
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_text("\n".join(lines))
    monkeypatch.chdir(tmp_path)
    (recipe,) = re.findall(r"```python\n(.*?)```", prose("09_0", lang), re.S)
    *statements, last = recipe.strip().splitlines()
    scope = {
        "CostModel": CostModel,
        "paper": paper,
        "spec": SPEC,
        "GB": GB,
        "simulate": simulate,
        "summary": summary,
    }
    exec("\n".join(statements), scope)
    assert len(eval(last, scope).rows) == len(paper.SYSTEMS)
