# ---
# jupyter:
#   course:
#     minutes: 50
#     summary:
#       ru: "Сжимаете блоки от int8 до двух бит и меряете, что ломается: K, V или само внимание."
#       en: "Shrink blocks from int8 to two bits, and measure what breaks: K, V or attention itself."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Квантование блоков

Блоки больше не пропадают зря, но сам кэш остаётся огромным: каждое его число занимает два байта. Сколько из шестнадцати бит нужны на самом деле? Если хватит восьми, в ту же память войдёт вдвое больше запросов. А если четырёх или двух?

Здесь вы будете сжимать блоки и каждый раз измерять, во что это обошлось. После урока вы сможете:

- вывести границу ошибки int8 и узнать её удвоенную версию в чужом тексте;
- объяснить, почему последний блок запроса нельзя трогать, пока он не заполнен;
- сказать, чем K отличается от V и какой масштаб (*scale*) спасает от канала-выброса (*outlier channel*);
- честно посчитать биты на элемент, со всеми масштабами и точным окном.

Понадобится [урок 09.1](09.1_blocks.ipynb).
"""

# %% [markdown] key="title" lang="en"
r"""
# Quantised blocks

Blocks are no longer wasted, but the cache itself is still huge: each of its numbers takes two bytes. How many of the sixteen bits are really needed? If eight will do, twice as many requests fit into the same memory. And what about four, or two?

Here you shrink blocks and measure each time what it cost. After the lesson you can:

- derive the error bound of int8, and recognise its doubled version in somebody else's text;
- explain why the last block of a request must be left alone until it is full;
- say how K differs from V, and which scale (*масштаб*) helps against an outlier channel (*канал-выброс*);
- count bits per element honestly, with all scales and the exact window.

You need [lesson 09.1](09.1_blocks.ipynb).
"""

# %% key="setup"
import numpy as np

from paged_kv import (
    BlockPool,
    KVCacheSpec,
    Sequence,
    dequantize_block_int8,
    gather_kv,
    paged_attention,
    quantize_block_int8,
    reference_attention,
)
from paged_kv.figures.quantization import (
    bits_and_error,
    channel_sizes,
    sensitivity,
    tail_errors,
    window_cost,
)
from paged_kv.messages import tr, use_language
from paged_kv.quantization import (
    Codebook,
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    QuantizedBlockPool,
    SymmetricInt,
)
from paged_kv.quantization.ladder import Scheme, ladder, measure
from paged_kv.quantization.synthetic import synthetic_kv
from paged_kv.serving import Table, number, percent, size
from paged_kv.widgets.quantizer import QuantizerBench

use_language("{{lang}}")

# %% [markdown] key="bound" lang="ru"
r"""
## Граница ошибки

Возьмём один блок K: 16 токенов, 8 голов по 128 чисел. Самый простой способ — **один масштаб на голову блока**. Наибольший модуль головы, $\mathrm{amax}$, получает код 127, нуль остаётся нулём:

$$s = \frac{\mathrm{amax}}{127}, \qquad c = \mathrm{round}(x / s), \qquad \hat x = c \cdot s$$

Коды (*codes*) занимают по байту, а масштаб один на две тысячи чисел. Нулевой точки нет: она здесь не нужна, положительные и отрицательные значения равноправны.

**На сколько $\hat x$ может отличаться от $x$?** Округление промахивается не больше чем на полшага, то есть

$$|x - \hat x| \le \frac{s}{2} = \frac{\mathrm{amax}}{254}$$
"""

# %% [markdown] key="bound" lang="en"
r"""
## The error bound

Take one block of K: 16 tokens, 8 heads of 128 numbers. The simplest way is **one scale per head of a block**. The largest magnitude of the head, $\mathrm{amax}$, gets code 127, and zero stays zero:

$$s = \frac{\mathrm{amax}}{127}, \qquad c = \mathrm{round}(x / s), \qquad \hat x = c \cdot s$$

The codes (*коды*) take a byte each, and there is one scale for two thousand numbers. There is no zero point: none is needed here, positive and negative values are equals.

**How far can $\hat x$ be from $x$?** Rounding misses by half a step at most, that is

$$|x - \hat x| \le \frac{s}{2} = \frac{\mathrm{amax}}{254}$$
"""

# %% key="bound-measured"
block = np.random.default_rng(3).normal(scale=2.0, size=(16, 8, 128)).astype(np.float32)
codes, scale = quantize_block_int8(block)
error = np.abs(dequantize_block_int8(codes, scale) - block)
amax = np.abs(block).max(axis=(0, 2))
span = block.max(axis=(0, 2)) - block.min(axis=(0, 2))
columns = amax, amax / 254, error.max(axis=(0, 2)), span / 254
rows = [[str(h), *(number(column[h], 4) for column in columns)] for h in range(8)]
heads = [tr("head"), "amax", "amax / 254", tr("largest error"), "(max - min) / 254"]
Table.from_rows(heads, rows, tr("int8, one scale per head"))

# %% [markdown] key="bound-trap" lang="ru"
r"""
> **Ловушка: «ошибка int8 не больше $(\max - \min)/254$».** Число в последнем столбце примерно вдвое больше настоящей границы, и вот откуда оно берётся: размах $\max - \min$ — это примерно $2\,\mathrm{amax}$, и, разделив его на 254, получают целый *шаг* $s$. А округление ошибается на половину шага.
"""

# %% [markdown] key="bound-trap" lang="en"
r"""
> **Trap: “the error of int8 is at most $(\max - \min)/254$”.** The number in the last column is about twice the true bound, and this is where it comes from: the range $\max - \min$ is about $2\,\mathrm{amax}$, and dividing it by 254 gives a whole *step* $s$. Rounding is off by half a step.
"""

# %% [markdown] key="overhead" lang="ru"
r"""
## Сколько стоят масштабы

Масштабы тоже надо где-то хранить, и чем мельче группы, тем их больше. Поэтому «четыре бита» почти никогда не означает ровно четыре. Здесь и дальше биты считаются так: блок действительно квантуется, и складываются байты всего, что получилось.

