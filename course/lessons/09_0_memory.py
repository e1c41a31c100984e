# ---
# jupyter:
#   course:
#     minutes: 40
#     summary:
#       ru: "Считаете, сколько весит KV-кэш, и своими глазами видите, как резервирование теряет четыре пятых памяти."
#       en: "Work out what the KV cache weighs, and see for yourself how reservation loses four fifths of the memory."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Сколько памяти нужно KV-кэшу

Веса модели лежат в памяти видеокарты и не растут. KV-кэш (*KV cache*) растёт: каждый токен каждого запроса оставляет в нём свои ключи и значения и держит их до конца ответа. Насколько длинным будет ответ, не знает никто, и до 2023 года серверы решали этот вопрос просто: отводили каждому запросу место на самый длинный ответ, какой только бывает.

После этого урока вы сможете:

- посчитать в уме, сколько байт кэша оставляет один токен и сколько запросов поместится на карту;
- сказать, во что обходится декод (*decode*) и почему размер пакета решает почти всё;
- назвать три вида потерь памяти и показать каждый на числах;
- воспроизвести рисунок 2 статьи о PagedAttention собственным моделированием.

Вспомните, что такое ключи и значения во внимании и как работает непрерывное пакетирование (*continuous batching*) из модуля 08.
"""

# %% [markdown] key="title" lang="en"
r"""
# How much memory the KV cache needs

A model's weights lie in GPU memory and do not grow. The KV cache (*KV-кэш*) does: each token of each request leaves its keys and values there and keeps them until the answer is complete. Nobody knows how long the answer will be, and until 2023 servers settled the matter simply: every request got room for the longest answer there could possibly be.

After this lesson you can:

- work out in your head how many bytes of cache one token leaves, and how many requests fit on a card;
- say what decode (*декод*) costs, and why the size of the batch decides nearly everything;
- name three kinds of wasted memory and show each of them in numbers;
- reproduce figure 2 of the PagedAttention paper with a simulation of your own.

You should remember what keys and values are in attention, and know continuous batching (*непрерывное пакетирование*) from module 08.
"""

# %% key="setup"
from IPython.display import display

from paged_kv import KVCacheSpec, figures
from paged_kv.messages import tr, use_language
from paged_kv.serving import (
    ALPACA,
    SHAREGPT,
    BuddyAllocator,
    CostModel,
    MaxReservation,
    Table,
    number,
    paper,
    percent,
    poisson_workload,
    simulate,
    size,
    summary,
    system_name,
)
from paged_kv.spec import GB, GiB
from paged_kv.widgets import FragmentationView, KVCalculator

use_language("{{lang}}")

# %% [markdown] key="problem" lang="ru"
r"""
## Шесть запросов

Вот шесть запросов с длинами, какие бывают в обычной переписке с ботом. Модель принимает до 2048 токенов, поэтому каждому отведено 2048 слотов (*slots*), по слоту на токен. **Прикиньте на глаз, какая доля памяти занята делом.**
"""

# %% [markdown] key="problem" lang="en"
r"""
## Six requests

Here are six requests, as long as requests to a chat bot commonly are. The model accepts up to 2048 tokens, so each has 2048 slots (*слоты*) set aside, one slot per token. **What share of the memory would you say is doing anything?**
"""

# %% key="six-requests"
six = poisson_workload(SHAREGPT, rate=2, n=6, seed=3).total.tolist()
figures.reserved_and_used(six, max_len=2048)

# %% [markdown] key="one-token" lang="ru"
r"""
## Что оставляет один токен

В каждом слое токен оставляет вектор ключа и вектор значения на каждую KV-голову:

$$\text{байт на токен} = 2 \cdot n_\text{layers} \cdot n_\text{kv\_heads} \cdot \text{head\_dim} \cdot \text{sizeof(dtype)}$$

Двойка — это K и V. Число query-голов в формулу не входит: в GQA (*grouped-query attention*) несколько query-голов читают одну KV-голову.

Возьмём модель класса 8B: 32 слоя, 8 KV-голов по 128 чисел, fp16. Так устроены Llama-3-8B и Mistral-7B. **Сколько весит кэш одного токена и сколько — контекста в 4096 токенов?** Ответьте, прежде чем запускать.
"""

# %% [markdown] key="one-token" lang="en"
r"""
## What one token leaves behind

In every layer a token leaves one key vector and one value vector per KV head:

