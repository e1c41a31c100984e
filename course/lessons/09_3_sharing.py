# ---
# jupyter:
#   course:
#     minutes: 35
#     summary:
#       ru: "Видите, как запросы делят блоки, что копируется при записи и как движок сам находит общие начала."
#       en: "See how requests share blocks, what is copied on write, and how an engine finds common beginnings by itself."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Один блок на многих

Системный промпт бота одинаков у всех его пользователей. Ключи и значения токена зависят только от него самого и от того, что стоит до него, поэтому у одинаковых начал они одни и те же. С таблицами блоков делиться ими почти ничего не стоит: пусть несколько таблиц указывают на один и тот же физический блок.

После этого урока вы сможете:

- проследить форк (*fork*) и копирование при записи (*copy-on-write*) по счётчикам ссылок (*reference counts*);
- посчитать, сколько памяти экономит общий промпт, и не ошибиться на границе блока;
- оценить, сколько памяти общие блоки экономят при параллельной выборке (*parallel sampling*) и лучевом поиске (*beam search*);
- объяснить, как vLLM и SGLang находят общие начала без всяких подсказок.

Понадобится [урок 09.1](09.1_blocks.ipynb).
"""

# %% [markdown] key="title" lang="en"
r"""
# One block for many

A bot's system prompt is the same for all its users. The keys and values of a token depend only on the token itself and on what precedes it, so equal beginnings have the same ones. With block tables sharing costs next to nothing: let several tables point at the same physical block.

After this lesson you can:

- follow a fork (*форк*) and copy-on-write (*копирование при записи*) by the reference counts (*счётчики ссылок*);
- work out how much memory a shared prompt saves, and get it right at a block boundary;
- estimate how much memory shared blocks save in parallel sampling (*параллельная выборка*) and beam search (*лучевой поиск*);
- explain how vLLM and SGLang find common beginnings without being told.

You need [lesson 09.1](09.1_blocks.ipynb).
"""

# %% key="setup"
import numpy as np

from paged_kv import BlockPool, KVCacheSpec, Sequence, figures
from paged_kv.messages import tr, use_language
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.serving import (
    ALPACA,
    Table,
    beam_search,
    number,
    paper,
    parallel_sampling,
    poisson_workload,
    size,
)
from paged_kv.spec import MB
from paged_kv.widgets import BlockExplorer, draw, record

use_language("{{lang}}")

# %% [markdown] key="ten-users" lang="ru"
r"""
## Десять пользователей, один промпт

Системный промпт из 512 токенов, модель класса 8B, десять запросов. **Сколько памяти займут копии промпта, если каждый запрос хранит свою?**
"""

# %% [markdown] key="ten-users" lang="en"
r"""
## Ten users, one prompt

A system prompt of 512 tokens, a model of the 8B class, ten requests. **How much memory do the copies of the prompt take if each request keeps its own?**
"""

# %% key="prompt-size"
spec = KVCacheSpec.preset("llama-3-8b")
prompt = spec.blocks_for(512)
print(f"blocks={prompt} once={size(prompt * spec.bytes_per_block())}", end=" ")
print(f"ten copies={size(10 * prompt * spec.bytes_per_block())}")

# %% [markdown] key="fork" lang="ru"
r"""
## Форк и копирование при записи

Когда запрос ответвляется, копируется только таблица, а счётчик каждого её блока растёт на единицу. Данные остаются на месте.

Читать общий блок можно всем. А вот писать в блок, у которого счётчик больше 1, запрещено: соседи затирали бы токены друг друга. Поэтому сначала берётся новый блок, в него переносится содержимое, счётчик старого уменьшается, номер в таблице меняется, и только потом пишется токен.

В пуле ниже промпт из 40 токенов, то есть два с половиной блока, и три ответвления. **Шагайте ползунком и перед каждым шагом скажите, какие счётчики изменятся и возьмут ли новый блок.**
"""

# %% [markdown] key="fork" lang="en"
r"""
## Fork and copy-on-write

When a request forks, only the table is copied, and the count of each of its blocks grows by one. The data stay where they are.

Everyone may read a shared block. But writing to a block whose count is above 1 is forbidden: neighbours would overwrite each other's tokens. So first a new block is taken, the contents are carried over, the old block's count goes down, the id in the table is replaced, and only then is the token written.

