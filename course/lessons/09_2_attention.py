# ---
# jupyter:
#   course:
#     minutes: 35
#     summary:
#       ru: "Считаете softmax по частям, сливаете части точно и экономите чтение общего префикса."
#       en: "Compute softmax in parts, merge the parts exactly, and read a shared prefix only once."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Внимание по страницам

Кэш запроса разбросан по пулу. Можно было бы сначала собрать ключи и значения в один сплошной массив и посчитать внимание как обычно. Но тогда на каждый токен ответа пришлось бы копировать весь кэш, а он-то и есть самое дорогое. Хочется читать блоки там, где они лежат, по одному, и не держать все оценки сразу.

После этого урока вы сможете:

- вычислять softmax по частям, помня лишь три величины, $m$, $\ell$ и $\mathrm{acc}$;
- точно сливать внимание по разным кускам одной последовательности, в любом порядке;
- объяснить Flash-Decoding и каскадное внимание (*cascade attention*) одной и той же операцией;
- сказать, сколько байт читает каждый способ.

Понадобится [урок 09.1](09.1_blocks.ipynb) и формула $\mathrm{softmax}(qK^\top)\,V$.
"""

# %% [markdown] key="title" lang="en"
r"""
# Attention over pages

A request's cache is scattered over the pool. One could first collect keys and values in one contiguous array and compute attention as usual. But then the whole cache would have to be copied for every token of the answer, and reading it is the expensive part as it is. We would like to read blocks where they lie, one at a time, and never hold all the scores at once.

After this lesson you can:

- compute a softmax in parts, remembering only three quantities, $m$, $\ell$ and $\mathrm{acc}$;
- merge attention over different pieces of one sequence exactly, in any order;
- explain Flash-Decoding and cascade attention (*каскадное внимание*) by one and the same operation;
- say how many bytes each way reads.

You need [lesson 09.1](09.1_blocks.ipynb) and the formula $\mathrm{softmax}(qK^\top)\,V$.
"""

# %% key="setup"
import numpy as np

from paged_kv import (
    AttentionState,
    BlockPool,
    KVCacheSpec,
    Sequence,
    figures,
    paged_attention,
    partial_attention,
    reference_attention,
)
from paged_kv.messages import tr, use_language
from paged_kv.partitions import cascade_attention, decode_batch, flash_decoding
from paged_kv.serving import Table, number, size
from paged_kv.spec import MiB
from paged_kv.widgets import SoftmaxStepper, draw

use_language("{{lang}}")

# %% [markdown] key="scattered" lang="ru"
r"""
## Сорок токенов в трёх блоках

Для начала разбросаем запрос из 40 токенов по пулу, полному мусора: во всех слотах NaN. Кто прочтёт лишний слот, испортит ответ. **Какие слоты читать нельзя?**
"""

# %% [markdown] key="scattered" lang="en"
r"""
## Forty tokens in three blocks

First let us scatter a request of 40 tokens over a pool full of rubbish: all slots hold NaN. Whoever reads a slot too many spoils the answer. **Which slots must not be read?**
"""

# %% key="make-sequence"
rng = np.random.default_rng(20)
n_heads, n_kv_heads, head_dim = 6, 3, 64
scale = 1 / np.sqrt(head_dim)
pool = BlockPool(8, 1, n_kv_heads, head_dim)
pool.k[:] = pool.v[:] = np.nan

seq, other = Sequence(pool, "req0"), Sequence(pool, "req1")
K, V = rng.normal(size=(2, 40, n_kv_heads, head_dim)).astype(np.float32)
q = rng.normal(size=(n_heads, head_dim)).astype(np.float32)
for start in range(0, 40, 16):
    part = slice(start, start + 16)
    seq.extend(K[None, part], V[None, part])
    other.extend(*rng.normal(size=(2, 1, 16, n_kv_heads, head_dim)))
draw(pool, seq, other)

# %% [markdown] key="why-hard" lang="ru"
r"""
## Почему softmax не делится на части

