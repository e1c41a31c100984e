# ---
# jupyter:
#   course:
#     minutes: 45
#     difficulty: 2
#     summary:
#       ru: "Пишете пул блоков и растущую последовательность, раздаёте память 64 запросам и измеряете потери."
#       en: "Write a block pool and a growing sequence, serve 64 requests from it and measure the waste."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Пул блоков и таблица блоков

Сколько токенов сгенерирует запрос, заранее не знает никто: может быть, десять, а может быть, две тысячи. Если каждому сразу отвести место под самый длинный ответ, почти вся память KV-кэша (*KV cache*) простоит пустой. PagedAttention выдаёт её маленькими порциями, **блоками** (*blocks*) по 16 токенов, и только тогда, когда очередному токену уже некуда лечь.

В этом упражнении вы напишете два класса, на которых стоит весь модуль:

- `BlockPool` — пул блоков (*block pool*): раздаёт блоки и считает, сколько на каждый ссылок;
- `Sequence` — последовательность одного запроса: растёт по токену и помнит, где лежат её блоки.

Потом вы раздадите память 64 запросам из собственного пула и увидите, сколько её сэкономлено.
"""

# %% [markdown] key="title" lang="en"
r"""
# Block pool and block table

Nobody knows in advance how many tokens a request will generate: perhaps ten, perhaps two thousand. Set aside room for the longest answer every time, and most of the KV cache (*KV-кэш*) stands empty. PagedAttention hands memory out in small portions, **blocks** (*блоки*) of 16 tokens, and only when the next token has nowhere left to go.

In this exercise you write the two classes that the whole module stands on:

- `BlockPool`, a block pool (*пул блоков*): it hands out blocks and counts the references to each;
- `Sequence`, the tokens of one request: it grows token by token and remembers where its blocks are.

Then you serve 64 requests from your own pool and see how much memory it saves.
"""

# %% [markdown] key="picture" lang="ru"
r"""
## Где лежит токен

Память нарезана на одинаковые **физические блоки** (*physical blocks*), в каждом — 16 мест под токены, **слотов** (*slots*). Сама последовательность делит свои токены на **логические блоки** (*logical blocks*): первые 16, следующие 16 и так далее. Какой из них где лежит, записано в **таблице блоков** (*block table*).

Вот запрос из 40 токенов, у которого `block_table = [5, 0, 3]`:

| Логический блок | 0 | 1 | 2 |
|---|---|---|---|
| Токены | 0…15 | 16…31 | 32…39 |
| Физический блок | **5** | **0** | **3** |

А вот что в это время видит пул из шести блоков:

| Физический блок | 0 | 1 | 2 | 3 | 4 | 5 |
|---|---|---|---|---|---|---|
| Токены | 16…31 | · | · | 32…39 | · | 0…15 |
| Занято слотов | 16 | 0 | 0 | 8 | 0 | 16 |
| Ссылок, `ref` | 1 | 0 | 0 | 1 | 0 | 1 |

Соседние токены могут оказаться в разных концах пула, и это ничему не мешает. Токен номер $t$ всегда найдётся: блок $\mathrm{table}[\lfloor t/16 \rfloor]$, слот $t \bmod 16$.
"""

# %% [markdown] key="picture" lang="en"
r"""
## Where a token lives

Memory is cut into equal **physical blocks** (*физические блоки*), each with room for 16 tokens, its **slots** (*слоты*). The sequence itself divides its tokens into **logical blocks** (*логические блоки*): the first 16, the next 16, and so on. The **block table** (*таблица блоков*) says which of them lives where.

Here is a request of 40 tokens with `block_table = [5, 0, 3]`:

| Logical block | 0 | 1 | 2 |
|---|---|---|---|
| Tokens | 0…15 | 16…31 | 32…39 |
| Physical block | **5** | **0** | **3** |

And this is what a pool of six blocks sees at that moment:

| Physical block | 0 | 1 | 2 | 3 | 4 | 5 |
|---|---|---|---|---|---|---|
| Tokens | 16…31 | · | · | 32…39 | · | 0…15 |
| Slots filled | 16 | 0 | 0 | 8 | 0 | 16 |
| References, `ref` | 1 | 0 | 0 | 1 | 0 | 1 |

