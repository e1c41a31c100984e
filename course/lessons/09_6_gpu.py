# ---
# jupyter:
#   course:
#     minutes: 40
#     summary:
#       ru: "Смотрите, что читает одна программа ядра Triton, и меряете, как близко декод к скорости памяти."
#       en: "See what one program of a Triton kernel reads, and measure how close decode comes to memory speed."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Внимание на видеокарте

До сих пор блоки обходил цикл на Python, по одному запросу. Движок так не может: на каждом шаге у него десятки запросов разной длины, и все они должны посчитаться одним запуском. Значит, таблицы блоков придётся сложить в тензор, а цикл перенести в ядро (*kernel*), тысячи копий которого работают одновременно.

После этого урока вы сможете:

- собрать пакет запросов в том виде, в каком его принимают ядра: `block_tables`, `seq_lens`;
- сказать, что читает один экземпляр программы (*program instance*) и почему экземпляров бывает мало;
- измерить, какую долю скорости памяти даёт декод, и не попасться на чужом сравнении;
- объяснить, почему MLA тоже живёт в страницах и чем она отличается от GQA для железа.

Понадобятся [урок 09.2](09.2_attention.ipynb) и немного PyTorch. Видеокарта не нужна: без неё всё идёт на процессоре, а ядро Triton — в его интерпретаторе. Компилятор не нужен тоже.
"""

# %% [markdown] key="title" lang="en"
r"""
# Attention on the GPU

So far a loop in Python walked the blocks, one request at a time. An engine cannot do that: at each step it has dozens of requests of different lengths, and all of them must be computed by a single launch. So the block tables have to go into a tensor, and the loop into a kernel (*ядро*), thousands of copies of which run at the same time.

After this lesson you can:

- put a batch of requests into the form that kernels take: `block_tables`, `seq_lens`;
- say what one program instance (*экземпляр программы*) reads, and why there can be too few of them;
- measure which share of memory speed decode reaches, and not be taken in by somebody's comparison;
- explain why MLA lives in pages too, and how it differs from GQA for the hardware.

You need [lesson 09.2](09.2_attention.ipynb) and a little PyTorch. You need no GPU: without one everything runs on the processor, and the Triton kernel in its interpreter. Nor do you need a compiler.
"""

# %% key="setup"
import numpy as np
import torch

from paged_kv import (
    BlockPool,
    KVCacheSpec,
    Sequence,
    paged_attention,
    reference_attention,
)
from paged_kv.figures.gpu import paging_cost, program_reads, shares_of_copy
from paged_kv.gpu import (
    TorchBlockPool,
    batch_tables,
    cascade_decode,
    common_blocks,
    paged_attention_decode,
    paged_mla_decode,
    paged_prefill,
    record_accesses,
    usable_backends,
)
from paged_kv.gpu.measure import (
    copy_bandwidth,
    decode_problem,
    decode_ways,
    fastest,
)
from paged_kv.gpu.pages import OnlineSoftmax, attend_pages
from paged_kv.messages import tr, use_language
from paged_kv.quantization import quantize_block_int8
from paged_kv.serving import Table, number, size

use_language("{{lang}}")
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
# ru: Без видеокарты — процессор; без Triton (macOS, Windows) — только torch.
# en: No GPU: the processor; no Triton (macOS, Windows): torch alone.
print(f"device={device.type} backends={'+'.join(usable_backends())}")
has_interpreter = device.type == "cpu" and "triton" in usable_backends()

# %% [markdown] key="two-storages" lang="ru"
r"""
## Учёт один, хранилища два

Таблица блоков и счётчики ссылок — это учёт, им видеокарта ни к чему. Память под K и V — хранилище, и ей там самое место. Поэтому у `TorchBlockPool` учёт тот же, что у `BlockPool`, а вместо массивов numpy — тензоры на любом устройстве. `Sequence` разницы не замечает.

Четыре запроса растут вперемешку, сразу в двух пулах. Во все слоты заранее записан NaN. **Совпадут ли таблицы блоков?**
"""

# %% [markdown] key="two-storages" lang="en"
r"""
## One set of books, two stores

The block table and the reference counts are bookkeeping, and have no use for a GPU. The memory for K and V is storage, and belongs on one. So `TorchBlockPool` has the bookkeeping of `BlockPool`, and tensors on any device in place of numpy arrays. `Sequence` does not notice.

Four requests grow in turn, in both pools at once. All slots hold NaN beforehand. **Will the block tables be equal?**
"""

# %% key="two-pools"
rng = np.random.default_rng(9)
n_heads, n_kv_heads, head_dim = 6, 3, 64
shape = {"n_layers": 1, "n_kv_heads": n_kv_heads, "head_dim": head_dim}
lengths = (40, 0, 17, 16)
tokens = [
    rng.normal(size=(2, 1, n, n_kv_heads, head_dim)).astype(np.float32) for n in lengths
]
in_numpy, in_torch = BlockPool(8, **shape), TorchBlockPool(8, **shape, device=device)
batches = []
for pool in (in_numpy, in_torch):
    pool.k[:] = pool.v[:] = float("nan")
    seqs = [Sequence(pool, f"req{i}") for i in range(len(lengths))]
    for start in range(0, max(lengths), 16):
        for seq, (K, V) in zip(seqs, tokens, strict=True):
            seq.extend(K[:, start : start + 16], V[:, start : start + 16])
    batches.append(seqs)
for one, other in zip(*batches, strict=True):
    print(one.seq_id, one.block_table, other.block_table == one.block_table)

# %% [markdown] key="batch" lang="ru"
r"""
## Пакет глазами ядра