Суммы делятся на части легко, а вот в softmax каждая оценка делится на сумму по **всем** токенам, и для устойчивости из оценок ещё вычитают **общий** максимум. Пока мы читаем первый блок, ни того ни другого мы не знаем.

Выход — онлайн-softmax (*online softmax*): считать с тем максимумом, который известен, а когда найдётся больший, поправить накопленное одним множителем $\alpha$. Помнить надо текущий максимум $m$ (*running maximum*), текущий знаменатель $\ell$ (*running denominator*) и текущий числитель $\mathrm{acc}$. Для блока $b$:

$$S = q K_b^\top \cdot \text{scale}, \qquad m' = \max(m, \max S), \qquad \alpha = e^{m - m'}, \qquad P = e^{S - m'}$$

$$\ell \leftarrow \ell\,\alpha + \textstyle\sum P, \qquad \mathrm{acc} \leftarrow \mathrm{acc}\,\alpha + P\,V_b, \qquad m \leftarrow m'$$

После последнего блока ответ — $\mathrm{acc} / \ell$. Это внутренний цикл FlashAttention (Dao et al., 2022, алг. 1), только блоки берутся из таблицы.
"""

# %% [markdown] key="why-hard" lang="en"
r"""
## Why softmax does not split

Sums split into parts easily, but in softmax each score is divided by a sum over **all** tokens, and for stability the **common** maximum is subtracted from the scores besides. While we read the first block we know neither.

The way out is online softmax (*онлайн-softmax*): compute with the maximum known so far, and when a larger one turns up, correct what was accumulated by a single factor $\alpha$. To be kept are the running maximum $m$ (*текущий максимум*), the running denominator $\ell$ (*текущий знаменатель*) and the running numerator $\mathrm{acc}$. For block $b$:

$$S = q K_b^\top \cdot \text{scale}, \qquad m' = \max(m, \max S), \qquad \alpha = e^{m - m'}, \qquad P = e^{S - m'}$$

$$\ell \leftarrow \ell\,\alpha + \textstyle\sum P, \qquad \mathrm{acc} \leftarrow \mathrm{acc}\,\alpha + P\,V_b, \qquad m \leftarrow m'$$

After the last block the answer is $\mathrm{acc} / \ell$. It is the inner loop of FlashAttention (Dao et al., 2022, algorithm 1), except that blocks are taken from the table.
"""

# %% key="online-softmax"
head, steps = 0, []
m, l, acc = -np.inf, 0.0, np.zeros(head_dim)
for i, block in enumerate(seq.block_table):
    valid = min(16, len(seq) - 16 * i)  # less than 16 only in the tail
    S = pool.k[0, block, :valid, head] @ q[head] * scale
    m_new = max(m, S.max())
    alpha, P = np.exp(m - m_new), np.exp(S - m_new)
    l = l * alpha + P.sum()
    acc = acc * alpha + P @ pool.v[0, block, :valid, head]
    m = m_new
    steps.append([block, valid, *(number(x, 3) for x in (S.max(), alpha, m, l))])

reference = reference_attention(K, V, q, scale)
print(f"max|diff| < 1e-6: {np.abs(acc / l - reference[head]).max() < 1e-6}")
heads = (tr("block"), tr("tokens"), "max S", "α", "m", "ℓ")
Table.from_rows(heads, steps, tr("One query head, block by block"))

# %% [markdown] key="alpha" lang="ru"
r"""
Найдите в таблице строку, где $\alpha < 1$: там максимум вырос и всё накопленное уменьшилось. У первого блока $\alpha = e^{-\infty} = 0$: поправлять ещё нечего. Там, где максимум не изменился, $\alpha = 1$.

Маска понадобилась только последнему блоку: в нём 8 токенов, остальные слоты — NaN. Дать им нулевой вес мало: $0 \cdot \mathrm{NaN}$ — это NaN, поэтому их нельзя даже читать.

Та же операция для всех голов сразу — функция модуля `paged_attention`.
"""

# %% [markdown] key="alpha" lang="en"
r"""
Find the row of the table where $\alpha < 1$: there the maximum grew, and all that had been accumulated shrank. In the first block $\alpha = e^{-\infty} = 0$: there is nothing to correct yet. Where the maximum stayed, $\alpha = 1$.

Only the last block needed a mask: it has 8 tokens, and its other slots hold NaN. A weight of zero would not do: $0 \cdot \mathrm{NaN}$ is NaN, so they must not even be read.

The same operation for all heads at once is the module's function `paged_attention`.
"""

# %% key="paged"
out = paged_attention(pool, seq, 0, q, scale)
print(f"shape={out.shape} dtype={out.dtype} finite={np.isfinite(out).all()}")
print(f"max|diff| < 1e-6: {np.abs(out - reference).max() < 1e-6}")

# %% [markdown] key="steps" lang="ru"
r"""
## Что сломается, если упростить

В этом цикле легко забыть одно из двух: поправку $\alpha$ или маску. Ниже один query проходит по трём блокам маленького пула; в слотах за концом последнего блока остались ключи и значения прежнего запроса. **Какая из двух ошибок сильнее испортит ответ?** Пройдите по шагам, потом поставьте галочки.
"""

# %% [markdown] key="steps" lang="en"
r"""
## What breaks if it is made simpler

Two things are easily forgotten in this loop: the correction by $\alpha$, or the mask. Below one query walks over three blocks of a small pool; the slots beyond the end of the last block still hold keys and values of an earlier request. **Which of the two mistakes spoils the answer more?** Walk through the steps, then tick the boxes.
"""

# %% key="stepper"
SoftmaxStepper(step=2)

# %% [markdown] key="steps-end" lang="ru"
r"""
Здесь дороже обходится забытая маска: на последнем шаге разность почти вчетверо больше. Но коварны обе ошибки: ответ остаётся похожим на правду, ни одно число не бросается в глаза. Без маски выходит ещё и так, что чужие ключи задают максимум, и все веса своих токенов уменьшаются. А с запросом из начала урока ошибку заметит каждый: подставьте `SoftmaxStepper(pool, seq, 0, q, scale)` и снимите маску. Поэтому проверки и заполняют пул NaN.
"""

# %% [markdown] key="steps-end" lang="en"
r"""
Here the forgotten mask costs more: at the last step the difference is nearly four times as large. But both mistakes are insidious: the answer still looks plausible, and no number catches the eye. Without the mask, moreover, somebody else's keys set the maximum, and the weights of all one's own tokens shrink. With the request from the beginning of the lesson anyone would notice: put in `SoftmaxStepper(pool, seq, 0, q, scale)` and take the mask away. That is why the checks fill the pool with NaN.
"""

# %% [markdown] key="gqa" lang="ru"
r"""
## Какая голова кого читает

У нас 6 query-голов и 3 KV-головы: каждую KV-голову читают две query-головы подряд, $\lfloor h / (n_\text{heads} / n_\text{kv\_heads}) \rfloor$. Частая ошибка — взять остаток, $h \bmod n_\text{kv\_heads}$. **Заметит ли её тест с 4 и 2 головами? А с 6 и 3?**
"""

# %% [markdown] key="gqa" lang="en"
r"""
## Which head reads which

We have 6 query heads and 3 KV heads: each KV head is read by two query heads in a row, $\lfloor h / (n_\text{heads} / n_\text{kv\_heads}) \rfloor$. A common mistake is to take the remainder, $h \bmod n_\text{kv\_heads}$. **Would a test with 4 and 2 heads notice? And one with 6 and 3?**
"""

# %% key="gqa-heads"
for heads_of_q, heads_of_kv in ((4, 2), (6, 3)):
    group = heads_of_q // heads_of_kv
    print(f"n_heads={heads_of_q} n_kv_heads={heads_of_kv}")
    print("  right:", [h // group for h in range(heads_of_q)])
    print("  h mod n_kv:", [h % heads_of_kv for h in range(heads_of_q)])
    print("  h // n_kv:", [h // heads_of_kv for h in range(heads_of_q)])

# %% [markdown] key="gqa-end" lang="ru"
r"""
Остаток виден в обоих случаях. А вот ещё одна ошибка, $\lfloor h / n_\text{kv\_heads} \rfloor$, при 4 и 2 головах совпадает с правильным ответом полностью: группа и число KV-голов случайно равны. Поэтому внимание проверяют на 6 и 3.
"""

# %% [markdown] key="gqa-end" lang="en"
r"""
The remainder shows in both cases. But there is one more mistake, $\lfloor h / n_\text{kv\_heads} \rfloor$, that agrees with the right answer completely for 4 and 2 heads: the group and the number of KV heads happen to be equal. That is why attention is tested with 6 and 3.
"""

# %% [markdown] key="states" lang="ru"
r"""
## Части сливаются точно

Остановим цикл посередине. Что нужно помнить, чтобы потом продолжить? Достаточно двух величин на голову: ответ по прочитанным токенам и логарифм суммы экспонент (*log-sum-exp*), $\mathrm{lse} = m + \ln \ell$. Назовём эту пару состоянием, `AttentionState`. Два состояния сливаются так:

$$\mathrm{lse} = \ln(e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}), \qquad \mathrm{out} = \mathrm{out}_1 e^{\mathrm{lse}_1 - \mathrm{lse}} + \mathrm{out}_2 e^{\mathrm{lse}_2 - \mathrm{lse}}$$

