# ---
# jupyter:
#   course:
#     minutes: 40
#     difficulty: 3
#     summary:
#       ru: "По желанию: квантуете полные блоки в int8, а хвост храните точно."
#       en: "Optional: quantise full blocks to int8 and keep the tail exact."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Блоки int8 с точным хвостом

Необязательное упражнение к [уроку 09.5](../../notebooks/ru/09.5_quantization.ipynb). Вы напишете самое нужное из него: две функции, которые превращают блок в байты и обратно, и маленький кэш, который сам решает, когда это делать.

Кэш здесь совсем простой: ключи одного запроса в одном слое, без таблицы блоков и форков. Всё внимание — на один вопрос: **в какой момент токен перестаёт быть точным и почему не раньше?**
"""

# %% [markdown] key="title" lang="en"
r"""
# int8 blocks with an exact tail

An optional exercise to [lesson 09.5](../../notebooks/en/09.5_quantization.ipynb). You will write the most useful part of it: two functions that turn a block into bytes and back, and a small cache that decides by itself when to do so.

The cache is as plain as can be: the keys of one request in one layer, without a block table and without forks. All attention goes to one question: **at which moment does a token stop being exact, and why not earlier?**
"""

# %% [markdown] key="formulas" lang="ru"
r"""
## Формулы

Масштаб (*scale*) свой у каждой головы блока, коды (*codes*) от $-127$ до $127$:

$$s = \frac{\max|K|}{127}, \qquad c = \mathrm{clip}\bigl(\mathrm{round}(K / s), -127, 127\bigr), \qquad \hat K = c \cdot s$$

Максимум берётся по всем токенам и всем каналам одной головы. Ошибка при таком округлении не больше $s/2$.
"""

# %% [markdown] key="formulas" lang="en"
r"""
## The formulas

Each head of a block has a scale (*масштаб*) of its own; codes (*коды*) run from $-127$ to $127$:

$$s = \frac{\max|K|}{127}, \qquad c = \mathrm{clip}\bigl(\mathrm{round}(K / s), -127, 127\bigr), \qquad \hat K = c \cdot s$$

The maximum runs over all tokens and all channels of one head. With this rounding the error is at most $s/2$.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

1. В голове блока наибольший модуль — 2,54. Каков масштаб? Какой код получит число 1,0 и каким оно прочтётся?
2. Блок вмещает 4 токена, пришло 10. Сколько токенов лежит в кодах, а сколько точно?
3. Что будет, если приводить к `int8` без округления?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

1. The largest magnitude in a head of a block is 2.54. What is the scale? Which code does the number 1.0 get, and what does it read back as?
2. A block holds 4 tokens, and 10 have come. How many tokens are kept as codes, and how many exactly?
3. What happens if you cast to `int8` without rounding?
"""

# %% [markdown] key="on-paper-answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. $s = 2{,}54/127 = 0{,}02$. Код $1/0{,}02 = 50$, и прочтётся ровно 1,0. Обычно так не везёт.
2. Два блока заполнены, это 8 токенов в кодах; ещё 2 лежат точно.
3. Дробная часть отбрасывается в сторону нуля: ошибка до целого шага вместо половины, и всё чуть съёживается.
"""

# %% [markdown] key="on-paper-answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. $s = 2.54/127 = 0.02$. The code is $1/0.02 = 50$, and it reads back as exactly 1.0. One is not usually so lucky.
2. Two blocks are full, 8 tokens in codes; 2 more are exact.
3. The fraction is cut off towards zero: an error of up to a whole step in place of half, and everything shrinks a little.
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. **Один раз.** Блок квантуется, когда заполнен, и из точных значений. Не раньше, не позже и не дважды.
2. **Хвост точен.** Токены неполного блока читаются бит в бит, и хранится их *копия*: движок пишет следующий токен в тот же буфер.
3. **Память освобождается.** От полного блока остаются только коды и масштабы.
4. **Нули.** Голова из одних нулей читается нулями. Деление на ноль — ваша забота.

| Что | Форма и тип |
|---|---|
| `Kb`, один блок | `(n, n_kv_heads, d)`, `float32` |
| `codes` | `(n, n_kv_heads, d)`, `int8` |
| `scale` | `(1, n_kv_heads, 1)`, `float32` |
| `k` в `append` | `(n_kv_heads, head_dim)` |
| `cache.blocks` | список пар `(codes, scale)` полных блоков |
| `cache.read()` | `(len(cache), n_kv_heads, head_dim)`, `float32` |
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. **Once.** A block is quantised when it is full, and from exact values. Not earlier, not later and not twice.
2. **The tail is exact.** Tokens of a block that is not full read back bit by bit, and what is kept is a *copy*: an engine writes the next token into the same buffer.
3. **Memory is given back.** Of a full block only codes and scales remain.
4. **Zeros.** A head of zeros reads back as zeros. Division by zero is for you to deal with.

