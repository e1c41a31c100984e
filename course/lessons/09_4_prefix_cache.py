# ---
# jupyter:
#   course:
#     minutes: 50
#     summary:
#       ru: "Проследите, как движок узнаёт уже вычисленные начала промптов: цепочкой хешей и префиксным деревом."
#       en: "Follow how an engine recognises the beginnings of prompts it has computed before: by a chain of hashes and by a radix tree."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Кэш префиксов: цепочка хешей и дерево

Форк из [урока 09.3](09.3_sharing.ipynb) делит блоки по просьбе. Но большинство одинаковых начал приходит без предупреждения: тот же системный промпт, тот же разговор с новой репликой, те же примеры перед вопросом. **Кэширование префиксов** (*prefix caching*) находит их само.

После этого урока вы сможете:

- объяснить, почему ключ блока обязан зависеть от всего, что стоит до него, и посчитать попадание для любого промпта;
- проследить блок от освобождения до повторной выдачи и сказать, когда его ещё можно найти;
- объяснить, зачем блоки освобождают с хвоста и зачем запросу соль;
- сравнить цепочку хешей (vLLM) с префиксным деревом (SGLang) на одних и тех же запросах и сказать, в чём разница, а в чём её нет.
"""

# %% [markdown] key="title" lang="en"
r"""
# Prefix cache: a chain of hashes and a tree

The fork of [lesson 09.3](09.3_sharing.ipynb) shares blocks when asked to. But most equal beginnings come unannounced: the same system prompt, the same conversation with one more line, the same examples before a question. **Prefix caching** (*кэширование префиксов*) finds them by itself.

After this lesson you can:

- explain why the key of a block has to depend on all that precedes it, and work out the hit for any prompt;
- follow a block from the moment it is freed until it is handed out again, and say how long it can be found;
- explain why blocks are freed tail first, and what a request needs a salt for;
- compare the hash chain (vLLM) and the radix tree (SGLang) on the same requests, and say where they differ and where they do not.
"""

# %% key="setup"
from hashlib import sha256

import numpy as np

from paged_kv import BlockPool, KVCacheSpec, OutOfBlocks
from paged_kv.figures import prefix_cache as figures
from paged_kv.messages import tr, use_language
from paged_kv.prefix_cache import PrefixCache
from paged_kv.radix_cache import RadixCache
from paged_kv.serving import Table, number
from paged_kv.serving.prefix_workload import (
    PREFIX_WORKLOADS,
    chat,
    few_shot,
    replay,
    system_prompts,
)
from paged_kv.widgets import BlockExplorer, draw, record
from paged_kv.widgets.prefix_tree import PrefixTree

use_language("{{lang}}")


def small_pool(num_blocks, block_size):
    # ru: Здесь важна бухгалтерия блоков, а не сами K и V: одно число на токен.
    # en: The bookkeeping matters here, not K and V: one number per token.
    return BlockPool(num_blocks, 1, 1, 1, block_size, np.float16)


# %% [markdown] key="conversation" lang="ru"
r"""
## Разговор, который читают заново

Чат присылает весь разговор целиком с каждой новой репликой. **Какую долю пятого промпта движок уже однажды вычислил?** Прикиньте и запустите ячейку: это пять ходов одного разговора из нашего генератора.
"""

# %% [markdown] key="conversation" lang="en"
r"""
## A conversation read over and over

A chat sends the whole conversation again with every new line. **What share of the fifth prompt has the engine computed before?** Guess, then run the cell: these are five turns of one conversation from our generator.
"""

# %% key="turns"
turns = list(chat(5, active=1, turns=99))
known = [0, *(len(turn.prompt) + len(turn.answer) for turn in turns[:-1])]
Table(
    {
        tr("turn"): range(1, 6),
        tr("tokens of the prompt"): [len(turn.prompt) for turn in turns],
        tr("computed before"): known,
        tr("share, %"): [
            number(100 * k / len(turn.prompt), 1)
            for k, turn in zip(known, turns, strict=True)
        ],
    },
    tr("five turns of a conversation"),
)

# %% [markdown] key="key" lang="ru"
r"""
## Ключ отвечает за всё начало

Как узнать вычисленное? Хочется найти блок по его 16 токенам. Но K и V токена зависят от всех предыдущих, и те же 16 токенов после другого начала дают другие K и V. Поэтому vLLM строит ключи цепочкой:

$$\text{key}_b = H(\text{key}_{b-1},\ \text{tokens}_b)$$

**У каких из трёх промптов ниже совпадёт ключ второго блока?** Второй блок токенов у всех трёх одинаков.
"""

# %% [markdown] key="key" lang="en"
r"""
## A key stands for the whole beginning

How to recognise what was computed? It is tempting to look a block up by its 16 tokens. But K and V of a token depend on all tokens before it, and the same 16 tokens after another beginning have other K and V. So vLLM builds the keys as a chain:

$$\text{key}_b = H(\text{key}_{b-1},\ \text{tokens}_b)$$