Порядок не важен, скобки тоже, а пустое состояние ($\mathrm{out} = 0$, $\mathrm{lse} = -\infty$) ничего не меняет. Это не приближение. **Разобьём наш запрос на три части и сольём их задом наперёд: каким будет расхождение?**
"""

# %% [markdown] key="states" lang="en"
r"""
## Parts merge exactly

Stop the loop half-way. What must be remembered to go on later? Two quantities per head are enough: the answer over the tokens read, and the log-sum-exp (*логарифм суммы экспонент*), $\mathrm{lse} = m + \ln \ell$. Call this pair a state, `AttentionState`. Two states merge like this:

$$\mathrm{lse} = \ln(e^{\mathrm{lse}_1} + e^{\mathrm{lse}_2}), \qquad \mathrm{out} = \mathrm{out}_1 e^{\mathrm{lse}_1 - \mathrm{lse}} + \mathrm{out}_2 e^{\mathrm{lse}_2 - \mathrm{lse}}$$

The order does not matter, nor do brackets, and the empty state ($\mathrm{out} = 0$, $\mathrm{lse} = -\infty$) changes nothing. This is no approximation. **Split our request into three parts and merge them back to front: how large is the difference?**
"""

# %% key="merge"
parts = [partial_attention(pool, seq, 0, q, scale, i, i + 1) for i in range(3)]
merged = AttentionState.empty(n_heads, head_dim)
for part in reversed(parts):
    merged = merged.merge(part)
print(f"max|diff| < 1e-6: {np.abs(merged.out - reference).max() < 1e-6}")

# %% [markdown] key="flash-decoding" lang="ru"
r"""
## Flash-Decoding: один длинный запрос на многих