Neighbouring tokens may end up at opposite ends of the pool, and nothing minds. Token number $t$ is always found: block $\mathrm{table}[\lfloor t/16 \rfloor]$, slot $t \bmod 16$.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

1. В каком физическом блоке и в каком слоте лежит токен 37 этого запроса?
2. Запрос дописывает токены 40, 41, 42… Какой из них первым потребует нового блока?
3. Сколько слотов может пустовать у одной последовательности в худшем случае? Зависит ли это от её длины?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

1. In which physical block and which slot does token 37 of this request live?
2. The request goes on with tokens 40, 41, 42… Which of them is the first to need a new block?
3. How many slots of one sequence can stand empty in the worst case? Does it depend on its length?
"""

# %% [markdown] key="on-paper-answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Логический блок $\lfloor 37/16 \rfloor = 2$, слот $37 \bmod 16 = 5$; значит, физический блок 3.
2. Токен 48: до него в последнем блоке есть место.
3. Пятнадцать, то есть все слоты последнего блока, кроме одного. От длины это не зависит: неполон бывает только последний блок.
"""

# %% [markdown] key="on-paper-answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. Logical block $\lfloor 37/16 \rfloor = 2$, slot $37 \bmod 16 = 5$, so physical block 3.
2. Token 48: until then the last block has room.
3. Fifteen, all slots of the last block but one. Length does not matter: only the last block can be partly filled.
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. **Новый блок — только на границе.** `append` берёт блок лишь тогда, когда длина кратна размеру блока: класть токен больше некуда.
2. **Блок свободен, когда он никому не нужен.** `release` уменьшает счётчик ссылок (*reference count*); в пул блок возвращается только на нуле. Пока у блока один хозяин, разницы не видно, но в 09.3 хозяев станет много.
3. **Выдача и возврат за O(1).** Номера свободных блоков лежат в списке (*free list*); искать нули в `ref` нельзя.
4. **Всё или ничего.** Неудавшаяся операция ничего не меняет. Порядок такой: проверить, взять блок, записать.
5. **Память не обнуляется.** Новый блок хранит то, что осталось от прежнего хозяина; читать дальше длины никто не вправе.

| Что | Как работает |
|---|---|
| `pool.k`, `pool.v` | массивы `(n_layers, num_blocks, block_size, n_kv_heads, head_dim)` типа `dtype` |
| `pool.ref` | массив `(num_blocks,)`, `int32`: сколько ссылок на каждый блок |
| `pool.allocate()` | отдаёт номер свободного блока, его счётчик становится 1; свободных нет — `OutOfBlocks` |
| `pool.release(block)` | счётчик меньше на 1; блок уже свободен — `DoubleFree` |
| `pool.used`, `pool.free` | сколько блоков занято и сколько свободно |
| `pool.peak` | сколько блоков бывало занято самое большее |
| `pool.bytes_per_block()` | байты одного блока: K и V всех слоёв |
| `seq.append(k, v)` | пишет один токен во все слои; `k` и `v` имеют форму `(n_layers, n_kv_heads, head_dim)`, другая форма — `ValueError`; возвращает номер физического блока |
| `seq.block_table` | список номеров физических блоков |
| `seq.length`, `len(seq)` | сколько токенов записано |
| `seq.free()` | отпускает все блоки, с последнего к первому; остаются пустая таблица и длина 0 |

В новом пуле номера удобно выдавать по порядку, начиная с 0: тогда ваши таблицы совпадут с картинками модуля. Проверка примет любой порядок.
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. **A new block only at a boundary.** `append` takes a block just when the length is a multiple of the block size: there is nowhere left to put the token.
2. **A block is free when nobody needs it.** `release` lowers the reference count (*счётчик ссылок*); the block returns to the pool only at zero. While each block has a single owner you cannot tell the difference. In 09.3 there will be many.
3. **Handing out and taking back in O(1).** The ids of free blocks stand in a free list (*список свободных блоков*); searching `ref` for zeros is not allowed.
4. **All or nothing.** An operation that fails changes nothing. So the order is: validate, take a block, write.
5. **Memory is not zeroed.** A new block holds whatever its last owner left there; nobody may read beyond the length.