In the pool below there is a prompt of 40 tokens, two and a half blocks, and three forks. **Step with the slider, and before each step say which counts will change and whether a new block will be taken.**
"""

# %% key="explorer"
pool = BlockPool(16, n_layers=1, n_kv_heads=1, head_dim=1)
rng = np.random.default_rng(0)


def token():
    return rng.normal(size=(2, 1, 1, 1))


base = Sequence(pool, "sys")
base.extend(*rng.normal(size=(2, 1, 40, 1, 1)))
with record(pool, base) as history:
    forks = [base.fork(f"req{i}") for i in range(3)]
    for fork in forks:
        fork.append(*token())
    base.append(*token())
    forks[0].extend(*rng.normal(size=(2, 1, 9, 1, 1)))
    forks[2].free()
    base.free()
BlockExplorer(history, step=0)

# %% [markdown] key="still" lang="ru"
r"""
А это неподвижная картинка в тот момент, когда все три ответвления дописали по токену: блоки 0 и 1 общие у четверых, у каждого ответвления своя копия блока 2, а в самом блоке 2 остался один хозяин, `sys`. Последний хозяин пишет на месте, без копии.
"""

# %% [markdown] key="still" lang="en"
r"""
And this is a still picture of the moment when all three forks have added a token: blocks 0 and 1 are shared by four, each fork has its own copy of block 2, and block 2 itself has one owner left, `sys`. The last owner writes in place, without a copy.
"""

# %% key="after-appends"
draw(history, step=6)

# %% [markdown] key="numbers" lang="ru"
r"""
## Граница блока решает

Теперь в полный размер: от промпта ответвляются десять запросов, и каждый дописывает по три токена. Промпт бывает в 500 токенов (31 полный блок и 4 слота) или ровно в 512. **Где понадобится копирование? В каком случае занято больше блоков?**
"""

# %% [markdown] key="numbers" lang="en"
r"""
## The block boundary decides

Now at full size: ten requests fork from a prompt, and each adds three tokens. The prompt has either 500 tokens (31 full blocks and 4 slots) or exactly 512. **Where is copying needed? In which case are more blocks in use?**
"""


# %% key="ten-forks"
def ten_forks(prompt):
    pool = BlockPool(400, n_layers=1, n_kv_heads=1, head_dim=1)
    base = Sequence(pool, "sys")
    base.extend(*np.zeros((2, 1, prompt, 1, 1)))
    forks = [base.fork(f"req{i}") for i in range(10)]
    copies = sum(fork.blocks_needed(1) for fork in forks) if prompt % 16 else 0
    for fork in forks:
        for _ in range(3):
            fork.append(*token())
    return pool, base, forks, copies


# %% [markdown] key="ten-forks-counted" lang="ru"
r"""
Сосчитаем блоки, а потом освободим сначала исходный запрос, затем все ответвления:
"""

# %% [markdown] key="ten-forks-counted" lang="en"
r"""
Count the blocks, and then free the base request first and all the forks after it:
"""

# %% key="ten-forks-table"
columns = {}
for prompt in (500, 512):
    pool, base, forks, copies = ten_forks(prompt)
    shared = len(set(forks[0].block_table) & set(forks[1].block_table))
    used, alone = pool.used, 10 * -(-(prompt + 3) // 16)
    saved = size((alone - used) * spec.bytes_per_block())
    counts = [copies, shared, used, alone, alone - used, saved]
    base.free()
    counts.append(pool.used)
    for fork in forks:
        fork.free()
    columns[str(prompt)] = [*counts, pool.used]
names = [tr("copies on write"), tr("shared blocks"), tr("blocks used")]
names += [tr("without sharing"), tr("blocks saved")]
names += [tr("saved, model of the 8B class")]
names += [tr("used after base.free()"), tr("used after all frees")]
Table({tr("prompt, tokens"): names} | columns, tr("ten forks, three tokens each"))

# %% [markdown] key="trap-512" lang="ru"
r"""
> **Ловушка: «число занятых блоков одно и то же, значит, и случаи одинаковы».** И там и там занято 42 блока, но это разные 42. При 500 токенах общие 31, остальные 11 — хвост промпта и десять его копий; `base.free()` отпускает хвост, и остаётся 41. При 512 токенах общие все 32, копий нет, а десять новых блоков взяты обычным порядком; `base.free()` не освобождает ничего. И без деления было бы не 320 блоков, а 330.

> **Ловушка: «экономия — 583 МиБ».** Сэкономлено 278 блоков, то есть 556 МиБ, они же 583 МБ. Единицы разные, память одна.
"""

# %% [markdown] key="trap-512" lang="en"
r"""
> **Trap: “the same number of blocks is in use, so the two cases are alike”.** Both have 42 blocks in use, but not the same 42. With 500 tokens 31 are shared, and the other 11 are the prompt's tail and ten copies of it; `base.free()` lets go of the tail, and 41 remain. With 512 tokens all 32 are shared, there are no copies, and ten new blocks were taken in the ordinary way; `base.free()` frees nothing. And without sharing it would not be 320 blocks but 330.