**For which of the three prompts below will the key of the second block agree?** The second block of tokens is the same in all three.
"""


# %% key="chain"
def keys(prompt, block_size=4):
    key, found = b"", []
    for start in range(0, len(prompt) - block_size + 1, block_size):
        block = np.array(prompt[start : start + block_size])
        key = sha256(key + block.tobytes()).digest()
        found.append(key.hex()[:8])
    return found


for prompt in (
    [1, 2, 3, 4, 5, 6, 7, 8],
    [9, 2, 3, 4, 5, 6, 7, 8],
    [1, 2, 3, 4, 5, 6, 7, 8, 9],
):
    print(prompt, keys(prompt))

# %% [markdown] key="key-end" lang="ru"
r"""
Хватило одного другого токена в начале, чтобы разошлись оба ключа. А неполный последний блок ключа не получает: он ещё изменится.

Ключ — это хеш, и два разных начала могут получить один и тот же. У SHA-256 такого не дождаться, а вот для прежнего быстрого хеша vLLM совпадение удавалось подобрать нарочно ([CVE-2025-25183](https://github.com/vllm-project/vllm/security/advisories/GHSA-rm76-4mrf-v9r8)): тогда один пользователь получает K и V другого. Наш `PrefixCache` сравнивает при попадании и сами токены. Возьмём худший хеш на свете:
"""

# %% [markdown] key="key-end" lang="en"
r"""
One other token at the beginning was enough for both keys to differ. And a partial last block gets no key: it is still going to change.

A key is a hash, and two different beginnings may get the same one. With SHA-256 you will not live to see it, but with the fast hash that vLLM had before, a collision could be made on purpose ([CVE-2025-25183](https://github.com/vllm-project/vllm/security/advisories/GHSA-rm76-4mrf-v9r8)), and then one user is given another's K and V. Our `PrefixCache` compares the tokens themselves on a hit. Let us take the worst hash there is:
"""

# %% key="collision"
cache = PrefixCache(small_pool(8, 4), hash_fn=lambda data: b"always the same")
prompt = list(range(12))
seq, _ = cache.admit("first", prompt)
cache.publish(seq, prompt)
print(f"same_prompt={cache.match([*prompt, 99])[1]}", end=" ")
print(f"same_second_block={cache.match([9, 9, 9, 9, *prompt[4:]])[1]}")

# %% [markdown] key="ten-blocks" lang="ru"
r"""
## Десять блоков: попадание, возврат, вытеснение

Запрос проходит кэш в четыре шага, и порядок важен: `admit` находит общее начало и берёт под остальное новые блоки; модель записывает K и V; `publish` даёт ключи полным блокам, **после** записи; `free` возвращает блоки, и они **остаются находимыми**, пока их не выдадут снова. Освобождённые блоки стоят в очереди: спереди те, что свободны дольше всех. Если нужен блок из середины очереди, его просто берут обратно (*touch*).

Те же шаги в коде; `note` запоминает очередь свободных блоков после каждого из них, она понадобится ниже.
"""

# %% [markdown] key="ten-blocks" lang="en"
r"""
## Ten blocks: hit, touch, evict

A request passes the cache in four steps, and their order matters: `admit` finds the common beginning and takes new blocks for the rest; the model writes K and V; `publish` gives keys to the full blocks, **after** the write; `free` returns the blocks, and they **can still be found** until they are handed out again. Freed blocks stand in a queue, those free the longest in front. If a block from the middle of the queue is needed, it is simply taken back (*touch*).

The same steps in code; `note` records the queue of free blocks after each of them, which we shall need below.
"""

# %% key="ten-blocks-steps"
pool, steps = small_pool(10, 4), []
cache = PrefixCache(pool)


def note(step, hit="–"):
    queue = [f"[{b}]" if found else f"{b}" for b, found in cache.free_blocks()]
    steps.append((step, hit, " ".join(queue) or "–", cache.stats.evictions))


def serve(name, prompt):
    seq, hit = cache.admit(name, prompt)
    # ru: Здесь модель записала бы K и V в слоты seq.slots(hit).
    # en: Here a model would write K and V into the slots seq.slots(hit).
    cache.publish(seq, prompt)
    note(f"admit {name}", hit)
    return seq


def finish(seq):
    seq.free()
    note(f"free {seq.seq_id}")


# %% [markdown] key="ten-blocks-guess" lang="ru"
r"""
В пуле десять блоков по четыре токена. Приходят A; B с теми же первыми восемью токенами; C, который продолжает A; потом большой чужой D; потом снова B. **Шагайте ползунком. Перед каждым `admit` скажите, какие блоки найдутся и откуда возьмутся остальные.**
"""

# %% [markdown] key="ten-blocks-guess" lang="en"
r"""
The pool has ten blocks of four tokens. A comes; B with the same first eight tokens; C, which continues A; then a large stranger D; then B again. **Step with the slider. Before each `admit` say which blocks will be found and where the others come from.**
"""

# %% key="ten-blocks-run"
shared = list(range(8))
A, B = [*shared, *range(20, 26)], [*shared, *range(30, 35)]
C, D = [*A[:12], *range(40, 46)], list(range(50, 67))
with record(pool, cache) as history:
    a = serve("A", A)
    b = serve("B", B)
    finish(a)
    c = serve("C", C)
    finish(b)
    d = serve("D", D)
    try:
        serve("B again", B)
    except OutOfBlocks as error:
        why = error
        note(f"admit B again: {tr('refused')}")
    finish(d)
    serve("B again", B)
BlockExplorer(history, step=0)

# %% [markdown] key="queue" lang="ru"
r"""
У строки `PrefixCache` нет ни одного блока: кэш **не держит ссылок**, он только помнит, что в каком блоке лежит. Поэтому он ничего не отнимает у запросов: любой свободный блок по-прежнему свободен.

А вот очередь свободных блоков после каждого шага; выдают их слева. В скобках те, которые ещё можно найти.
"""

# %% [markdown] key="queue" lang="en"
r"""
The row `PrefixCache` has no blocks at all: the cache **holds no references**, it only remembers what lies in which block. So it takes nothing away from requests: every free block is as free as before.

And here is the queue of free blocks after each step; they are handed out from the left. Those in brackets can still be found.
"""

# %% key="queue-table"
print(why)
heads = [tr("step"), tr("tokens found"), tr("free blocks"), tr("evictions")]
Table.from_rows(heads, steps, tr("ten blocks of four tokens"))

# %% [markdown] key="queue-end" lang="ru"
r"""
Проверьте себя по таблице:

- **Попадание.** B находит блоки 0 и 1: их держит A, счётчики стали 2. Ничего не копируется: общие блоки полны, писать в них никто не будет.
- **Возврат.** Когда приходит C, блок 2 свободен и стоит последним в очереди. C забирает его оттуда.
- **Вытеснение.** D нужно пять блоков, свободно ровно пять. Среди них блок с третьим куском B; в этот момент, и не раньше, он теряет ключ.
- **Отказ.** B находит свои два блока, но места под остальное нет. Запрос не получает ничего, и счётчики остаются как были: всё или ничего.
"""

# %% [markdown] key="queue-end" lang="en"
r"""
Check yourself against the table:

- **Hit.** B finds blocks 0 and 1: A holds them, their counts became 2. Nothing is copied: shared blocks are full, nobody is going to write into them.
- **Touch.** When C comes, block 2 is free and stands last in the queue. C takes it from there.
- **Eviction.** D needs five blocks, and exactly five are free. Among them is the block with the third piece of B; at this moment, and not before, it loses its key.
- **Refusal.** B finds its two blocks, but there is no room for the rest. The request gets nothing, and the counts stay as they were: all or nothing.
"""

# %% [markdown] key="still" lang="ru"
r"""
Неподвижная картинка: C забирает из очереди блок 2, а блоки 0 и 1 делит с B.
"""

# %% [markdown] key="still" lang="en"
r"""
A still picture: C takes block 2 from the queue and shares blocks 0 and 1 with B.
"""

# %% key="still-picture"
draw(history, step=4)

# %% [markdown] key="last-token" lang="ru"
r"""
## Сколько найдётся

Промпт из 500 или 512 токенов обслужили и освободили. Теперь он приходит снова, слово в слово. **Сколько токенов не придётся вычислять?**
"""

# %% [markdown] key="last-token" lang="en"
r"""
## How much is found

A prompt of 500 or of 512 tokens was served and freed. Now it comes again, word for word. **How many tokens need not be computed?**
"""

# %% key="last-token-run"
for length in (500, 512, 513):
    cache = PrefixCache(small_pool(64, 16))
    prompt = np.arange(length)
    seq, _ = cache.admit("first", prompt)
    cache.publish(seq, prompt)
    seq.free()
    blocks, hit = cache.match(prompt)
    print(
        f"prompt={length} full_blocks={length // 16} found={len(blocks)} tokens={hit}"
    )

# %% [markdown] key="last-token-trap" lang="ru"
r"""
> **Ловушка: «промпт целиком в кэше, вычислять нечего».** Чтобы написать следующий токен, нужен выход модели на последнем токене промпта, а его в кэше нет: там только K и V. Поэтому попадание покрывает не больше $L-1$ токенов. Промпт из 512 токенов — это ровно 32 полных блока, но найдётся 31.

> **Ловушка: «попавшие блоки места не требуют».** Требуют, если сейчас свободны: вернувшись к запросу, они перестанут быть свободными. В пуле из четырёх блоков ниже свободны три, а новых нужно всего два. Хватит?
"""

# %% [markdown] key="last-token-trap" lang="en"
r"""
> **Trap: “the whole prompt is cached, so there is nothing to compute”.** To write the next token you need the model's output at the last token of the prompt, and that is not in the cache: it has only K and V. So a hit covers at most $L-1$ tokens. A prompt of 512 tokens is exactly 32 full blocks, but 31 are found.

> **Trap: “blocks that hit need no room”.** They do if they are free at the moment: back with a request, they are free no more. In the pool of four blocks below three are free, and only two new ones are needed. Will that do?
"""

# %% key="admission"
cache = PrefixCache(small_pool(4, 2))
seq, _ = cache.admit("first", [1, 2, 3, 4])
cache.publish(seq, [1, 2, 3, 4])
seq.free()
other, _ = cache.admit("other", [9])
try:
    cache.admit("second", [1, 2, 3, 4, 5, 6, 7])
except OutOfBlocks as error:
    print(error)
print(f"found={cache.match([1, 2, 3, 4, 5, 6, 7])[1]} free={cache.pool.free}")

# %% [markdown] key="tail" lang="ru"
r"""
## Зачем освобождать с хвоста

Запрос закончился, и его блоки уходят в очередь. В каком порядке? Поиск идёт с начала и **останавливается на первом промахе**. Начало цепочки без хвоста ещё пригодится, хвост без начала — никогда. Поэтому блоки возвращают с хвоста: он стоит в очереди ближе к выдаче.

Для сравнения возьмём пул, который возвращает блоки с головы, и проделаем с обоими одно и то же: блоки раздаём по одному и каждый раз ищем промпт заново.
"""

# %% [markdown] key="tail" lang="en"
r"""
## Why free the tail first

A request is done, and its blocks go to the queue. In which order? A lookup starts at the beginning and **stops at the first miss**. The beginning of a chain is of use without its tail, the tail without the beginning never is. So blocks are returned tail first: the tail stands nearer to being reused.

To compare, let us take a pool that returns blocks head first, and do the same to both: hand out the blocks one by one, and look the prompt up anew each time.
"""


# %% key="tail-pools"
class HeadFirstPool(BlockPool):
    def release_many(self, blocks):
        super().release_many(reversed(list(blocks)))


def what_is_left(pool):
    cache = PrefixCache(pool)
    prompt = np.arange(32 * 16)
    seq, _ = cache.admit("prompt", prompt)
    cache.publish(seq, prompt)
    seq.free()
    left = [cache.match([*prompt, 0])[1]]
    while pool.free:
        pool.allocate()
        left.append(cache.match([*prompt, 0])[1])
    return left


# %% [markdown] key="tail-guess" lang="ru"
r"""
**Что останется от промпта в 32 блока, если два его блока выдали заново?**
"""

# %% [markdown] key="tail-guess" lang="en"
r"""
**What is left of a prompt of 32 blocks once two of them were handed out again?**
"""

# %% key="tail-run"
figures.tail_or_head_first(
    range(33),
    what_is_left(BlockPool(32, 1, 1, 1)),
    what_is_left(HeadFirstPool(32, 1, 1, 1)),
)

# %% [markdown] key="tail-rates" lang="ru"
r"""
Один потерянный первый блок обесценивает остальные тридцать один: место они занимают, а найти их нельзя. На потоке запросов разница мягче, ведь головы популярных промптов то и дело возвращаются в работу. Но она видна, и в тесном пуле больше, чем в просторном:
"""

# %% [markdown] key="tail-rates" lang="en"
r"""
One lost first block makes the other thirty-one worthless: they take room and cannot be found. On a stream of requests the difference is milder, since the heads of popular prompts are taken into use all the time. But it is there, and larger in a tight pool than in a roomy one:
"""

# %% key="tail-table"
requests = list(few_shot(200, tasks=6))


def rate_in(pool):
    cache = PrefixCache(pool)
    _ = replay(cache, requests)
    return number(100 * cache.stats.hit_rate, 1)


sizes = (64, 128, 192, 256)
Table(
    {
        tr("blocks in the pool"): sizes,
        tr("tail first, %"): [rate_in(BlockPool(n, 1, 1, 1)) for n in sizes],
        tr("head first, %"): [rate_in(HeadFirstPool(n, 1, 1, 1)) for n in sizes],
    },
    tr("hit rate, questions behind examples"),
)

# %% [markdown] key="salt" lang="ru"
r"""
## Соль: чтобы кэш не проболтался

Попадание видно снаружи: первый токен приходит раньше. А значит, по времени ответа можно узнать, **присылал ли кто-нибудь такой промпт**. Пусть один арендатор (*tenant*), A, хранит в промпте код из четырёх цифр, а другой, B, засекает время своих догадок. Всех кодов десять тысяч. **Сколько запросов понадобится B, если кэш находит каждый токен отдельно?**
"""

# %% [markdown] key="salt" lang="en"
r"""
## Salt: so that the cache does not tell

A hit shows from outside: the first token comes sooner. So the time of an answer tells **whether anybody has sent such a prompt**. Let one tenant (*арендатор*), A, have a code of four digits in the prompt, and another, B, time its guesses. There are ten thousand codes. **How many requests does B need if the cache finds each token by itself?**
"""

# %% key="salt-time"
spec = KVCacheSpec.preset("llama-3-8b")
# ru: Префилл: 2 операции на параметр и токен; 400 Тфлоп/с — от ускорителя на деле.
# en: Prefill: 2 operations per parameter and token; 400 Tflop/s from a real accelerator.
ms_per_token = 1000 * 2 * spec.n_params / 400e12
template = list(range(100, 140))
secret = [7, 3, 0, 9]


def time_to_first_token(cache, prompt, **extra):
    seq, hit = cache.admit("request", prompt, **extra)
    seq.free()
    return (len(prompt) - hit) * ms_per_token


# %% [markdown] key="salt-attack" lang="ru"
r"""
Угадывать код целиком незачем. B пробует все десять цифр на первом месте, оставляет ту, с которой ответ пришёл раньше всего, и переходит к следующему месту:
"""

# %% [markdown] key="salt-attack" lang="en"
r"""
There is no need to guess the whole code. B tries all ten digits in the first place, keeps the one whose answer came soonest, and goes on to the next place:
"""


# %% key="salt-attack-code"
def attack(cache, **extra):
    known, times = [], []
    for _ in secret:
        guesses = [[*template, *known, digit, 999] for digit in range(10)]
        times.append([time_to_first_token(cache, guess, **extra) for guess in guesses])
        known.append(int(np.argmin(times[-1])))
    return known, times


# %% [markdown] key="salt-twice" lang="ru"
r"""
Попробуем дважды. Во второй раз у каждого арендатора есть своя **соль** (*salt*), строка, которую кэш подмешивает к ключам:
"""

# %% [markdown] key="salt-twice" lang="en"
r"""
Let us try it twice. The second time each tenant has a **salt** (*соль*) of its own, a string that the cache mixes into the keys:
"""

# %% key="salt-run" tags=["computed-time"]
rows = {tr("digit guessed"): range(10)}
for head, victim, thief in (
    (tr("without a salt, ms"), {}, {}),
    (tr("with a salt, ms"), {"salt": "tenant A"}, {"salt": "tenant B"}),
):
    cache = PrefixCache(small_pool(128, 1))
    prompt = [*template, *secret, 500, 501]
    seq, _ = cache.admit("victim", prompt, **victim)
    cache.publish(seq, prompt, **victim)
    seq.free()
    code, times = attack(cache, **thief)
    tried = np.size(times)
    print(
        f"salted={bool(thief)}: guessed={code} secret={secret} after {tried} requests"
    )
    rows[head] = [number(ms, 2) for ms in times[0]]
Table(rows, tr("time to the first token, guesses of the first digit"))

# %% [markdown] key="salt-end" lang="ru"
r"""
Хватило сорока запросов: код подбирается по цифре, а не целиком. Соль входит в ключ первого блока, а через цепочку и во все остальные. С чужой солью не найдётся ничего, и все догадки одинаково медленны. Плата понятна: общий системный промпт у каждого арендатора теперь свой.

Крупный блок утечку затрудняет, но не закрывает: с блоком в 16 токенов угадывать надо сразу весь блок. Имя адаптера LoRA тоже входит в ключ, но по другой причине: с другим адаптером у тех же токенов другие K и V.

> **Ловушка: «имя LoRA и соль — просто строки в хеше».** Если склеить их без разделения, `lora="X"` и `salt="X"` дадут один ключ, и запрос прочтёт K и V другой модели. Части ключа должны называть себя.
"""

# %% [markdown] key="salt-end" lang="en"
r"""
Forty requests were enough: the code is found digit by digit and not as a whole. The salt goes into the key of the first block, and through the chain into all others. With a foreign salt nothing is found, and all guesses are equally slow. The price is plain: a common system prompt is now each tenant's own.

A large block makes the leak harder, but does not close it: with blocks of 16 tokens the whole block has to be guessed at once. The name of a LoRA adapter goes into the key as well, for another reason: with another adapter the same tokens have other K and V.

> **Trap: “the LoRA's name and the salt are just strings in the hash”.** Glued together without a separation, `lora="X"` and `salt="X"` give one key, and a request reads K and V of another model. The parts of a key have to name themselves.
"""

# %% key="lora-or-salt"
cache = PrefixCache(small_pool(8, 4))
prompt = list(range(9))
seq, _ = cache.admit("request", prompt, lora="X")
cache.publish(seq, prompt, lora="X")
for extra in ({"lora": "X"}, {"salt": "X"}, {}):
    print(extra, f"found={cache.match(prompt, **extra)[1]}")

# %% [markdown] key="tree" lang="ru"
r"""
## Дерево вместо цепочек

SGLang не хеширует. Всё вычисленное он держит в **префиксном дереве** (*radix tree*): ребро — отрезок токенов и блоки с их K и V, общие начала — общие рёбра. Токены сравниваются сами, так что совпадений хешей не бывает, а страница может быть в один токен: граница блока ничего не отрезает.

Ниже дерево, где токен — это слово. Спросите ещё что-нибудь, своё или из списка. **Перед нажатием скажите: сколько слов найдётся и какое ребро разделится?** Потом оставьте запрос работать и попробуйте вытеснить листья.
"""

# %% [markdown] key="tree" lang="en"
r"""
## A tree instead of chains

SGLang does not hash. It keeps all that was computed in a **radix tree** (*префиксное дерево*): an edge is a run of tokens and the blocks with their K and V, common beginnings are common edges. The tokens themselves are compared, so no hashes can collide, and a page may be a single token: no block boundary cuts anything off.

Below is a tree whose tokens are words. Ask something more, of your own or from the list. **Before you press, say how many words will be found and which edge will be split.** Then leave a request running and try to evict the leaves.
"""

# %% key="tree-widget"
# ru: Слова примера английские в обеих тетрадях.
# en: The words of the example are English in both notebooks.
PrefixTree(
    [
        "you are a helpful bot . tell a joke",
        "you are a helpful bot . write code in rust",
        "you are a helpful bot . write code in go",
        "you are a pirate . tell a joke",
        "tell a joke",
    ],
    asked=4,
)

# %% [markdown] key="tree-steps" lang="ru"
r"""
У дерева свои правила, и каждое защищает от своей беды:

- **Вытесняются только листья**, и первым тот, к которому дольше всех не обращались: лист ни для кого не начало.
- **Замок** (*lock*) работающего запроса закрывает путь от узла до корня. Разделённое ребро отдаёт замки обеим половинам.
- **Время обновляется только у совпавшей части.** Хвост ребра, с которым запрос разошёлся, не стал от этого новее.
- **Дерево держит ссылки само**: его блоки заняты, а не свободны. Когда запросу не хватает места, дерево отдаёт листья.

Последнее видно по шагам. Страница здесь в один токен, в пуле восемь блоков:
"""

# %% [markdown] key="tree-steps" lang="en"
r"""
The tree has rules of its own, each against a mishap of its own:

- **Only leaves are evicted**, the least recently used first: nothing begins with a leaf.
- A **lock** (*замок*) of a running request closes the path from its node up to the root. A split edge passes its locks to both halves.
- **Only the part that matched is marked as used.** The tail of an edge that a request parted from has not become any newer.
- **The tree holds references itself**: its blocks are in use, not free. When a request needs room, the tree gives up leaves.

Watch this step by step. A page is one token here, and the pool has eight blocks:
"""

# %% key="tree-run"
tree = RadixCache(small_pool(8, 1))


def ask(*prompt):
    seq, hit = tree.admit(str(prompt), prompt)
    tree.publish(seq, prompt)
    print(f"\n{prompt}: hit={hit} evictable={tree.evictable_size} ", end="")
    print(f"protected={tree.protected_size} free={tree.pool.free}")
    seq.free()


ask(1, 2, 3, 4)
ask(5, 6)
tree.match_prefix([1, 2])
print(tree.render())
ask(7, 8, 9)
print(tree.render())

# %% [markdown] key="tree-end" lang="ru"
r"""
Ради трёх новых токенов ушёл лист `3 4`, хотя его начало трогали только что: `match_prefix([1, 2])` разделил ребро и обновил время одной лишь первой половины.
"""

# %% [markdown] key="tree-end" lang="en"
r"""
For three new tokens the leaf `3 4` had to go, although its beginning was touched just before: `match_prefix([1, 2])` split the edge and refreshed the time of the first half alone.
"""

# %% [markdown] key="compare" lang="ru"
r"""
## Кто находит больше

Одни и те же запросы пропустим через оба кэша: общие инструкции, вопросы после примеров, чат и дерево мыслей (*tree of thought*), где каждая мысль ветвится на три. Память у обоих равная: 16 384 токена, одновременно работают четыре запроса. **Что важнее: устройство кэша или размер блока?**
"""

# %% [markdown] key="compare" lang="en"
r"""
## Which finds more

Let us send the same requests through both caches: common instructions, questions behind examples, a chat, and a tree of thought (*дерево мыслей*), where each thought branches into three. Both have the same memory: 16,384 tokens, and four requests run at a time. **What matters more: how the cache is built, or the size of a block?**
"""

# %% key="compare-caches"
names = {
    "system prompts": tr("instructions"),
    "few-shot": tr("examples"),
    "chat": tr("chat"),
    "tree of thought": tr("thoughts"),
}
served = {name: list(make(120)) for name, make in PREFIX_WORKLOADS.items()}
caches = {tr("hash chain"): PrefixCache, tr("radix tree"): RadixCache}


def hit_rate(make, requests, tokens, block_size):
    cache = make(small_pool(tokens // block_size, block_size))
    _ = replay(cache, requests, running=4)
    return cache.stats.hit_rate


# %% [markdown] key="compare-sizes" lang="ru"
r"""
Сначала меняем размер блока: от страницы в один токен до блока в 64.
"""

# %% [markdown] key="compare-sizes" lang="en"
r"""
The size of a block comes first: from a page of one token to a block of 64.
"""


# %% key="compare-blocks"
def rates(points):
    return {
        names[name]: {
            cache: [hit_rate(make, requests, *point) for point in points]
            for cache, make in caches.items()
        }
        for name, requests in served.items()
    }


block_sizes = (1, 2, 4, 8, 16, 32, 64)
by_block = rates([(16_384, size) for size in block_sizes])
figures.hit_rate_table(block_sizes, by_block, tr("hit rate in % by block size, tokens"))

# %% key="compare-blocks-figure"
figures.hit_rates(
    block_sizes, by_block, tr("block size, tokens"), tr("Hit rate by block size")
)

# %% [markdown] key="compare-pools" lang="ru"
r"""
При равном блоке кривые почти сливаются. Разница между движками в этом опыте — это разница между страницей в 1 токен и блоком в 16, и она невелика: с каждого общего начала теряется в среднем полблока. Чем короче общее, тем дороже эта потеря, поэтому сильнее всего она у коротких мыслей.

Теперь оставим блок в 16 токенов и будем менять память:
"""

# %% [markdown] key="compare-pools" lang="en"
r"""
With equal blocks the curves all but coincide. What differs between the engines in this experiment is a page of 1 token against a block of 16, and it is not much: half a block is lost per common beginning, on average. The shorter what is common, the more that costs, so it shows most in the short thoughts.

Now let us keep the block at 16 tokens and change the memory:
"""

# %% key="compare-pools-run"
pool_tokens = (2048, 4096, 8192, 16_384, 32_768)
by_pool = rates([(tokens, 16) for tokens in pool_tokens])
figures.hit_rate_table(pool_tokens, by_pool, tr("hit rate in % by tokens in the pool"))

# %% key="compare-pools-figure"
figures.hit_rates(
    pool_tokens, by_pool, tr("pool, tokens"), tr("Hit rate by size of the pool")
)

# %% [markdown] key="compare-end" lang="ru"
r"""
Памяти должно хватать на всё, к чему ещё вернутся. Нескольким инструкциям много не нужно, а чату нужно место под все незаконченные разговоры: пока его нет, каждый ход вытесняет чьё-то начало. В тесном пуле видна и разница в вытеснении: дерево отдаёт лист целиком, цепочка — по блоку с хвоста.

> **Ловушка: «дерево SGLang переживает запросы, а кэш vLLM нет».** Переживают оба. Запросов больше нет, а найти можно вот сколько блоков:
"""

# %% [markdown] key="compare-end" lang="en"
r"""
The memory has to hold everything that somebody will come back to. A few instructions do not need much, but a chat needs room for all unfinished conversations: without it every turn evicts somebody's beginning. In a tight pool one also sees how they evict: the tree gives up a whole leaf, the chain a block at a time, from the tail.

> **Trap: “SGLang's tree outlives requests, vLLM's cache does not”.** Both do. No request is left, and this many blocks can be found:
"""

# %% key="outlive"
for make in (PrefixCache, RadixCache):
    cache = make(small_pool(512, 16))
    _ = replay(cache, served["chat"])
    pool = cache.pool
    print(
        f"{make.__name__}: can_be_found={cache.cached} used={pool.used} free={pool.free}"
    )

# %% [markdown] key="outlive-end" lang="ru"
r"""
Разница в том, как это записано: у цепочки найденное лежит среди **свободных** блоков, у дерева — среди **занятых**. Поэтому по одному `used` о нагрузке судить нельзя.

> **Ловушка: «vLLM занимает 70 ГБ, а SGLang 56, потому что vLLM забирает память заранее».** Заранее забирают оба, и сколько — это настройка. Вот откуда такие числа:
"""

# %% [markdown] key="outlive-end" lang="en"
r"""
What differs is how it is booked: what the chain can find lies among the **free** blocks, what the tree can find among those **in use**. So `used` alone says nothing about the load.

> **Trap: “vLLM takes 70 GB and SGLang 56 because vLLM allocates in advance”.** Both allocate in advance, and how much is a setting. Here is where such numbers come from:
"""

# %% key="fractions"
card = 79.65
for setting, fraction in (
    ("gpu_memory_utilization", 0.9),
    ("--mem-fraction-static", 0.7),
):
    print(f"{setting}={fraction} of {card} GiB: {fraction * card:.1f} GiB")

# %% [markdown] key="order" lang="ru"
r"""
## Кого обслужить следующим

Пусть в очереди ждут запросы с 32 разными инструкциями, а кэш вмещает лишь несколько. По порядку прихода соседние запросы редко похожи. **А если из ожидающих брать того, у кого найдено больше всего?**
"""

# %% [markdown] key="order" lang="en"
r"""
## Whom to serve next

Let requests with 32 different instructions wait in a queue, while the cache has room for only a few. In order of arrival, neighbours are seldom alike. **What if, of those waiting, we take the one with the longest prefix found?**
"""

# %% key="order-run"
crowd = list(system_prompts(200, kinds=32))
queues = (1, 2, 4, 8, 16, 32, 64)
orders = {False: [], True: []}
latest = {False: [], True: []}
for longest in orders:
    for waiting in queues:
        cache = RadixCache(small_pool(256, 16))
        order = replay(cache, crowd, waiting=waiting, longest_prefix_first=longest)
        orders[longest].append(cache.stats.hit_rate)
        latest[longest].append(max(i - s.number for i, s in enumerate(order)))
figures.order_of_service(queues, orders[False], orders[True])

# %% [markdown] key="order-end" lang="ru"
r"""
Так умеет SGLang (`--schedule-policy lpm`; по умолчанию он теперь обслуживает в порядке прихода): очередь упорядочивается по длине найденного начала, и похожие запросы идут подряд, как при обходе дерева в глубину. Даром это не даётся. Посмотрите, на сколько мест позже своей очереди обслужили самого невезучего:
"""

# %% [markdown] key="order-end" lang="en"
r"""
SGLang can do so (`--schedule-policy lpm`; its default today is the order of arrival): the queue is ordered by the length of the prefix found, and like requests follow each other, as in a depth-first walk of the tree. It is not free. See how many places later than its turn the unluckiest request was served:
"""

# %% key="order-table"
Table(
    {
        tr("requests in the queue"): queues,
        tr("first come, first served"): latest[False],
        tr("longest shared prefix first"): latest[True],
    },
    tr("places that the unluckiest request was passed over by"),
)

# %% [markdown] key="trace" lang="ru"
r"""
## На настоящих запросах

Некоторые сервисы публикуют трассы своих запросов, где вместо текста стоят хеши блоков по 512 токенов: `timestamp`, `input_length`, `output_length`, `hash_ids`. Такую трассу (например, [Mooncake](https://github.com/kvcache-ai/Mooncake), FAST'25) можно скачать с GitHub и прогнать через любой кэш:

```python
from paged_kv.serving.prefix_workload import read_prefix_trace

cache = PrefixCache(small_pool(10_000, 512))
_ = replay(cache, read_prefix_trace("trace.jsonl"))
print(cache.stats.hit_rate)
```

Меняйте число блоков и смотрите, где кривая выходит на полку: это и есть память, которой сервису хватает.
"""

# %% [markdown] key="trace" lang="en"
r"""
## On real requests

Some services publish traces of their requests, with hashes of blocks of 512 tokens in place of the text: `timestamp`, `input_length`, `output_length`, `hash_ids`. Such a trace (for example [Mooncake](https://github.com/kvcache-ai/Mooncake)'s, FAST'25) can be downloaded from GitHub and sent through either cache:

```python
from paged_kv.serving.prefix_workload import read_prefix_trace

cache = PrefixCache(small_pool(10_000, 512))
_ = replay(cache, read_prefix_trace("trace.jsonl"))
print(cache.stats.hit_rate)
```

Change the number of blocks and see where the curve levels off: that is the memory which is enough for the service.
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM**: ключи считает `vllm/v1/core/kv_cache_utils.py`, ищет по ним `vllm/v1/core/kv_cache_manager.py`, а хранит их и выдаёт свободные блоки `vllm/v1/core/block_pool.py`. Хеш по умолчанию — SHA-256; токены для сравнения не хранятся, совпадения исключает длина хеша.
- **SGLang**: дерево — `python/sglang/srt/mem_cache/radix_cache.py`, порядок очереди — `python/sglang/srt/managers/schedule_policy.py`. Правило вытеснения выбирают: `--radix-eviction-policy`, по умолчанию LRU.
- **FlashInfer** кэша не ведёт: что общего у запросов, ему говорят таблицы.

Оба движка умеют больше нашего: держат вытесненное в оперативной памяти и на диске, отдельно ведут кэши слоёв со скользящим окном и без него и сообщают, какие блоки у них есть, чтобы маршрутизатор послал запрос на нужный сервер.
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM**: keys are computed in `vllm/v1/core/kv_cache_utils.py`, looked up in `vllm/v1/core/kv_cache_manager.py`, and kept by `vllm/v1/core/block_pool.py`, which also hands out free blocks. The default hash is SHA-256; tokens are not stored for comparison, the length of the hash rules collisions out.
- **SGLang**: the tree is `python/sglang/srt/mem_cache/radix_cache.py`, the order of the queue `python/sglang/srt/managers/schedule_policy.py`. The rule of eviction can be chosen: `--radix-eviction-policy`, LRU by default.
- **FlashInfer** keeps no cache: the tables tell it what requests share.

Both engines do more than ours: they keep what was evicted in CPU memory and on disk, manage the caches of layers with and without a sliding window apart, and publish which blocks they hold, so that a router can send a request to the right server.
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Ключ блока — хеш от ключа предыдущего и токенов блока: один ключ отвечает за всё начало. Сравнение токенов закрывает вопрос о совпадении хешей.
- Кэшируются полные блоки, опубликованные после записи; попадание покрывает не больше $L-1$ токенов.
- Цепочка не держит ссылок: свободный блок находим, пока его не выдали. Возвращают блоки с хвоста, потому что поиск останавливается на первом промахе.
- Дерево держит ссылки само, вытесняет листья, не отдаёт путь под замком и может находить отдельные токены.
- Соль в ключе отделяет арендаторов: иначе время ответа выдаёт чужие промпты.
- При равном блоке оба кэша находят почти одно и то же; порядок очереди и размер пула решают больше.

Напишите поиск по цепочке сами: [упражнение 09.4](../../exercises/ru/09.4_prefix_cache.ipynb). Дальше — [урок 09.5](09.5_quantization.ipynb): как уместить в те же байты больше токенов.

**Источники.** Документация vLLM, «Automatic Prefix Caching». Zheng et al., [SGLang](https://arxiv.org/abs/2312.07104), §3: RadixAttention. Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.4. Qin et al., Mooncake, FAST'25.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- The key of a block is a hash of the key before it and the block's tokens: one key stands for the whole beginning. Comparing tokens settles the question of collisions.
- Full blocks are cached, published after the write; a hit covers at most $L-1$ tokens.
- The chain holds no references: a free block can be found until it is handed out. Blocks are returned tail first, because a lookup stops at the first miss.
- The tree holds references itself, evicts leaves, does not give up a locked path, and can find single tokens.
- A salt in the key keeps tenants apart: without it the time of an answer gives other people's prompts away.
- With equal blocks both caches find nearly the same; the order of the queue and the size of the pool decide more.

Write the lookup along the chain yourself: [exercise 09.4](../../exercises/en/09.4_prefix_cache.ipynb). Next comes [lesson 09.5](09.5_quantization.ipynb): more tokens in the same bytes.

**Sources.** vLLM's documentation, “Automatic Prefix Caching”. Zheng et al., [SGLang](https://arxiv.org/abs/2312.07104), §3: RadixAttention. Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23, §4.4. Qin et al., Mooncake, FAST'25.
"""