Представьте видеокарту с сотней процессоров и один запрос на 32 тысячи токенов. Если внимание одной головы — это цикл по таблице, большая часть карты простаивает. Flash-Decoding (Dao et al., 2023) режет таблицу на участки, каждый достаётся своему исполнителю, а потом состояния сливаются. **Станет ли прочитано больше байт?**
"""

# %% [markdown] key="flash-decoding" lang="en"
r"""
## Flash-Decoding: one long request for many workers

Imagine a GPU with a hundred processors and a single request of 32 thousand tokens. If the attention of a head is one loop over the table, most of the card stands idle. Flash-Decoding (Dao et al., 2023) cuts the table into partitions, gives each to a worker of its own, and then merges the states. **Are more bytes read?**
"""

# %% key="partitions"
long_pool = BlockPool(300, 1, n_kv_heads, head_dim)
long = Sequence(long_pool, "long")
many_k, many_v = rng.normal(size=(2, 4200, n_kv_heads, head_dim)).astype(np.float32)
long.extend(many_k[None], many_v[None])
expected = reference_attention(many_k, many_v, q, scale)

cuts = (8192, 2048, 512, 128)
results = [flash_decoding(long_pool, long, 0, q, scale, tokens) for tokens in cuts]
for result in results:
    assert np.abs(result.out - expected).max() < 1e-6
Table(
    {
        tr("partition, tokens"): cuts,
        tr("workers"): [-(-len(long) // tokens) for tokens in cuts],
        tr("K and V"): [size(result.kv_bytes) for result in results],
        tr("states to merge"): [size(result.state_bytes) for result in results],
    },
    tr("4200 tokens, bytes read in one layer"),
)

# %% [markdown] key="trap-v1" lang="ru"
r"""
> **Ловушка: «ядро PagedAttention в vLLM — это онлайн-softmax по блокам».** Первое ядро vLLM держало все оценки запроса в разделяемой памяти и считало обычный softmax; второе резало последовательность на участки по 512 токенов и сливало их, как в таблице выше. С версии 0.8.0 они не используются по умолчанию, а в 0.25.0 (июль 2026) удалены. Осталась модель памяти: таблица блоков, которую понимает FlashAttention с запросами разной длины, одна для префилла и декода.
"""

# %% [markdown] key="trap-v1" lang="en"
r"""
> **Trap: “vLLM's PagedAttention kernel is an online softmax over blocks”.** vLLM's first kernel kept all scores of a request in shared memory and computed an ordinary softmax; the second cut the sequence into partitions of 512 tokens and merged them as in the table above. Since version 0.8.0 they are not the default, and 0.25.0 (July 2026) removed them. What remains is the memory model: a block table, which FlashAttention with requests of varying length understands, the same for prefill and decode.
"""

# %% [markdown] key="cascade" lang="ru"
r"""
## Каскад: общий префикс читаем один раз