> **Trap: “583 MiB are saved”.** What is saved is 278 blocks, which is 556 MiB, or 583 MB. The units differ, the memory is the same.
"""

# %% key="units"
saved = 278 * spec.bytes_per_block()
print(f"{size(saved)} = {saved / MB:.0f} MB")

# %% [markdown] key="copy-cost" lang="ru"
r"""
## Сколько стоит одна копия

Скопировать блок значит прочесть и записать K и V всех слоёв. **Микросекунды это или миллисекунды? И одним ли куском лежит то, что копируют?**
"""

# %% [markdown] key="copy-cost" lang="en"
r"""
## What one copy costs

To copy a block is to read and write K and V of all layers. **Is that microseconds or milliseconds? And does what is copied lie in one piece?**
"""

# %% key="copy" tags=["computed-time"]
moved = 2 * spec.bytes_per_block()
pieces = 2 * spec.n_layers
piece = spec.bytes_per_block() // pieces
print(f"{size(moved)} moved: {1e6 * moved / 3.35e12:.2f} µs at 3.35 TB/s")
print(f"{pieces} pieces of {size(piece)}")

# %% [markdown] key="copy-end" lang="ru"
r"""
Чуть больше микросекунды — это нижняя граница: блок лежит 64 отдельными кусками, по одному на слой для K и для V, и запускать 64 копирования невыгодно. Движки собирают все копии шага в одно ядро. Зато происходит это не чаще одного раза на ответвление.
"""

# %% [markdown] key="copy-end" lang="en"
r"""
A little over a microsecond is a lower bound: the block lies in 64 separate pieces, one per layer for K and for V, and launching 64 copies does not pay. Engines gather all copies of a step in one kernel. Then again, this happens at most once per fork.
"""

# %% [markdown] key="fig15" lang="ru"
r"""
## Несколько ответов на один вопрос

Делиться блоками можно и внутри одного запроса. При **параллельной выборке** несколько ответов начинаются с одного промпта. При **лучевом поиске** общего больше: одни лучи отбрасываются, другие ветвятся, поэтому у всех живых лучей прошлое общее, кроме последних токенов.

Посчитаем на коротких запросах Alpaca, сколько блоков это экономит: какую долю от того, что заняли бы те же таблицы порознь. Последовательности настоящие, с форками и копиями. Неизвестно лишь, какие лучи оставит модель; мы выбираем преемников наугад, всех с равной вероятностью. **Где выигрыш больше и почему?**
"""

# %% [markdown] key="fig15" lang="en"
r"""
## Several answers to one question

Blocks can be shared within one request too. In **parallel sampling** several answers begin with one prompt. In **beam search** more is common: beams are dropped all the time and the remaining ones branch, so all living beams have the same past except for the last tokens.

Let us work out on Alpaca's short requests how many blocks sharing saves: a share of what the same tables would take apart. The sequences are real, with forks and copies. Only which beams a model would keep is unknown; we pick successors at random, all equally likely. **Where is more saved, and why?**
"""

# %% key="figure-15"
many, few = (poisson_workload(ALPACA, 1, n) for n in (1500, 150))
widths = (2, 4, 6)
saved = {
    "parallel sampling": {n: 100 * parallel_sampling(many, n).saved for n in widths},
    "beam search": {n: 100 * beam_search(few, n).saved for n in widths},
}
figures.saved_by_sharing(saved, paper.FIGURE_15)

# %% [markdown] key="fig15-end" lang="ru"
r"""
Промпт Alpaca короткий, в среднем 19 токенов, и полных блоков в нём чаще всего один или ни одного: параллельной выборке почти нечего делить. Наши числа выше тех, что в статье (рис. 15). Разброс длин промптов — наше предположение; с меньшим разбросом они ближе, но всё ещё выше. При четырёх и шести лучах общего больше половины, и чем лучей больше, тем дальше наши числа от статьи. Там лучи выбирала настоящая модель, а не жребий, и общего у них было меньше.
"""

# %% [markdown] key="fig15-end" lang="en"
r"""
Alpaca's prompts are short, 19 tokens on average, with one full block or none as a rule: parallel sampling has hardly anything to share. Our numbers are above the paper's (Fig. 15). The spread of prompt lengths is our assumption; with less of it they come closer, and still stay above. Four or six beams share more than half, and the more there are, the further our numbers are from the paper's. There a real model chose the beams, not chance, and they had less in common.
"""

# %% [markdown] key="apc" lang="ru"
r"""
## Когда никто не просил делить

