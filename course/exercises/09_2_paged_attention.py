# ---
# jupyter:
#   course:
#     minutes: 60
#     difficulty: 4
#     summary:
#       ru: "Считаете внимание прямо по таблице блоков, с онлайн-softmax, и смотрите, во что обходятся ошибки."
#       en: "Compute attention straight from the block table with an online softmax, and see what mistakes cost."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Внимание по страницам

Ключи и значения запроса лежат в блоках, а блоки разбросаны по всему пулу. Обычное внимание к этому не готово: ему подавай $K$ и $V$ сплошными массивами. Можно собирать их заново, но тогда на каждом шаге декода (*decode*) придётся копировать весь кэш запроса ради одного токена.

PagedAttention ничего не собирает: она идёт по таблице блоков, читает каждый блок там, где он лежит, добавляет его вклад и переходит к следующему. (Страница, *page*, — это тот же блок: имя взято у страничной памяти операционных систем.) Вы напишете две функции:

- `reference_attention` — внимание по сплошным массивам, прямо по формуле; с ней будем сверяться;
- `paged_attention` — то же самое по блокам.

Ответы обязаны совпасть: это не приближение, а другой порядок сложения.
"""

# %% [markdown] key="title" lang="en"
r"""
# Attention over pages

The keys and values of a request lie in blocks, and the blocks are scattered all over the pool. Plain attention is not ready for that: it wants $K$ and $V$ as contiguous arrays. They could be collected anew, but then every step of decode (*декод*) would copy the whole cache of the request for the sake of one token.

PagedAttention collects nothing: it walks the block table, reads each block where it lies, adds its share and moves on. (A *page* is the same thing as a block, a name taken from the paged memory of operating systems.) You will write two functions:

- `reference_attention`, attention over contiguous arrays, straight from the formula: something to compare with;
- `paged_attention`, the same by blocks.

The answers have to agree: this is no approximation, only another order of adding up.
"""

# %% [markdown] key="online-softmax" lang="ru"
r"""
## Softmax, который не видит всего сразу

Оценка токена $t$ — это $s_t = \mathrm{scale} \cdot (q \cdot K_t)$. Softmax делит на сумму по всем токенам, а перед глазами всякий раз только один блок. Выручает то, что и числитель, и знаменатель — просто суммы, и их можно копить:

$$\mathrm{out} = \frac{\sum_t e^{s_t}\, V_t}{\sum_t e^{s_t}}$$

Остаётся одна трудность. Чтобы экспоненты не переполнились, из оценок вычитают максимум, а настоящий максимум станет известен лишь в самом конце. Поэтому держат **текущий максимум** (*running maximum*) $m$, и как только встретилась оценка больше, всё накопленное домножают на поправку $\alpha$. Это **онлайн-softmax** (*online softmax*):