$$\text{bytes per token} = 2 \cdot n_\text{layers} \cdot n_\text{kv\_heads} \cdot \text{head\_dim} \cdot \text{sizeof(dtype)}$$

The two stands for K and V. The number of query heads does not appear: in GQA (*grouped-query attention*) several query heads read one KV head.

Take a model of the 8B class: 32 layers, 8 KV heads of 128 numbers, fp16. Llama-3-8B and Mistral-7B are built like this. **How much does the cache of one token weigh, and that of a context of 4096?** Answer before you run the cell.
"""

# %% key="bytes"
spec = KVCacheSpec.preset("llama-3-8b")
weights = {
    tr("one token in one layer"): spec.bytes_per_token_layer(),
    tr("one token in all layers"): spec.bytes_per_token(),
    tr("a block of 16 tokens"): spec.bytes_per_block(),
    tr("a context of 4096 tokens"): 4096 * spec.bytes_per_token(),
    tr("a context of 32768 tokens"): 32768 * spec.bytes_per_token(),
    tr("the weights"): spec.weight_bytes(),
}
Table({tr("what"): weights, tr("size"): map(size, weights.values())}, spec.name)

# %% [markdown] key="trap-llama2" lang="ru"
r"""
> **Ловушка: «Llama на 7–8 миллиардов параметров — это 128 КиБ на токен».** Смотря какая. У Llama-2-7B нет GQA: KV-голов столько же, сколько query-голов, 32, и токен весит вчетверо больше. Параметров меньше, а кэш тяжелее.

А что у тех, кто сжимает сам кэш? MLA (*multi-head latent attention*) в DeepSeek хранит на токен один общий для всех голов вектор из $512 + 64$ чисел; K и V восстанавливаются из него, поэтому двойки в формуле нет. Хранят его такими же блоками, как и обычный кэш (DeepSeek-V3, arXiv 2505.09343, табл. 1).
"""

# %% [markdown] key="trap-llama2" lang="en"
r"""
> **Trap: “a Llama with 7 to 8 billion parameters takes 128 KiB per token”.** That depends on which. Llama-2-7B has no GQA: it has as many KV heads as query heads, 32, and a token weighs four times as much. Fewer parameters, heavier cache.

And what of those who compress the cache itself? MLA (*multi-head latent attention*) in DeepSeek stores one vector of $512 + 64$ numbers per token, shared by all heads; K and V are computed from it, so the formula has no factor of two. It is kept in blocks just as an ordinary cache is (DeepSeek-V3, arXiv 2505.09343, table 1).
"""

# %% key="models"
models = [
    spec,
    KVCacheSpec.preset("llama-2-7b"),
    KVCacheSpec.preset("opt-13b"),
    KVCacheSpec(80, 8, 128, name="Qwen-2.5-72B"),
    KVCacheSpec(126, 8, 128, name="Llama-3.1-405B"),
    KVCacheSpec(60, 1, 512 + 64, n_tensors=1, name="DeepSeek-V2 (MLA)"),
    KVCacheSpec.preset("deepseek-v3"),
]
Table(
    {
        tr("model"): [m.name for m in models],
        tr("bytes per token"): [number(m.bytes_per_token()) for m in models],
        tr("size"): [size(m.bytes_per_token()) for m in models],
        tr("4096 tokens"): [size(4096 * m.bytes_per_token()) for m in models],
    },
    tr("KV cache of one token, 16-bit"),
)

# %% [markdown] key="how-many" lang="ru"
r"""
## Сколько запросов поместится

На карте в 80 ГБ после весов и прочего остаётся для кэша примерно 60 ГБ. Пусть запросы в среднем дорастают до 4096 токенов, а модель принимает до 32768. **Сколько поместится, если место дают по настоящей длине? А если резервируют под самую большую?**
"""

# %% [markdown] key="how-many" lang="en"
r"""
## How many requests fit