Списков Python на видеокарте нет. Ядра всех движков принимают примерно одно и то же: прямоугольную таблицу `block_tables` (`int32`, по строке на запрос, короткие строки дополнены числами $-1$) и длины `seq_lens` (`int32`). Кэш одного слоя — тензор `(num_blocks, block_size, n_kv_heads, head_dim)`, и это просто `pool.k[layer]`.
"""

# %% [markdown] key="batch" lang="en"
r"""
## A batch as a kernel sees it

There are no Python lists on a GPU. The kernels of all engines take much the same input: a rectangular table `block_tables` (`int32`, a row per request, short rows padded with $-1$) and the lengths `seq_lens` (`int32`). The cache of one layer is a tensor `(num_blocks, block_size, n_kv_heads, head_dim)`, and that is simply `pool.k[layer]`.
"""

# %% key="batch-tables"
block_tables, seq_lens = batch_tables(batches[1], device)
k_cache, v_cache = in_torch.k[0], in_torch.v[0]
print(f"block_tables={block_tables.tolist()}")
print(f"seq_lens={seq_lens.tolist()} k_cache={tuple(k_cache.shape)}")

# %% [markdown] key="checked" lang="ru"
r"""
Ядро ничего не проверяет: по неверному номеру оно молча прочтёт чужую память. Значит, проверять надо до запуска, и ошибка должна назвать строку. **Что не так вот с такой таблицей?**
"""

# %% [markdown] key="checked" lang="en"
r"""
A kernel checks nothing: given a wrong id it reads somebody else's memory without a word. So checks come before the launch, and the error has to name the row. **What is wrong with a table like this?**
"""

# %% key="checked-code"
q = torch.tensor(rng.normal(size=(len(lengths), n_heads, head_dim)).astype(np.float32))
q, scale = q.to(device), head_dim**-0.5
wrong = block_tables.clone()
wrong[2, 1] = 8
try:
    paged_attention_decode(q, k_cache, v_cache, wrong, seq_lens, scale)
except ValueError as error:
    print(error)

# %% [markdown] key="same-numbers" lang="ru"
r"""
## Те же числа трижды

Один и тот же декод: numpy по одному запросу, torch, ядро Triton. Сверяем с вниманием по сплошным массивам. У запроса `req1` токенов нет совсем. **Что вернуть за него?**
"""

# %% [markdown] key="same-numbers" lang="en"
r"""
## The same numbers three times

One and the same decode: numpy request by request, torch, the Triton kernel. We compare with attention over contiguous arrays. Request `req1` has no tokens at all. **What should be returned for it?**
"""

# %% key="same-numbers-code"
alive = [i for i, n in enumerate(lengths) if n]
queries = q.cpu().numpy()
expected = np.stack(
    [reference_attention(*tokens[i][:, 0], queries[i], scale) for i in alive]
)
with_numpy = np.stack(
    [paged_attention(in_numpy, batches[0][i], 0, queries[i], scale) for i in alive]
)
print(f"numpy:  max|diff| < 1e-5: {np.abs(with_numpy - expected).max() < 1e-5}")

# %% key="same-numbers-torch"
batch = (q, k_cache, v_cache, block_tables, seq_lens, scale)
for backend in usable_backends():
    out, lse = paged_attention_decode(*batch, backend=backend, return_lse=True)
    close = np.abs(out[alive].cpu().numpy() - expected).max() < 1e-5
    print(f"{backend + ':':<7} max|diff| < 1e-5: {close}", end=" ")
    print(f"req1: out={out[1].unique().tolist()} lse={lse[1].unique().tolist()}")

# %% [markdown] key="empty-row" lang="ru"
r"""
Пустой запрос — это пустое состояние из урока 09.2: ответ 0, $\mathrm{lse} = -\infty$. Слияние с ним ничего не меняет, поэтому в ядре для него не нужен особый случай.
"""

# %% [markdown] key="empty-row" lang="en"
r"""
An empty request is the empty state of lesson 09.2: the answer 0, $\mathrm{lse} = -\infty$. Merging with it changes nothing, and so the kernel needs no special case for it.
"""

# %% [markdown] key="one-program" lang="ru"
r"""
## Один экземпляр программы

Ядро пишут от лица одного экземпляра. Наш получает запрос и KV-голову и делает то же, что цикл из урока 09.2:

1. загружает **все** query-головы своей группы: они читают одни и те же ключи, так что ключи достаточно прочесть один раз;
2. идёт по своей строке таблицы, для каждого куска вычисляет адреса слотов, читает $K$, обновляет $m$, $\ell$, затем читает $V$ и обновляет $\mathrm{acc}$;
3. накладывает маску только на последний кусок: слоты за концом запроса не загружаются вовсе.

Экземпляров столько, сколько пар «запрос и KV-голова», друг о друге они не знают. Интерпретатор Triton позволяет подсмотреть настоящие адреса. **Какие слоты прочтёт экземпляр «`req0`, KV-голова 1»? Прочтёт ли кто-нибудь один слот дважды?**
"""

# %% [markdown] key="one-program" lang="en"
r"""
## One program instance