Способы, которые нам встретятся:

- `int8/head`, `int4/head` — масштаб на голову блока; `…/token` — на голову каждого токена;
- `int4/channel/g32` — у каждого канала свои минимум и шаг на 32 токена, так KIVI хранит K; `…/token/g32` — на 32 канала одного токена, а так — V;
- `fp8` — числа с плавающей точкой в одном байте;
- `lloyd-max` — таблица из нескольких уровней, наилучших для нормального распределения.

**Какой из них теряет на масштабах больше всего?** Размеры — как у модели класса 8B, контекст 4096 токенов.
"""

# %% [markdown] key="overhead" lang="en"
r"""
## What the scales cost

Scales have to be kept somewhere too, and the smaller the groups, the more of them there are. That is why “four bits” hardly ever means exactly four. Here and below bits are counted like this: a block is really quantised, and the bytes of everything that came out are added up.

The ways that we shall meet:

- `int8/head`, `int4/head`: a scale per head of a block; `…/token`: per head of each token;
- `int4/channel/g32`: each channel has a minimum and a step of its own for 32 tokens, which is how KIVI keeps K; `…/token/g32`: for 32 channels of one token, which is how it keeps V;
- `fp8`: floating-point numbers of one byte;
- `lloyd-max`: a table of a few levels, the best ones for a normal distribution.

**Which of them loses most to its scales?** Sizes are those of a model of the 8B class, with a context of 4096 tokens.
"""

# %% key="formats"
formats = (
    (SymmetricInt(8, "head"), 16),
    (SymmetricInt(8, "token"), 16),
    (Fp8E4M3(), 16),
    (SymmetricInt(4, "head"), 16),
    (SymmetricInt(4, "token"), 16),
    (GroupedInt(4, "channel"), 16),
    (GroupedInt(4, "channel"), 32),
    (GroupedInt(4, "token"), 16),
    (Codebook(4), 16),
    (GroupedInt(2, "channel"), 32),
    (Codebook(2), 16),
)

# %% [markdown] key="overhead-zeros" lang="ru"
r"""
Каждым способом квантуем блок из нулей: его коды и масштабы занимают ровно столько же места, сколько у любого другого блока.
"""

# %% [markdown] key="overhead-zeros" lang="en"
r"""
Each way quantises a block of zeros: its codes and scales take exactly as much room as those of any other block.
"""

# %% key="overhead-table"
spec = KVCacheSpec.preset("llama-3-8b")
elements = 4096 * spec.bytes_per_token() // spec.itemsize
rows = [["fp16", "16", number(16, 3), "–", size(2 * elements)]]
for quantizer, tokens in formats:
    codes, params = quantizer.quantize(np.zeros((tokens, 8, 128)))
    parameters = sum(p.nbytes for p in params)
    share = 100 * parameters / (codes.nbytes + parameters)
    bits = quantizer.bits_per_element((tokens, 8, 128))
    sizes = [number(bits, 3), number(share, 2), size(elements * bits / 8, 1)]
    rows.append([quantizer.name, str(tokens), *sizes])
heads = [tr("quantiser"), tr("tokens in a block"), tr("bits per element")]
heads += [tr("of which parameters, %"), tr("4096 tokens")]
Table.from_rows(heads, rows, tr("Bits per element, everything counted"))

# %% [markdown] key="tail" lang="ru"
r"""
## Хвост

Масштаб зависит от наибольшего числа блока, а последний блок запроса ещё растёт. **Пришёл новый токен, и он больше всех прежних. Что делать с кодами, которые уже записаны?** Попробуем четыре способа на одном и том же блоке:

1. держать неполный блок точно и квантовать один раз, когда он заполнится;
2. квантовать заново при каждом новом токене — из кодов, ведь точных значений уже нет;
3. заморозить масштаб по первому токену;
4. дать каждому токену свой масштаб.
"""

# %% [markdown] key="tail" lang="en"
r"""
## The tail

The scale depends on the largest number of the block, and the last block of a request is still growing. **A new token arrives, and it is larger than all before it. What becomes of the codes that are already written?** Let us try four ways on one and the same block:

1. keep the partly filled block exact, and quantise once, when it is full;
2. quantise anew with each token: from codes, since the exact values are gone;
3. freeze the scale at the first token;
4. give each token a scale of its own.
"""


# %% key="tail-ways"
def when_full(block):
    return dequantize_block_int8(*quantize_block_int8(block))


def on_every_append(block):
    read = block[:0]
    for token in block:
        read = when_full(np.concatenate([read, token[None]]))
    return read


def frozen(block):
    _, scale = quantize_block_int8(block[:1])
    return np.clip(np.round(block / scale), -127, 127) * scale


def per_token(block):
    quantizer = SymmetricInt(8, "token")
    return quantizer.dequantize(*quantizer.quantize(block))


# %% [markdown] key="tail-order" lang="ru"
r"""
Второй способ проверим ещё и на худшем порядке: токены идут от маленьких к большим, и масштаб растёт почти на каждом шаге.
"""

# %% [markdown] key="tail-order" lang="en"
r"""
The second way is tried on the worst order as well: tokens come from small to large, and the scale grows at nearly every step.
"""

# %% key="tail-figure"
by_size = block[np.argsort(np.abs(block).max(axis=(1, 2)))]
ways = {
    tr("when full"): (when_full, block),
    tr("scale per token"): (per_token, block),
    tr("on every append"): (on_every_append, block),
    tr("the same, smallest first"): (on_every_append, by_size),
    tr("scale of the first token"): (frozen, block),
}
errors = {name: np.abs(way(x) - x) for name, (way, x) in ways.items()}
tail_errors({name: float(e.max()) for name, e in errors.items()})

# %% key="tail-rms"
for name, e in errors.items():
    print(f"{name:26} max={e.max():.4f} rms={np.sqrt(np.square(e).mean()):.4f}")

# %% [markdown] key="tail-trap" lang="ru"
r"""
> **Ловушка: «масштаб блока посчитан раз и навсегда».** Это верно для полного блока. У хвоста он меняется с каждым крупным токеном, и каждое перекодирование округляет уже округлённое.