Десять запросов начинаются с одного системного промпта и указывают на одни и те же физические блоки. Обычное внимание прочтёт эти блоки десять раз, по разу на запрос. А ведь можно принести блок один раз и показать его всем десяти query: посчитать внимание по префиксу сразу **для всего пакета**, по собственным токенам — для каждого запроса отдельно, и слить состояния. **Сколько байт прочтут 10 запросов с префиксом в 512 токенов и по 48 своих?**
"""

# %% [markdown] key="cascade" lang="en"
r"""
## Cascade: a shared prefix is read once

Ten requests begin with the same system prompt and point at the same physical blocks. Ordinary attention reads these blocks ten times, once for each request. But a block could be fetched once and shown to all ten queries: compute attention over the prefix **for the whole batch** at once, over its own tokens for each request apart, and merge the states. **How many bytes do 10 requests read with a prefix of 512 tokens and 48 of their own each?**
"""


# %% key="cascade-batch"
def batch_of(n, prefix=512, own=48):
    pool = BlockPool(-(-prefix // 16) + n * (own // 16 + 2), 1, n_kv_heads, head_dim)
    base = Sequence(pool, "system")
    base.extend(*rng.normal(size=(2, 1, prefix, n_kv_heads, head_dim)))
    seqs = [base.fork(f"req{i}") for i in range(n)]
    for forked in seqs:
        forked.extend(*rng.normal(size=(2, 1, own, n_kv_heads, head_dim)))
    return pool, seqs, 0, rng.normal(size=(n, n_heads, head_dim)), scale


# %% [markdown] key="cascade-both" lang="ru"
r"""
Оба способа на одних и тех же пакетах; ответы обязаны совпасть:
"""

# %% [markdown] key="cascade-both" lang="en"
r"""
Both ways on the same batches; their answers have to agree:
"""

# %% key="cascade-run"
sizes, plain, once = (1, 2, 5, 10), [], []
for n in sizes:
    batch = batch_of(n)
    apart, together = decode_batch(*batch), cascade_attention(*batch)
    assert np.abs(apart.out - together.out).max() < 1e-5
    plain.append(apart.kv_bytes)
    once.append(together.kv_bytes)
Table(
    {
        tr("requests"): sizes,
        tr("plain"): map(size, plain),
        tr("cascade"): map(size, once),
        tr("times less"): [number(a / b, 2) for a, b in zip(plain, once, strict=True)],
    },
    tr("Prefix of 512 tokens, 48 of their own; bytes read in one layer"),
)

# %% [markdown] key="cascade-scale" lang="ru"
r"""
Тот же счёт для модели класса 8B, все 32 слоя. У обычной прямой ещё один запрос добавляет чтение префикса и своих токенов, у каскадной — только своих токенов.
"""

# %% [markdown] key="cascade-scale" lang="en"
r"""
The same sum for the 8B model, all 32 layers. On the plain line one more request adds the reading of the prefix and of its own tokens, on the cascade line of its own tokens only.
"""

# %% key="cascade-bytes"
spec = KVCacheSpec.preset("llama-3-8b")
prefix, own = 512 * spec.bytes_per_token(), 48 * spec.bytes_per_token()
batches = range(1, 33)
figures.bytes_by_batch(
    batches,
    [n * (prefix + own) / MiB for n in batches],
    [(prefix + n * own) / MiB for n in batches],
)

# %% [markdown] key="trap-bytes" lang="ru"
r"""
> **Ловушка: «страницы ускоряют внимание, потому что читается меньше».** Сами по себе страницы не меняют объём чтения: запрос из $L$ токенов читает $L$ токенов, лежат ли они подряд или нет, да ещё и чуть медленнее. Выигрыш в другом: больше запросов помещается, и веса читаются один раз на больший пакет. Исключение — каскад.