A kernel is written from the point of view of one instance. Ours is given a request and a KV head, and does what the loop of lesson 09.2 did:

1. it loads **all** query heads of its group: they read the same keys, so it is enough to read the keys once;
2. it walks its row of the table, computes the addresses of the slots of each piece, reads $K$, updates $m$, $\ell$, then reads $V$ and updates $\mathrm{acc}$;
3. it masks the last piece only: slots beyond the end of the request are not loaded at all.

There are as many instances as pairs of request and KV head, and they know nothing of each other. Triton's interpreter lets us look at the actual addresses. **Which slots does the instance “`req0`, KV head 1” read? Does anybody read a slot twice?**
"""

# %% key="one-program-code"
# ru: times_read[запрос, KV-голова]: сколько раз экземпляр прочёл каждое число из K.
# en: times_read[request, KV head]: how often the instance read each number of K.
times_read = np.zeros((len(lengths), n_kv_heads, k_cache.numel()), int)
if has_interpreter:
    with record_accesses() as accesses:
        paged_attention_decode(*batch, backend="triton")
    for access in accesses:
        if access.tensor == "k_cache":
            np.add.at(times_read[access.program[:2]], access.elements, 1)
    print(f"programs={len({access.program for access in accesses})}")
else:
    print(tr("The picture needs Triton's interpreter (Linux, no CUDA device)."))

# %% key="one-program-picture"
if has_interpreter:
    reads = times_read.reshape(*times_read.shape[:2], *k_cache.shape).max(axis=-1)
    anyone = reads.sum(axis=(0, 1))
    print(f"{sum(lengths)} tokens x {n_kv_heads} heads = {sum(lengths) * n_kv_heads}")
    print(f"slots read: {np.count_nonzero(anyone)}, most often: {anyone.max()} time(s)")
    picture = program_reads(reads[0, 1] > 0, anyone > 0, batches[1][0].block_table)
else:
    picture = None
picture

# %% [markdown] key="layout" lang="ru"
r"""
## Почему раскладка важна

На рисунке одна голова — это узкая полоска. Посмотрим на неё глазами памяти: сколько раздельных кусков надо прочесть ради одной головы одного блока? Возьмём размеры модели класса 8B и `fp16`.
"""

# %% [markdown] key="layout" lang="en"
r"""
## Why the layout matters

In the picture one head is a narrow strip. Look at it as memory does: how many separate pieces have to be read for one head of one block? Take the sizes of the 8B model and `fp16`.
"""

# %% key="layout-code"
nhd = torch.empty(4, 16, 8, 128, dtype=torch.float16)
hnd = nhd.transpose(1, 2).contiguous().transpose(1, 2)
layouts = {"NHD": nhd, "HND": hnd}
# ru: Слоты одной головы лежат подряд — кусок один; иначе по куску на слот.
# en: Slots of a head that lie in a row are one piece; else each slot is a piece.
pieces = [1 if cache.stride(1) == 128 else 16 for cache in layouts.values()]
Table(
    {
        tr("layout"): layouts,
        tr("strides: block, slot, head, element"): [
            cache.stride() for cache in layouts.values()
        ],
        tr("pieces"): pieces,
        tr("bytes per piece"): [size(16 * 128 * 2 / n) for n in pieces],
    },
    tr("K of one head of one block"),
)

# %% [markdown] key="layout-end" lang="ru"
r"""
Байт поровну, но в раскладке NHD (слоты, потом головы) 4 КиБ головы рассыпаны на 16 кусков, а в HND лежат подряд. Чем длиннее кусок, тем проще железу. Поэтому ядра часто просят HND. Нашему ядру всё равно: оно считает адреса по шагам (*strides*), и обе раскладки для него одинаково верны.

И ещё одна мелочь с большими последствиями: номер блока — `int32`, а смещение в элементах может не поместиться в 32 бита. Ядро переводит номер в `int64` до умножения.
"""

# %% [markdown] key="layout-end" lang="en"
r"""
The bytes are the same, but in the layout NHD (slots, then heads) the 4 KiB of a head are scattered in 16 pieces, and in HND they lie in a row. The longer the piece, the easier for the hardware. That is why kernels often ask for HND. Ours does not care: it computes addresses from strides (*шаги*), and both layouts are equally right for it.

And one more detail with large consequences: a block id is `int32`, and an offset in elements may not fit 32 bits. The kernel turns the id into `int64` before it multiplies.
"""

# %% [markdown] key="splits" lang="ru"
r"""
## Когда экземпляров мало

У H100 132 мультипроцессора (*streaming multiprocessors*), и каждому надо дать хотя бы несколько экземпляров, чтобы один считал, пока другой ждёт память. **Хватит ли их одному запросу на 32 тысячи токенов?**
"""

# %% [markdown] key="splits" lang="en"
r"""
## When there are too few instances