| What | How it works |
|---|---|
| `pool.k`, `pool.v` | arrays `(n_layers, num_blocks, block_size, n_kv_heads, head_dim)` of type `dtype` |
| `pool.ref` | array `(num_blocks,)`, `int32`: how many references each block has |
| `pool.allocate()` | returns the id of a free block, whose count becomes 1; none free: `OutOfBlocks` |
| `pool.release(block)` | lowers the count by 1; the block is free already: `DoubleFree` |
| `pool.used`, `pool.free` | how many blocks are taken, how many are free |
| `pool.peak` | the most blocks that were ever taken at once |
| `pool.bytes_per_block()` | bytes of one block: K and V of all layers |
| `seq.append(k, v)` | writes one token in all layers; `k` and `v` have the shape `(n_layers, n_kv_heads, head_dim)`, any other is a `ValueError`; returns the physical block |
| `seq.block_table` | list of physical block ids |
| `seq.length`, `len(seq)` | how many tokens are stored |
| `seq.free()` | lets go of all blocks, last to first; an empty table and length 0 remain |

In a fresh pool it is handy to hand out ids in order from 0: your tables will then match the module's pictures. The check accepts any order.
"""

# %% key="setup"
import numpy as np
from IPython.display import display

from paged_kv import DoubleFree, OutOfBlocks, figures
from paged_kv.checks import check, hint
from paged_kv.messages import use_language
from paged_kv.widgets import compare, draw

use_language("{{lang}}")

# %% [markdown] key="pool-task" lang="ru"
r"""
## Шаг 1. Пул

Замените каждый `raise NotImplementedError` своим кодом. Как устроен список свободных блоков, решаете вы.
"""

# %% [markdown] key="pool-task" lang="en"
r"""
## Step 1. The pool

Replace each `raise NotImplementedError` with your code. How the list of free blocks is kept is up to you.
"""


# %% key="block-pool" nbgrader={"grade": false, "grade_id": "block-pool", "locked": false, "schema_version": 3, "solution": true, "task": false}
class BlockPool:
    def __init__(
        self,
        num_blocks,
        n_layers,
        n_kv_heads,
        head_dim,
        block_size=16,
        dtype=np.float32,
    ):
        self.num_blocks, self.block_size = num_blocks, block_size
        self.n_layers, self.n_kv_heads, self.head_dim = n_layers, n_kv_heads, head_dim
        # ru: Заведите k, v, ref, peak и список свободных блоков.
        # en: Create k, v, ref, peak and the list of free blocks.
        ### BEGIN SOLUTION
        shape = (n_layers, num_blocks, block_size, n_kv_heads, head_dim)
        self.k, self.v = np.empty(shape, dtype), np.empty(shape, dtype)
        self.ref = np.zeros(num_blocks, np.int32)
        self.peak = 0
        # ru: Стопка, наверху блок 0: взять и положить — O(1).
        # en: A stack with block 0 on top: taking and putting back are O(1).
        self._free_list = list(range(num_blocks - 1, -1, -1))
        ### END SOLUTION
        # STUB: raise NotImplementedError

    @property
    def used(self):
        # ru: Сколько блоков занято.
        # en: How many blocks are taken.
        ### BEGIN SOLUTION
        return self.num_blocks - self.free
        ### END SOLUTION
        # STUB: raise NotImplementedError

    @property
    def free(self):
        # ru: Сколько блоков свободно.
        # en: How many blocks are free.
        ### BEGIN SOLUTION
        return len(self._free_list)
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def allocate(self):
        # ru: Отдать номер свободного блока; его счётчик становится 1.
        # ru: Свободных нет: OutOfBlocks с числами, в пуле ничего не изменилось.
        # en: Return the id of a free block; its count becomes 1.
        # en: None is free: OutOfBlocks with the numbers, the pool unchanged.
        ### BEGIN SOLUTION
        if not self._free_list:
            raise OutOfBlocks(f"needs 1 block, 0 free of {self.num_blocks}")
        block = self._free_list.pop()
        self.ref[block] = 1
        self.peak = max(self.peak, self.used)
        return block
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def release(self, block):
        # ru: Снять одну ссылку; на нуле блок снова свободен.
        # ru: Ссылок нет и так: DoubleFree с номером блока.
        # en: Drop one reference; at zero the block is free again.
        # en: There is no reference to drop: DoubleFree with the block's id.
        ### BEGIN SOLUTION
        if not 0 <= block < self.num_blocks:
            raise ValueError(f"block {block} is outside 0…{self.num_blocks - 1}")
        if self.ref[block] == 0:
            raise DoubleFree(f"block {block} is already free")
        self.ref[block] -= 1
        if self.ref[block] == 0:
            self._free_list.append(block)
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def bytes_per_block(self):
        # ru: Байты одного блока: K и V всех слоёв.
        # en: Bytes of one block: K and V of all layers.
        ### BEGIN SOLUTION
        return self.k[:, 0].nbytes + self.v[:, 0].nbytes
        ### END SOLUTION
        # STUB: raise NotImplementedError


# %% [markdown] key="sequence-task" lang="ru"
r"""
## Шаг 2. Последовательность

