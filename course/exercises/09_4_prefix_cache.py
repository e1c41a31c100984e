# ---
# jupyter:
#   course:
#     minutes: 40
#     difficulty: 3
#     summary:
#       ru: "По желанию: строите цепочку ключей и находите самое длинное общее начало промпта."
#       en: "Optional: build the chain of keys and find the longest common beginning of a prompt."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Поиск по цепочке хешей

Необязательное упражнение к [уроку 09.4](../../notebooks/ru/09.4_prefix_cache.ipynb). Вы напишете сердце кэша префиксов: ключи блоков и поиск по ним. Счётчики ссылок и очередь свободных блоков остаются модулю, здесь нужен только ответ на вопрос: **в каких блоках уже лежат K и V начала этого промпта?**

Ошибка тут дороже промаха. Лишний промах стоит времени, а ложное попадание — чужого текста в ответе.
"""

# %% [markdown] key="title" lang="en"
r"""
# Lookup along a hash chain

An optional exercise to [lesson 09.4](../../notebooks/en/09.4_prefix_cache.ipynb). You will write the heart of a prefix cache: the keys of blocks, and the lookup by them. Reference counts and the queue of free blocks are left to the module; all that is needed here is an answer to the question: **in which blocks do the K and V of this prompt's beginning lie already?**

A mistake here costs more than a miss. A needless miss costs time, a false hit puts somebody else's text into the answer.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

Блок вмещает 4 токена. Опубликован промпт `[7, 1, 6, 2, 5, 5, 0, 3, 8]`, его таблица — `[6, 2, 9]`.

1. Сколько у него ключей и почему не три?
2. Пришёл тот же промпт без последней восьмёрки. Какие блоки найдутся?
3. Пришёл `[9, 9, 9, 9, 5, 5, 0, 3, 8]`. Второй блок токенов знаком. Можно ли взять физический блок 2?
4. Блок 6 выдали другому запросу. Что теперь найдёт первый промпт?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

A block holds 4 tokens. The prompt `[7, 1, 6, 2, 5, 5, 0, 3, 8]` is published, with the table `[6, 2, 9]`.

1. How many keys has it, and why not three?
2. The same prompt comes without the eight at its end. Which blocks are found?
3. `[9, 9, 9, 9, 5, 5, 0, 3, 8]` comes. The second block of tokens is a familiar one. May it take physical block 2?
4. Block 6 was handed out to another request. What does the first prompt find now?
"""

# %% [markdown] key="on-paper-answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Два: полных блоков два, а девятый токен лежит в неполном.
2. Только блок 6. В промпте восемь токенов, и последний надо вычислить заново, так что найтись могут не больше семи.
3. Нельзя: K и V тех же четырёх токенов после другого начала другие.
4. Ничего. Блок 2 на месте, но без первых четырёх токенов он бесполезен.
"""

# %% [markdown] key="on-paper-answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. Two: there are two full blocks, and the ninth token lies in a partial one.
2. Block 6 alone. The prompt has eight tokens, and the last has to be computed anew, so no more than seven may be found.
3. It may not: K and V of the same four tokens after another beginning are others.
4. Nothing. Block 2 is in place, but it is useless without the first four tokens.
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. **Цепочка.** Ключ блока — это то, что вернула `hash_fn` от ключа предыдущего блока и токенов этого. Ключи есть только у полных блоков.
2. **Последний токен.** `match` находит не больше $L-1$ токенов промпта.
3. **Первый промах — последний.** Дальше разрыва ничего не ищут.
4. **Хеш не доказательство.** Разные начала могут получить один ключ; прежде чем отдать блок, сравните токены, и не одного последнего блока, а всего начала.
5. **Забывать.** `forget(block)` вызывают, когда блок выдают заново, в том числе такой, которого вы никогда не видели.

| Что | Вид |
|---|---|
| `tokens` | список целых чисел |
| `block_table` | физические блоки по порядку; последний может быть неполным |
| `hash_fn(data)` | ключ; `data` — что угодно хешируемое, например кортеж |
| `block_keys(…)` | список ключей, по одному на полный блок |
| `match(tokens)` | список физических блоков, возможно пустой |
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. **A chain.** The key of a block is what `hash_fn` returns for the key of the block before and the tokens of this one. Only full blocks have keys.
2. **The last token.** `match` finds at most $L-1$ tokens of the prompt.
3. **The first miss is the last.** Nothing is looked for beyond a gap.
4. **A hash proves nothing.** Different beginnings may get one key; before you give a block away compare the tokens, and not those of the last block alone but of the whole beginning.
5. **Forgetting.** `forget(block)` is called when a block is handed out again, also for one that you have never seen.