An H100 has 132 streaming multiprocessors (*мультипроцессоры*), and each should get at least a few instances, so that one computes while another waits for memory. **Does a single request of 32 thousand tokens have enough?**
"""

# %% key="splits-code"
processors, per_processor, shortest = 132, 4, 256
requests = (1, 8, 64, 256)
programs = [n * 8 for n in requests]
wanted = [-(-per_processor * processors // n) for n in programs]
parts = [max(1, min(n, 32768 // shortest)) for n in wanted]
Table(
    {
        tr("requests"): requests,
        tr("instances"): programs,
        tr("parts per request"): parts,
        tr("instances now"): np.multiply(programs, parts),
        tr("tokens per part"): [number(32768 / n) for n in parts],
    },
    tr(
        "{n} tokens, 8 KV heads, 132 multiprocessors, 4 instances each", n=number(32768)
    ),
)

# %% [markdown] key="splits-merge" lang="ru"
r"""
Восемь экземпляров на 132 мультипроцессора — и карта почти простаивает. Flash-Decoding (урок 09.2) режет запрос на части, у ядра появляется третий номер экземпляра, а второе, маленькое ядро сливает состояния. Числа от этого не меняются:
"""

# %% [markdown] key="splits-merge" lang="en"
r"""
Eight instances on 132 multiprocessors, and the card stands all but idle. Flash-Decoding (lesson 09.2) cuts the request into parts, instances get a third number, and a second, small kernel merges the states. The numbers do not change:
"""

# %% key="splits-same"
if "triton" in usable_backends():
    p = decode_problem(1, 1024, 8, 1, 64, device=device)
    whole = paged_attention_decode(*p.paged, 0.125, backend="torch")
    for n in (1, 2, 4):
        out = paged_attention_decode(*p.paged, 0.125, backend="triton", num_splits=n)
        print(f"num_splits={n} max|diff| < 1e-5: {(out - whole).abs().max() < 1e-5}")
else:
    print(tr("Splits belong to the Triton kernel, and Triton is not installed here."))

# %% [markdown] key="int8" lang="ru"
r"""
## int8 прямо в ядре

Коды из [урока 09.5](09.5_quantization.ipynb) можно и не разворачивать в память: ядро читает байты, а масштаб блока и головы применяет на ходу. **Где умножать на масштаб, чтобы умножений было меньше всего?**
"""

# %% [markdown] key="int8" lang="en"
r"""
## int8 right in the kernel

The codes of [lesson 09.5](09.5_quantization.ipynb) need not be spelt out in memory: the kernel reads bytes, and applies the scale of a block and head on the way. **Where should it multiply by the scale, so as to multiply least?**
"""


# %% key="int8-code"
def quantized(cache):
    blocks = [quantize_block_int8(block.cpu()) for block in cache.nan_to_num()]
    codes, scales = (np.stack(part) for part in zip(*blocks, strict=True))
    scales = scales.reshape(len(cache), n_kv_heads)
    return torch.tensor(codes).to(device), torch.tensor(scales).to(device)


(k_codes, k_scale), (v_codes, v_scale) = quantized(k_cache), quantized(v_cache)
coded = (q, k_codes, v_codes, block_tables, seq_lens, scale)
scales = {"k_scale": k_scale, "v_scale": v_scale}
for backend in usable_backends():
    out = paged_attention_decode(*coded, **scales, backend=backend)
    error = np.abs(out[alive].cpu().numpy() - expected).max()
    print(f"{backend + ':':<7} max|diff|={error:.4f}")
print(f"bytes read: {k_codes.nbytes / k_cache.nbytes:.0%} of float32")

# %% [markdown] key="int8-end" lang="ru"
r"""
Умножать надо не элементы $K$, а готовую оценку: $q^\top (s\,c) = s\,(q^\top c)$, одно умножение на токен вместо `head_dim`. С $V$ то же самое: масштаб достаётся весу из $P$. Ошибка — та самая ошибка округления из урока 09.5, ядро к ней ничего не добавило.
"""

# %% [markdown] key="int8-end" lang="en"
r"""
What should be multiplied is not the elements of $K$ but the finished score: $q^\top (s\,c) = s\,(q^\top c)$, one multiplication per token in place of `head_dim`. The same goes for $V$: the scale goes to the weight in $P$. The error is the rounding error of lesson 09.5, the kernel has added nothing to it.
"""

# %% [markdown] key="roofline" lang="ru"
r"""
## Сколько остаётся до потолка

Декод почти не считает, он читает: на каждый элемент $K$ и $V$ приходится пара умножений. Поэтому потолок для него — скорость памяти, и мерить надо не секунды, а **доли**. Сначала скорость копирования на этом устройстве, затем декод: сколько байт $K$ и $V$ в секунду прочитано и какая это доля. Слоты разбросаны по всему кэшу, 32 query-головы, 8 KV-голов, `head_dim` 128.

«SDPA, подряд» — обычное внимание PyTorch по **сплошным** $K$ и $V$; страниц там нет. «SDPA, головы вместе» — оно же, но query-головы одной группы поданы строками одной матрицы.

**Угадайте:** что быстрее на вашей машине, и изменится ли ответ для `bfloat16`?
"""

# %% [markdown] key="roofline" lang="en"
r"""
## How far below the roof

Decode hardly computes, it reads: there are a few multiplications for each element of $K$ and $V$. So its roof is memory speed, and what should be measured is not seconds but **shares**. First the speed of a copy on this device, then decode: how many bytes of $K$ and $V$ were read per second, and which share that is. Slots are scattered all over the cache, there are 32 query heads, 8 KV heads, `head_dim` is 128.

“SDPA, contiguous” is PyTorch's ordinary attention over **contiguous** $K$ and $V$; there are no pages. “SDPA, heads together” is the same, with the query heads of a group passed as rows of one matrix.

