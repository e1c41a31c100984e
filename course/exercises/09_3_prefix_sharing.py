# ---
# jupyter:
#   course:
#     minutes: 45
#     difficulty: 3
#     summary:
#       ru: "Учите последовательность ветвиться без копирования и считаете, сколько памяти экономит общий промпт."
#       en: "Teach a sequence to fork without copying and count the memory that a shared prompt saves."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Общий префикс: форк и копирование при записи

Десять пользователей пишут одному боту, и у всех десяти запрос начинается с одного и того же системного промпта. Ключи и значения этого начала одинаковы до последнего бита. Зачем хранить их десять раз?

Таблица блоков делает общую память почти бесплатной: пусть десять таблиц указывают на одни и те же физические блоки. Остаётся один вопрос: что будет, когда кто-то захочет дописать своё в блок, который читают все?

Вы добавите в `Sequence` две вещи:

- **форк** (*fork*), ответвление запроса: новая последовательность с теми же токенами, без копирования данных;
- **копирование при записи** (*copy-on-write*): свой экземпляр блока появляется у запроса только тогда, когда он начинает в него писать.
"""

# %% [markdown] key="title" lang="en"
r"""
# Prefix sharing: fork and copy-on-write

Ten users write to the same bot, and all ten requests begin with the same system prompt. The keys and values of that beginning are equal to the last bit. Why store them ten times?

A block table makes shared memory almost free: let ten tables point at the same physical blocks. One question remains. What happens when somebody wants to add something of their own to a block that everyone reads?

You will add two things to `Sequence`:

- a **fork** (*форк*): a new sequence with the same tokens, and no data copied;
- **copy-on-write** (*копирование при записи*): a request gets its own copy of a block only when it starts to write there.
"""

# %% [markdown] key="picture" lang="ru"
r"""
## Что происходит с блоками

Промпт `base` из 40 токенов занимает два полных блока и половину третьего. Запрос `req0` ответвился от него и дописывает свой первый токен.

| Шаг | Таблица `base` | Таблица `req0` | `ref` блоков 0, 1, 2, 3 |
|---|---|---|---|
| промпт записан | 0, 1, 2 | | 1, 1, 1, 0 |
| `req0 = base.fork("req0")` | 0, 1, 2 | 0, 1, 2 | **2**, **2**, **2**, 0 |
| `req0.append(k, v)` | 0, 1, 2 | 0, 1, **3** | 2, 2, **1**, **1** |
| `base.append(k, v)` | 0, 1, 2 | 0, 1, 3 | 2, 2, 1, 1 |
| `base.free()` | | 0, 1, 3 | **1**, **1**, **0**, 1 |

Форк меняет только числа: новая таблица и по одной ссылке на блок. На третьем шаге `req0` пишет в общий блок 2, поэтому сперва получает его копию, блок 3, и отдаёт свою ссылку на блок 2. А вот `base` на четвёртом шаге остался у блока 2 один и пишет на месте.
"""

# %% [markdown] key="picture" lang="en"
r"""
## What happens to the blocks

A prompt `base` of 40 tokens takes two full blocks and half of a third. A request `req0` forks from it and adds its first token.

| Step | Table of `base` | Table of `req0` | `ref` of blocks 0, 1, 2, 3 |
|---|---|---|---|
| the prompt is written | 0, 1, 2 | | 1, 1, 1, 0 |
| `req0 = base.fork("req0")` | 0, 1, 2 | 0, 1, 2 | **2**, **2**, **2**, 0 |
| `req0.append(k, v)` | 0, 1, 2 | 0, 1, **3** | 2, 2, **1**, **1** |
| `base.append(k, v)` | 0, 1, 2 | 0, 1, 3 | 2, 2, 1, 1 |
| `base.free()` | | 0, 1, 3 | **1**, **1**, **0**, 1 |

A fork changes numbers only: a new table, and one reference more per block. In the third step `req0` writes to block 2, which is shared, so it first gets a copy, block 3, and gives up its reference to block 2. In the fourth step `base` is alone with block 2 and writes in place.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

Системный промпт — 500 токенов, то есть 31 полный блок и 4 токена в тридцать втором. От него ответвились десять запросов, и каждый дописал три токена.

1. Сколько блоков занято всего? А сколько было бы, если бы каждый запрос хранил промпт сам?
2. Теперь промпт — ровно 512 токенов. Сколько понадобится копирований?
3. Сколько блоков вернёт `base.free()` в первом случае и сколько во втором?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

The system prompt has 500 tokens: 31 full blocks, and 4 tokens in the thirty-second. Ten requests fork from it, and each adds three tokens.