| What | Kind |
|---|---|
| `tokens` | a list of whole numbers |
| `block_table` | physical blocks in order; the last may be partial |
| `hash_fn(data)` | a key; `data` is anything hashable, a tuple for example |
| `block_keys(…)` | a list of keys, one for each full block |
| `match(tokens)` | a list of physical blocks, maybe empty |
"""

# %% key="setup"
from collections import Counter
from zlib import crc32

import numpy as np

from paged_kv import BlockPool
from paged_kv.checks import check, hint
from paged_kv.messages import use_language
from paged_kv.prefix_cache import PrefixCache

use_language("{{lang}}")

# %% [markdown] key="keys-task" lang="ru"
r"""
## Шаг 1. Ключи

`hash_fn` принимает один аргумент: соберите предыдущий ключ и токены блока в кортеж.
"""

# %% [markdown] key="keys-task" lang="en"
r"""
## Step 1. The keys

`hash_fn` takes one argument: put the key before and the tokens of the block into a tuple.
"""


# %% key="keys" nbgrader={"grade": false, "grade_id": "keys", "locked": false, "schema_version": 3, "solution": true, "task": false}
def block_keys(tokens, block_size, hash_fn):
    # ru: Список ключей, по одному на каждый полный блок.
    # en: A list of keys, one for each full block.
    ### BEGIN SOLUTION
    keys, key = [], None
    for end in range(block_size, len(tokens) + 1, block_size):
        key = hash_fn((key, tuple(tokens[end - block_size : end])))
        keys.append(key)
    return keys
    ### END SOLUTION
    # STUB: raise NotImplementedError


# %% [markdown] key="index-task" lang="ru"
r"""
## Шаг 2. Поиск

Как хранить найденное, решаете вы. Подумайте заранее, как `forget` узнает, что удалять.
"""

# %% [markdown] key="index-task" lang="en"
r"""
## Step 2. The lookup

How to keep what was published is yours to decide. Think ahead how `forget` will know what to remove.
"""


# %% key="index" nbgrader={"grade": false, "grade_id": "index", "locked": false, "schema_version": 3, "solution": true, "task": false}
class PrefixIndex:
    # ru: Помнит, в каком физическом блоке лежит какое начало.
    # en: Remembers which physical block holds which beginning.

    def __init__(self, block_size=16, hash_fn=hash):
        self.block_size = block_size
        self.hash_fn = hash_fn
        ### BEGIN SOLUTION
        self.known = {}  # key → (block, beginning)
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def publish(self, tokens, block_table):
        # ru: K и V этих токенов записаны: полные блоки теперь можно найти.
        # en: K and V of these tokens are written: full blocks can be found from now on.
        ### BEGIN SOLUTION
        keys = block_keys(tokens, self.block_size, self.hash_fn)
        for i, key in enumerate(keys):
            beginning = tuple(tokens[: (i + 1) * self.block_size])
            self.known[key] = (block_table[i], beginning)
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def match(self, tokens):
        # ru: Физические блоки самого длинного известного начала, не больше L − 1 токенов.
        # en: Physical blocks of the longest known beginning, at most L − 1 tokens.
        ### BEGIN SOLUTION
        blocks = []
        keys = block_keys(tokens[:-1], self.block_size, self.hash_fn)
        for i, key in enumerate(keys):
            block, beginning = self.known.get(key, (None, None))
            if beginning != tuple(tokens[: (i + 1) * self.block_size]):
                break
            blocks.append(block)
        return blocks
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def forget(self, block):
        # ru: Блок выдан заново: его прежнего содержимого больше нет.
        # en: The block was handed out again: what it held is gone.
        ### BEGIN SOLUTION
        self.known = {
            key: entry for key, entry in self.known.items() if entry[0] != block
        }
        ### END SOLUTION
        # STUB: raise NotImplementedError


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

В ней есть и хеш, который для всего на свете возвращает единицу. Если застряли: `hint("09.4", 1)`, затем `hint("09.4", 2)` и `hint("09.4", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

It has a hash, too, that returns one for everything there is. If you are stuck: `hint("09.4", 1)`, then `hint("09.4", 2)` and `hint("09.4", 3)`.
"""

# %% key="check"
report = check("09.4", block_keys, PrefixIndex)
report

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 14, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.4", block_keys, PrefixIndex)

# %% [markdown] key="beside" lang="ru"
r"""
## Ваш индекс рядом с кэшем модуля

Шесть случайных промптов проходят через `PrefixCache`, а ваш индекс узнаёт о том же: что опубликовано и какие блоки выданы заново. Отвечать они должны одинаково.
"""

# %% [markdown] key="beside" lang="en"
r"""
## Your index beside the module's cache

Six random prompts pass through `PrefixCache`, and your index is told the same: what was published and which blocks were handed out again. Their answers should agree.
"""