**Guess:** which is the fastest on your machine, and does the answer change for `bfloat16`?
"""

# %% key="roofline-code"
copy_speed = copy_bandwidth(device, 128 << 20)
contexts = [(1, 1024), (1, 4096), (1, 16384), (8, 2048)]
if device.type == "cuda":
    contexts = [(1, 4096), (1, 32768), (8, 4096), (64, 4096)]
panels = {}
for dtype in (torch.float32, torch.bfloat16):
    shares = panels[str(dtype).removeprefix("torch.")] = {}
    for n, length in contexts:
        p = decode_problem(n, length, 32, 8, 128, dtype, device)
        for way, seconds in fastest(decode_ways(p)).items():
            share = p.kv_bytes / seconds / copy_speed
            shares.setdefault(way, []).append(share)
shares_of_copy(panels, [f"{n} × {length}" for n, length in contexts], copy_speed)

# %% [markdown] key="trap-sdpa" lang="ru"
r"""
Секунды у всех разные, да и доли тоже: они зависят от того, чем ещё занята машина. Сравните лучше полоски между собой, на обоих рисунках.

> **Ловушка: «страничное внимание в разы быстрее обычного».** На процессоре в `bfloat16` так и выходит, только страницы ни при чём: у SDPA с одной строкой query на голову там медленный путь. Подайте группу строками одной матрицы, и тот же SDPA ускорится в разы, а ключи прочтутся один раз на группу. Прежде чем радоваться отношению, спросите, **с чем** сравнивали.
"""

# %% [markdown] key="trap-sdpa" lang="en"
r"""
Everybody's seconds differ, and so do the shares: they depend on what else the machine is doing. Compare the bars with each other instead, in both pictures.

> **Trap: “paged attention is several times as fast as ordinary attention”.** On a processor in `bfloat16` it comes out like that, only pages have nothing to do with it: with one query row per head SDPA takes a slow path there. Pass the group as rows of one matrix, and the same SDPA becomes several times as fast, and keys are read once per group. Before you rejoice over a ratio, ask **what** it was compared with.
"""

# %% [markdown] key="overhead" lang="ru"
r"""
## Цена страниц

Честное сравнение — тот же цикл, те же куски, тот же онлайн-softmax, и разница только в одном: кусок взят подряд или собран по таблице. В статье ядро PagedAttention медленнее сплошного на 20–26 % (§7.1, рис. 18a): лишнее чтение таблицы, лишние ветвления, короткие куски. **А как у нас?** Заодно посмотрим, чего стоит сначала собрать весь кэш в сплошной массив.
"""

# %% [markdown] key="overhead" lang="en"
r"""
## What pages cost

A fair comparison is the same loop, the same pieces, the same online softmax, and one difference only: a piece is taken as it lies, or collected by the table. In the paper the PagedAttention kernel is 20–26 % slower than a contiguous one (§7.1, Fig. 18a): more reading of the table, more branches, short pieces. **And ours?** While we are at it, let us see what it costs to collect the whole cache into a contiguous array first.
"""


# %% key="overhead-walk"
def walk(q, K, V, tokens=512):
    softmax = OnlineSoftmax(8, 4, 128, q)
    for a in range(0, len(K), tokens):
        S = torch.bmm(q, K[a : a + tokens].permute(1, 2, 0))
        softmax.add(S, V[a : a + tokens])
    return softmax.finish()[0]


p = decode_problem(1, 8192, 32, 8, 128, device=device)
query, table = p.q.view(8, 4, 128) * 128**-0.5, p.block_tables[0]
in_order = torch.arange(len(table), dtype=torch.int32, device=device)


def contiguous(cache, table=table):
    return cache[table].view(8192, 8, 128)


def paged_with(table):
    return attend_pages(query, p.k_cache, p.v_cache, table, 8192)[0]


# %% key="overhead-code"
K, V = contiguous(p.k_cache), contiguous(p.v_cache)
print(f"max|diff| < 1e-5: {(paged_with(table) - walk(query, K, V)).abs().max() < 1e-5}")
collected = tr("collected whole, then attended")
seconds = fastest(
    {
        "": lambda: walk(query, K, V),
        tr("paged, blocks in order"): lambda: paged_with(in_order),
        tr("paged, blocks shuffled"): lambda: paged_with(table),
        collected: lambda: walk(query, contiguous(p.k_cache), contiguous(p.v_cache)),
    },
    budget=2,
)
base = seconds.pop("")
paging_cost({way: s / base for way, s in seconds.items()}, (1.20, 1.26))

# %% [markdown] key="overhead-end" lang="ru"
r"""
Наш torch-вариант собирает кусок в буфер, который помещается в кэш процессора, и тут же его использует: копия до памяти не доходит. Собрать весь кэш заранее дороже: копия большая, её приходится записать и прочитать снова. Настоящее ядро не собирает ничего, оно читает блоки на месте.

Порядок блоков значит куда меньше: каждый блок и так десятки килобайт подряд. Это и есть ответ на вопрос «не рассыплется ли память»: рассыпаться ей мешает размер блока.
"""

# %% [markdown] key="overhead-end" lang="en"
r"""
Our torch variant collects a piece in a buffer that fits the processor's cache and uses it at once: the copy never reaches memory. Collecting the whole cache beforehand costs more: the copy is large, and has to be written and read again. A real kernel collects nothing, it reads blocks in place.

The order of the blocks matters far less: each block is tens of kilobytes in a row anyway. That answers the worry that memory might fall to pieces: the block size keeps it from doing so.
"""

# %% [markdown] key="prefill" lang="ru"
r"""
## Префилл по той же таблице