1. How many blocks are in use altogether? How many would it be if each request kept the prompt for itself?
2. Now the prompt has exactly 512 tokens. How many copies are needed?
3. How many blocks does `base.free()` return in the first case, and how many in the second?
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. **Форк копирует таблицу, а не данные.** У нового запроса свой список с теми же номерами, и у каждого блока на одну ссылку больше.
2. **В блок с `ref > 1` писать нельзя.** Сначала новый блок, в него K и V всех слоёв, потом отпустить старый и заменить номер в своей таблице.
3. **На границе копировать нечего.** Если хвост полон, новый токен ляжет в новый блок, как в 09.1.
4. **Последний хозяин пишет на месте.** При `ref == 1` копия не нужна.
5. **Всё или ничего.** Нет свободного блока под копию — `OutOfBlocks`, и всё осталось как было.

Пул здесь готовый, из модуля. Вот что от него понадобится:

| Что | Как работает |
|---|---|
| `pool.ref` | `int32`, `(num_blocks,)`: сколько таблиц указывает на блок; прибавлять можно прямо сюда |
| `pool.allocate()` | новый блок с `ref == 1` или `OutOfBlocks` |
| `pool.release(block)` | снимает одну ссылку; на нуле блок свободен |
| `pool.k`, `pool.v` | `(n_layers, num_blocks, block_size, n_kv_heads, head_dim)` |
| `pool.used`, `pool.free`, `pool.block_size` | занято, свободно, размер блока |
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. **A fork copies the table, not the data.** The new request has a list of its own with the same ids, and each block has one reference more.
2. **A block with `ref > 1` must not be written.** First a new block, into it K and V of all layers, then let go of the old one and replace the id in your own table.
3. **At a boundary there is nothing to copy.** If the tail is full, the new token goes to a new block, as in 09.1.
4. **The last owner writes in place.** With `ref == 1` no copy is needed.
5. **All or nothing.** No free block for the copy: `OutOfBlocks`, and everything stays as it was.

The pool is the module's own this time. What you need of it:

| What | How it works |
|---|---|
| `pool.ref` | `int32`, `(num_blocks,)`: how many tables point at a block; you may add to it directly |
| `pool.allocate()` | a new block with `ref == 1`, or `OutOfBlocks` |
| `pool.release(block)` | drops one reference; at zero the block is free |
| `pool.k`, `pool.v` | `(n_layers, num_blocks, block_size, n_kv_heads, head_dim)` |
| `pool.used`, `pool.free`, `pool.block_size` | taken, free, block size |
"""

# %% key="setup"
import numpy as np
from IPython.display import display

from paged_kv import BlockPool, KVCacheSpec, figures
from paged_kv.checks import check, hint
from paged_kv.messages import use_language
from paged_kv.widgets import compare, draw

use_language("{{lang}}")

# %% [markdown] key="sequence-task" lang="ru"
r"""
## Шаг 1. Последовательность, которая ветвится

Всё из 09.1 уже на месте. Не хватает двух методов. `own_tail` вызывается перед записью в неполный хвост и отвечает за то, чтобы хвост принадлежал только этой последовательности.
"""

# %% [markdown] key="sequence-task" lang="en"
r"""
## Step 1. A sequence that forks

Everything from 09.1 is in place. Two methods are missing. `own_tail` is called before a write to a partly filled tail and makes sure that the tail belongs to this sequence alone.
"""


# %% key="sequence" nbgrader={"grade": false, "grade_id": "sequence", "locked": false, "schema_version": 3, "solution": true, "task": false}
class Sequence:
    def __init__(self, pool, seq_id):
        self.pool, self.seq_id = pool, seq_id
        self.block_table = []
        self.length = 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        pool = self.pool
        expected = (pool.n_layers, pool.n_kv_heads, pool.head_dim)
        k, v = np.asarray(k, pool.dtype), np.asarray(v, pool.dtype)
        if k.shape != expected or v.shape != expected:
            raise ValueError(f"k {k.shape} and v {v.shape}, expected {expected}")
        slot = self.length % pool.block_size
        if slot == 0:
            self.block_table.append(pool.allocate())
        else:
            self.own_tail()
        block = self.block_table[-1]
        pool.k[:, block, slot] = k
        pool.v[:, block, slot] = v
        self.length += 1
        return block

    def free(self):
        while self.block_table:
            self.pool.release(self.block_table.pop())
        self.length = 0

    def fork(self, new_id):
        # ru: Новая последовательность с теми же токенами; данные не копируются.
        # en: A new sequence with the same tokens; no data are copied.
        ### BEGIN SOLUTION
        child = type(self)(self.pool, new_id)
        child.block_table = list(self.block_table)
        child.length = self.length
        self.pool.ref[self.block_table] += 1
        return child
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def own_tail(self):
        # ru: Если последний блок общий, заменить его в таблице своей копией.
        # en: If the last block is shared, put a copy of one's own into the table.
        ### BEGIN SOLUTION
        pool, shared = self.pool, self.block_table[-1]
        if pool.ref[shared] == 1:
            return
        # ru: Сначала взять: если блоков нет, ничего ещё не изменилось.
        # en: Take first: if there is no block, nothing has changed yet.
        own = pool.allocate()
        pool.k[:, own] = pool.k[:, shared]
        pool.v[:, own] = pool.v[:, shared]
        self.block_table[-1] = own
        pool.release(shared)
        ### END SOLUTION
        # STUB: raise NotImplementedError


# %% [markdown] key="experiment-task" lang="ru"
r"""
## Шаг 2. Опыт с общим промптом