On an 80 GB card about 60 GB are left for the cache beside the weights and the rest. Say requests grow to 4096 tokens on average, and the model accepts up to 32768. **How many fit if each gets room for its real length? And how many if room is reserved for the longest?**
"""

# %% key="capacity"
mean, longest = 4096, 32768
memories = {tr("60 GB"): 60 * GB, tr("60 GiB"): 60 * GiB}
print(f"filled={percent(mean / longest, 1)}")
Table(
    {
        tr("memory"): memories,
        tr("by real length"): [spec.max_sequences(m, mean) for m in memories.values()],
        tr("by reservation"): [
            spec.max_sequences(m, longest) for m in memories.values()
        ],
    },
    tr("requests that fit"),
)

# %% [markdown] key="trap-units" lang="ru"
r"""
> **Ловушка: «60 ГБ на 512 МиБ — это 120 запросов».** Это 111. Гигабайт — $10^9$ байт, гибибайт — $2^{30}$; 120 запросов поместилось бы в 60 ГиБ. Производители видеокарт и `nvidia-smi` считают в разных единицах, поэтому в этом курсе ГБ и ГиБ всегда различаются.
"""

# %% [markdown] key="trap-units" lang="en"
r"""
> **Trap: “60 GB over 512 MiB makes 120 requests”.** It makes 111. A gigabyte is $10^9$ bytes, a gibibyte $2^{30}$; 120 requests would fit into 60 GiB. Vendors of cards and `nvidia-smi` count in different units, so this course always tells GB from GiB.
"""

# %% [markdown] key="decode" lang="ru"
r"""
## Во что обходится один токен ответа

Чтобы написать очередной токен, нужно прочесть весь кэш запроса. И все веса тоже. Арифметики при этом мало, так что время шага определяет пропускная способность памяти (*memory bandwidth*). **Что займёт больше времени у одного запроса с контекстом 4096: прочесть кэш или прочесть веса?**
"""

# %% [markdown] key="decode" lang="en"
r"""
## What one token of an answer costs

To write the next token, the whole cache of the request has to be read. So do all the weights. There is little arithmetic to it, so memory bandwidth (*пропускная способность памяти*) decides how long a step takes. **For one request with a context of 4096, which takes longer: reading the cache or reading the weights?**
"""

# %% key="decode-time" tags=["computed-time"]
devices = {"A100 80GB, H100 PCIe": 2e12, "H100 SXM": 3.35e12, "H200": 4.8e12}
read_kv = [1e6 * spec.decode_seconds(4096, rate) for rate in devices.values()]
read_weights = [1e6 * spec.weight_bytes() / rate for rate in devices.values()]
Table(
    {
        tr("device"): devices,
        tr("TB/s"): [number(rate / 1e12, 2) for rate in devices.values()],
        tr("KV of 4096 tokens, µs"): map(number, read_kv),
        tr("weights, µs"): map(number, read_weights),
    },
    tr("time to read once"),
)

# %% [markdown] key="batch" lang="ru"
r"""
Веса. И вот что важно: веса читаются один раз на шаг, сколько бы запросов в нём ни было. Чем больше пакет (*batch*), тем на большее число токенов делится эта цена. При пакете $B$ и кэше $\text{KV}$ на запрос

$$\text{токенов в секунду} = \frac{B}{(W + B \cdot \text{KV}) / \text{BW}}$$

Резервирование позволило держать 13 запросов, настоящие длины — 111: пакет больше в 8,5 раза. **Во сколько раз вырастет пропускная способность?**
"""

# %% [markdown] key="batch" lang="en"
r"""
The weights. And this matters: they are read once per step, however many requests take part in it. The larger the batch (*пакет*), the more tokens share that cost. With a batch of $B$ and a cache of $\text{KV}$ per request

$$\text{tokens per second} = \frac{B}{(W + B \cdot \text{KV}) / \text{BW}}$$

Reservation let us keep 13 requests, real lengths let us keep 111: a batch 8.5 times as large. **How many times does throughput grow?**
"""

# %% key="roofline"
reserved = spec.max_sequences(60 * GB, longest)
paged = spec.max_sequences(60 * GB, mean)
roofline = CostModel.of(spec, bandwidth=3.35e12)
batches = range(1, 161)
rates = [roofline.throughput(batch, mean) for batch in batches]
limit = roofline.bandwidth / (mean * spec.bytes_per_token())
print(f"batch ratio={paged / reserved:.1f} limit={limit:.0f} tok/s")
figures.throughput_by_batch(batches, rates, [reserved, paged])

# %% [markdown] key="trap-throughput" lang="ru"
r"""
> **Ловушка: «полезная доля памяти превращается прямо в пропускную способность».** Пакет вырос в 8,5 раза, а токенов в секунду стало больше в 2,6. Чем больше пакет, тем меньшую часть шага занимают веса; остаток — чтение кэша, а оно растёт вместе с пакетом. Предел — $\text{BW}/\text{KV}$. И всё же 2,6 раза на том же железе и без потери точности — это очень много.
"""

# %% [markdown] key="trap-throughput" lang="en"
r"""
> **Trap: “the useful share of memory turns straight into throughput”.** The batch grew 8.5 times, tokens per second 2.6 times. The larger the batch, the smaller the part of a step that goes to the weights; the rest is reading the cache, and that grows with the batch. The limit is $\text{BW}/\text{KV}$. Still, 2.6 times on the same hardware and at no loss of accuracy is a great deal.
"""

# %% [markdown] key="play" lang="ru"
r"""
### Подвигайте сами