Так и поступают на практике. KIVI держит остаток точным, пока не наберётся группа (в статье $G = 32$, остаток $R = 128$), KVarN хранит хвост в fp16. vLLM предлагает масштаб на токен и голову: он никогда не меняется и даже чуть точнее, зато самих масштабов в шестнадцать раз больше. А FP8 в vLLM по умолчанию — это один неизменный масштаб на слой.

Мы берём первый способ.
"""

# %% [markdown] key="tail-trap" lang="en"
r"""
> **Trap: “the scale of a block is computed once and for all”.** True for a full block. In the tail it changes with each large token, and every recoding rounds what was rounded before.

This is what is done in practice. KIVI keeps a residual exact until a group is complete (in the paper $G = 32$, the residual $R = 128$); KVarN keeps its tail in fp16. vLLM offers a scale per token and head: it never changes and is even a little more exact, but there are sixteen times as many scales. And its default FP8 is one fixed scale per layer.

We take the first way.
"""

# %% [markdown] key="pool" lang="ru"
r"""
## Пул, который квантует сам

`QuantizedBlockPool` снаружи такой же, как `BlockPool`: таблицы, форки, счётчики ссылок и `paged_attention` работают с ним без изменений. Внутри полный блок превращается в коды в тот миг, когда записан его последний слот, а неполные блоки лежат точными в отдельных массивах.

Запрос из 40 токенов занимает три блока, третий заполнен наполовину. Ответвим от него второй запрос и допишем туда токен. **Сколько блоков пула хранится точно до этого и сколько после?**
"""

# %% [markdown] key="pool" lang="en"
r"""
## A pool that quantises by itself

From outside, `QuantizedBlockPool` is like `BlockPool`: tables, forks, reference counts and `paged_attention` work with it unchanged. Inside, a full block turns into codes the moment its last slot is written, and blocks that are not full lie exact in arrays of their own.