| What | Shape and type |
|---|---|
| `Kb`, one block | `(n, n_kv_heads, d)`, `float32` |
| `codes` | `(n, n_kv_heads, d)`, `int8` |
| `scale` | `(1, n_kv_heads, 1)`, `float32` |
| `k` in `append` | `(n_kv_heads, head_dim)` |
| `cache.blocks` | list of pairs `(codes, scale)` of full blocks |
| `cache.read()` | `(len(cache), n_kv_heads, head_dim)`, `float32` |
"""

# %% key="setup"
import numpy as np

from paged_kv import Sequence, gather_kv
from paged_kv.checks import check, hint
from paged_kv.messages import use_language
from paged_kv.quantization import QuantizedBlockPool

use_language("{{lang}}")

# %% [markdown] key="functions-task" lang="ru"
r"""
## Шаг 1. Туда и обратно

`keepdims=True` оставит масштабу форму, в которой он сам размножится на весь блок.
"""

# %% [markdown] key="functions-task" lang="en"
r"""
## Step 1. There and back

`keepdims=True` leaves the scale in a shape that broadcasts over the whole block by itself.
"""


# %% key="functions" nbgrader={"grade": false, "grade_id": "functions", "locked": false, "schema_version": 3, "solution": true, "task": false}
def quantize_block_int8(Kb):
    # ru: Блок (n, n_kv_heads, d) → коды int8 и масштаб (1, n_kv_heads, 1).
    # en: A block (n, n_kv_heads, d) → int8 codes and a scale (1, n_kv_heads, 1).
    ### BEGIN SOLUTION
    amax = np.abs(Kb).max(axis=(0, 2), keepdims=True)
    scale = (amax / 127).astype(np.float32)
    divisor = np.where(scale > 0, scale, 1)
    codes = np.clip(np.round(Kb / divisor), -127, 127).astype(np.int8)
    return codes, scale
    ### END SOLUTION
    # STUB: raise NotImplementedError


def dequantize_block_int8(codes, scale):
    # ru: Обратно во float32.
    # en: Back to float32.
    ### BEGIN SOLUTION
    return codes.astype(np.float32) * scale
    ### END SOLUTION
    # STUB: raise NotImplementedError


# %% [markdown] key="cache-task" lang="ru"
r"""
## Шаг 2. Кэш, который знает, когда

Поля уже заведены; можно добавить свои, но `blocks` должен остаться списком пар.
"""

# %% [markdown] key="cache-task" lang="en"
r"""
## Step 2. A cache that knows when

The fields are there already; add your own if you like, but `blocks` must remain a list of pairs.
"""


# %% key="cache" nbgrader={"grade": false, "grade_id": "cache", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Int8Cache:
    # ru: Ключи одного запроса в одном слое.
    # en: The keys of one request in one layer.

    def __init__(self, n_kv_heads, head_dim, block_size=16):
        self.shape = (n_kv_heads, head_dim)
        self.block_size = block_size
        self.blocks = []
        self.tail = []

    def __len__(self):
        ### BEGIN SOLUTION
        return len(self.blocks) * self.block_size + len(self.tail)
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def append(self, k):
        # ru: k: (n_kv_heads, head_dim).
        # en: k: (n_kv_heads, head_dim).
        ### BEGIN SOLUTION
        self.tail.append(np.array(k, np.float32))
        if len(self.tail) == self.block_size:
            self.blocks.append(quantize_block_int8(np.stack(self.tail)))
            self.tail = []
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def read(self):
        # ru: Все токены по порядку: (len(self), n_kv_heads, head_dim).
        # en: All tokens in order: (len(self), n_kv_heads, head_dim).
        ### BEGIN SOLUTION
        parts = [dequantize_block_int8(codes, scale) for codes, scale in self.blocks]
        parts += [k[None] for k in self.tail]
        return np.concatenate([np.zeros((0, *self.shape), np.float32), *parts])
        ### END SOLUTION
        # STUB: raise NotImplementedError


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

Токены в ней растут один за другим, головы разной величины, буфер переписывается за вашей спиной. Если застряли: `hint("09.5", 1)`, затем `hint("09.5", 2)` и `hint("09.5", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

Its tokens grow one after the other, its heads differ in size, and its buffer is overwritten behind your back. If you are stuck: `hint("09.5", 1)`, then `hint("09.5", 2)` and `hint("09.5", 3)`.
"""

# %% key="check"
report = check("09.5", quantize_block_int8, dequantize_block_int8, Int8Cache)
report

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 8, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.5", quantize_block_int8, dequantize_block_int8, Int8Cache)

# %% [markdown] key="beside" lang="ru"
r"""
## Ваш кэш рядом с пулом модуля

Те же 40 токенов — в ваш кэш и в `QuantizedBlockPool`. Читаться они должны одинаково: и коды, и хвост.
"""

# %% [markdown] key="beside" lang="en"
r"""
## Your cache beside the module's pool

The same 40 tokens go into your cache and into a `QuantizedBlockPool`. They should read the same: codes as well as tail.
"""


# %% key="cache-of"
def cache_of(K, block_size):
    cache = Int8Cache(*K.shape[1:], block_size=block_size)
    for k in K:
        cache.append(k)
    return cache