Всё, что посчитано выше, собрано в одном калькуляторе: модель, карта, длины, размер пакета. Прежде чем двигать ползунки, ответьте: **пусть запросы станут вчетверо короче, а резерв останется прежним. Выигрыш от блоков, те самые 2,6 раза, вырастет или уменьшится? А если хранить кэш в одном байте вместо двух?**
"""

# %% [markdown] key="play" lang="en"
r"""
### Move it yourself

All that was computed above is gathered in one calculator: model, card, lengths, size of the batch. Before you move the sliders, answer: **let requests become a quarter as long while the reservation stays. Does the gain from blocks, those 2.6 times, grow or shrink? And if the cache is stored in one byte instead of two?**
"""

# %% key="calculator" tags=["computed-time"]
KVCalculator()

# %% [markdown] key="play-end" lang="ru"
r"""
Короткие запросы выигрывают больше всех: место под самую большую длину у них пустует сильнее, а веса дольше остаются главной ценой шага. Сжатие кэша поднимает и пакет, и сам предел, причём для обеих систем поровну: отношение между ними почти не меняется. Как сжимать, не теряя качества, разберём в [уроке 09.5](09.5_quantization.ipynb).
"""

# %% [markdown] key="play-end" lang="en"
r"""
Short requests gain most: more of the room set aside for the greatest length stands empty, and the weights remain the main cost of a step for longer. A smaller cache raises both the batch and the limit itself, and does so for both systems alike: the ratio between them hardly changes. How to shrink it without losing quality is the subject of [lesson 09.5](09.5_quantization.ipynb).
"""

# %% [markdown] key="three-wastes" lang="ru"
r"""
## Три вида потерь