Токен `len(seq)` ещё не записан: его блок и слот вы вычислили на бумаге.
"""

# %% [markdown] key="sequence-task" lang="en"
r"""
## Step 2. The sequence

Token `len(seq)` is not written yet; you worked out its block and slot on paper.
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
        # ru: Записать K и V одного токена во все слои; вернуть номер блока.
        # ru: k, v: (n_layers, n_kv_heads, head_dim). Другая форма: ValueError.
        # en: Write K and V of one token in all layers; return the block's id.
        # en: k, v: (n_layers, n_kv_heads, head_dim). Any other shape: ValueError.
        ### BEGIN SOLUTION
        pool = self.pool
        expected = (pool.n_layers, pool.n_kv_heads, pool.head_dim)
        k, v = np.asarray(k, pool.k.dtype), np.asarray(v, pool.v.dtype)
        if k.shape != expected or v.shape != expected:
            raise ValueError(f"k {k.shape} and v {v.shape}, expected {expected}")
        slot = self.length % pool.block_size
        if slot == 0:
            self.block_table.append(pool.allocate())
        block = self.block_table[-1]
        pool.k[:, block, slot] = k
        pool.v[:, block, slot] = v
        self.length += 1
        return block
        ### END SOLUTION
        # STUB: raise NotImplementedError

    def free(self):
        # ru: Отпустить все блоки, с последнего к первому; таблица пуста, длина 0.
        # en: Let go of all blocks, last to first; the table is empty, the length 0.
        ### BEGIN SOLUTION
        while self.block_table:
            self.pool.release(self.block_table.pop())
        self.length = 0
        ### END SOLUTION
        # STUB: raise NotImplementedError


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

