# ---
# jupyter:
#   course:
#     minutes: 35
#     summary:
#       ru: "Следите, как запросы растут блок за блоком, считаете остаток потерь и выбираете размер блока."
#       en: "Watch requests grow block by block, count the waste that remains, and choose a block size."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Логические и физические блоки

В прошлом уроке резервирование теряло четыре пятых памяти, и даже знание будущего не спасало. Операционные системы решили похожую задачу полвека назад: программа видит сплошную память, а на деле та разбросана по страницам (*pages*), которые выдаются по одной. PagedAttention делает то же с KV-кэшем.

После этого урока вы сможете:

- найти любой токен по таблице блоков (*block table*);
- точно сказать, сколько памяти теряют блоки и от чего это зависит;
- объяснить, почему блок в 16 токенов, а не в один и не в 256;
- сказать, когда данные одной головы лежат в блоке подряд и зачем это ядру.

Понадобится [урок 09.0](09.0_memory.ipynb).
"""

# %% [markdown] key="title" lang="en"
r"""
# Logical and physical blocks

In the last lesson reservation lost four fifths of the memory, and even knowing the future did not save it. Operating systems solved a similar problem half a century ago: a program sees one stretch of memory, while in fact it is scattered over pages (*страницы*) that are handed out one at a time. PagedAttention does the same with the KV cache.

After this lesson you can:

- find any token by the block table (*таблица блоков*);
- say exactly how much memory blocks waste, and what that depends on;
- explain why a block has 16 tokens, and not one or 256;
- tell when the data of one head lie in a row within a block, and why a kernel cares.

You need [lesson 09.0](09.0_memory.ipynb).
"""

# %% key="setup"
import numpy as np

from paged_kv import BlockPool, KVCacheSpec, OutOfBlocks, Sequence, figures
from paged_kv.messages import tr, use_language
from paged_kv.serving import (
    ALPACA,
    SHAREGPT,
    BlockCounter,
    PagedAllocator,
    Table,
    number,
    paper,
    percent,
    poisson_workload,
    simulate,
    size,
    system_name,
)
from paged_kv.widgets import BlockExplorer, draw, record

use_language("{{lang}}")

# %% [markdown] key="three-requests" lang="ru"
r"""
## Три запроса в одном пуле

Вся память кэша нарезана на равные **физические блоки** (*physical blocks*) по 16 слотов. Запрос делит свои токены на **логические блоки** (*logical blocks*), тоже по 16, и хранит таблицу: логический блок 0 лежит в физическом таком-то, логический 1 — в таком-то.

Три запроса растут вперемежку в пуле из 16 блоков, потом один заканчивается, и его блоки достаются другому. Подвигайте ползунок. **В какие моменты число занятых блоков меняется, а в какие нет?**
"""

# %% [markdown] key="three-requests" lang="en"
r"""
## Three requests in one pool

All the memory of the cache is cut into equal **physical blocks** (*физические блоки*) of 16 slots. A request divides its tokens into **logical blocks** (*логические блоки*), of 16 as well, and keeps a table: logical block 0 lies in this physical one, logical block 1 in that one.