Куда девается память при резервировании? Авторы PagedAttention различают (Kwon et al., SOSP'23, §3.1):

- **резервирование** (*reservation*): слоты, которые запрос ещё займёт, но пока они никому не служат;
- **внутренняя фрагментация** (*internal fragmentation*): слоты, которые отведены, но не понадобятся никогда;
- **внешняя фрагментация** (*external fragmentation*): свободные куски, в которые не помещается следующий запрос.

Запрос из 10 токенов в буфере на 2048 — крайний случай второго вида.
"""

# %% [markdown] key="three-wastes" lang="en"
r"""
## Three kinds of waste

Where does memory go under reservation? The authors of PagedAttention tell apart (Kwon et al., SOSP'23, §3.1):

- **reservation** (*резервирование*): slots that the request will fill later, and that serve nobody meanwhile;
- **internal fragmentation** (*внутренняя фрагментация*): slots that were set aside and will never be needed;
- **external fragmentation** (*внешняя фрагментация*): free pieces too small for the next request.

A request of 10 tokens in a buffer of 2048 is an extreme case of the second kind.
"""

# %% key="ten-tokens"
used, given = 10 * spec.bytes_per_token(), 2048 * spec.bytes_per_token()
print(f"used={size(used)} of {size(given)} wasted={percent(1 - used / given, 1)}")

# %% [markdown] key="external" lang="ru"
r"""
### Откуда берётся внешняя фрагментация

Пока все куски равны, её нет. На 15 728 слотов статьи помещается семь буферов по 2048, и остаток пропадает просто потому, что он меньше буфера. Освободившийся буфер всегда подойдёт следующему запросу.

Но стоит начать отводить место по длине запроса, и куски становятся разными. Аллокатор-близнец (*buddy allocator*), которым статья снабдила соперников, округляет каждый запрос вверх до степени двойки и делит память пополам, пока не получит нужный кусок. **Половина памяти свободна. Поместится ли запрос на 256 слотов?**
"""

# %% [markdown] key="external" lang="en"
r"""
### Where external fragmentation comes from

While all pieces are equal there is none. The paper's 15,728 slots hold seven buffers of 2048, and the remainder is lost just because it is smaller than a buffer. A buffer that is given back always suits the next request.

But set room aside by the length of the request, and pieces come to differ. The buddy allocator (*аллокатор-близнец*), which the paper assumes for its rivals, rounds each request up to a power of two and halves the memory until the piece is right. **Half of the memory is free. Does a request for 256 slots fit?**
"""

# %% key="equal-chunks"
equal = MaxReservation(paper.NUM_SLOTS, paper.MAX_LEN)
admitted = sum(equal.admit(i, length=10, remaining=100) for i in range(100))
remainder = equal.usage().other
print(f"buffers={admitted} remainder={remainder} slots", end=" ")
print(f"({percent(remainder / paper.NUM_SLOTS, 2)})")

# %% key="unequal-chunks"
buddy = BuddyAllocator(1024)
taken = [buddy.allocate(length) for length in (100, 120, 70, 128, 90, 110, 75, 101)]
for start in sorted(taken)[::2]:
    buddy.release(start)
wanted = 256
print(f"free={buddy.free} largest={buddy.largest} allocate={buddy.allocate(wanted)}")
figures.chunk_map(buddy.chunks(), wanted)

# %% [markdown] key="side-by-side" lang="ru"
r"""
### Три вида потерь рядом

Возьмём крошечный кэш на 1024 слота и запросы раз в десять короче настоящих. Они приходят к трём системам на одних и тех же шагах, а за шаг каждый работающий запрос получает один токен. Первая, Orca (Max), отводит всем по 256 слотов, вторая, Orca (Pow2), берёт у аллокатора-близнеца степени двойки, третья раздаёт блоки по 8. (Имена — из статьи: Orca, OSDI'22, — движок, который был до vLLM.) **Кто закончит первым и во сколько раз раньше последнего?**
"""

# %% [markdown] key="side-by-side" lang="en"
r"""
### Three kinds of waste side by side

Take a tiny cache of 1024 slots, and requests about a tenth as long as real ones. They come to three systems at the same steps, and in a step every running request gets one token. The first, Orca (Max), gives everyone 256 slots, the second, Orca (Pow2), takes powers of two from a buddy allocator, the third hands out blocks of 8. (The names are the paper's: Orca, OSDI'22, is the engine that came before vLLM.) **Which is done first, and how many times sooner than the last?**
"""

# %% key="fragmentation"
FragmentationView()

# %% [markdown] key="side-by-side-end" lang="ru"
r"""
На карте памяти видно всё сразу: у первой системы большая часть места отведена зря, у второй обрезки между степенями двойки, у третьей пустуют только концы последних блоков. Кнопка «к внешней фрагментации» находит шаги, на которых запрос ждёт, хотя свободных слотов хватает: они лежат не подряд. У блоков такого не бывает, им подходит любой свободный.
"""

# %% [markdown] key="side-by-side-end" lang="en"
r"""
The map of the memory shows it all at once: in the first system most of the room is set aside for nothing, the second has scraps between powers of two, in the third only the ends of last blocks stand empty. The button “next external fragmentation” finds the steps at which a request waits although there are slots enough: they do not lie in a row. With blocks this cannot happen, any free one will do.
"""

# %% [markdown] key="experiment" lang="ru"
r"""
## Опыт: рисунок 2 статьи

Теперь соберём всё вместе. Модель OPT-13B, карта A100 с 40 ГБ, под кэш 12 ГиБ, то есть 15 728 слотов. Запросы приходят случайно (пуассоновский поток, 2 в секунду), длины распределены как в ShareGPT: в среднем 161 токен на вопрос и 338 на ответ. Обслуживают в порядке очереди, пакет пополняется на каждом шаге. Сравниваются четыре способа дать запросу память:

| Система | Что отводит запросу |
|---|---|
| Orca (Max) | 2048 слотов, самую большую длину |
| Orca (Pow2) | вопрос и ответ, округлённый вверх до степени двойки |
| Orca (Oracle) | ровно столько, сколько понадобится: длину ответа ей подсказали |
| Блоки (vLLM) | блок в 16 слотов, когда прежний заполнен |

Длины в статье показаны только картинкой (рис. 11). Мы берём логнормальное распределение с теми же средними; его разброс — наше предположение. Время шага выведем ниже из чисел самой статьи. Всё остальное в ней указано, и подгонять нечего.

**Загадайте: какую долю памяти занимают токены у Oracle, которая знает будущее?**
"""

# %% [markdown] key="experiment" lang="en"
r"""
## Experiment: figure 2 of the paper

Now let us put it all together. The model is OPT-13B on an A100 with 40 GB, with 12 GiB of cache, that is 15,728 slots. Requests arrive at random (a Poisson process, 2 per second), with lengths as in ShareGPT: 161 tokens of question and 338 of answer on average. They are served in order of arrival, and the batch is filled up at every step. Four ways to give a request memory are compared:

| System | What it sets aside for a request |
|---|---|
| Orca (Max) | 2048 slots, the greatest length |
| Orca (Pow2) | the question, and the answer rounded up to a power of two |
| Orca (Oracle) | exactly what will be needed: somebody told it the answer's length |
| Paged (vLLM) | a block of 16 slots whenever the last one is full |

The paper shows the lengths only as a picture (Fig. 11). We take a lognormal distribution with the same means; its spread is our assumption. The time of a step we derive below from the paper's own numbers. All else is stated there, and there is nothing to tune.

**Guess: what share of the memory holds tokens in Oracle, which knows the future?**
"""

# %% key="simulate" tags=["computed-time"]
chat = poisson_workload(SHAREGPT, rate=paper.RATES[SHAREGPT], n=7200)
results = [simulate(chat, system, paper.ENGINE) for system in paper.systems()]
summary(results, tr("ShareGPT-like, 2 requests/s, one hour"))

# %% key="figure-2"
figures.memory_shares(results, paper.FIGURE_2)

# %% [markdown] key="trap-waste" lang="ru"
r"""
> **Ловушка: «теряется 60–80 % памяти, из них 20–38 % — внутренняя фрагментация».** Посмотрите на синие полосы: 20,4–38,2 % — это **полезная** доля, токены (§1 и рис. 2 статьи). Потери прежних систем — всё остальное, и внутренняя фрагментация в них меняется от половины памяти у Max до нуля у Oracle.

Даже Oracle, знающая будущее, держит больше половины памяти без дела. Место под будущие токены стоит пустым до самого конца, а округление до степени двойки и куски между запросами забирают ещё треть. Доля считается по тем шагам, когда кто-то ждал памяти: пока очереди нет, свободные слоты никому не нужны и потерей не считаются.
"""

# %% [markdown] key="trap-waste" lang="en"
r"""
> **Trap: “60 to 80% of the memory is wasted, 20 to 38% of it by internal fragmentation”.** Look at the blue bars: 20.4 to 38.2% is the **useful** share, the tokens (§1 and Fig. 2 of the paper). What earlier systems waste is all the rest, and internal fragmentation varies in it from half of the memory in Max to none in Oracle.

Even Oracle, which knows the future, keeps more than half of the memory idle. Room for tokens to come stands empty to the very end, and rounding up to powers of two and the gaps between requests take another third. Shares are taken over the steps during which somebody waited for memory: while there is no queue nobody wants the free slots, and they are no waste.
"""

# %% [markdown] key="batches" lang="ru"
r"""
## Больше запросов в пакете

Память интересна не сама по себе, а тем, сколько запросов она позволяет вести сразу. Сравним средний пакет с рисунком 13 статьи на двух нагрузках: ShareGPT, где ответы длинные, и Alpaca с короткими ответами и 30 запросами в секунду.
"""

# %% [markdown] key="batches" lang="en"
r"""
## More requests in the batch

Memory matters not for itself but for how many requests it lets run at once. Let us compare the mean batch with figure 13 of the paper under two loads: ShareGPT, where answers are long, and Alpaca, with short answers and 30 requests per second.
"""

# %% key="figure-13"
short = poisson_workload(ALPACA, rate=paper.RATES[ALPACA], n=12_000)
on_short = [simulate(short, system, paper.ENGINE) for system in paper.systems()]
for lengths, runs in ((SHAREGPT, results), (ALPACA, on_short)):
    published = [paper.FIGURE_13[lengths][run.system] for run in runs]
    ours = [run.mean_batch for run in runs]
    off = [100 * (a / b - 1) for a, b in zip(ours, published, strict=True)]
    columns = {
        tr("system"): [system_name(run.system) for run in runs],
        tr("mean batch"): [number(batch, 2) for batch in ours],
        tr("paper"): [number(batch, 2) for batch in published],
        tr("difference, %"): [number(percent, 1) for percent in off],
    }
    display(Table(columns, lengths.name))

# %% [markdown] key="honest" lang="ru"
r"""
### Что здесь предсказано, а что нет

Пока есть очередь, пакет трёх систем Orca определяет память, а скорость шага решает лишь, будет ли очередь. Пакет vLLM в этом опыте упирается в память не всегда, и скорость шага важнее: по закону Литтла (*Little's law*) в работе столько запросов, сколько их приходит за время одного ответа.

Значит, числа статьи сами говорят, сколько длился шаг. Сравним это с расчётом по пропускной способности карты.
"""

# %% [markdown] key="honest" lang="en"
r"""
### What is predicted here and what is not

As long as there is a queue, memory sets the batch of the three Orca systems, and the speed of a step only decides whether there is one. That of vLLM is not always limited by memory in this experiment, and there the speed of a step matters more: by Little's law (*закон Литтла*) as many requests are in progress as arrive during one answer.

So the paper's own numbers tell how long a step took. Let us compare that with what the card's bandwidth allows.
"""

# %% key="little" tags=["computed-time"]
Table(
    {
        tr("workload"): [lengths.name for lengths in paper.RATES],
        tr("from the paper's batch, ms"): [
            number(1e3 * paper.implied_step(lengths), 1) for lengths in paper.RATES
        ],
        tr("by bandwidth, ms"): [
            number(1e3 * paper.roofline_step(lengths), 1) for lengths in paper.RATES
        ],
    },
    tr("Time of one step"),
)

# %% [markdown] key="honest-end" lang="ru"
r"""
Движок 2023 года тратил на шаг почти вдвое, а при коротких ответах почти втрое больше времени, чем требовало железо: Python, запуск ядер (*kernels*, программ видеокарты), выбор токена отдельно для каждого запроса. Разницу мы представили двумя слагаемыми, на шаг и на запрос (`paper.ENGINE`), и нашли их из двух чисел vLLM. Поэтому **пакет vLLM в таблице — не предсказание**, а проверка, что счёт сходится. К долям памяти, пакетам систем Orca и всему, что вы увидите в следующем уроке, ничего не подгоняли.
"""

# %% [markdown] key="honest-end" lang="en"
r"""
The engine of 2023 took nearly twice as long over a step as the hardware required, and nearly three times with short answers: Python, launches of kernels (*ядра*, the programs of a GPU), picking a token for each request apart. We put the difference into two terms, per step and per request (`paper.ENGINE`), and found them from the two numbers for vLLM. So **vLLM's batch in the table is no prediction**, only a check that the sums work out. Nothing was fitted to the shares of memory, to the batches of the Orca systems or to what you will see in the next lesson.
"""

# %% [markdown] key="trace" lang="ru"
r"""
## На настоящей нагрузке

Случайные длины удобны, но сервис живёт не по формуле. Azure опубликовала час запросов к настоящему чату: время прихода и число токенов. Скачайте `AzureLLMInferenceTrace_conv.csv` из репозитория [AzurePublicDataset](https://github.com/Azure/AzurePublicDataset) (CC BY 4.0; Patel et al., Splitwise, ISCA'24) и прогоните на нём те же четыре системы:

```python
from paged_kv.serving import read_trace

trace = read_trace("AzureLLMInferenceTrace_conv.csv").faster(2)
llama = CostModel.of(spec, paper.BANDWIDTH, paper.FLOPS)
slots = 20 * GB // spec.bytes_per_token()
summary([simulate(trace, s, llama) for s in paper.systems(slots, max_len=16384)])
```

Здесь Llama-3-8B на A100 с 40 ГБ, под кэш остаётся 20 ГБ, а запросы идут вдвое чаще, чем в записи, чтобы памяти перестало хватать. Вопросы в этом чате длиннее ответов впятеро. **Какой вид потерь от этого станет в несколько раз меньше у всех трёх систем Orca?**
"""

# %% [markdown] key="trace" lang="en"
r"""
## Under a real load

Random lengths are handy, but a service does not live by a formula. Azure has published an hour of requests to a real chat: times of arrival and numbers of tokens. Download `AzureLLMInferenceTrace_conv.csv` from the repository [AzurePublicDataset](https://github.com/Azure/AzurePublicDataset) (CC BY 4.0; Patel et al., Splitwise, ISCA'24) and run the same four systems on it:

```python
from paged_kv.serving import read_trace

trace = read_trace("AzureLLMInferenceTrace_conv.csv").faster(2)
llama = CostModel.of(spec, paper.BANDWIDTH, paper.FLOPS)
slots = 20 * GB // spec.bytes_per_token()
summary([simulate(trace, s, llama) for s in paper.systems(slots, max_len=16384)])
```

This is Llama-3-8B on an A100 with 40 GB, of which 20 GB are left for the cache, and requests come twice as often as recorded, so that memory becomes scarce. In this chat questions are five times as long as answers. **Which kind of waste becomes several times smaller in all three Orca systems because of that?**
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM** не считает кэш по формуле, а измеряет: прогоняет модель на самом большом пакете, смотрит, сколько памяти осталось от доли `gpu_memory_utilization`, и делит остаток на размер блока (`vllm/v1/worker/gpu_worker.py`, `vllm/v1/core/kv_cache_utils.py`).
- **SGLang** отводит весам и кэшу долю `--mem-fraction-static` и считает остаток в токенах, а не в блоках (`python/sglang/srt/mem_cache/memory_pool.py`).
- **FlashInfer** памятью не распоряжается вовсе: ему передают готовые тензоры и таблицы (`include/flashinfer/page.cuh`).

Наш калькулятор проще: для него на карте есть только веса и кэш. В движке место занимают ещё активации самого большого пакета, графы CUDA и буферы обмена между картами, отсюда и измерение вместо формулы.
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM** does not compute the cache by a formula, it measures: it runs the model on the largest batch, sees how much memory is left of the share `gpu_memory_utilization`, and divides that by the size of a block (`vllm/v1/worker/gpu_worker.py`, `vllm/v1/core/kv_cache_utils.py`).
- **SGLang** gives weights and cache the share `--mem-fraction-static`, and counts what is left in tokens rather than blocks (`python/sglang/srt/mem_cache/memory_pool.py`).
- **FlashInfer** manages no memory at all: it is handed tensors and tables (`include/flashinfer/page.cuh`).

Our calculator is simpler: to it a card holds weights and cache alone. In an engine the activations of the largest batch, CUDA graphs and buffers for traffic between cards take room too, hence a measurement in place of a formula.
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Токен модели класса 8B оставляет в кэше 128 КиБ, блок из 16 токенов — 2 МиБ.
- Шаг декода читает все веса один раз и кэш каждого запроса; поэтому большой пакет выгоден, но с убывающей отдачей.
- Резервирование теряет от 60 до 80 % памяти тремя способами: место на потом, место зря, место в обрезках.
- Блоки оставляют пустым только конец последнего блока каждого запроса.

Дальше — [урок 09.1](09.1_blocks.ipynb): как устроены блоки и таблицы и почему блок в 16 токенов.

**Источники.** Kwon et al., [Efficient Memory Management for Large Language Model Serving with PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §1, §3, §6.1–6.2, рис. 2, 11 и 13, табл. 1. Yu et al., Orca, OSDI'22: пакетирование по шагам. DeepSeek-AI, [Insights into DeepSeek-V3](https://arxiv.org/abs/2505.09343), табл. 1. Пропускная способность карт — из спецификаций NVIDIA.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- A token of a model of the 8B class leaves 128 KiB in the cache, a block of 16 tokens 2 MiB.
- A decode step reads all weights once and the cache of each request; so a large batch pays, with diminishing returns.
- Reservation loses 60 to 80% of the memory in three ways: room for later, room for nothing, room in scraps.
- Blocks leave only the end of each request's last block empty.

Next comes [lesson 09.1](09.1_blocks.ipynb): how blocks and tables work, and why a block has 16 tokens.

**Sources.** Kwon et al., [Efficient Memory Management for Large Language Model Serving with PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §1, §3, §6.1–6.2, figures 2, 11 and 13, table 1. Yu et al., Orca, OSDI'22: batching by iteration. DeepSeek-AI, [Insights into DeepSeek-V3](https://arxiv.org/abs/2505.09343), table 1. Bandwidths are from NVIDIA's data sheets.
"""