Декод — это один новый токен, префилл — много. Таблица та же, разница в причинной маске (*causal mask*): токен видит префикс и себя. Пакет тут без дополнения (*varlen*): куски разной длины стоят подряд, `cu_seqlens_q` говорит, где чей. Проверим, что промпт по частям даёт то же, что целиком: на этом стоит префилл по частям (*chunked prefill*) из модуля 08.
"""

# %% [markdown] key="prefill" lang="en"
r"""
## Prefill by the same table

Decode is one new token, prefill is many. The table is the same, what differs is the causal mask (*причинная маска*): a token sees the prefix and itself. This batch has no padding (*varlen*): pieces of different length stand one after the other, and `cu_seqlens_q` says whose is whose. Let us make sure that a prompt in parts gives the same as the whole: chunked prefill (*префилл по частям*) of module 08 rests on it.
"""

# %% key="prefill-code"
prompt = torch.tensor(rng.normal(size=(40, n_heads, head_dim)), dtype=torch.float32)
prompt = prompt.to(device)


def prefill(start, stop):
    lens = torch.tensor([stop], dtype=torch.int32, device=device)
    chunk = torch.tensor([0, stop - start], dtype=torch.int32, device=device)
    return paged_prefill(
        prompt[start:stop], k_cache, v_cache, block_tables[:1], lens, chunk, scale
    )


whole = prefill(0, 40)
parts = torch.cat([prefill(0, 16), prefill(16, 23), prefill(23, 40)])
print(f"max|diff| < 1e-5: {(parts - whole).abs().max().item() < 1e-5}")
last = reference_attention(tokens[0][0, 0], tokens[0][1, 0], prompt[-1].cpu(), scale)
print(f"last token is decode: {np.abs(whole[-1].cpu().numpy() - last).max() < 1e-5}")

# %% [markdown] key="cascade" lang="ru"
r"""
## Каскад: пакет становится группой

Общий префикс читают раз на весь пакет (урок 09.2). На видеокарте это выглядит особенно просто: query-голова $h$ **каждого** запроса читает одну и ту же KV-голову, так что весь пакет присоединяется к группе. Получается обычное умножение матриц. Окончания идут обычным декодом, состояния сливаются.

Сколько блоков общие, видно из самих таблиц. **Сколько байт сэкономит каскад 32 запросам с промптом в 512 токенов и окончаниями по 48?** Модель класса 8B, все слои.
"""

# %% [markdown] key="cascade" lang="en"
r"""
## Cascade: the batch joins the group

A shared prefix is read once for the whole batch (lesson 09.2). On a GPU this looks especially simple: query head $h$ of **every** request reads the same KV head, so the whole batch joins the group. What comes out is an ordinary matrix product. The endings go through ordinary decode, and the states are merged.

How many blocks are shared can be seen from the tables themselves. **How many bytes does cascade save for 32 requests with a prompt of 512 tokens and endings of 48?** The 8B model, all layers.
"""

# %% key="cascade-code"
pool = TorchBlockPool(80, **shape, device=device)
system = Sequence(pool, "system")
system.extend(*rng.normal(size=(2, 1, 512, n_kv_heads, head_dim)))
forks = [system.fork(i) for i in range(8)]
for fork in forks:
    fork.extend(*rng.normal(size=(2, 1, 48, n_kv_heads, head_dim)))
tables, lens = batch_tables(forks, device)
queries = torch.randn(8, n_heads, head_dim, device=device)
shared = (queries, pool.k[0], pool.v[0], tables, lens, scale)
difference = cascade_decode(*shared) - paged_attention_decode(*shared)
print(f"shared blocks={common_blocks(tables, lens, 16)}", end=" ")
print(f"max|diff| < 1e-5: {difference.abs().max().item() < 1e-5}")

# %% key="cascade-bytes"
spec = KVCacheSpec.preset("llama-3-8b")
prefix, own = 512 * spec.bytes_per_token(), 48 * spec.bytes_per_token()
counts = (1, 8, 32, 128)
Table(
    {
        tr("requests"): counts,
        tr("plain"): [size(n * (prefix + own)) for n in counts],
        tr("cascade"): [size(prefix + n * own) for n in counts],
        tr("saved"): [size((n - 1) * prefix) for n in counts],
        tr("times less"): [
            number(n * (prefix + own) / (prefix + n * own), 2) for n in counts
        ],
    },
    tr("Bytes read in one decode step"),
)

# %% [markdown] key="mla" lang="ru"
r"""
## MLA: один вектор на все головы

В MLA (DeepSeek) на токен хранится один скрытый вектор (*latent*) из 512 чисел и 64 числа повёрнутого ключа. Ключи и значения всех голов — его проекции. Разворачивать их не нужно: $q^\top (W_{UK}\, c) = (W_{UK}^\top q)^\top c$, так что проекцию можно приложить к query (*absorbed*), а внимание считать прямо по скрытым векторам. Это GQA в пределе: одна KV-голова на все query-головы, и значения — часть ключа. Значит, и страницы те же.
"""

# %% [markdown] key="mla" lang="en"
r"""
## MLA: one vector for all heads