# %% key="beside-code"
if report.passed:
    rng = np.random.default_rng(2)
    cache = PrefixCache(BlockPool(12, 1, 1, 1, block_size=4))
    index = PrefixIndex(block_size=4)
    head = rng.integers(0, 9, size=8).tolist()
    for i in range(6):
        prompt = head + rng.integers(0, 2, size=9).tolist()
        mine, (theirs, _) = index.match(prompt), cache.match(prompt)
        seq, _ = cache.admit(i, prompt)
        for block in seq.block_table[len(theirs) :]:
            index.forget(block)
        cache.publish(seq, prompt)
        index.publish(prompt, seq.block_table)
        print(f"target={theirs} yours={mine} table={seq.block_table}")
        seq.free()

# %% [markdown] key="experiment" lang="ru"
r"""
## Эксперимент: сколько знает короткий ключ

Хеш можно обрезать, чтобы ключи занимали меньше места. **Загадайте:** сколько разных начал окажутся под одним ключом с другим началом, если ключ — число из 8, 16 или 32 бит, а начал десять тысяч?
"""

# %% [markdown] key="experiment" lang="en"
r"""
## Experiment: how much a short key knows

A hash can be cut so that keys take less room. **Guess first:** how many beginnings will share their key with another one if a key is a number of 8, 16 or 32 bits, and there are ten thousand beginnings?
"""

# %% key="experiment-code"
if report.passed:
    prompts = [[i // 100, i % 100] for i in range(10_000)]
    for bits in (8, 16, 32):

        def short_hash(data, bits=bits):
            return crc32(repr(data).encode()) % 2**bits

        keys = Counter(block_keys(prompt, 2, short_hash)[0] for prompt in prompts)
        shared = sum(n for n in keys.values() if n > 1)
        print(f"bits={bits:2d} keys={len(keys):5d} beginnings that share={shared}")

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. `hash` в Python быстрый, но подбирать к нему совпадения умеют. Кто и зачем стал бы это делать в сервисе, где кэш общий? Почему vLLM перешёл на SHA-256?
2. Вы храните рядом с блоком всё начало. Сколько памяти это займёт у промпта из $n$ блоков? Как обойтись ссылкой на предыдущий блок?
3. Два запроса одновременно вычислили одно начало в разных блоках и опубликовали. Что делает ваш `publish`, и что будет, когда один из этих блоков выдадут заново?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. Python's `hash` is fast, but people know how to find collisions for it. Who would do so, and why, in a service whose cache is shared? Why did vLLM move to SHA-256?
2. You keep the whole beginning beside each block. How much memory does that take for a prompt of $n$ blocks? How could a reference to the block before do instead?
3. Two requests computed one beginning at the same time, in different blocks, and published both. What does your `publish` do, and what happens when one of those blocks is handed out again?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Тот, кто хочет прочесть чужое: промпт с тем же ключом получил бы K и V другого пользователя. К SHA-256 совпадения не подбирают, поэтому vLLM и не хранит токены. Мы храним и сравниваем: так верно с любым хешем.
2. Порядка $n^2/2$ блоков токенов. Если хранить у записи токены одного блока и ссылку на запись предыдущего, хватит $n$: начала равны, когда равны токены блока и это *та же* предыдущая запись. Так устроен `PrefixCache`.
3. Второй вытеснит из индекса первого. Если потом выдадут заново второй блок, начало перестанет находиться, хотя в первом оно ещё лежит: лишний промах, но не ошибка. `PrefixCache` помнит оба.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. Whoever wants to read other people's text: a prompt with the same key would get another user's K and V. Nobody finds collisions of SHA-256, which is why vLLM keeps no tokens. We keep and compare them: that is right with any hash.
2. Of the order of $n^2/2$ blocks of tokens. With the tokens of one block and a reference to the entry before, $n$ are enough: beginnings are equal when the tokens of the block are and the entry before is *the same one*. `PrefixCache` is built like that.
3. The second drives the first out of the index. If the second block is handed out again, the beginning is not found any more although the first still holds it: a needless miss, but no error. `PrefixCache` remembers both.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- [`paged_kv/prefix_cache.py`](../../paged_kv/prefix_cache.py): то же самое со счётчиками, очередью и солью.
- [`paged_kv/radix_cache.py`](../../paged_kv/radix_cache.py) и [`radix_tree.py`](../../paged_kv/radix_tree.py): как обойтись без хешей.
- Документация vLLM, «Automatic Prefix Caching».

Дальше — [урок 09.5](../../notebooks/ru/09.5_quantization.ipynb): как уместить в те же байты больше токенов.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- [`paged_kv/prefix_cache.py`](../../paged_kv/prefix_cache.py): the same with counts, a queue and a salt.
- [`paged_kv/radix_cache.py`](../../paged_kv/radix_cache.py) and [`radix_tree.py`](../../paged_kv/radix_tree.py): how to do without hashes.
- vLLM's documentation, “Automatic Prefix Caching”.

Next comes [lesson 09.5](../../notebooks/en/09.5_quantization.ipynb): more tokens in the same bytes.
"""