О форке нужно попросить. А два пользователя, пришедшие с одним промптом с разницей в минуту, ничего друг о друге не знают. **Автоматическое кэширование префиксов** (*automatic prefix caching*) в vLLM находит общее само: у каждого **полного** блока есть ключ

$$\text{key}_b = H(\text{key}_{b-1},\ \text{tokens}_b,\ \text{extra})$$

Ключ блока зависит от ключа предыдущего, поэтому один ключ отвечает за всё начало. В $\text{extra}$ входит то, что меняет K и V или запрещает делиться: имя LoRA, хеш картинки, соль (*salt*), своя у каждого клиента. Освобождённый блок сохраняет ключ и ждёт в очереди; если такой же промпт придёт раньше, чем блок понадобится, его просто берут обратно.

**Промпт из 40 токенов пришёл второй раз. Сколько токенов не придётся вычислять? А если промпт из 32?**
"""

# %% [markdown] key="apc" lang="en"
r"""
## When nobody asked to share

A fork has to be asked for. But two users who come with the same prompt a minute apart know nothing of each other. **Automatic prefix caching** (*автоматическое кэширование префиксов*) in vLLM finds what they share: every **full** block has a key

$$\text{key}_b = H(\text{key}_{b-1},\ \text{tokens}_b,\ \text{extra})$$

A block's key depends on the key before it, so one key stands for the whole beginning. $\text{extra}$ holds what changes K and V or forbids sharing: the name of a LoRA, the hash of an image, a salt (*соль*) of each tenant's own. A freed block keeps its key and waits in a queue; if the same prompt comes before the block is needed, it is simply taken back.

**A prompt of 40 tokens comes a second time. How many tokens need not be computed? And a prompt of 32?**
"""

# %% key="apc-run"
pool = BlockPool(12, n_layers=1, n_kv_heads=1, head_dim=1)
cache = PrefixCache(pool)
question = rng.integers(0, 32_000, size=80)


def serve(name, tokens, **keys):
    seq, hit = cache.admit(name, tokens, **keys)
    pool.write(0, seq.slots(hit), *rng.normal(size=(2, len(tokens) - hit, 1, 1)))
    cache.publish(seq, tokens, **keys)
    table = list(seq.block_table)
    seq.free()
    print(f"{name}: tokens={len(tokens)} hit={hit} table={table} used={pool.used}")


serve("first", question[:40])
serve("again", question[:40])
serve("32 tokens", question[:32])
serve("longer", question[:70])
serve("other salt", question[:40], salt="tenant B")

# %% [markdown] key="apc-end" lang="ru"
r"""
Кэшируются только полные блоки, и последний токен вычисляется всегда: без него неоткуда взять следующий. Поэтому у промпта из 32 токенов нашёлся один блок, а не два. Копирования при записи здесь нет вовсе: общие блоки полны, писать в них нечего. Блоки законченного запроса возвращаются с хвоста, чтобы начала цепочек жили дольше: начало пригодится многим, хвост — почти никому.
"""

# %% [markdown] key="apc-end" lang="en"
r"""
Only full blocks are cached, and the last token is always computed: without it there is nothing to predict the next one from. Hence the prompt of 32 tokens found one block and not two. There is no copy-on-write here at all: shared blocks are full, there is nothing to write into them. Blocks of a finished request go back tail first, so that the beginnings of chains live longer: a beginning will serve many, a tail hardly anyone.
"""

# %% [markdown] key="radix" lang="ru"
r"""
## Дерево вместо цепочек

SGLang хранит всё вычисленное в **префиксном дереве** (*radix tree*; RadixAttention, arXiv 2312.07104). Ребро — отрезок токенов, общие начала — общие рёбра. Новый запрос спускается от корня, пока токены совпадают; если он расходится с деревом посреди ребра, ребро делится надвое. Когда памяти мало, вытесняются (*eviction*) листья, к которым давно не обращались и которыми никто не занят.
"""

# %% [markdown] key="radix" lang="en"
r"""
## A tree instead of chains