# %% key="beside-code"
if report.passed:
    K = np.random.default_rng(0).normal(size=(40, 8, 128)).astype(np.float32)
    cache = cache_of(K, block_size=16)
    pool = QuantizedBlockPool(8, n_layers=1, n_kv_heads=8, head_dim=128)
    seq = Sequence(pool, "seq")
    seq.extend(K[None], K[None])
    theirs, _ = gather_kv(pool, seq, layer=0)
    mine = cache.read()
    print(
        f"yours:  blocks={len(cache.blocks)} tail={len(cache) - 16 * len(cache.blocks)}"
    )
    print(f"module: blocks={pool.coded[0].sum()} tail={len(seq) % 16}")
    print(f"blocks equal: {np.abs(mine[:32] - theirs[:32]).max() < 1e-6}")
    print(f"tail equal, and exact: {np.array_equal(mine[32:], K[32:])}")

# %% [markdown] key="block-size" lang="ru"
r"""
## Эксперимент: один громкий токен

Среди 600 обычных токенов один, сотый, в тридцать раз больше остальных. Он задаёт масштаб своего блока, и страдают соседи. Сколько их, зависит от размера блока.

**Загадайте:** при каком размере блока пострадает меньше всего токенов? А при каком уйдёт меньше всего памяти? Точный хвост считается по 32 бита на число.
"""

# %% [markdown] key="block-size" lang="en"
r"""
## Experiment: one loud token

Among 600 ordinary tokens one, number 100, is thirty times as large as the others. It sets the scale of its block, and its neighbours suffer. How many there are depends on the block size.

**Guess first:** at which block size do the fewest tokens suffer? And which takes the least memory? The exact tail counts with 32 bits a number.
"""

# %% key="block-size-code"
if report.passed:
    K = np.random.default_rng(1).normal(size=(600, 8, 128)).astype(np.float32)
    K[100] *= 30
    for block_size in (1, 4, 16, 64, 256):
        cache = cache_of(K, block_size)
        error = np.abs(cache.read() - K).max(axis=(1, 2))
        hurt = np.flatnonzero(error > 0.1)
        coded = sum(codes.nbytes + scale.nbytes for codes, scale in cache.blocks)
        tail = 4 * K[0].size * (len(K) % block_size)
        print(f"block_size={block_size:3d} hurt_tokens={len(hurt):3d}", end=" ")
        print(f"bits_per_element={8 * (coded + tail) / K.size:.2f}")

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. Почему при блоке в один токен памяти нужно не меньше всего?
2. От запроса ответвили второй, пока хвост заполнен наполовину. Можно ли двоим держать один и тот же точный хвост? До какого момента?
3. Запрос укоротили так, что последний полный блок снова стал неполным. Откуда взять его точные значения?
4. Можно ли квантовать тем же кодом V? А можно ли использовать для V масштабы от K?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. Why does a block of one token not take the least memory?
2. A request was forked while its tail was half full. Can both hold the same exact tail? Up to which moment?
3. A request was cut short, so that its last full block is partly filled again. Where do its exact values come from?
4. Can the same code quantise V? And can V use the scales of K?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Масштабов столько же, сколько пар «токен и голова», и каждый занимает четыре байта.
2. Можно, пока ни один не пишет. Первая запись копирует хвост, причём точный: иначе потомок начнёт с уже округлённого.
3. Ниоткуда, их больше нет. Остаётся прочитать коды и продолжать с этими значениями; новый полный блок будет округлён дважды. Так и делает `QuantizedBlockPool`.
4. Кодом — да. Масштабами — нет: у V свои величины, и чужой масштаб либо обрежет их, либо потратит уровни впустую.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. There are as many scales as pairs of token and head, and each takes four bytes.
2. Yes, as long as neither writes. The first write copies the tail, and the exact one: otherwise the child would start from rounded values.
3. From nowhere, they are gone. All one can do is read the codes and go on with those values; the block that becomes full then has been rounded twice. `QuantizedBlockPool` does the same.
4. The code, yes. The scales, no: V has sizes of its own, and a foreign scale either cuts them off or wastes levels.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- [`paged_kv/quantization/integers.py`](../../paged_kv/quantization/integers.py) и [`pool.py`](../../paged_kv/quantization/pool.py): те же функции и пул, у которого есть форки и копирование при записи.
- Liu et al., [KIVI](https://arxiv.org/abs/2402.02750), §3.2: остаток, который хранится точно.

Дальше — [урок 09.6](../../notebooks/ru/09.6_gpu.ipynb): внимание на видеокарте.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- [`paged_kv/quantization/integers.py`](../../paged_kv/quantization/integers.py) and [`pool.py`](../../paged_kv/quantization/pool.py): the same functions, and a pool that has forks and copy-on-write.
- Liu et al., [KIVI](https://arxiv.org/abs/2402.02750), §3.2: the residual that is kept exact.

Next comes [lesson 09.6](../../notebooks/en/09.6_gpu.ipynb): attention on the GPU.
"""