> **Ловушка: «каскад — это одно ядро».** Во FlashInfer на каждый уровень запускается своё ядро, а затем слияние. vLLM, если каскад разрешён, включает его не раньше 256 общих токенов и 8 запросов: иначе лишние запуски дороже сэкономленного чтения.

> **Ловушка: «для MLA страничные ядра заменены на ThunderMLA и FlexDecoding».** В vLLM для MLA работают FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA и TRITON_MLA, и все они страничные. ThunderMLA — исследовательское мегаядро 2025 года, FlexDecoding — путь декода в PyTorch.
"""

# %% [markdown] key="trap-bytes" lang="en"
r"""
> **Trap: “pages make attention faster because less is read”.** Pages by themselves do not change how much is read: a request of $L$ tokens reads $L$ tokens whether they lie in a row or not, and a little more slowly at that. What is gained is something else: more requests fit, and the weights are read once for a larger batch. Cascade is the exception.

> **Trap: “cascade is a single kernel”.** FlashInfer launches a kernel for each level and then a merge. vLLM, where cascade is allowed, uses it from 256 common tokens and 8 requests on: below that the extra launches cost more than the reading saved.

> **Trap: “for MLA the paged kernels have been replaced by ThunderMLA and FlexDecoding”.** For MLA vLLM uses FLASH_ATTN_MLA, FLASHMLA, FLASHINFER_MLA, CUTLASS_MLA and TRITON_MLA, all of them paged. ThunderMLA is a research megakernel of 2025, FlexDecoding is PyTorch's decode path.
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **FlashInfer**: состояние $(\mathrm{out}, \mathrm{lse})$ и слияние в `include/flashinfer/attention/state.cuh`, каскад в `cascade.cuh` рядом. На сколько частей резать последовательность, решает `scheduler.cuh`: так, чтобы работы хватило всем процессорам карты.
- **vLLM**: условия каскада стоят в `use_cascade_attention` файла `vllm/v1/attention/backends/flash_attn.py`; в новых версиях он по умолчанию выключен (`disable_cascade_attn`).
- **SGLang**: декод на Triton в два приёма, части и слияние, — `python/sglang/srt/layers/attention/triton_ops/decode_attention.py`.