Она остановится на первом случае, где код разошёлся с правилами, и покажет, что делали, чего ждали и что вышло. Если застряли, есть три подсказки, одна прямее другой: наберите в новой ячейке `hint("09.1", 1)`, затем `hint("09.1", 2)` и `hint("09.1", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

It stops at the first case where your code departs from the rules and shows what was done, what was expected and what came out. If you are stuck, there are three hints, each plainer than the last: type `hint("09.1", 1)` in a new cell, then `hint("09.1", 2)` and `hint("09.1", 3)`.
"""

# %% key="check"
report = check("09.1", BlockPool, Sequence)
report

# %% key="side-by-side"
# ru: Проверка не пройдена? Вот первый шаг, на котором ваш код разошёлся с образцом.
# en: Did the check fail? Here is the first step where your code leaves the target.
if report.state in ("wrong", "raised"):
    display(compare("09.1", BlockPool, Sequence))

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 18, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.1", BlockPool, Sequence)

# %% [markdown] key="look" lang="ru"
r"""
## Посмотрите на свой пул

Два запроса растут вперемежку, третий уже освободил свои блоки. Найдите по таблицам, где лежит токен 20 каждого из них.
"""

# %% [markdown] key="look" lang="en"
r"""
## Look at your pool

Two requests grow in turns, a third one has already freed its blocks. Find by the tables where token 20 of each of them lives.
"""

# %% key="look-inside"
if report.passed:
    pool, token = BlockPool(16, 1, 1, 1), np.zeros((1, 1, 1))
    req0, req1, req2 = (Sequence(pool, f"req{i}") for i in range(3))
    for seq in [req2] * 20 + [req0, req1] * 23 + [req0] * 17:
        seq.append(token, token)
    req2.free()
    display(draw(pool, req0, req1))

# %% [markdown] key="experiment" lang="ru"
r"""
## Эксперимент: 64 запроса

Теперь то, ради чего всё затевалось. Приходят 64 запроса случайной длины, от 10 до 2048 токенов. Резервирование (*reservation*) отводит каждому место под 2048. Ваш пул выдаёт блоки по мере надобности.

**Прежде чем запускать, загадайте два числа:** какая доля зарезервированных блоков понадобится вашему пулу и какой процент его слотов останется пустым? Авторы vLLM измерили у себя меньше 4 % потерь (Kwon et al., SOSP'23, рис. 2).
"""

# %% [markdown] key="experiment" lang="en"
r"""
## Experiment: 64 requests

Now for what all this was about. 64 requests arrive, of random length from 10 to 2048 tokens. Reservation (*резервирование*) sets aside 2048 slots for each. Your pool hands out blocks as they are needed.

**Before you run it, guess two numbers:** what share of the reserved blocks will your pool need, and what percentage of its slots will stay empty? The authors of vLLM measured less than 4% of waste in their system (Kwon et al., SOSP'23, Fig. 2).
"""

# %% key="workload"
# ru: Меняйте числа и запускайте снова.
# en: Change the numbers and run again.
num_seqs, max_len, block_size = 64, 2048, 16
lengths = np.random.default_rng(7).integers(10, max_len + 1, size=num_seqs)


def serve(block_size):
    # ru: Один слой, одна голова, одно число: здесь важен только учёт.
    # en: One layer, one head, one number: only the bookkeeping matters here.
    reserved = num_seqs * -(-max_len // block_size)
    pool = BlockPool(reserved, 1, 1, 1, block_size)
    seqs = [Sequence(pool, f"req{i}") for i in range(num_seqs)]
    token = np.zeros((1, 1, 1), np.float32)
    for seq, length in zip(seqs, lengths, strict=True):
        for _ in range(length):
            seq.append(token, token)
    return pool, seqs


# %% key="run-workload"
if report.passed:
    pool, seqs = serve(block_size)
    tokens, reserved = sum(map(len, seqs)), pool.used + pool.free
    waste = pool.used * block_size - tokens
    print(f"tokens={tokens} seqs={num_seqs} max_len={max_len}")
    print(f"reserved_blocks={reserved} paged_blocks={pool.used}", end=" ")
    print(f"ratio={pool.used / reserved:.3f}")
    print(f"waste_tokens={waste} waste_ratio={waste / (pool.used * block_size):.4%}")
    for seq in seqs:
        seq.free()
    print(f"free(): used={pool.used} free={pool.free} peak={pool.peak}")

# %% [markdown] key="block-size" lang="ru"
r"""
## Эксперимент: размер блока

Чем меньше блок, тем меньше пустых слотов. Почему бы тогда не брать блоки по одному токену? Следующая ячейка раздаст ту же память блоками разного размера и покажет две величины рядом: слева долю пустых слотов, справа — сколько записей набралось во всех таблицах блоков.
"""

# %% [markdown] key="block-size" lang="en"
r"""
## Experiment: block size

The smaller the block, the fewer empty slots. Then why not blocks of one token? The next cell serves the same requests with blocks of several sizes and shows two quantities side by side: on the left the share of empty slots, on the right how many entries all the block tables have together.
"""

# %% key="run-block-size"
if report.passed:
    sizes, waste, entries = (8, 16, 32, 64, 128), [], []
    for size in sizes:
        pool, seqs = serve(size)
        entries.append(sum(len(seq.block_table) for seq in seqs))
        waste.append(1 - lengths.sum() / (pool.used * size))
        print(f"block_size={size:3d} waste={waste[-1]:.2%} entries={entries[-1]}")
    display(figures.block_size_tradeoff(sizes, waste, entries))

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. В среднем у последовательности пустует половина последнего блока. Оцените потери для коротких ответов, токенов по сорок. Похоже ли это на процент, который вы измерили?
2. Что случится, если `append` сначала возьмёт блок, а потом обнаружит, что форма `k` не та?
3. Пусть `free()` вернула блоки в пул, но забыла очистить `block_table`. Чьи токены увидит тот, кто прочтёт эту последовательность?
4. При блоке в один токен потерь нет совсем. Чем за это придётся платить?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. On average half of a sequence's last block is empty. Estimate the waste for short answers of some forty tokens. Is it like the percentage you measured?
2. What happens if `append` takes a block first and only then finds that `k` has the wrong shape?
3. Suppose `free()` returned the blocks to the pool but forgot to empty `block_table`. Whose tokens does anyone reading that sequence see?
4. Blocks of one token waste nothing at all. What is the price?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Пустует в среднем 7,5 слота из 16. При ответах токенов по сорок это $7{,}5/47{,}5$, почти шестая часть, — в двадцать с лишним раз больше измеренного. Потери на запрос одинаковы, поэтому на коротких запросах они заметнее; потому и не стоит брать блок крупнее, чем нужно.
2. Блок останется занятым, хотя токена в нём нет: утечка. А если номер уже попал в таблицу, то в ней на один блок больше, чем требует длина, и следующий токен ляжет не туда.
3. Чужие. Блоки уже отданы другому запросу, и под старой таблицей лежит его переписка. Ошибки при этом никто не увидит.
4. Таблица станет длиной с сам запрос, а ядро внимания будет собирать токены по одному, вместо того чтобы читать 16 подряд. Поэтому размер блока — компромисс; в vLLM по умолчанию 16.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. On average 7.5 slots of 16 are empty. For answers of some forty tokens that is $7.5/47.5$, nearly a sixth, more than twenty times what you measured. The waste per request is the same, so it shows most on short ones; hence no block larger than it has to be.
2. The block stays taken although no token is in it: a leak. And if its id is in the table already, the table is one block longer than the length asks for, and the next token goes to the wrong place.
3. Somebody else's. The blocks already belong to another request, and its conversation is what the old table points at. Nobody will see an error.
4. The table becomes as long as the request itself, and the attention kernel collects tokens one at a time instead of reading 16 in a row. So the block size is a compromise; vLLM's default is 16.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- Kwon et al., [Efficient Memory Management for Large Language Model Serving with PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §3 — куда пропадает память, §4.2–4.3 — таблица блоков, §7.2 — размер блока.
- [Урок 09.1](../../notebooks/ru/09.1_blocks.ipynb): почему в блоке 16 токенов и что делать, когда блоки кончились.
- [`paged_kv/pool.py`](../../paged_kv/pool.py) и [`paged_kv/sequence.py`](../../paged_kv/sequence.py): те же классы в модуле. Найдите, как `extend` пишет сразу много токенов.
- nano-vllm, `nanovllm/engine/block_manager.py`: весь учёт блоков на двух экранах.
- vLLM, `vllm/v1/core/block_pool.py` и `FreeKVCacheBlockQueue` из `vllm/v1/core/kv_cache_utils.py`: список свободных блоков, из середины которого тоже можно взять за O(1).

Дальше — [урок 09.2](../../notebooks/ru/09.2_attention.ipynb), а за ним [упражнение 09.2](09.2_paged_attention.ipynb): научим внимание читать ключи прямо из блоков.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- Kwon et al., [Efficient Memory Management for Large Language Model Serving with PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §3 on where memory goes, §4.2–4.3 on the block table, §7.2 on block size.
- [Lesson 09.1](../../notebooks/en/09.1_blocks.ipynb): why a block has 16 tokens, and what to do when the blocks run out.
- [`paged_kv/pool.py`](../../paged_kv/pool.py) and [`paged_kv/sequence.py`](../../paged_kv/sequence.py): the same classes in the module. Find out how `extend` writes many tokens at once.
- nano-vllm, `nanovllm/engine/block_manager.py`: all the bookkeeping on two screens.
- vLLM, `vllm/v1/core/block_pool.py` and `FreeKVCacheBlockQueue` in `vllm/v1/core/kv_cache_utils.py`: a list of free blocks that gives one up in O(1) from the middle too.

Next comes [lesson 09.2](../../notebooks/en/09.2_attention.ipynb), and then [exercise 09.2](09.2_paged_attention.ipynb), where attention learns to read keys straight from the blocks.
"""