A request of 40 tokens takes three blocks, the third of them half full. Let us fork it and append one token to the fork. **How many blocks of the pool are kept exact before that, and how many after?**
"""

# %% key="pool-example"
rng = np.random.default_rng(0)
pool = QuantizedBlockPool(64, n_layers=2, n_kv_heads=3, head_dim=64)
exact = BlockPool(64, n_layers=2, n_kv_heads=3, head_dim=64)
parent, twin = Sequence(pool, "parent"), Sequence(exact, "twin")
K, V = rng.normal(size=(2, 2, 40, 3, 64)).astype(np.float32)
for seq in (parent, twin):
    seq.extend(K, V)
print(f"parent={parent.block_table} coded={pool.coded[0, :3].tolist()}", end=" ")
print(f"open={list(pool.open)}")
child = parent.fork("child")
child.append(*rng.normal(size=(2, 2, 3, 64)))
print(f"child={child.block_table} open={list(pool.open)}")

# %% [markdown] key="pool-reading" lang="ru"
r"""
А что увидит тот, кто читает? Хвост должен вернуться точно, а внимание — ошибиться лишь немного:
"""

# %% [markdown] key="pool-reading" lang="en"
r"""
And what does a reader see? The tail should come back exactly, and attention should be off by only a little:
"""

# %% key="pool-read"
read, _ = gather_kv(pool, parent, layer=1)
print(f"tail exact: {np.array_equal(read[32:], K[1, 32:])}")
print(f"bytes_per_block: {exact.bytes_per_block()} -> {pool.bytes_per_block()}")
q = rng.normal(size=(9, 64))
right = paged_attention(exact, twin, 1, q, 64**-0.5)
out = paged_attention(pool, parent, 1, q, 64**-0.5)
print(f"attention: off by {np.abs(out - right).max():.3f} of {np.abs(right).max():.1f}")

# %% [markdown] key="pool-after" lang="ru"
r"""
Точных блоков не больше, чем запросов: по одному хвосту на каждый. Копирование при записи (*copy-on-write*) унесло в новый блок всё, что принадлежало старому: точные значения, а если блок уже закодирован, то коды вместе с масштабами. Масштабы — часть блока и переезжают вместе с ним. В vLLM ошибка в адресах масштабов однажды привела к тому, что блоки читались с чужими масштабами ([обсуждение](https://github.com/vllm-project/vllm/issues/49716)).
"""

# %% [markdown] key="pool-after" lang="en"
r"""
There are no more exact blocks than requests: one tail for each. Copy-on-write (*копирование при записи*) took into the new block everything that belonged to the old one: the exact values or, where a block is coded, the codes together with their scales. The scales are part of the block and go where it goes. In vLLM a mistake in their addresses once made blocks be read with the scales of others ([issue](https://github.com/vllm-project/vllm/issues/49716)).
"""

# %% [markdown] key="outliers" lang="ru"
r"""
## Где сидят выбросы

Нормально распределённый блок — слишком удобный случай. У настоящих моделей K устроен иначе: несколько **каналов-выбросов** в каждой голове гораздо крупнее остальных, причём почти целиком за счёт постоянного смещения. Находятся они там, где RoPE (позиционное кодирование вращением) поворачивает медленнее всего. У V такого нет. Первый токен запроса, «сток внимания», мал и в K, и в V.

Возьмём синтетические K и V с такими же свойствами; силу выброса можно менять. **Какой масштаб тут поможет: на голову, на токен или на канал?**
"""

# %% [markdown] key="outliers" lang="en"
r"""
## Where the outliers sit

A normally distributed block is too easy a case. In real models K looks different: a few **outlier channels** in each head are much larger than the others, and almost all of that is a constant offset. They sit where RoPE, the rotary position encoding, turns slowest. V has nothing of the kind. The first token of a request, the “attention sink”, is small in both K and V.

Let us take synthetic K and V with these properties; the strength of the outlier can be changed. **Which scale will help here: per head, per token or per channel?**
"""

# %% key="channels"
K, V = synthetic_kv(512, n_kv_heads=3, head_dim=64, strength=4)
channel_sizes(K[:, 0], V[:, 0])

# %% key="four-bits"
amax = np.abs(K).max(axis=0)
outlier = amax > 2 * np.median(amax, axis=1, keepdims=True)
rows = []
for quantizer, tokens in (
    (SymmetricInt(4, "head"), 16),
    (SymmetricInt(4, "token"), 16),
    (GroupedInt(4, "token"), 16),
    (GroupedInt(4, "channel"), 32),
    (Hadamard(SymmetricInt(4, "token")), 16),
):
    blocks = K.reshape(-1, tokens, 3, 64)
    error = quantizer.dequantize(*quantizer.quantize(blocks)) - blocks
    error = error.reshape(K.shape)
    rms = [np.sqrt(np.square(error[:, m]).mean()) for m in (~outlier, outlier)]
    rows.append([quantizer.name, *(number(v, 3) for v in rms)])
heads = [tr("quantiser"), tr("rms error, ordinary channels"), tr("outlier channels")]
Table.from_rows(
    heads, rows, tr("K with outlier channels in four bits; ordinary rms is 1")
)

# %% key="zeros"
codes, _ = SymmetricInt(4).quantize(K.reshape(-1, 16, 3, 64))
ordinary = SymmetricInt(4).unpacked(codes).reshape(K.shape)[:, ~outlier]
print(f"int4/head: {np.mean(ordinary == 0):.0%} of ordinary codes are 0")

# %% [markdown] key="outliers-after" lang="ru"
r"""
Масштаб на голову бессилен. Его задаёт выброс, а расплачиваются все остальные каналы: шаг становится таким крупным, что большинство их кодов — нули. Масштаб на токен немногим лучше: выброс сидит в *каждом* токене; группы по 32 лишь ограничивают круг пострадавших. Помогает либо свой масштаб у каждого канала, либо поворот, который размазывает выброс по всем каналам сразу.

Поэкспериментируйте. Выберите способ, подвигайте силу выброса и посмотрите на три таблицы: блок, его коды и ошибку.
"""

# %% [markdown] key="outliers-after" lang="en"
r"""
A scale per head is powerless. The outlier sets it, and all other channels pay: the step becomes so large that most of their codes are zeros. A scale per token is hardly better: the outlier sits in *every* token; groups of 32 only limit the circle of those who suffer. What helps is either a scale for each channel, or a rotation that smears the outlier over all channels at once.

Try it out. Choose a way, move the strength of the outlier, and look at the three tables: the block, its codes and the error.
"""

# %% key="widget"
QuantizerBench(start="int4/head")

# %% [markdown] key="static" lang="ru"
r"""
То же неподвижно: четыре способа при трёх силах выброса. В клетке среднеквадратичная ошибка обычных каналов.
"""

# %% [markdown] key="static" lang="en"
r"""
The same standing still: four ways at three strengths of the outlier. Each cell is the rms error of the ordinary channels.
"""

# %% key="static-table"
rows = []
for quantizer, tokens in (
    (SymmetricInt(8, "head"), 16),
    (SymmetricInt(4, "head"), 16),
    (Hadamard(SymmetricInt(4, "token")), 16),
    (GroupedInt(4, "channel"), 32),
):
    row = [quantizer.name]
    for strength in (1, 4, 16):
        strong, _ = synthetic_kv(512, strength=strength)
        blocks = strong.reshape(-1, tokens, 3, 64)
        error = quantizer.dequantize(*quantizer.quantize(blocks)) - blocks
        ordinary = error.reshape(K.shape)[:, ~outlier]
        row.append(number(np.sqrt(np.square(ordinary).mean()), 3))
    rows.append(row)
caption = tr("rms error of ordinary channels, by outlier strength")
Table.from_rows([tr("quantiser"), "×1", "×4", "×16"], rows, caption)

# %% [markdown] key="offset" lang="ru"
r"""
## Смещение можно вычесть

Раз выброс — почти постоянное смещение $\mu$, вычтем его из всех ключей. Оценка каждого токена изменится на одно и то же число $q \cdot \mu$, а к общему сдвигу softmax равнодушен:

$$q \cdot (k_t - \mu) = q \cdot k_t - q \cdot \mu$$

**Изменится ли точный ответ внимания? А ошибка int4?** Ошибка выхода здесь и дальше — среднеквадратичная, в процентах от величины самого выхода, по 32 случайным векторам query.
"""

# %% [markdown] key="offset" lang="en"
r"""
## An offset can be subtracted

Since an outlier is almost a constant offset $\mu$, subtract it from all keys. Each token's score changes by the same number $q \cdot \mu$, and softmax does not care about a common shift:

$$q \cdot (k_t - \mu) = q \cdot k_t - q \cdot \mu$$

**Does the exact answer of attention change? And the error of int4?** Here and below the error of the output is rms, in percent of the size of the output itself, over 32 random queries.
"""

# %% key="offset-measured"
Q = np.random.default_rng(1).normal(scale=2, size=(32, 9, 64)).astype(np.float32)
centred = K - K.mean(axis=0)
plain, shifted = (reference_attention(X, V, Q[0], 64**-0.5) for X in (K, centred))
print(f"exact answer unchanged: {np.abs(plain - shifted).max() < 1e-4}")
int4 = Scheme("int4 head", SymmetricInt(4, "head"), None)
for name, X in (("K", K), ("K - mean", centred)):
    damage = measure(int4, X, V, Q)
    print(f"{name:9} output_error={damage.out_error:.0%}", end=" ")
    print(f"same_top_token={damage.top1:.0%}")

# %% [markdown] key="ladder" lang="ru"
r"""
## Лестница

Теперь все способы на одних и тех же K и V. Три идеи, которые спасают четыре бита и меньше:

- **KIVI**: K квантуется по каналам, V по токенам, группами по 32. Выброс остаётся в своей группе.
- **Поворот Адамара** (*Hadamard rotation*): умножаем каждый ключ на ортогональную матрицу из $\pm 1/\sqrt{d}$. Длины и скалярные произведения сохраняются, а выброс расходится по всем $d$ каналам. На этом построен QuaRot.
- **Таблица уровней Ллойда–Макса** (*Lloyd–Max codebook*) после случайного поворота. Повёрнутые числа распределены почти нормально, а для нормального распределения лучшие уровни известны заранее. Так устроен TurboQuant (здесь без его однобитной поправки).

**Предскажите**: какой из четырёхбитных способов окажется лучшим? Поможет ли таблица уровней без поворота?
"""

# %% [markdown] key="ladder" lang="en"
r"""
## The ladder

Now all ways on the same K and V. Three ideas rescue four bits and fewer:

- **KIVI**: K is quantised per channel and V per token, in groups of 32. An outlier stays in its own group.
- **Hadamard rotation** (*поворот Адамара*): each key is multiplied by an orthogonal matrix of $\pm 1/\sqrt{d}$. Lengths and dot products stay, and an outlier spreads over all $d$ channels. QuaRot is built on this.
- **A Lloyd–Max codebook** (*таблица уровней Ллойда–Макса*) after a random rotation. Rotated numbers are almost normally distributed, and for a normal distribution the best levels are known beforehand. This is TurboQuant (here without its one-bit correction).

**Predict**: which of the ways with four bits is the best? Will a codebook help without the rotation?
"""

# %% key="ladder-table"
schemes = {s.name: s for s in ladder(K, V)}
damage = {name: measure(s, K, V, Q) for name, s in schemes.items()}
bits = {name: s.bits(512, 3, 64) for name, s in schemes.items()}
rows = [
    [
        name,
        number(bits[name], 2),
        *(number(100 * x, 1) for x in (d.k_error, d.v_error, d.out_error)),
        number(d.kl, 3),
        number(100 * d.top1),
    ]
    for name, d in damage.items()
]
heads = [tr("scheme"), tr("bits"), tr("error of K, %"), tr("error of V, %")]
heads += [tr("error of the output, %"), tr("KL, nats"), tr("same top token, %")]
Table.from_rows(heads, rows, tr("512 tokens, 3 KV heads of 64, synthetic K and V"))

# %% key="ladder-figure"
families = {
    "int, head": ("int8 head", "int4 head", "int2 head"),
    "int, token": ("int8 token", "int4 token"),
    "fp8": ("fp8 static",),
    "Hadamard": ("Hadamard int4",),
    "KIVI": ("KIVI-4", "KIVI-2"),
    "Lloyd–Max": ("Lloyd–Max 4", "Lloyd–Max 3", "Lloyd–Max 2"),
    "rotated L–M": ("rotated L–M 4", "rotated L–M 3", "rotated L–M 2"),
}
bits_and_error(
    {
        family: [(bits[name], damage[name].out_error) for name in names]
        for family, names in families.items()
    }
)

# %% [markdown] key="ladder-after" lang="ru"
r"""
На восьми битах все способы близки, выбор решает начиная с четырёх. Каналы KIVI и оба поворота обгоняют простой int4 в несколько раз, но и поворот проигрывает каналам: он смещение размазывает, а KIVI вычитает его вместе с минимумом группы (правда, и битов тратит больше). Таблица уровней без поворота хуже, чем с ним: числа K с выбросами совсем не нормальные. На двух битах ошибаются все.

Не читайте эту таблицу как приговор. Случайные query — суровые судьи: у настоящей модели внимание распределено иначе, и следующие слои сглаживают ошибки. Поэтому рядом стоят расхождение Кульбака–Лейблера между весами внимания и доля случаев, когда самый важный токен остался тем же. Что теряет сама модель, то есть её перплексию (*perplexity*), измеряет [урок 09.7](09.7_serving.ipynb).
"""

# %% [markdown] key="ladder-after" lang="en"
r"""
At eight bits all ways are close; from four on the choice decides. KIVI's channels and both rotations are several times better than plain int4, but the rotations too lose to the channels: they smear the offset, while KIVI subtracts it with the minimum of its group (and spends more bits, too). The codebook is worse without its rotation: numbers of a K with outliers are not normal at all. At two bits everybody is wrong.

Do not read this table as a verdict. Random queries are harsh judges: in a real model attention is spread differently, and later layers smooth the errors. That is why the Kullback–Leibler divergence between the attention weights stands beside it, and the share of cases in which the most important token stayed the same. What the model itself loses, its perplexity (*перплексия*), is measured in [lesson 09.7](09.7_serving.ipynb).
"""

# %% [markdown] key="fp8" lang="ru"
r"""
## Восемь бит бывают разные

У int8 шаг один на всю голову, у FP8 E4M3 он растёт вместе с числом: три бита мантиссы дают относительную ошибку до $1/16$. Поэтому калибровка масштаба почти ничего не меняет, пока числа не вышли за край: у плавающей точки и так свой масштаб у каждого числа. А вот за краем начинаются неприятности. Наибольшее число E4M3 — 448. **Во что превратится 465?**
"""

# %% [markdown] key="fp8" lang="en"
r"""
## There are eight bits and eight bits

int8 has one step for the whole head; in FP8 E4M3 the step grows with the number: three bits of mantissa give a relative error of up to $1/16$. That is why calibrating the scale hardly changes anything as long as no number has left the range: in floating point every number has a scale of its own anyway. Beyond the edge the trouble starts. The largest E4M3 number is 448. **What does 465 become?**
"""

# %% key="fp8-edge"
from ml_dtypes import float8_e4m3fn

edge = np.array([448, 464, 465, 1000], np.float32).reshape(1, 1, 4)
print("cast:          ", edge.astype(float8_e4m3fn).astype(float).ravel().tolist())
clamped = Fp8E4M3().dequantize(*Fp8E4M3().quantize(edge))
print("clamp and cast:", clamped.ravel().tolist())

# %% key="fp8-scale"
for factor in (1, 100):
    calibrated = Fp8E4M3.calibrated(factor * K)
    for name, quantizer in (("static", Fp8E4M3()), ("calibrated", calibrated)):
        d = measure(Scheme(name, quantizer, None), factor * K, V, Q / factor)
        print(f"K x {factor:<3} {name:10} error_of_K={d.k_error:.1%}")

# %% [markdown] key="fp8-trap" lang="ru"
r"""
> **Ловушка: «перевести в FP8 — это один вызов».** Без обрезки одно слишком большое число превращается в NaN, а через softmax он отравляет весь ответ. С обрезкой и неподходящим масштабом большие ключи просто теряют величину. Да и одним хранением дело не кончается: на 128 тысячах токенов авторы vLLM видели на Hopper падение с 91 % до 13 %, пока не исправили *накопление* произведений (блог vLLM, «The State of FP8 KV-Cache», 2026).
"""

# %% [markdown] key="fp8-trap" lang="en"
r"""
> **Trap: “moving to FP8 is one call”.** Without clamping, one number that is too large becomes NaN, and through softmax it poisons the whole answer. With clamping and an unsuitable scale, large keys simply lose their size. Nor is storage the end of it: over 128 thousand tokens vLLM's authors saw a fall from 91% to 13% on Hopper, until the *accumulation* of products was mended (vLLM's blog, “The State of FP8 KV-Cache”, 2026).
"""

# %% [markdown] key="k-against-v" lang="ru"
r"""
## K или V

Бит мало. **Кому их отдать, ключам или значениям?** Ошибка в V проходит в ответ линейно и усредняется по токенам. Ошибка в K попадает под экспоненту.
"""

# %% [markdown] key="k-against-v" lang="en"
r"""
## K or V

Bits are scarce. **Who should get them, the keys or the values?** An error in V goes into the answer linearly, and is averaged over tokens. An error in K ends up under an exponential.
"""

# %% key="sensitivity"
pairs = {
    "int8/head": (SymmetricInt(8, "head"), 16),
    "int4/head": (SymmetricInt(4, "head"), 16),
    "Hadamard int4": (Hadamard(SymmetricInt(4, "token")), 16),
    "int4/channel": (GroupedInt(4, "channel"), 32),
    "int2/channel": (GroupedInt(2, "channel"), 32),
}
k_only, v_only = [], []
for name, (quantizer, tokens) in pairs.items():
    k_only.append(measure(Scheme(name, quantizer, None, tokens), K, V, Q).out_error)
    v_only.append(measure(Scheme(name, None, quantizer, tokens), K, V, Q).out_error)
sensitivity(list(pairs), k_only, v_only)

# %% key="uneven"
for k_bits, v_bits in ((4, 4), (4, 2), (2, 4), (2, 2)):
    keys, values = GroupedInt(k_bits, "channel"), GroupedInt(v_bits, "token")
    scheme = Scheme("KIVI", keys, values, block_size=32)
    d = measure(scheme, K, V, Q)
    print(f"K={k_bits} V={v_bits} bits={scheme.bits(512, 3, 64):.0f}", end=" ")
    print(f"output_error={d.out_error:.0%} same_top_token={d.top1:.0%}")

# %% [markdown] key="uneven-after" lang="ru"
r"""
Одно и то же число бит выгоднее потратить на K: от него зависит, *на кого смотрит* внимание. Готовая настройка KVarN тоже отдаёт ключам четыре бита, а значениям два.
"""

# %% [markdown] key="uneven-after" lang="en"
r"""
The same number of bits is better spent on K: it decides *whom* attention looks at. The ready-made setting of KVarN gives four bits to the keys, too, and two to the values.
"""

# %% [markdown] key="window" lang="ru"
r"""
## Точное окно и его честная цена

KIVI оставляет точными последние токены, до $R = 128$, и это помогает: чаще всего модель смотрит назад недалеко. Но «KIVI-2» с таким окном — это не два бита. **Сколько бит на элемент он занимает в кэше из 256 токенов? А в среднем, пока кэш рос до тысячи?**
"""

# %% [markdown] key="window" lang="en"
r"""
## The exact window and its honest price

KIVI keeps the last tokens exact, up to $R = 128$, and that helps: most of the time a model looks back only a little. But “KIVI-2” with such a window is not two bits. **How many bits per element does it take in a cache of 256 tokens? And on average, while the cache grew to a thousand?**
"""

# %% key="window-figure"
lengths = [2**i for i in range(5, 16)]
names = ("KIVI-2 R=128", "KIVI-2", "KIVI-4", "int8 head")
window_cost(
    lengths, {name: [schemes[name].bits(n, 8, 128) for n in lengths] for name in names}
)

# %% key="window-mean"
for name in names:
    of_length = [schemes[name].bits(n, 8, 128) for n in range(1, 1025)]
    at = "  ".join(
        f"{n}: {schemes[name].bits(n, 8, 128):5.2f}" for n in (256, 1024, 4096)
    )
    print(f"{name:13} {at}  growing to 1024: {np.mean(of_length):.2f}")

# %% [markdown] key="window-after" lang="ru"
r"""
Окно делает короткий кэш почти точным, и сравнивать его на коротком тексте с честными двумя битами нельзя: выиграет то, чего не сжимали. Называйте биты вместе с длиной. В длинном контексте окно растворяется, но до двух бит дело не доходит: минимум и шаг каждой группы стоят ещё один.
"""

# %% [markdown] key="window-after" lang="en"
r"""
The window makes a short cache almost exact, and to compare it on a short text with honest two bits is unfair: what wins is what was not compressed. Tell bits together with the length. In a long context the window dissolves, but two bits are never reached: minimum and step of each group cost one more.
"""

# %% [markdown] key="not-reproduced" lang="ru"
r"""
## Что не повторилось

О квантовании кэша говорят много и уверенно. Проверим, что можем, на наших K и V с выбросом ×4:
"""

# %% [markdown] key="not-reproduced" lang="en"
r"""
## What did not reproduce

Much is said about quantised caches, and with confidence. Let us check what we can on our K and V with an outlier of ×4:
"""


# %% key="claims-checked"
def errors_of(*names):
    return ", ".join(f"{n}: {number(100 * damage[n].out_error, 1)}" for n in names)


rows = [
    [
        tr("one scale for the whole tensor ruins int8"),
        errors_of("int8 tensor", "int8 head"),
    ],
    [tr("a scale per head saves int4"), errors_of("int4 tensor", "int4 head")],
    [tr("FP8 is more exact than int8"), errors_of("fp8 static", "int8 head")],
    [tr("FP8 needs calibration"), errors_of("fp8 static", "fp8 calibrated")],
    [tr("a codebook needs no rotation"), errors_of("Lloyd–Max 4", "rotated L–M 4")],
]
heads = [tr("claim"), tr("error of the output, %")]
Table.from_rows(heads, rows, tr("Common claims, checked here"))

# %% [markdown] key="not-reproduced-after" lang="ru"
r"""
Ни одна строка не подтвердилась. На восьми битах и один масштаб на весь тензор не катастрофа, если выброс умеренный: запаса хватает. На четырёх не спасает и масштаб на голову. FP8 на таких данных *хуже* int8 при тех же байтах, и калибровка ему ни к чему.

Осторожнее и с готовыми цифрами. «int8 стоит 0,05–0,2 перплексии, см. KIVI» — частая ссылка в никуда: в статье KIVI нет ни int8, ни перплексии.
"""

# %% [markdown] key="not-reproduced-after" lang="en"
r"""
No line was confirmed. At eight bits even one scale for the whole tensor is no catastrophe if the outlier is moderate: there is room to spare. At four a scale per head does not save you either. FP8 on such data is *worse* than int8 for the same bytes, and calibration does nothing for it.

Be careful with ready-made figures, too. “int8 costs 0.05–0.2 perplexity, see KIVI” is a common reference to nowhere: the KIVI paper has neither int8 nor perplexity.
"""

# %% [markdown] key="papers" lang="ru"
r"""
## Что обещают статьи

Слева — утверждение авторов, справа — ошибка выхода внимания, которая получилась здесь, и биты. Это *не* проверка статей: у них большие модели и настоящие задачи, у нас один слой и синтетические данные. Но порядок величин поучителен.
"""

# %% [markdown] key="papers" lang="en"
r"""
## What the papers claim

On the left is what the authors say, on the right the error of attention's output that came out here, and the bits. This is *no* test of the papers: they have large models and real tasks, we have one layer and synthetic data. But the orders of magnitude are instructive.
"""


# %% key="papers-table"
def here(*names):
    return "; ".join(
        f"{number(bits[n], 1)}: {percent(damage[n].out_error)}" for n in names
    )


claims = {
    "KIVI": tr("2 bits: CoQA 63.05 after 63.88, Llama-2-7B"),
    "QuaRot": tr("4 bits everywhere: 99 % of zero-shot accuracy"),
    "TurboQuant": tr("neutral at 3.5 bits, slightly worse at 2.5"),
    "KVarN": tr("the best results at 2 bits"),
}
measured = (
    here("KIVI-4", "KIVI-2"),
    here("Hadamard int4"),
    here("rotated L–M 4", "rotated L–M 3", "rotated L–M 2"),
    tr("not built here"),
)
heads = [tr("method"), tr("claimed"), tr("here, bits: error of the output")]
columns = claims, claims.values(), measured
Table(dict(zip(heads, columns, strict=True)), tr("Claimed and measured"))

# %% [markdown] key="papers-after" lang="ru"
r"""
Источники: [KIVI](https://arxiv.org/abs/2402.02750), таблицы CoQA (там же: на Llama-2-13B K по каналам и V по токенам дают 63,5, K по токенам — 52,9, а V по каналам — 2,9); [QuaRot](https://arxiv.org/abs/2404.00456), аннотация (Llama-2-70B, веса и активации тоже в четырёх битах); [TurboQuant](https://arxiv.org/abs/2504.19874), аннотация; [KVarN](https://arxiv.org/abs/2606.03458).

> **Ловушка: «с TurboQuant два бита — рабочий режим и для рассуждений».** Проверка в блоге vLLM (2026) показала иное: трёхбитные варианты теряют около 20 пунктов на AIME25 (Qwen3-30B-A3B-Thinking). Если метод ничего не теряет на одной задаче, для другой это ещё ничего не значит.
"""

# %% [markdown] key="papers-after" lang="en"
r"""
Sources: [KIVI](https://arxiv.org/abs/2402.02750), tables of CoQA (also there: on Llama-2-13B K per channel and V per token give 63.5, K per token 52.9, and V per channel 2.9); [QuaRot](https://arxiv.org/abs/2404.00456), abstract (Llama-2-70B, weights and activations in four bits as well); [TurboQuant](https://arxiv.org/abs/2504.19874), abstract; [KVarN](https://arxiv.org/abs/2606.03458).

> **Trap: “with TurboQuant two bits are a working regime, for reasoning too”.** A study on vLLM's blog (2026) showed otherwise: three-bit variants lose about 20 points on AIME25 (Qwen3-30B-A3B-Thinking). That a method loses nothing on one task says nothing yet about another.
"""

# %% [markdown] key="capacity" lang="ru"
r"""
## Сколько запросов войдёт

Ради этого всё и затевалось. Модель класса 8B, под кэш отдано 60 ГБ, у каждого запроса 4096 токенов. **Во сколько раз больше запросов войдёт с int8? А с «двумя битами»?**
"""

# %% [markdown] key="capacity" lang="en"
r"""
## How many requests fit

This is what it was all for. A model of the 8B class, 60 GB for the cache, 4096 tokens per request. **How many times as many requests fit with int8? And with “two bits”?**
"""

# %% key="capacity-table"
fp16 = 4096 * spec.bytes_per_token()
chosen = ["int8 head", "fp8 static", "KIVI-4", "Hadamard int4", "rotated L–M 3"]
chosen += ["KIVI-2 R=128", "KIVI-2"]
rows = [["fp16", number(16, 2), size(fp16), number(60e9 // fp16), number(1, 2)]]
for name in chosen:
    b = schemes[name].bits(4096, spec.n_kv_heads, spec.head_dim)
    request = fp16 * b / 16
    fit = number(60e9 // request)
    rows.append([name, number(b, 2), size(request, 1), fit, number(16 / b, 2)])
heads = [tr("scheme"), tr("bits"), tr("4096 tokens"), tr("requests in 60 GB")]
heads += [tr("times fp16")]
Table.from_rows(heads, rows, tr("Capacity of the reference model"))

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM**: у слоя внимания обычно по одному масштабу для K и для V; берут их из файла весов, а если там их нет, считают равными единице (`vllm/model_executor/layers/quantization/kv_cache.py`). Квантуют прямо при записи токена в слот: `vllm/v1/attention/ops/triton_reshape_and_cache_flash.py`. Масштаб на токен и голову включает `int8_per_token_head`.
- **SGLang**: пулы FP8 и FP4 описаны в `python/sglang/srt/mem_cache/memory_pool.py`. У FP4 рядом с кодами лежит второй массив: по масштабу на каждые 16 чисел.
- **FlashInfer**: масштаб K входит в множитель оценок, а на масштаб V умножают готовый выход (`flashinfer/decode.py`). Поэтому ядро `include/flashinfer/attention/decode.cuh` читает коды FP8 и о масштабах не знает.

Движок квантует токен сразу: масштаб либо известен заранее, либо принадлежит одному этому токену. У нас он общий на блок и узнаётся, только когда блок полон, — отсюда точный хвост. И ещё: мы сначала восстанавливаем все числа запроса, а потом считаем внимание. Ядро раскрывает коды в регистрах, иначе сэкономленное в памяти пришлось бы отдать при чтении; как читают блоки на видеокарте, показывает [урок 09.6](09.6_gpu.ipynb).
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM**: an attention layer usually has one scale for K and one for V; they come from the file of weights and, where it has none, are taken to be one (`vllm/model_executor/layers/quantization/kv_cache.py`). A token is quantised as it is written into its slot: `vllm/v1/attention/ops/triton_reshape_and_cache_flash.py`. A scale per token and head is what `int8_per_token_head` turns on.
- **SGLang**: the pools for FP8 and FP4 are described in `python/sglang/srt/mem_cache/memory_pool.py`. With FP4 a second array lies beside the codes: one scale for every 16 numbers.
- **FlashInfer**: the scale of K goes into the factor of the scores, and the finished output is multiplied by the scale of V (`flashinfer/decode.py`). So the kernel `include/flashinfer/attention/decode.cuh` reads FP8 codes and knows nothing of scales.

An engine quantises a token at once: the scale is known beforehand, or belongs to this one token. Ours is common to a block and known only when the block is full, hence the exact tail. And we restore all numbers of a request before we compute attention. A kernel unpacks codes in registers, or what was saved in memory would be lost again on reading; how blocks are read on a GPU is [lesson 09.6](09.6_gpu.ipynb).
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Ошибка int8 не больше $\mathrm{amax}/254$: это полшага. Размах, делённый на 254, — целый шаг.
- Блок квантуют один раз, когда он полон. Хвост остаётся точным, и у запроса он один.
- Выбросы K — это каналы. Масштаб на голову или на токен против них бессилен; помогают масштаб на канал, вычитание смещения или поворот.
- На восьми битах годится почти всё, с четырёх решает способ. K важнее V.
- Биты считают со всеми масштабами, с точным окном и при названной длине.
- Чужие цифры не переносятся на вашу модель. Меряйте.

Теперь [упражнение 09.5](../../exercises/ru/09.5_quantization.ipynb): int8 с точным хвостом своими руками. Дальше — [урок 09.6](09.6_gpu.ipynb): внимание на видеокарте.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- The error of int8 is at most $\mathrm{amax}/254$: half a step. The range divided by 254 is a whole one.
- A block is quantised once, when it is full. The tail stays exact, and a request has one.
- The outliers of K are channels. A scale per head or per token is powerless against them; a scale per channel, subtracting the offset, or a rotation helps.
- At eight bits almost anything will do, from four on the way decides. K matters more than V.
- Bits are counted with all scales, with the exact window, and at a stated length.
- Other people's figures do not carry over to your model. Measure.

Now [exercise 09.5](../../exercises/en/09.5_quantization.ipynb): int8 with an exact tail, by hand. Next comes [lesson 09.6](09.6_gpu.ipynb): attention on the GPU.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- Liu et al., [KIVI](https://arxiv.org/abs/2402.02750), §3: откуда взялись каналы и токены.
- Ashkboos et al., [QuaRot](https://arxiv.org/abs/2404.00456): повороты во всей модели, не только в кэше.
- Zandieh et al., [TurboQuant](https://arxiv.org/abs/2504.19874): почему после случайного поворота хватает готовой таблицы.
- [KVarN](https://arxiv.org/abs/2606.03458): поворот и выравнивание дисперсий по обеим осям.
- [`paged_kv/quantization/`](../../paged_kv/quantization/__init__.py): всё, что здесь работало, по файлу на идею.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- Liu et al., [KIVI](https://arxiv.org/abs/2402.02750), §3: where channels and tokens come from.
- Ashkboos et al., [QuaRot](https://arxiv.org/abs/2404.00456): rotations in the whole model, not only in its cache.
- Zandieh et al., [TurboQuant](https://arxiv.org/abs/2504.19874): why a ready-made table is enough after a random rotation.
- [KVarN](https://arxiv.org/abs/2606.03458): a rotation, and variances levelled along both axes.
- [`paged_kv/quantization/`](../../paged_kv/quantization/__init__.py): all that worked here, a file for each idea.
"""