Напишите `prefix_sharing`: запишите промпт, ответвите от него запросы, допишите каждому его токены, посчитайте блоки, а потом освободите сначала `base`, затем все форки. Что лежит в токенах, неважно, поэтому хватит пула с одним слоем, одной головой и `head_dim=1`. Верните словарь:

| Ключ | Значение |
|---|---|
| `shared` | блоки, на которые указывает больше одной таблицы |
| `used` | занятые блоки, всего |
| `unshared` | сколько заняли бы запросы, если бы каждый хранил промпт сам |
| `saved_blocks` | разница |
| `saved_mib` | она же в МиБ для модели размера Llama-3-8B: `KVCacheSpec.preset("llama-3-8b").bytes_per_block()` |
| `used_after_base_free` | занятые блоки после `base.free()` |
| `used_after_all_free` | занятые блоки, когда свободны и все форки |
"""

# %% [markdown] key="experiment-task" lang="en"
r"""
## Step 2. The shared-prompt experiment

Write `prefix_sharing`: write the prompt, fork the requests from it, add each request's own tokens, count the blocks, then free first `base` and after it all the forks. What the tokens hold does not matter, so a pool with one layer, one head and `head_dim=1` is enough. Return a dict:

| Key | Value |
|---|---|
| `shared` | blocks that more than one table points at |
| `used` | blocks in use, all together |
| `unshared` | what the requests would take if each kept the prompt for itself |
| `saved_blocks` | the difference |
| `saved_mib` | the same in MiB for a model of the size of Llama-3-8B: `KVCacheSpec.preset("llama-3-8b").bytes_per_block()` |
| `used_after_base_free` | blocks in use after `base.free()` |
| `used_after_all_free` | blocks in use once all forks are free too |
"""


# %% key="prefix-sharing" nbgrader={"grade": false, "grade_id": "prefix-sharing", "locked": false, "schema_version": 3, "solution": true, "task": false}
def prefix_sharing(Sequence, prompt=500, forks=10, answer=3):
    # ru: prompt и answer в токенах. Возвращает словарь из таблицы выше.
    # en: prompt and answer in tokens. Returns the dict of the table above.
    ### BEGIN SOLUTION
    spec = KVCacheSpec.preset("llama-3-8b")
    unshared = forks * spec.blocks_for(prompt + answer)
    pool = BlockPool(unshared + spec.blocks_for(prompt), 1, 1, 1, spec.block_size)
    token = np.zeros((1, 1, 1))

    base = Sequence(pool, "base")
    for _ in range(prompt):
        base.append(token, token)
    requests = [base.fork(f"req{i}") for i in range(forks)]
    for request in requests:
        for _ in range(answer):
            request.append(token, token)

    saved = unshared - pool.used
    result = {
        "shared": int(np.sum(pool.ref > 1)),
        "used": pool.used,
        "unshared": unshared,
        "saved_blocks": saved,
        "saved_mib": saved * spec.bytes_per_block() / 2**20,
    }
    base.free()
    result["used_after_base_free"] = pool.used
    for request in requests:
        request.free()
    result["used_after_all_free"] = pool.used
    return result
    ### END SOLUTION
    # STUB: raise NotImplementedError


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

Если застряли, наберите в новой ячейке `hint("09.3", 1)`; дальше есть `hint("09.3", 2)` и `hint("09.3", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

If you are stuck, type `hint("09.3", 1)` in a new cell; after it come `hint("09.3", 2)` and `hint("09.3", 3)`.
"""

# %% key="check"
report = check("09.3", Sequence, prefix_sharing)
report