In MLA (DeepSeek) each token keeps one latent (*скрытый вектор*) of 512 numbers and a rotated key of 64. Keys and values of all heads are its projections. They need not be spelt out: $q^\top (W_{UK}\, c) = (W_{UK}^\top q)^\top c$, so the projection can be applied to the query (*absorbed*), and attention computed on the latents themselves. It is GQA at its limit: one KV head for all query heads, and values that are a part of the key. So the pages are the same too.
"""

# %% key="mla-code"
random = torch.Generator().manual_seed(0)


def normal(*shape):
    return torch.randn(*shape, generator=random).to(device)


heads, nope, rope, rank, v_dim, length = 16, 128, 64, 512, 128, 40
q_nope, q_rope = normal(1, heads, nope), normal(1, heads, rope)
w_uk = normal(heads, nope, rank) / rank**0.5
w_uv = normal(heads, rank, v_dim) / rank**0.5
latents = normal(length, rank + rope)

# %% key="mla-absorbed"
cache = torch.full((6, 16, rank + rope), torch.nan, device=device)
table = torch.tensor([[4, 0, 5]], dtype=torch.int32, device=device)
for t, latent in enumerate(latents):
    cache[table[0, t // 16], t % 16] = latent
lens = torch.tensor([length], dtype=torch.int32, device=device)
out = paged_mla_decode(q_nope, q_rope, cache, table, lens, w_uk, w_uv, 192**-0.5)

# %% key="mla-unabsorbed"
# ru: Определение: развернуть K и V каждой головы для каждого токена.
# en: The definition: spell out K and V of every head for every token.
c, k_rope = latents[:, :rank], latents[:, rank:]
K, V = torch.einsum("tr,hnr->htn", c, w_uk), torch.einsum("tr,hrv->htv", c, w_uv)
S = torch.einsum("hn,htn->ht", q_nope[0], K) + q_rope[0] @ k_rope.T
unabsorbed = torch.einsum("ht,htv->hv", (S * 192**-0.5).softmax(1), V)
print(f"max|diff| < 1e-4: {(out[0] - unabsorbed).abs().max().item() < 1e-4}")
print(f"numbers kept per token: {rank + rope}", end=", ")
print(f"spelt out: {K[:, 0].numel() + V[:, 0].numel()}")

# %% [markdown] key="mla-bytes" lang="ru"
r"""
**Во сколько раз меньше байт на токен, чем у моделей с GQA?** И обратите внимание на последний столбец: сколько операций приходится на один прочитанный байт.
"""

# %% [markdown] key="mla-bytes" lang="en"
r"""
**How many times fewer bytes per token than in models with GQA?** And look at the last column: how many operations there are for one byte read.
"""

# %% key="mla-bytes-code"
v3 = KVCacheSpec.preset("deepseek-v3")
models = {
    "DeepSeek-V3": v3,
    "DeepSeek-V2": KVCacheSpec.preset("deepseek-v3", n_layers=60),
    "Llama-3-8B": spec,
    "Qwen-2.5-72B": KVCacheSpec(80, 8, 128, n_heads=64),
    "Llama-3.1-405B": KVCacheSpec(126, 8, 128, n_heads=128),
}


def flops_per_byte(model):
    if model.n_tensors == 1:  # MLA: scores over 576 numbers, values over 512
        flops = 2 * model.n_heads * (576 + 512)
    else:
        flops = 2 * model.n_heads * 2 * model.head_dim
    return flops / model.bytes_per_token_layer()


# %% key="mla-bytes-table"
ratios = [m.bytes_per_token() / v3.bytes_per_token() for m in models.values()]
Table(
    {
        tr("model"): models,
        tr("kind"): ["MLA" if m.n_tensors == 1 else "GQA" for m in models.values()],
        tr("bytes per token"): [number(m.bytes_per_token()) for m in models.values()],
        tr("times DeepSeek-V3"): [number(ratio, 2) for ratio in ratios],
        tr("operations per byte"): [number(flops_per_byte(m)) for m in models.values()],
    },
    tr("Two bytes per number"),
)

# %% [markdown] key="mla-end" lang="ru"
r"""
У GQA на байт приходится столько операций, сколько query-голов в группе, и декод упирается в память. У MLA один байт служит всем 128 головам, операций на него сотни, и скорость вычислений становится таким же пределом, как скорость памяти. Поэтому ядра для MLA пишут отдельно, с блоками покрупнее.
"""

# %% [markdown] key="mla-end" lang="en"
r"""
With GQA there are as many operations per byte as query heads in a group, and decode is bound by memory. With MLA one byte serves all 128 heads, there are hundreds of operations for it, and the speed of arithmetic becomes as much of a limit as that of memory. That is why kernels for MLA are written apart, and with larger blocks.
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Какие ядра работают сегодня

| Где | Ядра | Где об этом написано |
|---|---|---|
| vLLM, Ampere и Hopper | FLASH_ATTN, затем FLASHINFER, TRITON_ATTN, FLEX_ATTENTION | `vllm/platforms/cuda.py` |
| vLLM, Blackwell | первым FLASHINFER, затем FLASH_ATTN | там же |
| vLLM, MLA | FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA, TRITON_MLA | `vllm/v1/attention/backends/mla/` |
| vLLM, первое ядро PagedAttention | с 0.8.0 не по умолчанию, в 0.25.0 (июль 2026) удалено | история выпусков |

То, о чём был урок, ищите в этих файлах: у vLLM они в `vllm/v1/attention/`, у SGLang в `python/sglang/srt/layers/attention/`, у FlashInfer в `flashinfer/`.