$$m' = \max\bigl(m, \max_t s_t\bigr), \qquad \alpha = e^{m - m'}, \qquad p_t = e^{s_t - m'}$$

$$l' = \alpha\, l + \sum_t p_t, \qquad \mathrm{acc}' = \alpha\, \mathrm{acc} + \sum_t p_t V_t$$

Здесь $l$ — **текущий знаменатель** (*running denominator*), $\mathrm{acc}$ — числитель, а $t$ пробегает токены одного блока. Начинают с $m = -\infty$, $l = 0$, $\mathrm{acc} = 0$. После последнего блока $\mathrm{out} = \mathrm{acc} / l$.
"""

# %% [markdown] key="online-softmax" lang="en"
r"""
## A softmax that never sees everything at once

The score of token $t$ is $s_t = \mathrm{scale} \cdot (q \cdot K_t)$. Softmax divides by a sum over all tokens, but only one block at a time is in view. What saves us is that numerator and denominator are plain sums, and sums can be accumulated:

$$\mathrm{out} = \frac{\sum_t e^{s_t}\, V_t}{\sum_t e^{s_t}}$$

One difficulty remains. To keep the exponentials from overflowing, the maximum is subtracted from the scores, and the true maximum is known only at the very end. So one keeps a **running maximum** (*текущий максимум*) $m$, and as soon as a larger score turns up, multiplies everything accumulated so far by a correction $\alpha$. That is the **online softmax** (*онлайн-softmax*):

$$m' = \max\bigl(m, \max_t s_t\bigr), \qquad \alpha = e^{m - m'}, \qquad p_t = e^{s_t - m'}$$

$$l' = \alpha\, l + \sum_t p_t, \qquad \mathrm{acc}' = \alpha\, \mathrm{acc} + \sum_t p_t V_t$$

Here $l$ is the **running denominator** (*текущий знаменатель*), $\mathrm{acc}$ the numerator, and $t$ runs over the tokens of one block. You start with $m = -\infty$, $l = 0$, $\mathrm{acc} = 0$. After the last block $\mathrm{out} = \mathrm{acc} / l$.
"""

# %% [markdown] key="picture" lang="ru"
r"""
Вот весь путь для 40 токенов и `block_table = [7, 0, 12]`:

```text
 физический     блок 7            блок 0            блок 12
            ┌───────────────┐ ┌───────────────┐ ┌───────┬╌╌╌╌╌╌╌┐
   токены   │    0 … 15     │ │    16 … 31    │ │32 … 39│ чужое ╎
            └───────┬───────┘ └───────┬───────┘ └───┬───┴╌╌╌╌╌╌╌┘
                    ▼                 ▼             ▼
 (−∞, 0, 0) ──► m, l, acc ─────► m, l, acc ───► m, l, acc ──► acc / l
```

Справа в последнем блоке — то, что осталось от прежнего хозяина. Токенов запроса там нет.
"""

# %% [markdown] key="picture" lang="en"
r"""
Here is the whole walk for 40 tokens and `block_table = [7, 0, 12]`:

```text
 physical       block 7           block 0           block 12
            ┌───────────────┐ ┌───────────────┐ ┌───────┬╌╌╌╌╌╌╌┐
   tokens   │    0 … 15     │ │    16 … 31    │ │32 … 39│foreign╎
            └───────┬───────┘ └───────┬───────┘ └───┬───┴╌╌╌╌╌╌╌┘
                    ▼                 ▼             ▼
 (−∞, 0, 0) ──► m, l, acc ─────► m, l, acc ───► m, l, acc ──► acc / l
```

The right part of the last block is what its previous owner left behind. No token of this request is there.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

1. После первого блока $m = 2$. Наибольшая оценка второго блока — 3. На что домножится накопленное? А если она равна 1?
2. Чему равна поправка $\alpha$ на самом первом блоке и почему это ничего не портит?
3. У модели 6 query-голов и 3 KV-головы. Какую KV-голову читает query-голова 1: нулевую или первую?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

1. After the first block $m = 2$. The largest score of the second block is 3. What are the sums so far multiplied by? And if it is 1?
2. What is the correction $\alpha$ in the very first block, and why does it do no harm?
3. A model has 6 query heads and 3 KV heads. Which KV head does query head 1 read: number 0 or number 1?
"""

# %% [markdown] key="on-paper-answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. На $e^{2-3} = e^{-1}$; если же наибольшая оценка равна 1, максимум не изменился и $\alpha = 1$.
2. $\alpha = e^{-\infty} = 0$, а домножает она нули. Поэтому первый блок не требует особого случая.
3. Нулевую: соседние query-головы объединены в группы по $6/3 = 2$, и $\lfloor 1/2 \rfloor = 0$.
"""

# %% [markdown] key="on-paper-answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. By $e^{2-3} = e^{-1}$; if the largest score is 1, the maximum stays and $\alpha = 1$.
2. $\alpha = e^{-\infty} = 0$, and what it multiplies is zero. So the first block needs no special case.
3. Number 0: neighbouring query heads form groups of $6/3 = 2$, and $\lfloor 1/2 \rfloor = 0$.
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. **По одному блоку.** Собирать все $K$ или $V$ в один массив внутри `paged_attention` нельзя: ради этого всё и затеяно.
2. **Слоты за концом не считаются.** Их нельзя ни оценивать, ни взвешивать, что бы в них ни лежало.
3. **GQA, группы query-голов** (*grouped-query attention*). Query-голова $h$ читает KV-голову $\lfloor h / (n_\text{heads} / n_\text{kv heads}) \rfloor$.
4. **Счёт и ответ во `float32`**, даже если пул хранит `float16`, а `scale` пришёл как `float64`.
5. **Входы не меняются.** Пустая последовательность или `q` чужой формы — `ValueError`.

| Что | Форма |
|---|---|
| `K`, `V` в `reference_attention` | `(L, n_kv_heads, head_dim)` |
| `q` | `(n_heads, head_dim)`: по одному вектору query на голову |
| ответ обеих функций | `(n_heads, head_dim)`, `float32` |
| `pool.k[layer, block]`, `pool.v[layer, block]` | `(block_size, n_kv_heads, head_dim)`: один блок одного слоя |
| `seq.block_table`, `len(seq)` | номера физических блоков и число токенов |
| `pool.block_size`, `pool.n_kv_heads`, `pool.head_dim` | размеры |
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. **One block at a time.** Collecting all of $K$ or $V$ in one array inside `paged_attention` is not allowed: avoiding that is the whole point.
2. **Slots beyond the end do not count.** They are neither scored nor weighted, whatever they hold.
3. **GQA, grouped-query attention** (*группы query-голов*). Query head $h$ reads KV head $\lfloor h / (n_\text{heads} / n_\text{kv heads}) \rfloor$.
4. **Compute and answer in `float32`**, even if the pool stores `float16` and `scale` comes as `float64`.
5. **Inputs stay as they are.** An empty sequence, or a `q` of the wrong shape, is a `ValueError`.

| What | Shape |
|---|---|
| `K`, `V` in `reference_attention` | `(L, n_kv_heads, head_dim)` |
| `q` | `(n_heads, head_dim)`: one query per head |
| answer of both functions | `(n_heads, head_dim)`, `float32` |
| `pool.k[layer, block]`, `pool.v[layer, block]` | `(block_size, n_kv_heads, head_dim)`: one block of one layer |
| `seq.block_table`, `len(seq)` | physical block ids and the number of tokens |
| `pool.block_size`, `pool.n_kv_heads`, `pool.head_dim` | sizes |
"""

# %% key="setup"
import numpy as np
from IPython.display import display

from paged_kv import BlockPool, KVCacheSpec, Sequence, figures
from paged_kv.checks import check, hint
from paged_kv.messages import use_language

use_language("{{lang}}")

# %% [markdown] key="nan-trap" lang="ru"
r"""
> **Ловушка: «оценки лишних слотов можно заменить на $-\infty$, их вес станет нулевым».** Вес и правда станет нулевым. Но память блока не обнуляется, и если в пустом слоте $V$ остался NaN, нулевой вес не спасёт:
"""

# %% [markdown] key="nan-trap" lang="en"
r"""
> **Trap: “the scores of slots that do not count can be set to $-\infty$, their weight becomes zero”.** The weight does become zero. But a block's memory is never zeroed, and if NaN was left in $V$ of an empty slot, a zero weight does not help:
"""

# %% key="zero-times-nan"
print("0 * nan =", 0 * np.nan)

# %% [markdown] key="reference-task" lang="ru"
r"""
## Шаг 1. Эталон

Без блоков и без хитростей: оценки, softmax с вычитанием максимума, взвешенная сумма. Группы голов проще всего получить, придав `q` форму `(n_kv_heads, group, head_dim)`.
"""

# %% [markdown] key="reference-task" lang="en"
r"""
## Step 1. The reference

No blocks and no tricks: scores, a softmax that subtracts the maximum, a weighted sum. The easiest way to group the heads is to give `q` the shape `(n_kv_heads, group, head_dim)`.
"""


# %% key="reference-attention" nbgrader={"grade": false, "grade_id": "reference-attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def reference_attention(K, V, q, scale):
    # ru: Внимание по сплошным K и V: (L, n_kv_heads, head_dim).
    # ru: Вспомогательные функции, если понадобятся, пишите ниже в этой ячейке.
    # en: Attention over contiguous K and V: (L, n_kv_heads, head_dim).
    # en: Helper functions, if you need any, go below in this cell.
    ### BEGIN SOLUTION
    K, V = np.asarray(K, np.float32), np.asarray(V, np.float32)
    if K.ndim != 3 or K.shape != V.shape or len(K) == 0:
        raise ValueError(f"K {K.shape} and V {V.shape}: expected one shape, L > 0")
    q = grouped(q, *K.shape[1:])
    S = float(scale) * (q @ K.transpose(1, 2, 0))  # (n_kv_heads, group, L)
    P = np.exp(S - S.max(axis=-1, keepdims=True))
    out = P @ V.transpose(1, 0, 2) / P.sum(axis=-1, keepdims=True)
    return out.reshape(-1, K.shape[2])


def grouped(q, n_kv_heads, head_dim):
    # ru: q по группам: (n_kv_heads, group, head_dim).
    # en: q by groups: (n_kv_heads, group, head_dim).
    q = np.asarray(q, np.float32)
    if q.ndim != 2 or q.shape[1] != head_dim or len(q) % n_kv_heads:
        raise ValueError(f"q is {q.shape}, expected (n * {n_kv_heads}, {head_dim})")
    return q.reshape(n_kv_heads, -1, head_dim)
    ### END SOLUTION
    # STUB: raise NotImplementedError


# %% [markdown] key="paged-task" lang="ru"
r"""
## Шаг 2. То же по таблице блоков

Один проход по `seq.block_table`, на каждом блоке — пять строк из формулы выше. `keepdims=True` избавит от возни с формами.
"""

# %% [markdown] key="paged-task" lang="en"
r"""
## Step 2. The same along the block table

One pass over `seq.block_table`, and in each block the five lines of the formula above. `keepdims=True` saves a lot of fuss with shapes.
"""


# %% key="paged-attention" nbgrader={"grade": false, "grade_id": "paged-attention", "locked": false, "schema_version": 3, "solution": true, "task": false}
def paged_attention(pool, seq, layer, q, scale):
    # ru: Внимание одного шага декода по блокам последовательности.
    # en: Attention of one decode step over the blocks of a sequence.
    ### BEGIN SOLUTION
    if len(seq) == 0:
        raise ValueError("the sequence is empty: there is nothing to attend to")
    q = grouped(q, pool.n_kv_heads, pool.head_dim)
    m = np.full((*q.shape[:2], 1), -np.inf, np.float32)
    l = np.zeros_like(m)
    acc = np.zeros_like(q)
    for start in range(0, len(seq), pool.block_size):
        block = seq.block_table[start // pool.block_size]
        valid = min(pool.block_size, len(seq) - start)
        K = pool.k[layer, block, :valid].astype(np.float32)
        V = pool.v[layer, block, :valid].astype(np.float32)
        S = float(scale) * (q @ K.transpose(1, 2, 0))  # (n_kv_heads, group, valid)
        m_new = np.maximum(m, S.max(axis=-1, keepdims=True))
        alpha = np.exp(m - m_new)
        P = np.exp(S - m_new)
        l = l * alpha + P.sum(axis=-1, keepdims=True)
        acc = acc * alpha + P @ V.transpose(1, 0, 2)
        m = m_new
    return (acc / l).reshape(-1, pool.head_dim)
    ### END SOLUTION
    # STUB: raise NotImplementedError


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

Пулы проверки заполнены NaN, номера блоков перемешаны, слоёв несколько, а голов 6 и 3. Если застряли, наберите в новой ячейке `hint("09.2", 1)`; дальше есть `hint("09.2", 2)` и `hint("09.2", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

Its pools are full of NaN, its block ids are shuffled, there are several layers, and 6 and 3 heads. If you are stuck, type `hint("09.2", 1)` in a new cell; after it come `hint("09.2", 2)` and `hint("09.2", 3)`.
"""

# %% key="check"
report = check("09.2", paged_attention, reference_attention)
report

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 10, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.2", paged_attention, reference_attention)

# %% [markdown] key="experiment" lang="ru"
r"""
## Эксперимент: совпадает ли

Тот самый запрос с картинки: 40 токенов в блоках 7, 0 и 12. Прежний хозяин пула оставил в слотах свои данные. Сравним ваши функции на двух наборах голов.

Расхождение бывает порядка $10^{-7}$: это округление `float32`, ведь складываем в другом порядке. Последние цифры зависят от процессора, поэтому печатается только граница.
"""

# %% [markdown] key="experiment" lang="en"
r"""
## Experiment: do they agree

The very request of the picture: 40 tokens in blocks 7, 0 and 12. The previous owner of the pool left data in its slots. Let us compare your functions for two sets of heads.

The difference is of the order $10^{-7}$: `float32` rounding, since we add in another order. Its last digits depend on the processor, so only a bound is printed.
"""


# %% key="example"
def example(n_heads, n_kv_heads, length=40, n_layers=2, head_dim=32):
    rng = np.random.default_rng(9)
    pool = BlockPool(16, n_layers, n_kv_heads, head_dim)
    pool.k[:], pool.v[:] = rng.normal(size=(2, *pool.k.shape))
    # ru: Первыми пул теперь выдаст блоки 7, 0 и 12.
    # en: The pool will now hand out blocks 7, 0 and 12 first.
    pool.allocate_many(13)
    pool.release_many([12, 0, 7])
    seq = Sequence(pool, "seq")
    K, V = rng.normal(size=(2, n_layers, length, n_kv_heads, head_dim))
    seq.extend(K, V)
    q = rng.normal(size=(n_heads, head_dim))
    return pool, seq, K, V, q


# %% key="compare"
if report.passed:
    for n_heads, n_kv_heads in ((4, 2), (6, 3)):
        pool, seq, K, V, q = example(n_heads, n_kv_heads)
        scale, layer = pool.head_dim**-0.5, 1
        by_blocks = paged_attention(pool, seq, layer, q, scale)
        plain = reference_attention(K[layer], V[layer], q, scale)
        diff = np.abs(by_blocks - plain).max()
        print(f"heads={n_heads}/{n_kv_heads} L={len(seq)} blocks={seq.block_table}")
        print(f"max|diff| < 1e-5: {diff < 1e-5}   < 1e-6: {diff < 1e-6}")

# %% [markdown] key="mistakes" lang="ru"
r"""
## Эксперимент: цена двух ошибок

Забудем домножить накопленное на $\alpha$. Потом забудем, что последний блок неполон. Насколько изменится ответ? Это зависит от того, как распределено внимание: поровну между всеми токенами или почти целиком на одном. Остроту внимания задаёт множитель `sharpness`, на который умножается `q`; при нуле все токены равны.

Каждая строка — одна острота: сколько токенов собирают 90 % веса и как далеко от верного ответа уходят обе ошибки. На рисунке — веса токенов при последней остроте: серые столбики верные, оранжевые чёрточки получены без поправки $\alpha$.

**Загадайте:** при какой остроте первая ошибка не видна вовсе? И кому она припишет лишний вес — ранним токенам или поздним?
"""

# %% [markdown] key="mistakes" lang="en"
r"""
## Experiment: the price of two mistakes

Let us forget to multiply the sums by $\alpha$. Then let us forget that the last block is only partly filled. How much does the answer change? That depends on how attention is spread: evenly over all tokens, or nearly all of it on one. Its sharpness is set by a factor `sharpness` that multiplies `q`; at zero all tokens are equal.

Each line is one sharpness: how many tokens gather 90% of the weight, and how far from the right answer each mistake leads. The figure shows the weights of the tokens at the last sharpness: the grey bars are right, the orange dashes come out without the correction $\alpha$.

**Guess first:** at which sharpness is the first mistake not visible at all? And to whom does it give too much weight, early tokens or late ones?
"""


# %% key="mistakes-code"
def softmax(scores):
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def three_weights(pool, seq, layer, q, scale, head):
    # ru: Веса всех слотов одной головы: верные, без поправки alpha, без маски.
    # en: One head's weights of all slots: right, without alpha, without a mask.
    kv_head = head * pool.n_kv_heads // len(q)
    slots = pool.k[layer, seq.block_table][:, :, kv_head].reshape(-1, pool.head_dim)
    scores = scale * (slots @ q[head])
    masked = np.where(np.arange(len(slots)) < len(seq), scores, -np.inf)
    blocks = masked.reshape(-1, pool.block_size)
    seen = np.maximum.accumulate(blocks.max(axis=1))
    return softmax(masked), softmax((blocks - seen[:, None]).ravel()), softmax(scores)


# %% key="run-mistakes"
if report.passed:
    pool, seq, K, V, q = example(n_heads=6, n_kv_heads=3)
    scale, layer, head = pool.head_dim**-0.5, 1, 4
    values = pool.v[layer, seq.block_table][:, :, head // 2].reshape(-1, pool.head_dim)
    for sharpness in (0, 1, 2, 4):
        sharp = sharpness * q
        answer = paged_attention(pool, seq, layer, sharp, scale)[head]
        weights = three_weights(pool, seq, layer, sharp, scale, head)
        right, no_alpha, no_mask = weights
        mine, lost, leaked = (np.abs(w @ values - answer).max() for w in weights)
        tokens = 1 + np.sum(np.cumsum(np.sort(right)[::-1]) < 0.9 - 1e-6)
        print(f"sharpness={sharpness} tokens_for_90%={tokens:2d}", end=" ")
        print(f"right={mine:.2f} no_alpha={lost:.2f} no_mask={leaked:.2f}")
    display(figures.token_weights(right[: len(seq)], no_alpha[: len(seq)], 16))

# %% [markdown] key="reading" lang="ru"
r"""
## Сколько байт читает декод

Ради одного токена читаются все ключи и значения запроса. Сделала ли таблица блоков это чтение дешевле? Посчитаем для модели размера Llama-3-8B.
"""

# %% [markdown] key="reading" lang="en"
r"""
## How many bytes decode reads

For one token all keys and values of the request are read. Has the block table made that any cheaper? Let us compute it for a model of the size of Llama-3-8B.
"""

# %% key="bytes-read"
spec = KVCacheSpec.preset("llama-3-8b")
for length in (40, 4096, 32768):
    read = length * spec.bytes_per_token() / 2**20
    table = 4 * spec.blocks_for(length) / 2**20
    print(f"L={length:5d} blocks={spec.blocks_for(length):4d}", end=" ")
    print(f"read={read:g} MiB table={table:.5f} MiB")

# %% [markdown] key="reading-answer" lang="ru"
r"""
Нет: читается столько же байт, сколько и без блоков, а таблица рядом с ними ничего не весит. Страничная память не ускоряет один запрос. Она позволяет держать в памяти больше запросов сразу, и пропускная способность (*throughput*) растёт именно от этого.
"""

# %% [markdown] key="reading-answer" lang="en"
r"""
It has not: the bytes are as many as without blocks, and the table weighs nothing beside them. Paged memory does not make one request faster. It lets more requests fit side by side, and throughput (*пропускная способность*) grows from that.
"""

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. При `sharpness=0` ошибка с $\alpha$ не видна. Почему? Какими должны быть данные теста, чтобы её поймать?
2. Изменится ли ответ, если пройти таблицу блоков с конца?
3. Длинный запрос считают двое: один берёт первую половину таблицы, другой вторую. Что каждый из них должен сообщить, чтобы из двух ответов получился один?
4. Почему ошибка без маски опаснее, чем просто неточный ответ?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. At `sharpness=0` the mistake with $\alpha$ does not show. Why? What must the data of a test be like to catch it?
2. Does the answer change if you walk the block table backwards?
3. Two workers share a long request: one takes the first half of the table, the other the second. What must each report, so that the two answers make one?
4. Why is the missing mask worse than an inexact answer?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Если все оценки равны, максимум находится в первом же блоке и больше не растёт: $\alpha = 1$, забывать нечего. Для теста нужны случайные, неравные данные, чтобы максимум рос хотя бы в одном из следующих блоков. По той же причине не годятся одна голова, один слой и таблица $0, 1, 2, \dots$
2. Нет, разве что в последних знаках: сумма не зависит от порядка слагаемых. Место токена в тексте записано в самом ключе, когда к нему применили позиционное кодирование. Нужно только помнить, что неполон по-прежнему последний *логический* блок.
3. Три величины: $m$, $l$ и $\mathrm{acc}$. Или две: готовый ответ и $m + \ln l$, логарифм суммы экспонент. Слияние точное, на нём стоят Flash-Decoding и каскадное внимание; в модуле это `AttentionState.merge`.
4. В пустых слотах лежат ключи и значения другого запроса. Ответ не просто неточен: в него подмешан чужой разговор.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. If all scores are equal, the maximum is found in the first block and never grows: $\alpha = 1$, there is nothing to forget. A test needs random, unequal data, so that the maximum grows in at least one later block. For the same reason one head, one layer and the table $0, 1, 2, \dots$ will not do.
2. No, except in the last digits: a sum does not depend on the order of its terms. Where a token stands in the text was written into the key itself, when its position was encoded. Only remember that the partly filled block is still the last *logical* one.
3. Three quantities: $m$, $l$ and $\mathrm{acc}$. Or two: the finished answer and $m + \ln l$, the log of the sum of exponentials. The merge is exact; Flash-Decoding and cascade attention stand on it, and in the module it is `AttentionState.merge`.
4. The empty slots hold keys and values of another request. The answer is not merely inexact: somebody else's conversation is mixed into it.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- [Урок 09.2](../../notebooks/ru/09.2_attention.ipynb): тот же цикл по шагам, слияние частей и каскад.
- Milakov, Gimelshein, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867): откуда взялась поправка $\alpha$.
- Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), алгоритм 1: тот же цикл для сплошной памяти.
- Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.1 и §7.1: во что обходится ядру чтение через таблицу.
- [`paged_kv/attention.py`](../../paged_kv/attention.py): то же в модуле, но по многу блоков за раз, и слияние частичных ответов.
- FlashInfer, `include/flashinfer/attention/state.cuh`: состояние и слияние меньше чем в сотне строк. vLLM, `vllm/v1/attention/ops/triton_unified_attention.py`: настоящее ядро на Triton.

Дальше — [урок 09.3](../../notebooks/ru/09.3_sharing.ipynb), а за ним [упражнение 09.3](09.3_prefix_sharing.ipynb): один префикс на многих.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- [Lesson 09.2](../../notebooks/en/09.2_attention.ipynb): the same loop step by step, merging of parts, and cascade.
- Milakov, Gimelshein, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867): where the correction $\alpha$ comes from.
- Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), algorithm 1: the same loop over contiguous memory.
- Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.1 and §7.1: what reading through a table costs the kernel.
- [`paged_kv/attention.py`](../../paged_kv/attention.py): the same in the module, many blocks at a time, and the merging of partial answers.
- FlashInfer, `include/flashinfer/attention/state.cuh`: state and merge in under a hundred lines. vLLM, `vllm/v1/attention/ops/triton_unified_attention.py`: a real kernel in Triton.

Next comes [lesson 09.3](../../notebooks/en/09.3_sharing.ipynb), and then [exercise 09.3](09.3_prefix_sharing.ipynb): one prefix for many.
"""