# %% key="side-by-side"
# ru: Проверка не пройдена? Вот первый шаг, на котором ваш код разошёлся с образцом.
# en: Did the check fail? Here is the first step where your code leaves the target.
if report.state in ("wrong", "raised"):
    display(compare("09.3", Sequence))

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 20, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.3", Sequence, prefix_sharing)

# %% [markdown] key="tables" lang="ru"
r"""
## Посмотрите сами

Вот ваши последовательности в пуле из 64 блоков; запросов четыре, чтобы картинка поместилась на экран. Двойная рамка — общий блок, цветная — чей-то собственный, в кружке счётчик ссылок. Под картинкой две таблицы и судьба двух блоков, первого и хвоста промпта: сколько таблиц указывает на них после форков, после дописанных токенов и после `base.free()`.
"""

# %% [markdown] key="tables" lang="en"
r"""
## See for yourself

Here are your sequences in a pool of 64 blocks; there are four requests, so that the picture fits on the screen. A double border is a shared block, a coloured one is somebody's own, and the circle holds the reference count. Below the picture come two tables and the fate of two blocks, the first one and the tail of the prompt: how many tables point at them after the forks, after the added tokens, and after `base.free()`.
"""

# %% key="look-inside"
if report.passed:
    pool, token = BlockPool(64, 1, 1, 1), np.zeros((1, 1, 1))
    base = Sequence(pool, "base")
    for _ in range(500):
        base.append(token, token)
    first, tail = base.block_table[0], base.block_table[-1]
    requests = [base.fork(f"req{i}") for i in range(4)]
    forked = f"fork:   ref[{first}]={pool.ref[first]} ref[{tail}]={pool.ref[tail]}"
    for request in requests * 3:
        request.append(token, token)
    display(draw(pool, base, *requests))
    print(forked)
    for request in requests[:2]:
        a, b, *_, y, z = request.block_table
        print(f"{request.seq_id}: [{a}, {b}, …, {y}, {z}]")
    print(f"append: ref[{first}]={pool.ref[first]} ref[{tail}]={pool.ref[tail]}")
    base.free()
    print(f"free:   ref[{first}]={pool.ref[first]} ref[{tail}]={pool.ref[tail]}")

# %% [markdown] key="lengths" lang="ru"
r"""
## Эксперимент: длина промпта и число запросов

Сперва длина. Меняйте числа и запускайте снова.

> **Ловушка: «промпт на 500 токенов или на 512 — какая разница, блоков ведь поровну».** Разница есть: у 512 токенов хвост полон, копировать нечего, и `base.free()` не вернёт ни одного блока. Сравните строки со своими ответами на бумаге.
"""

# %% [markdown] key="lengths" lang="en"
r"""
## Experiment: prompt length and number of requests

Length first. Change the numbers and run again.

> **Trap: “a prompt of 500 tokens or of 512, what does it matter, the blocks are as many”.** It does matter: with 512 tokens the tail is full, there is nothing to copy, and `base.free()` returns not a single block. Compare the lines with your answers on paper.
"""

# %% key="run-lengths"
if report.passed:
    for prompt in (496, 497, 500, 511, 512):
        c = prefix_sharing(Sequence, prompt, forks=10, answer=3)
        print(f"prompt={prompt} shared={c['shared']} used={c['used']}", end=" ")
        print(f"unshared={c['unshared']} saved={c['saved_blocks']}", end=" ")
        print(f"mib={c['saved_mib']:g} after_base_free={c['used_after_base_free']}")

# %% [markdown] key="forks" lang="ru"
r"""
Теперь число запросов. На рисунке — занятые блоки в зависимости от числа форков: серая линия без общего промпта, синяя с копированием при записи. **Загадайте** наклон каждой: сколько блоков стоит ещё один запрос?
"""

# %% [markdown] key="forks" lang="en"
r"""
Now the number of requests. The figure shows blocks in use against the number of forks: the grey line without sharing, the blue one with copy-on-write. **Guess** the slope of each: how many blocks does one more request cost?
"""

# %% key="run-forks"
if report.passed:
    forks = (1, 2, 4, 6, 8, 10)
    counts = [prefix_sharing(Sequence, 500, n, 3) for n in forks]
    used = [c["used"] for c in counts]
    unshared = [c["unshared"] for c in counts]
    for row in zip(forks, used, unshared, strict=True):
        print("forks={:2d} used={:2d} unshared={:3d}".format(*row))
    display(figures.blocks_by_forks(forks, used, unshared))

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. `base.free()` вызвали раньше, чем запросы что-нибудь дописали. Сколько теперь будет копирований?
2. Что сломается, если `fork` отдаст тот же самый список, `child.block_table = self.block_table`?
3. Почему в `own_tail` сначала берут новый блок и только потом отпускают старый?
4. При одном форке общий промпт ничего не сэкономил, даже наоборот. Почему и когда это изменится?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. `base.free()` is called before the requests have added anything. How many copies are made now?
2. What breaks if `fork` hands over the very same list, `child.block_table = self.block_table`?
3. Why does `own_tail` take the new block first and only then let go of the old one?
4. With a single fork the shared prompt saved nothing, on the contrary. Why, and when does that change?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**На бумаге.** Ответы дают строки `prompt=500` и `prompt=512` выше. При 512 токенах копирований нет, и все блоки `base` общие, поэтому `base.free()` не освобождает ни одного.