Мы идём по блокам по очереди и по одному запросу. Ядро читает сразу много блоков разных запросов и за одно обращение обслуживает всю группу query-голов, у которых общая KV-голова: об этом [урок 09.6](09.6_gpu.ipynb).
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **FlashInfer**: the state $(\mathrm{out}, \mathrm{lse})$ and its merge in `include/flashinfer/attention/state.cuh`, cascade in `cascade.cuh` beside it. Into how many parts a sequence is cut is decided in `scheduler.cuh`: so that every processor of the card has work.
- **vLLM**: the conditions for cascade stand in `use_cascade_attention` of `vllm/v1/attention/backends/flash_attn.py`; recent versions leave it off by default (`disable_cascade_attn`).
- **SGLang**: decode in Triton in two stages, parts and merge, is `python/sglang/srt/layers/attention/triton_ops/decode_attention.py`.

We walk the blocks one after another, one request at a time. A kernel reads many blocks of different requests at once, and each read serves the whole group of query heads that share a KV head: that is [lesson 09.6](09.6_gpu.ipynb).
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Онлайн-softmax ведёт по блокам три величины; новый максимум поправляет накопленное множителем $\alpha$.
- Маска нужна только последнему блоку, а слоты за концом запроса читать нельзя совсем.
- Пара $(\mathrm{out}, \mathrm{lse})$ — всё, что нужно знать о прочитанном; такие пары сливаются точно и в любом порядке.
- На этом стоят и Flash-Decoding (части одного запроса), и каскад (общий префикс один раз на пакет).

Теперь напишите `paged_attention` сами: [упражнение 09.2](../../exercises/ru/09.2_paged_attention.ipynb). Дальше — [урок 09.3](09.3_sharing.ipynb): как один блок служит многим запросам.

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.1. Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), алг. 1. Milakov, Gimelshein, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867). Dao et al., Flash-Decoding (2023). Ye et al., [FlashInfer](https://arxiv.org/abs/2501.01005): состояния внимания и каскад. Документация и исходный код vLLM: выбор ядра, `use_cascade_attention`.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- Online softmax carries three quantities from block to block; a new maximum corrects what was accumulated by a factor $\alpha$.
- Only the last block needs a mask, and slots beyond the end of a request must not be read at all.
- The pair $(\mathrm{out}, \mathrm{lse})$ is all there is to know about what was read; such pairs merge exactly and in any order.
- Both Flash-Decoding (parts of one request) and cascade (a shared prefix once per batch) stand on this.

Now write `paged_attention` yourself: [exercise 09.2](../../exercises/en/09.2_paged_attention.ipynb). Next comes [lesson 09.3](09.3_sharing.ipynb): how one block serves many requests.

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.1. Dao et al., [FlashAttention](https://arxiv.org/abs/2205.14135), algorithm 1. Milakov, Gimelshein, [Online normalizer calculation for softmax](https://arxiv.org/abs/1805.02867). Dao et al., Flash-Decoding (2023). Ye et al., [FlashInfer](https://arxiv.org/abs/2501.01005): attention states and cascade. vLLM's documentation and source: choice of kernel, `use_cascade_attention`.
"""