Three requests grow in turns in a pool of 16 blocks; then one of them ends, and its blocks go to another. Move the slider. **At which moments does the number of blocks in use change, and at which does it not?**
"""

# %% key="explorer"
rng = np.random.default_rng(0)
pool = BlockPool(16, n_layers=1, n_kv_heads=1, head_dim=1)
req0, req1, req2 = (Sequence(pool, f"req{i}") for i in range(3))
with record(pool, req0, req1, req2) as history:
    for seq, prompt in ((req0, 37), (req1, 20), (req2, 50)):
        seq.extend(*rng.normal(size=(2, 1, prompt, 1, 1)))
    for _ in range(14):
        for seq in (req0, req1, req2):
            seq.append(*rng.normal(size=(2, 1, 1, 1)))
    req1.free()
    req0.extend(*rng.normal(size=(2, 1, 30, 1, 1)))
BlockExplorer(history)

# %% [markdown] key="find-token" lang="ru"
r"""
Вот последний кадр ещё раз, неподвижно. Блоки `req0` разбросаны по пулу, и новые достались ему от `req1`. Для самого запроса ничего не изменилось: токен $t$ лежит в блоке $\text{block\_table}[\lfloor t / 16 \rfloor]$, слот $t \bmod 16$.
"""

# %% [markdown] key="find-token" lang="en"
r"""
Here is the last picture again, standing still. The blocks of `req0` are scattered over the pool, and the newest ones came to it from `req1`. For the request itself nothing has changed: token $t$ lies in block $\text{block\_table}[\lfloor t / 16 \rfloor]$, slot $t \bmod 16$.
"""

# %% key="find"
for t in (0, 15, 16, 47, 48, 80):
    block, slot = req0.block_table[t // 16], t % 16
    print(f"token={t} block={block} slot={slot}")
draw(history)

# %% [markdown] key="consequences" lang="ru"
r"""
Отсюда сразу четыре следствия (SOSP'23, §4.2–4.3):

1. При росте ничего не переезжает: токен дописывается в последний блок, а на границе берётся новый.
2. Блоки не обязаны лежать рядом, поэтому подойдёт любой свободный: внешней фрагментации нет.
3. Неполон только последний блок запроса: пропадает лишь его пустой конец.
4. Знать длину ответа заранее не нужно.
"""

# %% [markdown] key="consequences" lang="en"
r"""
Four things follow at once (SOSP'23, §4.2–4.3):

1. Nothing moves as a request grows: a token is added to the last block, and at a boundary a new one is taken.
2. Blocks need not lie side by side, so any free one will do: there is no external fragmentation.
3. Only the last block of a request is partly filled: all that is lost is its empty end.
4. Nobody has to know the length of the answer in advance.
"""

# %% [markdown] key="residual" lang="ru"
r"""
## Сколько пропадает теперь

Запрос из $L$ токенов занимает $\lceil L/16 \rceil$ блоков, и пустует от 0 до 15 слотов. **Сто запросов по 4 тысячи токенов держат 50 ГиБ данных. Сколько памяти пропадёт в концах их блоков?**
"""

# %% [markdown] key="residual" lang="en"
r"""
## What is lost now

A request of $L$ tokens takes $\lceil L/16 \rceil$ blocks, and between 0 and 15 slots stay empty. **A hundred requests of 4 thousand tokens hold 50 GiB of data. How much memory is lost in the ends of their blocks?**
"""

# %% key="waste"
spec = KVCacheSpec.preset("llama-3-8b")
empty = [16 * spec.blocks_for(n) - n for n in range(4097, 4097 + 16)]
slots = {
    tr("at most, per request"): max(empty),
    tr("mean, per request"): np.mean(empty),
    tr("100 requests: data"): 100 * 4096,
    tr("100 requests: empty"): 100 * np.mean(empty),
}
print(f"empty / data = {percent(np.mean(empty) / 4096, 2)}")
Table(
    {
        tr("what"): slots,
        tr("slots"): [number(n, 1 if n % 1 else 0) for n in slots.values()],
        tr("size"): [size(n * spec.bytes_per_token(), 3) for n in slots.values()],
    },
    tr("Empty ends of last blocks"),
)

# %% [markdown] key="table-cost" lang="ru"
r"""
## Сколько стоит таблица

Таблица — это `int32` на блок. **Сколько байт у таблицы запроса в 32 тысячи токенов?**
"""

# %% [markdown] key="table-cost" lang="en"
r"""
## What the table costs

A table is one `int32` per block. **How many bytes does the table of a request of 32 thousand tokens have?**
"""

# %% key="table-bytes"
tokens = 32 * 1024
table = np.zeros(spec.blocks_for(tokens), np.int32)
cache = tokens * spec.bytes_per_token()
print(f"entries={len(table)} table={size(table.nbytes)} cache={size(cache)}", end=" ")
print(percent(table.nbytes / cache, 4))

# %% [markdown] key="block-size" lang="ru"
r"""
## Почему 16

Раз пустует в среднем полблока, то чем мельче блок, тем лучше. **Почему тогда не по одному токену?** Возьмём 64 запроса случайной длины, от 10 до 2048 токенов (те же, что в упражнении 09.1), и меняем размер блока.
"""

# %% [markdown] key="block-size" lang="en"
r"""
## Why 16

Half a block is empty on average, so the smaller the block the better. **Why not one token, then?** Take 64 requests of random length, 10 to 2048 tokens (the ones of exercise 09.1), and change the size of the block.
"""

# %% key="waste-by-size"
lengths = np.random.default_rng(7).integers(10, 2049, size=64)
block_sizes = (1, 8, 16, 32, 64, 128)
blocks = [int((-(-lengths // bs)).sum()) for bs in block_sizes]
empty = [
    1 - lengths.sum() / (n * bs) for n, bs in zip(blocks, block_sizes, strict=True)
]
Table(
    {
        tr("block size"): block_sizes,
        tr("block table entries"): map(number, blocks),
        tr("empty slots, %"): [number(100 * share, 2) for share in empty],
    },
    tr("64 requests of 10…2048 tokens"),
)

# %% [markdown] key="kernel" lang="ru"
r"""
За мелкие блоки платит ядро (*kernel*), программа видеокарты, которая считает внимание: на каждый блок оно читает запись таблицы, вычисляет адрес и берёт короткий кусок памяти вместо длинного. Авторы измерили: внимание по блокам из 16 токенов на 20–26 % медленнее, чем по сплошной памяти (рис. 18a). **Страницы не бесплатны.** Если эта цена платится за каждый блок, то одно касание блока стоит столько же, сколько чтение трёх-четырёх токенов; для блока в один токен внимание замедлится в несколько раз.

Подставим это в модель шага и прогоним нагрузки прошлого урока при разных размерах блока. Что получилось в статье: лучший размер 16–128 для ShareGPT и 16–32 для Alpaca (рис. 18b).
"""

# %% [markdown] key="kernel" lang="en"
r"""
It is the kernel (*ядро*), the program on the GPU that computes attention, that pays for small blocks: for each it reads a table entry, works out an address, and fetches a short piece of memory instead of a long one. The authors measured it: attention over blocks of 16 tokens is 20 to 26% slower than over contiguous memory (Fig. 18a). **Pages are not free.** If that price is paid per block, then touching a block costs as much as reading three or four tokens, and with blocks of one token attention becomes several times slower.

Let us put this into the model of a step and run the loads of the last lesson with blocks of several sizes. What the paper found: the best size is 16 to 128 on ShareGPT, and 16 to 32 on Alpaca (Fig. 18b).
"""

# %% key="block-size-sweep" tags=["computed-time"]
sizes = (1, 2, 4, 8, 16, 32, 64, 128, 256)
latency, waste = {}, {}
print(f"block_cost={paper.BLOCK_COST:.2f} tokens")


def run(load, block_size):
    workload = poisson_workload(load, paper.RATES[load], 4000)
    cost = paper.ENGINE.with_block_cost(block_size, paper.BLOCK_COST)
    return simulate(workload, BlockCounter(paper.NUM_SLOTS, block_size), cost)


for load in (SHAREGPT, ALPACA):
    runs = {block_size: run(load, block_size) for block_size in sizes}
    latency[load.name] = [r.normalised_latency for r in runs.values()]
    shares = [r.shares for r in runs.values()]
    waste[load.name] = [s["internal"] / (s["internal"] + s["tokens"]) for s in shares]
    print(load.name, {bs: round(r.mean_batch, 1) for bs, r in runs.items()})
figures.block_size_sweep(sizes, latency, waste)

# %% [markdown] key="block-size-end" lang="ru"
r"""
Слева проигрывает ядро, справа — память: крупные блоки пустеют, пакет мельчает, очередь растёт. У коротких запросов Alpaca правый край крутой: целый ответ у них короче блока в 128 токенов. Посередине широкое плоское дно, и 16 лежит на его левом краю: в vLLM это размер по умолчанию. У других свои причины: FlashMLA просит 64 токена, CUTLASS MLA 128, а в SGLang страница по умолчанию — один токен: так его дерево префиксов делит промпты с точностью до токена.
"""

# %% [markdown] key="block-size-end" lang="en"
r"""
On the left the kernel loses, on the right memory: large blocks stay empty, the batch shrinks, the queue grows. With Alpaca's short requests the right side is steep: a whole answer is shorter than a block of 128 tokens. In between lies a wide flat bottom, and 16 is at its left edge: vLLM's default. Others have their own reasons: FlashMLA wants 64 tokens, CUTLASS MLA 128, and SGLang's default page is a single token: its tree of prefixes then shares prompts to the very token.
"""

# %% [markdown] key="layout" lang="ru"
r"""
## Что лежит подряд

Внутри блока у одной головы 16 векторов по 128 чисел fp16, то есть 4 КиБ. Ядру хочется прочесть их одним куском. **Лежат ли они подряд в нашем пуле с осями (layer, block, slot, head, dim)?** Ответят шаги (*strides*): на сколько байт сдвигается адрес, когда индекс по оси растёт на единицу.
"""

# %% [markdown] key="layout" lang="en"
r"""
## What lies in a row

Within a block one head has 16 vectors of 128 fp16 numbers, which is 4 KiB. A kernel would like to read them as one piece. **Do they lie in a row in our pool, with its axes (layer, block, slot, head, dim)?** The strides (*шаги*) will tell: by how many bytes the address moves when the index along an axis grows by one.
"""

# %% key="strides"
slot_major = np.empty((2, 4, 16, 8, 128), np.float16)  # layer, block, slot, head, dim
head_major = np.empty((2, 4, 8, 16, 128), np.float16)  # layer, block, head, slot, dim
for name, one_head in (
    ("slot-major (NHD)", slot_major[0, 0, :, 0]),
    ("head-major (HND)", head_major[0, 0, 0]),
):
    print(
        f"{name}: shape={one_head.shape} strides={one_head.strides}",
        f"{one_head.nbytes} B contiguous={one_head.flags.c_contiguous}",
    )
layer_block = slot_major[0, 0]
print(
    f"layer-block: {layer_block.nbytes} B contiguous={layer_block.flags.c_contiguous}"
)

# %% [markdown] key="layout-end" lang="ru"
r"""
В порядке NHD (токен, голова, число) соседние токены одной головы отстоят на 2048 байт: между ними лежат остальные семь голов. Подряд идёт только весь слой блока, 32 КиБ. В порядке HND оси слота и головы переставлены, и 4 КиБ одной головы становятся сплошными; поэтому многие ядра просят именно его (FlashInfer понимает оба). Наш пул хранит NHD: так проще писать токен, а numpy всё равно.
"""

# %% [markdown] key="layout-end" lang="en"
r"""
In NHD order (token, head, number) neighbouring tokens of one head are 2048 bytes apart: the other seven heads lie between them. Only a whole layer of a block, 32 KiB, is in a row. In HND order the axes of slot and head change places, and the 4 KiB of one head become contiguous, which is why many kernels ask for it (FlashInfer understands both). Our pool keeps NHD: it is simpler to write a token that way, and numpy does not mind.
"""

# %% [markdown] key="exhausted" lang="ru"
r"""
## Когда блоки кончились

Пул обещает больше блоков, чем есть: запрос принимают, не зная, сколько он займёт. Рано или поздно двум запросам понадобится последний свободный блок. В пуле из четырёх блоков это происходит быстро.
"""

# %% [markdown] key="exhausted" lang="en"
r"""
## When the blocks run out

A pool promises more blocks than it has: a request is admitted without knowing how much it will take. Sooner or later two requests need the last free block. In a pool of four that does not take long.
"""

# %% key="out-of-blocks"
small = BlockPool(4, n_layers=1, n_kv_heads=1, head_dim=1)
first, second = Sequence(small, "first"), Sequence(small, "second")
first.extend(*np.zeros((2, 1, 32, 1, 1)))
second.extend(*np.zeros((2, 1, 32, 1, 1)))
try:
    first.append(*np.zeros((2, 1, 1, 1)))
except OutOfBlocks as error:
    print(error)
print(f"len(first)={len(first)} used={small.used}")

# %% [markdown] key="preemption" lang="ru"
r"""
Тогда движок **вытесняет запрос** (*preemption*), пришедший последним: приостанавливает его, забирает все его блоки сразу, возвращает его в начало очереди, а потом заново вычисляет его кэш за один префилл (*prefill*, проход модели сразу по всем известным токенам; §4.5). Чтобы это не случалось на каждом шагу, при приёме оставляют запас, 1 % блоков.

Посмотрим на час работы: слева память, справа запросы. **Сколько памяти пустует, пока есть очередь?**
"""

# %% [markdown] key="preemption" lang="en"
r"""
Then the engine **preempts** (*вытесняет*) the request that came last: it suspends it, takes all its blocks at once, puts it back at the head of the queue, and later computes its cache again in a single prefill (*префилл*, one pass of the model over all tokens known so far; §4.5). So that this does not happen at every step, admission leaves a reserve of 1% of the blocks.

Let us look at an hour of work: memory on the left, requests on the right. **How much memory stands empty while there is a queue?**
"""

# %% key="one-hour"
chat = poisson_workload(SHAREGPT, paper.RATES[SHAREGPT], 7200)
hour = simulate(chat, PagedAllocator(paper.NUM_SLOTS), paper.ENGINE, samples=150)
figures.run_over_time(hour)

# %% [markdown] key="latency" lang="ru"
r"""
## Что это даёт пользователю

Чем меньше памяти пропадает, тем больше пакет и тем больше запросов в секунду. Сравнивать системы честнее всего при равной задержке (*latency*): время от прихода запроса до конца ответа, делённое на длину ответа. Пока система справляется, задержка почти не растёт; когда перестаёт, очередь растёт без предела. **Во сколько раз больше запросов выдержат блоки, чем Oracle? А чем Max?**
"""

# %% [markdown] key="latency" lang="en"
r"""
## What the user gets

The less memory is wasted, the larger the batch, and the more requests per second. The fairest comparison is at equal latency (*задержка*): the time from a request's arrival to the end of its answer, divided by the answer's length. While a system keeps up, latency hardly grows; once it does not, the queue grows without limit. **How many times as many requests can blocks sustain as Oracle? And as Max?**
"""

# %% key="rates" tags=["computed-time"]
limit = 0.5
rates = np.arange(0.2, 2.41, 0.2).round(1).tolist()
found = {
    system: [paper.latency_at(rate, system) for rate in rates]
    for system in paper.SYSTEMS
}
figures.latency_by_rate(rates, found, limit)

# %% [markdown] key="ratios" lang="ru"
r"""
Теперь точно: для каждой системы делением пополам найдём наибольшую частоту запросов, при которой задержка не выше предела. В статье на ShareGPT vLLM выдерживает в 1,7–2,7 раза больше Oracle и в 2,7–8 раз больше Max (§6.2).
"""

# %% [markdown] key="ratios" lang="en"
r"""
Now precisely: for each system let us find by bisection the highest rate of requests at which latency stays within the limit. In the paper, on ShareGPT, vLLM sustains 1.7 to 2.7 times as many as Oracle and 2.7 to 8 times as many as Max (§6.2).
"""

# %% key="best-rates"
best = {system: paper.highest_rate(system, limit) for system in paper.SYSTEMS}
published = [paper.RATE_RATIOS.get(system, ()) for system in best]
Table(
    {
        tr("system"): map(system_name, best),
        tr("requests/s"): [number(rate, 2) for rate in best.values()],
        tr("paged over it"): [
            number(best["Paged"] / rate, 2) for rate in best.values()
        ],
        tr("paper"): ["–".join(number(r, 1) for r in ratios) for ratios in published],
    },
    tr("Highest rate at equal latency"),
)

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM** держит таблицы в `vllm/v1/worker/block_table.py`: одна матрица на пакет, по строке на запрос. Вытесняет запросы планировщик, `vllm/v1/core/sched/scheduler.py`, и потом всегда вычисляет их кэш заново: выгрузки в память процессора, описанной в статье, больше нет.
- **SGLang** хранит по номеру на *токен*, а не на блок (`ReqToTokenPool` в `python/sglang/srt/mem_cache/memory_pool.py`). Вытесняет он не последнего пришедшего, а того, кто написал меньше всех (`retract_decode` в `python/sglang/srt/managers/schedule_batch.py`): пропадает меньше работы.
- **FlashInfer** получает таблицы всех запросов одним массивом с границами, как строки разреженной матрицы, и длину последней страницы каждого (`include/flashinfer/page.cuh`).

У нас таблица — список Python: его легко читать, а на видеокарту он не попадает. В [уроке 09.6](09.6_gpu.ipynb) появится и матрица.
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM** keeps its tables in `vllm/v1/worker/block_table.py`: one matrix per batch, a row per request. Requests are preempted by the scheduler, `vllm/v1/core/sched/scheduler.py`, and always to compute their cache again later: swapping to the CPU's memory, which the paper describes, is gone.
- **SGLang** stores one index per *token*, not per block (`ReqToTokenPool` in `python/sglang/srt/mem_cache/memory_pool.py`). It preempts not whoever came last but whoever has written least (`retract_decode` in `python/sglang/srt/managers/schedule_batch.py`): less work is lost.
- **FlashInfer** gets the tables of all requests as one array with boundaries, like the rows of a sparse matrix, and the length of each one's last page (`include/flashinfer/page.cuh`).

Our table is a Python list: easy to read, and it never goes to a GPU. The matrix comes in [lesson 09.6](09.6_gpu.ipynb).
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Таблица блоков превращает номер токена в номер блока и слот; она в сотни тысяч раз меньше кэша.
- Пустует меньше блока на запрос: в среднем 7,5 слота из каждых последних 16.
- Размер блока — компромисс между ядром и памятью; дно широкое, и 16 лежит на нём.
- Пул обещает больше блоков, чем есть, поэтому движку нужно уметь вытеснять запросы.

Теперь напишите пул и последовательность сами: [упражнение 09.1](../../exercises/ru/09.1_block_pool.ipynb). Дальше — [урок 09.2](09.2_attention.ipynb): как внимание читает разбросанные блоки.

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.2–4.5, §6.2, §7.1–7.2, рис. 12, 18. Порядки NHD и HND — документация [FlashInfer](https://docs.flashinfer.ai/tutorials/kv_layout.html).
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- A block table turns the number of a token into a block and a slot; it is hundreds of thousands of times smaller than the cache.
- Less than a block per request stays empty: on average 7.5 slots of each last 16.
- The size of a block is a compromise between kernel and memory; the bottom is wide, and 16 lies on it.
- A pool promises more blocks than it has, so an engine must be able to preempt requests.

Now write the pool and the sequence yourself: [exercise 09.1](../../exercises/en/09.1_block_pool.ipynb). Next comes [lesson 09.2](09.2_attention.ipynb): how attention reads blocks that are scattered.

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.2–4.5, §6.2, §7.1–7.2, figures 12 and 18. The orders NHD and HND: documentation of [FlashInfer](https://docs.flashinfer.ai/tutorials/kv_layout.html).
"""