**Подумайте.**

1. На одно меньше, чем запросов: последний хозяин хвоста пишет на месте. Ячейка ниже это считает.
2. Таблица станет одной на двоих. Стоит одному дописать токен, и в таблице другого появится чужой блок, а `free()` одного опустошит таблицу другого, хотя тот ещё работает.
3. Если свободных блоков нет, `allocate` бросит исключение, и к этому мигу ничего не должно измениться. Отпусти мы старый блок раньше, его счётчик мог бы упасть до единицы, а таблица по-прежнему указывала бы на него. Следующий токен лёг бы на место, прямо в чужие данные.
4. Пока жив `base`, хвостов два: его собственный и у запроса. Второй форк уже окупает этот лишний блок. А если `base` сразу после форка освободить, общий промпт ничего не теряет и при одном.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**On paper.** The lines `prompt=500` and `prompt=512` above give the answers. With 512 tokens there are no copies, and all blocks of `base` are shared, so `base.free()` frees none of them.

**Think about it.**

1. One fewer than there are requests: the last owner of the tail writes in place. The cell below counts it.
2. There is one table for two. As soon as one adds a token, a stranger's block appears in the table of the other, and `free()` of one empties the table of the other while it is still at work.
3. If no block is free, `allocate` raises, and nothing may have changed by then. Had we let go of the old block first, its count could have dropped to one while the table still pointed at it. The next token would then be written in place, straight into somebody else's data.
4. While `base` lives there are two tails, its own and the request's. The second fork already pays for that extra block. And if `base` is freed right after the fork, the shared prompt loses nothing even with one.
"""

# %% key="free-first" only="solution" nbgrader={"grade": false, "grade_id": "free-first", "locked": false, "schema_version": 3, "solution": true, "task": false}
pool, token = BlockPool(64, 1, 1, 1), np.zeros((1, 1, 1))
base = Sequence(pool, "base")
for _ in range(500):
    base.append(token, token)
requests = [base.fork(f"req{i}") for i in range(10)]
before = pool.used
base.free()
for request in requests:
    request.append(token, token)
print(f"copies={pool.used - before} used={pool.used} peak={pool.peak}")

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.4 — форк, общий префикс и лучевой поиск, §6.3 и рис. 15 — сколько это экономит.
- [Урок 09.3](../../notebooks/ru/09.3_sharing.ipynb): сколько экономят несколько ответов на один вопрос.
- [`paged_kv/sequence.py`](../../paged_kv/sequence.py): то же в модуле. Посмотрите, почему `reserve` сначала узнаёт, сколько блоков понадобится.
- vLLM, `vllm/v1/core/kv_cache_manager.py` и `vllm/v1/core/kv_cache_utils.py`: сегодня движок сам находит общие префиксы, по хешам полных блоков, и копирования при записи в нём уже нет.
- SGLang, `python/sglang/srt/mem_cache/radix_cache.py`: то же, но с префиксным (radix) деревом, [arXiv 2312.07104](https://arxiv.org/abs/2312.07104).

Дальше — [урок 09.4](../../notebooks/ru/09.4_prefix_cache.ipynb): общие начала, о которых никто не предупредил.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.4 on forks, shared prefixes and beam search, §6.3 and Fig. 15 on what they save.
- [Lesson 09.3](../../notebooks/en/09.3_sharing.ipynb): what several answers to one question save.
- [`paged_kv/sequence.py`](../../paged_kv/sequence.py): the same in the module. See why `reserve` first finds out how many blocks it will need.
- vLLM, `vllm/v1/core/kv_cache_manager.py` and `vllm/v1/core/kv_cache_utils.py`: today the engine itself finds shared prefixes, by hashes of full blocks, and copy-on-write is gone from it.
- SGLang, `python/sglang/srt/mem_cache/radix_cache.py`: the same with a radix tree, [arXiv 2312.07104](https://arxiv.org/abs/2312.07104).

Next comes [lesson 09.4](../../notebooks/en/09.4_prefix_cache.ipynb): equal beginnings that nobody announced.
"""