| Что | vLLM | SGLang | FlashInfer |
|---|---|---|---|
| выбор ядра | `selector.py` | `attention_registry.py` | `decode.py` |
| декод с частями, Triton | `ops/triton_decode_attention.py` | `triton_ops/decode_attention.py` | — |
| каскад | `backends/flash_attn.py` | — | `cascade.py` |
| MLA | `backends/mla/` | `cutlass_mla_backend.py` | `mla/` |

Все они принимают таблицу блоков, и размер блока они тоже выбирают: у vLLM по умолчанию 16, FlashMLA хочет 64, CUTLASS MLA — 128, а страница SGLang по умолчанию — один токен. Каскад vLLM, если он разрешён, включает не раньше 256 общих токенов и 8 запросов; FlashInfer запускает по ядру на уровень, а потом слияние.

> **Ловушка: «PagedAttention — это ядро».** Ядро, с которого всё началось, уже удалено. Осталась модель памяти: пул, таблица, блоки. Ею пользуются ядра, которые написали совсем другие люди.
"""

# %% [markdown] key="engines" lang="en"
r"""
## Which kernels work today

| Where | Kernels | Where it is written |
|---|---|---|
| vLLM, Ampere and Hopper | FLASH_ATTN, then FLASHINFER, TRITON_ATTN, FLEX_ATTENTION | `vllm/platforms/cuda.py` |
| vLLM, Blackwell | FLASHINFER first, then FLASH_ATTN | in the same place |
| vLLM, MLA | FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA, TRITON_MLA | `vllm/v1/attention/backends/mla/` |
| vLLM, the first PagedAttention kernel | not the default since 0.8.0, removed in 0.25.0 (July 2026) | release notes |

Look for what this lesson was about in these files: vLLM's are in `vllm/v1/attention/`, SGLang's in `python/sglang/srt/layers/attention/`, FlashInfer's in `flashinfer/`.

| What | vLLM | SGLang | FlashInfer |
|---|---|---|---|
| choice of the kernel | `selector.py` | `attention_registry.py` | `decode.py` |
| decode in parts, Triton | `ops/triton_decode_attention.py` | `triton_ops/decode_attention.py` | — |
| cascade | `backends/flash_attn.py` | — | `cascade.py` |
| MLA | `backends/mla/` | `cutlass_mla_backend.py` | `mla/` |

All of them take a block table, and they choose the block size too: vLLM's default is 16, FlashMLA wants 64, CUTLASS MLA 128, and SGLang's default page is one token. vLLM, where cascade is allowed, uses it from 256 common tokens and 8 requests on; FlashInfer launches a kernel per level, then a merge.

> **Trap: “PagedAttention is a kernel”.** The kernel that it all began with has been removed. What remains is the memory model: pool, table, blocks. Kernels written by quite different people use it.
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Учёт блоков остаётся на процессоре; ядру достаются кэш слоя, `block_tables` и `seq_lens`. Проверять их надо до запуска.
- Экземпляр программы — это запрос, KV-голова и часть запроса. Каждый слот читается один раз, за концом запроса не читается ничего.
- Декод меряют долей скорости памяти, и сравнивают с тем же циклом по сплошной памяти.
- Префилл, каскад и MLA идут по той же таблице: меняется только то, какие строки query встречаются с ключами.

Теперь напишите внутренний цикл ядра сами: [упражнение 09.6](../../exercises/ru/09.6_gpu.ipynb), по желанию и без видеокарты. Дальше — [урок 09.7](09.7_serving.ipynb): настоящая модель на вашем пуле.

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), §4.3, §7.1. Dao et al., Flash-Decoding (2023). Ye et al., [FlashInfer](https://arxiv.org/abs/2501.01005). DeepSeek-AI, [DeepSeek-V2](https://arxiv.org/abs/2405.04434), §2.1; [байты на токен](https://arxiv.org/abs/2505.09343), табл. 1. Документация и исходный код vLLM и SGLang. Код урока: [`paged_kv/gpu/`](../../paged_kv/gpu/__init__.py), ядро — [`kernels.py`](../../paged_kv/gpu/kernels.py).
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- The bookkeeping of blocks stays with the processor; the kernel gets a layer's cache, `block_tables` and `seq_lens`. They have to be checked before the launch.
- A program instance is a request, a KV head and a part of the request. Each slot is read once, and nothing is read beyond the end of a request.
- Decode is measured as a share of memory speed, and compared with the same loop over contiguous memory.
- Prefill, cascade and MLA use the same table: all that changes is which query rows meet the keys.

Now write the inner loop of the kernel yourself: [exercise 09.6](../../exercises/en/09.6_gpu.ipynb), optional and without a GPU. Next comes [lesson 09.7](09.7_serving.ipynb): a real model on your pool.

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), §4.3, §7.1. Dao et al., Flash-Decoding (2023). Ye et al., [FlashInfer](https://arxiv.org/abs/2501.01005). DeepSeek-AI, [DeepSeek-V2](https://arxiv.org/abs/2405.04434), §2.1; [bytes per token](https://arxiv.org/abs/2505.09343), table 1. Documentation and source of vLLM and SGLang. The lesson's code: [`paged_kv/gpu/`](../../paged_kv/gpu/__init__.py), the kernel in [`kernels.py`](../../paged_kv/gpu/kernels.py).
"""