SGLang keeps all that was computed in a **radix tree** (*префиксное дерево*; RadixAttention, arXiv 2312.07104). An edge is a run of tokens, common beginnings are common edges. A new request descends from the root as long as tokens agree; where it departs from the tree in the middle of an edge, the edge is split in two. When memory is short, leaves are evicted (*вытеснение*) that were not used for long and that nobody is busy with.
"""

# %% key="radix-run"
pool = BlockPool(64, n_layers=1, n_kv_heads=1, head_dim=1, block_size=1)
tree = RadixCache(pool)
text = "you are a helpful bot . tell a joke write code in rust go"
words = text.split()


def ask(prompt):
    tokens = np.array([words.index(word) for word in prompt.split()])
    seq, hit = tree.admit(prompt, tokens)
    pool.write(0, seq.slots(hit), *rng.normal(size=(2, len(tokens) - hit, 1, 1)))
    tree.publish(seq, tokens)
    seq.free()
    print(f"hit={hit}/{len(tokens)}: {prompt}")


ask("you are a helpful bot . tell a joke")
ask("you are a helpful bot . write code in rust")
ask("you are a helpful bot . write code in go")
ask("tell a joke")
print(tree.render(decode=lambda ids: " ".join(words[i] for i in ids)))

# %% [markdown] key="radix-end" lang="ru"
r"""
Две системы, одна цель. Чем цепочка и дерево отличаются на деле, что вытесняется первым и какие ходячие мнения о них неверны, разбирает [урок 09.4](09.4_prefix_cache.ipynb).
"""

# %% [markdown] key="radix-end" lang="en"
r"""
Two systems, one aim. How chain and tree really differ, what is evicted first, and which common opinions about them are wrong is the subject of [lesson 09.4](09.4_prefix_cache.ipynb).
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM**: счётчик ссылок — поле `ref_cnt` в `KVCacheBlock` (`vllm/v1/core/kv_cache_utils.py`), увеличивает его `touch` в `vllm/v1/core/block_pool.py`. Форка больше нет: $n$ ответов на вопрос — это $n$ запросов (`vllm/v1/engine/parallel_sampling.py`), которые находят общий промпт в кэше префиксов. Делятся только полные блоки, поэтому и копировать при записи нечего.
- **SGLang**: считаются не блоки, а пути дерева: замок `lock_ref` в `python/sglang/srt/mem_cache/radix_cache.py`. Чтобы $n$ ответов разделили промпт, сначала один раз вычисляют его сам.
- **FlashInfer** об общих блоках не знает: одинаковые номера в двух таблицах для него обычны.

Мы делим и неполный последний блок, как в статье: экономим до 15 токенов повторного вычисления на ответ и платим за это копией.
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM**: the reference count is the field `ref_cnt` of `KVCacheBlock` (`vllm/v1/core/kv_cache_utils.py`), raised by `touch` in `vllm/v1/core/block_pool.py`. Fork is gone: $n$ answers to a question are $n$ requests (`vllm/v1/engine/parallel_sampling.py`) that find the shared prompt in the prefix cache. Only full blocks are shared, so there is nothing to copy on write.
- **SGLang**: it counts paths of the tree rather than blocks: the lock `lock_ref` in `python/sglang/srt/mem_cache/radix_cache.py`. For $n$ answers to share a prompt, the prompt alone is computed first.
- **FlashInfer** knows nothing of shared blocks: equal ids in two tables are ordinary to it.

We share the partly filled last block as well, as the paper does: that saves up to 15 tokens of repeated work per answer, and costs a copy.
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Форк копирует таблицу и прибавляет единицу к счётчикам; данные остаются на месте.
- Писать можно только в блок с одним хозяином; иначе сначала копия. На границе блока копировать нечего.
- Параллельная выборка делит промпт, лучевой поиск — ещё и общее прошлое лучей.
- Автоматические кэши находят общие начала сами: цепочкой хешей по полным блокам или деревом по токенам.

Теперь напишите форк и копирование при записи: [упражнение 09.3](../../exercises/ru/09.3_prefix_sharing.ipynb). Дальше — [урок 09.4](09.4_prefix_cache.ipynb): как кэш префиксов переживает запросы.

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4, рис. 8, 9 и 15. Документация vLLM, «Automatic Prefix Caching». Zheng et al., [SGLang](https://arxiv.org/abs/2312.07104): RadixAttention.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- A fork copies the table and adds one to the counts; the data stay in place.
- Only a block with a single owner may be written; otherwise a copy comes first. At a block boundary there is nothing to copy.
- Parallel sampling shares the prompt, beam search also the common past of the beams.
- Automatic caches find common beginnings by themselves: by a chain of hashes over full blocks, or by a tree over tokens.

Now write fork and copy-on-write: [exercise 09.3](../../exercises/en/09.3_prefix_sharing.ipynb). Next comes [lesson 09.4](09.4_prefix_cache.ipynb): how a prefix cache outlives requests.

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4, figures 8, 9 and 15. vLLM's documentation, “Automatic Prefix Caching”. Zheng et al., [SGLang](https://arxiv.org/abs/2312.07104): RadixAttention.
"""
