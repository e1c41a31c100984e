# ---
# jupyter:
#   course:
#     minutes: 60
#     summary:
#       ru: "Настоящая языковая модель отвечает из вашего пула: общий промпт, чужие ответы без копирования при записи, пакет, квантование, кэш префиксов."
#       en: "A real language model answers from your pool: a shared prompt, other people's answers without copy-on-write, batches, quantisation, a prefix cache."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Настоящая модель на вашем пуле

До сих пор в блоках лежали случайные числа. Теперь там будут ключи и значения настоящей языковой модели, и она будет отвечать: SmolLM2-135M-Instruct, тридцать слоёв, чистый numpy, обычный процессор. Ей 135 миллионов параметров, поэтому мудрости не ждите. Ждите другого: каждое обещание предыдущих уроков можно теперь проверить на тексте, который читается глазами.

После этого урока вы сможете:

- рассказать, как модель и пул встречаются: кто резервирует слоты, кто пишет, кто читает;
- показать, что десять читателей с общим промптом получают те же ответы в несколько раз быстрее;
- объяснить, почему копирование при записи (*copy-on-write*) — вопрос безопасности, а не экономии;
- измерить, чем большой пакет помогает и чем не помогает;
- выбрать способ квантования по тому, что модель *предсказывает*.

Понадобятся уроки [09.2](09.2_attention.ipynb), [09.3](09.3_sharing.ipynb) и [09.4](09.4_prefix_cache.ipynb), для четвёртой части — [09.5](09.5_quantization.ipynb). Модель понимает только английский, поэтому вопросы к ней — по-английски.
"""

# %% [markdown] key="title" lang="en"
r"""
# A real model on your pool

So far the blocks held random numbers. Now they will hold the keys and values of a real language model, and it will answer: SmolLM2-135M-Instruct, thirty layers, plain numpy, an ordinary processor. It has 135 million parameters, so expect no wisdom. Expect something else: every promise of the earlier lessons can now be tested on text that you can read.

After this lesson you can:

- explain how the model and the pool meet: who reserves slots, who writes, who reads;
- show that ten readers with a common prompt get the same answers several times faster;
- explain why copy-on-write (*копирование при записи*) is a matter of security, not of saving memory;
- measure what a large batch helps with, and what it does not;
- choose a quantiser by what the model *predicts*.

You need lessons [09.2](09.2_attention.ipynb), [09.3](09.3_sharing.ipynb) and [09.4](09.4_prefix_cache.ipynb), and [09.5](09.5_quantization.ipynb) for the fourth part. The model understands English alone, so the questions to it are in English.
"""

# %% key="setup"
import time
from dataclasses import replace

import numpy as np

from paged_kv import BlockPool, Sequence, reference_attention
from paged_kv.allocator import PoolCorrupted
from paged_kv.checks import check
from paged_kv.checks.sharing import run_experiment
from paged_kv.figures.model_predictions import (
    bits_ladder,
    layer_errors,
    layer_map,
    predictions,
)
from paged_kv.figures.model_serving import (
    batch_curve,
    first_tokens,
    pool_sizes,
    sharing_times,
)
from paged_kv.grading.own_classes import own_classes
from paged_kv.messages import tr, use_language
from paged_kv.model import Engine, Message, generate, load
from paged_kv.model.generation import extend
from paged_kv.model.library import LIBRARY, QUESTIONS
from paged_kv.model.measure import (
    compare,
    decode_time,
    decoded_log_probabilities,
    log_probabilities,
)
from paged_kv.prefix_cache import PrefixCache
from paged_kv.quantization import QuantizedBlockPool, SymmetricInt
from paged_kv.quantization.ladder import Scheme, ladder, measure
from paged_kv.serving import Table, number, size
from paged_kv.widgets.chat import ChatWidget
from paged_kv.widgets.progress import progress

use_language("{{lang}}")

# %% key="load"
model, tokenizer = load("smollm2-135m")
c = model.config
shape = c.n_layers, c.n_kv_heads, c.head_dim
print(f"layers={c.n_layers} query heads={c.n_heads} KV heads={c.n_kv_heads}", end=" ")
print(f"head_dim={c.head_dim} vocabulary={number(c.vocab_size)}")

# %% [markdown] key="meeting" lang="ru"
r"""
## Где модель встречается с пулом

Модель ничего не знает о кэше. На каждом слое она отдаёт `q`, `k` и `v` новых токенов и ждёт назад внимание:

1. *до* первого слоя последовательность резервирует слоты: `Sequence.reserve(n)`. Здесь берутся блоки и, если хвост общий, здесь же его копируют;
2. каждый слой пишет свои `k` и `v` в эти слоты: `BlockPool.write(layer, slots, k, v)`;
3. и тут же читает по таблице блоков: `paged_attention(pool, seq, layer, q, scale)`.

Порядок важен. Внимание слоя обязано видеть и сам новый токен, а ключи следующего слоя появятся только после этого. Вот почему `append` из упражнения 09.1, который пишет все слои сразу, модели не хватает: сначала место, потом запись по одному слою.

**Сколько весит один токен у этой модели и сколько блок?** Прикиньте по числам из вывода выше; храним в float32.
"""

# %% [markdown] key="meeting" lang="en"
r"""
## Where the model meets the pool

The model knows nothing about caches. In each layer it hands over `q`, `k` and `v` of the new tokens and wants attention back:

1. *before* the first layer the sequence reserves slots: `Sequence.reserve(n)`. Blocks are taken here and, where the tail is shared, it is copied here;
2. each layer writes its `k` and `v` into these slots: `BlockPool.write(layer, slots, k, v)`;
3. and reads at once along the block table: `paged_attention(pool, seq, layer, q, scale)`.

The order matters. A layer's attention has to see the new token itself, and the next layer's keys exist only after that. This is why the `append` of exercise 09.1, which writes all layers at once, is not enough for a model: first the room, then one layer after another.

**How much does one token of this model weigh, and how much a block?** Estimate it from the numbers above; we store float32.
"""

# %% key="sizes"
spec = c.kv_spec()
Table(
    {
        tr("what"): [tr("a token"), tr("a block of 16"), tr("512 tokens")],
        tr("memory"): [
            size(spec.bytes_per_token()),
            size(spec.bytes_per_block()),
            size(512 * spec.bytes_per_token()),
        ],
    },
    tr("KV cache of SmolLM2-135M in float32"),
)

# %% [markdown] key="first-answer" lang="ru"
r"""
Первый ответ. Промпт пишется в пул целиком (префилл, *prefill*), дальше по одному токену (декод, *decode*).
"""

# %% [markdown] key="first-answer" lang="en"
r"""
The first answer. The prompt is written into the pool at once (prefill, *префилл*), then one token at a time (decode, *декод*).
"""

# %% key="generate"
pool = BlockPool(32, *shape)
prompt = tokenizer.chat([Message("user", "What is the capital of France?")])
for token in generate(model, prompt, pool, max_tokens=24, stop=[tokenizer.end]):
    print(tokenizer.decode([token]), end="", flush=True)
print(f"\nprompt={len(prompt)} peak={pool.peak} used={pool.used}")

# %% [markdown] key="chat" lang="ru"
r"""
## Разговор и блоки под ним

Спросите что-нибудь сами: ответ пойдёт токен за токеном, а под ним будут заполняться блоки. Второй вопрос не пересчитывает первый: всё сказанное уже лежит в блоках, и последовательность просто растёт дальше. **Сколько вопросов войдёт в пул из 32 блоков? Что случится потом?**
"""

# %% [markdown] key="chat" lang="en"
r"""
## A conversation, and the blocks under it

Ask something yourself: the answer comes token by token, and the blocks below fill up. The second question does not compute the first one again: all that was said lies in the blocks, and the sequence simply grows on. **How many questions fit into a pool of 32 blocks? What happens then?**
"""

# %% key="chat-widget"
chat = ChatWidget(model, tokenizer)
chat.ask("What is the capital of France?")
chat.ask("And of Italy?")
chat

# %% [markdown] key="own-classes" lang="ru"
r"""
## На каких классах это работает

На любых, лишь бы у них было то, что перечислено в лекции. Пулу нужны массивы `k`, `v` и `ref` и число свободных блоков `free`; последовательности — `append`, `free`, `block_table` и длина. Вот самые короткие классы, каких модели хватит. **Чего в них недостаёт по сравнению с вашими?**
"""

# %% [markdown] key="own-classes" lang="en"
r"""
## Which classes this runs on

On any that have what the lecture lists. A pool needs the arrays `k`, `v` and `ref` and the number `free` of free blocks; a sequence needs `append`, `free`, `block_table` and a length. Here are the shortest classes that will do for the model. **What do they lack, compared with yours?**
"""


# %% key="small-pool"
class SmallPool:
    def __init__(self, num_blocks, n_layers, n_kv_heads, head_dim, block_size=16):
        room = n_layers, num_blocks, block_size, n_kv_heads, head_dim
        self.k, self.v = np.zeros(room, np.float32), np.zeros(room, np.float32)
        self.ref = np.zeros(num_blocks, np.int32)

    @property
    def free(self):
        return int((self.ref == 0).sum())


# %% key="small-sequence"
class SmallSequence:
    def __init__(self, pool, seq_id):
        self.pool, self.block_table, self.length = pool, [], 0

    def __len__(self):
        return self.length

    def append(self, k, v):
        slot = self.length % 16
        if slot == 0:
            self.block_table.append(int(np.argmin(self.pool.ref)))
            self.pool.ref[self.block_table[-1]] = 1
        block = self.block_table[-1]
        self.pool.k[:, block, slot], self.pool.v[:, block, slot] = k, v
        self.length += 1

    def free(self):
        self.pool.ref[self.block_table] -= 1
        self.block_table = []


# %% key="small-attention"
def small_attention(pool, seq, layer, q, scale):
    # ru: Сначала собирает K и V целиком: так делать не стоит, но коротко.
    # en: Gathers all of K and V first: not the way to do it, but short.
    K = pool.k[layer, seq.block_table].reshape(-1, c.n_kv_heads, c.head_dim)
    V = pool.v[layer, seq.block_table].reshape(-1, c.n_kv_heads, c.head_dim)
    return reference_attention(K[: len(seq)], V[: len(seq)], q, scale)


def answer(question, pool_type=BlockPool, **types):
    prompt = tokenizer.chat([Message("user", question)])
    pool = pool_type(32, *shape)
    tokens = generate(model, prompt, pool, max_tokens=24, stop=[tokenizer.end], **types)
    return tokenizer.decode(tokens)


small = {"pool_type": SmallPool, "sequence_type": SmallSequence}
print(answer("What is the capital of France?", attention=small_attention, **small))

# %% [markdown] key="yours" lang="ru"
r"""
А теперь **ваши**: `own_classes` возьмёт `BlockPool` и `Sequence` из [упражнения 09.1](../../exercises/ru/09.1_block_pool.ipynb) и `paged_attention` из [09.2](../../exercises/ru/09.2_paged_attention.ipynb), если они решены и тетради сохранены. Классы можно и просто вставить сюда и написать `mine = {"pool_type": BlockPool, "sequence_type": Sequence, "attention": paged_attention}`.
"""

# %% [markdown] key="yours" lang="en"
r"""
And now **yours**: `own_classes` takes `BlockPool` and `Sequence` from [exercise 09.1](../../exercises/en/09.1_block_pool.ipynb) and `paged_attention` from [09.2](../../exercises/en/09.2_paged_attention.ipynb), if they are solved and the notebooks saved. You can also simply paste the classes here and write `mine = {"pool_type": BlockPool, "sequence_type": Sequence, "attention": paged_attention}`.
"""

# %% key="yours-answer"
mine = own_classes("../../exercises/{{lang}}")
print("from your exercises:", sorted(mine))
print(answer("What is the capital of Japan?", **mine))

# %% [markdown] key="adapter" lang="ru"
r"""
С ними пойдёт и чат: `ChatWidget(model, tokenizer, **mine)`, и весь сервис ниже: `Engine(model, num_blocks=64, **mine)`.

Одна тонкость. Ваш `append` пишет все слои сразу, а модели нужно по одному. Выручает приём из [`adapter.py`](../../paged_kv/model/adapter.py): сначала ваш `append` получает нули, то есть берёт блок и, если надо, копирует общий хвост; потом каждый слой пишет поверх нулей туда, куда указывает ваша таблица.

Ошибка в таблице или в маске теперь слышна: модель начнёт заговариваться. Ошибку в счётчиках не слышно, зато её находит сверка: `engine.check()` сравнивает счётчики с таблицами блоков, как `pool.check`. **Что забыл класс ниже, и на каком блоке это заметят?**
"""

# %% [markdown] key="adapter" lang="en"
r"""
The chat runs on them as well: `ChatWidget(model, tokenizer, **mine)`, and so does the whole service below: `Engine(model, num_blocks=64, **mine)`.

There is a subtlety. Your `append` writes all layers at once, and the model needs them one by one. A trick in [`adapter.py`](../../paged_kv/model/adapter.py) helps: first your `append` is given zeros, so it takes a block and copies a shared tail where it must; then each layer writes over the zeros, where your table says they are.

A mistake in the table or in the mask can be heard now: the model begins to ramble. A mistake in the counts cannot be heard, but an audit finds it: `engine.check()` compares the counts with the block tables, as `pool.check` does. **What did the class below forget, and at which block will it be noticed?**
"""


# %% key="forgetful"
class Forgetful(SmallSequence):
    def free(self):
        self.block_table = []


engine = Engine(model, 32, pool_type=SmallPool, sequence_type=Forgetful)
request = engine.submit(prompt, max_tokens=8)
engine.run()
print(tokenizer.decode(request.answers[0].tokens))
try:
    engine.check()
except PoolCorrupted as error:
    print(f"check: {error}")

# %% [markdown] key="sharing" lang="ru"
r"""
## Десять читателей, один промпт

Библиотека поставила бота. Его правила — системный промпт на 500 токенов, и под ним каждый из десяти читателей задаёт свой вопрос. Без общего префикса каждому считают все 500 токенов. С общим их считают один раз, а запросы ответвляют (`fork`), как в уроке 09.3.

**500 токенов — это 31 полный блок и 4 слота. Сколько блоков окажется общими у десяти запросов?**
"""

# %% [markdown] key="sharing" lang="en"
r"""
## Ten readers, one prompt

A library has set up a bot. Its rules are a system prompt of 500 tokens, and under it each of ten readers asks a question. Without a shared prefix all 500 tokens are computed for everybody. With one they are computed once, and the requests are forked off it (`fork`), as in lesson 09.3.

**500 tokens are 31 full blocks and 4 slots. How many blocks will the ten requests share?**
"""

# %% key="prompts"
rules = Message("system", LIBRARY)
prefix = tokenizer.chat([rules], reply=False)
prompts = [tokenizer.chat([rules, Message("user", q)]) for q in QUESTIONS]
print(f"prefix={len(prefix)} tokens={sum(map(len, prompts))}")
print("every prompt begins with it:", all(p[:500] == prefix for p in prompts))


# %% key="serve"
def serve(shared, **types):
    engine = Engine(model, num_blocks=340, max_batch=10, **types)
    start = time.perf_counter()
    if shared:
        engine.share(prefix)
    requests = [engine.submit(p, max_tokens=12, stop=[tokenizer.end]) for p in prompts]
    common = []
    for _ in progress(engine.stream(), 12 * len(requests)):
        common.append(int((engine.pool.ref > 1).sum()))
    answers = [request.answers[0] for request in requests]
    return {"engine": engine, "answers": answers, "start": start, "common": common}


together, apart = serve(shared=True), serve(shared=False)


# %% key="sharing-counts"
def tokens(run):
    return [a.tokens for a in run["answers"]]


computed = []
for name, run, before in (("shared", together, len(prefix)), ("apart", apart, 0)):
    engine = run["engine"]
    engine.check()
    computed.append(before + sum(step.prefill for step in engine.steps))
    print(f"{name:6} prompt tokens computed={computed[-1]:4}", end=" ")
    print(f"shared blocks={max(run['common']):2} peak={engine.pool.peak:3}")
print("the same answers, token for token:", tokens(together) == tokens(apart))


# %% key="sharing-times"
def times(run):
    first = [a.first_token_at for a in run["answers"]]
    waits = [a.first_token_at - a.request.submitted_at for a in run["answers"]]
    return max(first) - run["start"], float(np.median(waits))


prefill, first_token = zip(times(together), times(apart), strict=True)
sharing_times(prefill, first_token, computed)

# %% [markdown] key="sharing-after" lang="ru"
r"""
Ответы совпали до токена. Логиты при этом совпали не до бита: матрицы другой формы складывают те же числа в другом порядке. Поэтому вопросы здесь подобраны так, чтобы лучший токен везде опережал второй с запасом; в чужих сравнениях «бит в бит» спросите, как это сделано.

Вот что услышали читатели; дольше двенадцати токенов мы не слушали. Модель маленькая и правила читает невнимательно, но отвечает на тот вопрос, который ей задали. Запомните эту таблицу.
"""

# %% [markdown] key="sharing-after" lang="en"
r"""
The answers agree to the token. The logits do not agree to the bit: matrices of another shape add the same numbers in another order. So the questions were chosen such that the best token is well ahead of the second everywhere; when others claim “bit for bit”, ask how they did it.

This is what the readers heard; we stopped listening after twelve tokens. The model is small and reads the rules carelessly, but it answers the question that it was asked. Remember this table.
"""


# %% key="answers"
def texts(run):
    return [tokenizer.decode(answer) for answer in tokens(run)]


def show(run, caption):
    return Table({tr("question"): QUESTIONS, tr("answer"): texts(run)}, caption)


show(together, tr("Ten readers, one shared prompt"))

# %% [markdown] key="leak" lang="ru"
r"""
## То же самое без копирования при записи

Последний, 32-й блок промпта заполнен на четверть, и он общий. Первый же токен вопроса попадает именно в него. Правило 09.3: блок со счётчиком больше единицы сначала копируют.

А теперь уберём это правило. `copy_on_write = False` заставляет последовательность считать, что хвост всегда её собственный. Пул тоже подменим на доверчивый: он пишет, куда сказано, и не спрашивает, кто ещё читает этот блок.

**Что изменится в ответах?** Ошибки в памяти не будет, исключения тоже. Решите, прежде чем запускать.
"""

# %% [markdown] key="leak" lang="en"
r"""
## The same without copy-on-write

The last, the 32nd block of the prompt is a quarter full, and it is shared. The very first token of a question falls into it. The rule of 09.3: a block with a count above one is copied first.

Now let us drop the rule. `copy_on_write = False` makes a sequence believe that the tail is always its own. The pool is replaced by a trusting one as well: it writes where it is told and does not ask who else reads this block.

**What will change in the answers?** There will be no memory error and no exception. Decide before you run it.
"""

# %% key="broken"
# ru: Переключатель: True вернёт правильные ответы.
# en: The switch: True brings the right answers back.
copy_on_write = False


class MySequence(Sequence):
    def _tail_is_shared(self):
        return copy_on_write and super()._tail_is_shared()


class TrustingPool(BlockPool):
    def write(self, layer, slots, K, V):
        for store, rows in ((self.k, K), (self.v, V)):
            store[layer].reshape(-1, self.n_kv_heads, self.head_dim)[slots] = rows


leaked = serve(shared=True, pool_type=TrustingPool, sequence_type=MySequence)
show(leaked, tr("The same readers, tail written in place"))

# %% key="leak-count"
changed = [a != b for a, b in zip(tokens(leaked), tokens(together), strict=True)]
*others, last = texts(leaked)
print(f"answers changed: {sum(changed)} of {len(changed)}")
print(f"told what the last reader asked: {others.count(last)} of {len(others)}")

# %% [markdown] key="leak-why" lang="ru"
r"""
Читатель спросил, как получить карточку, а узнал, о чём спросил **другой читатель**. Десять запросов писали начало своих вопросов в одни и те же двенадцать слотов; уцелело то, что записано последним, и почти все ответили на него. Сервис при этом работал: токены шли, блоки освобождались, ни одной ошибки в журнале.

Вот зачем нужны счётчики ссылок. Экономия памяти — приятное следствие, а смысл их в том, что чужой запрос не попадёт в ваш.

Кто бы это заметил? Спросим троих: `pool.check`, наш настоящий `BlockPool.write` и проверку упражнения 09.3.
"""

# %% [markdown] key="leak-why" lang="en"
r"""
A reader asked how to get a card and learnt what **another reader** had asked. Ten requests wrote the beginnings of their questions into the same twelve slots; what was written last survived, and nearly all of them answered that. The service kept working meanwhile: tokens flowed, blocks were freed, not an error in the log.

This is what reference counts are for. Saving memory is a pleasant consequence; the point is that somebody else's request does not get into yours.

Who would have noticed? Let us ask three: `pool.check`, our real `BlockPool.write`, and the check of exercise 09.3.
"""

# %% key="who-notices"
leaked["engine"].check()
print("pool.check: nothing to report\n")
rules_of_bot = MySequence(BlockPool(4, *shape), "rules")
_ = extend(model, rules_of_bot.pool, rules_of_bot, prefix[:20])
reader = rules_of_bot.fork("reader")
try:
    _ = extend(model, reader.pool, reader, prompts[0][len(prefix) :])
    print("BlockPool.write: nothing to report")
except ValueError as error:
    print(f"BlockPool.write: {error}")

# %% key="check-09-3"
report = check("09.3", MySequence, run_experiment)
print(f"check: {report.state}, {report.code}")
print(report.message)

# %% [markdown] key="leak-lesson" lang="ru"
r"""
> **Ловушка: «`pool.check` проходит, значит, всё в порядке».** Он сверяет счётчики с таблицами, и они сходятся: блок честно числится за одиннадцатью. Книги верны, неверно *содержимое*. Увидеть это могут лишь двое: тот, кто пишет (у блока один хозяин?), и тот, кто сравнивает ответы с ответами поодиночке. Держите обоих.
"""

# %% [markdown] key="leak-lesson" lang="en"
r"""
> **Trap: “`pool.check` passes, so all is well”.** It compares counts with tables, and they agree: the block is duly listed by eleven. The books are right, the *contents* are wrong. Only two can see that: the one who writes (does the block have one owner?), and the one who compares answers with those given one by one. Keep both.
"""

# %% [markdown] key="batch" lang="ru"
r"""
## Пакет: что он ускоряет

Шаг декода читает все веса, сколько бы ответов ни было в пакете. Значит, шестнадцать ответов за один проход должны стоить почти как один? Измерим: 1, 2, 4, 8 и 16 ответов, отдельно время в весах и время во внимании. Контекст сначала короткий, 32 токена, потом 256.

**Какая из двух частей растёт вместе с пакетом? А вместе с контекстом?**
"""

# %% [markdown] key="batch" lang="en"
r"""
## Batches: what they speed up

A decode step reads all weights, however many answers are in the batch. So sixteen answers in one pass should cost about as much as one? Let us measure: 1, 2, 4, 8 and 16 answers, the time spent in weights and in attention apart. The context is short at first, 32 tokens, then 256.

**Which of the two parts grows with the batch? And which with the context?**
"""

# %% key="batch-curve"
batches, contexts = (1, 2, 4, 8, 16), (32, 256)
runs = [(context, batch) for context in contexts for batch in batches]
measured = [decode_time(model, b, n, 3) for n, b in progress(runs, len(runs))]
batch_curve(batches, {32: measured[:5], 256: measured[5:]})

# %% [markdown] key="batch-after" lang="ru"
r"""
Веса и правда делятся на всех: проход по ним дорожает медленнее, чем растёт пакет. Внимание не делится: у каждого ответа свой кэш, и читать его приходится каждому. Чем длиннее контекст, тем больше доля внимания и тем раньше пакет перестаёт помогать.

> **Ловушка: «вдвое больше места в кэше — вдвое больше токенов в секунду».** Верно, только пока шаг занят весами. Сравните сплошные линии с пунктиром. Есть у кривой и своя причуда: две строки на матрицу библиотека умножает иначе, чем одну, и без ухищрений пакет из двух *медленнее* двух ответов по очереди. Поэтому наш `matmul` берёт до четырёх строк по одной, а большее дополняет до кратного четырём.
"""

# %% [markdown] key="batch-after" lang="en"
r"""
The weights are indeed shared by all: the cost of a pass grows more slowly than the batch. Attention is not shared: each answer has a cache of its own, and each has to read it. The longer the context, the larger attention's share, and the sooner a batch stops helping.

> **Trap: “twice the room in the cache, twice the tokens per second”.** True only while a step is busy with weights. Compare the solid lines with the dashed ones. The curve has a quirk of its own as well: the library multiplies two rows by a matrix in another way than one, and left alone a batch of two is *slower* than two answers in turn. That is why our `matmul` takes up to four rows one by one, and pads more to a multiple of four.
"""

# %% [markdown] key="capacity" lang="ru"
r"""
## Место — это скорость

Пакет бывает большим, только если под него хватает блоков. Восемь запросов: от 4 до 16 токенов промпта, от 6 до 12 токенов ответа. Сначала как до 2023 года: каждому отводится место на 48 токенов, и одновременно работают лишь те, кому хватило. Потом по блокам, с тем же пулом и с пулом побольше.

Блоки выдаются по мере роста, поэтому однажды их не хватит. Тогда последний пришедший отдаёт всё и встаёт в очередь: его ключи и значения придётся считать заново (*preemption by recompute*, вытеснение с пересчётом). **Сколько раз такое случится? Что даст запас (*watermark*), который новичкам трогать нельзя?**
"""

# %% [markdown] key="capacity" lang="en"
r"""
## Room is speed

A batch can be large only where there are blocks for it. Eight requests: prompts of 4 to 16 tokens, answers of 6 to 12. First as before 2023: everybody has room for 48 tokens set aside, and only those that fit run at the same time. Then by blocks, with the same pool and with a larger one.

Blocks are handed out as answers grow, so one day there are none. Then the latest arrival gives all of its own back and queues again: its keys and values have to be computed anew (preemption by recompute, *вытеснение с пересчётом*). **How often will that happen? What does a reserve (*watermark*) do that newcomers must not touch?**
"""


# %% key="requests"
rng = np.random.default_rng(5)
lengths = rng.integers((4, 6), (16, 12), size=(8, 2), endpoint=True).tolist()
requests = [
    (rng.integers(17, c.vocab_size, size=n).tolist(), answer) for n, answer in lengths
]
print("prompt and answer:", lengths)


# %% key="pool-sizes"
def run_mix(num_blocks, max_batch=8, watermark=0):
    engine = Engine(model, num_blocks, max_batch=max_batch, watermark=watermark)
    for words, answer in requests:
        engine.submit(words, max_tokens=answer)
    total = sum(answer for _, answer in lengths)
    for _ in progress(engine.stream(), total):
        pass
    seconds = sum(step.seconds for step in engine.steps)
    batch = np.mean([step.decode for step in engine.steps if step.decode])
    return total / seconds, batch, engine.preemptions, len(engine.steps)


# %% key="pool-sizes-figure"
runs = {
    tr("{n} blocks, reserved", n=8): run_mix(8, max_batch=8 // spec.blocks_for(48)),
    tr("{n} blocks", n=8): run_mix(8),
    tr("{n} blocks, {m} kept", n=8, m=2): run_mix(8, watermark=2),
    tr("{n} blocks", n=20): run_mix(20),
}
rate, mean_batch, preemptions, steps = zip(*runs.values(), strict=True)
pool_sizes(list(runs), rate, mean_batch, preemptions)

# %% key="steps"
for name, count in zip(runs, steps, strict=True):
    print(f"{name:20} steps={count}")

# %% [markdown] key="capacity-after" lang="ru"
r"""
В том же пуле по блокам помещается больше ответов, чем по резерву: никто не держит места впрок. Шагов тоже меньше, то есть веса прочитаны реже. Но тесный пул платит вытеснениями: посчитанное выбрасывают и считают снова. Запас меняет одно на другое: вытеснений меньше, но и пакет меньше. Просторный пул избавляет от выбора.
"""

# %% [markdown] key="capacity-after" lang="en"
r"""
In the same pool more answers fit by blocks than by reservation: nobody holds room in advance. There are fewer steps, too, so the weights were read less often. But a tight pool pays in preemptions: what was computed is thrown away and computed again. A reserve trades one for the other: fewer preemptions, but a smaller batch as well. A roomy pool spares you the choice.
"""

# %% [markdown] key="quantised" lang="ru"
r"""
## Квантованный пул

Тот же вопрос, только пул хранит полные блоки в int8 на блок и голову. Модель разницы не видит: `QuantizedBlockPool` отвечает на те же вызовы. **Во сколько раз он меньше? Изменится ли ответ?**
"""

# %% [markdown] key="quantised" lang="en"
r"""
## A quantised pool

The same question, but the pool keeps full blocks in int8 per block and head. The model sees no difference: `QuantizedBlockPool` answers the same calls. **How many times smaller is it? Will the answer change?**
"""

# %% key="int8-answer"
print(answer("What is the capital of France?", pool_type=QuantizedBlockPool))
for kind in (BlockPool, QuantizedBlockPool):
    print(f"{kind.__name__:18} {size(kind(32, *shape).bytes_per_block())}")

# %% [markdown] key="layer" lang="ru"
r"""
## Один слой изнутри

Один ответ ничего не доказывает. Возьмём текст подлиннее, правила библиотеки и вопросы, 512 токенов, и посмотрим на слой 24. В [уроке 09.5](09.5_quantization.ipynb) K и V были придуманы так, чтобы походить на настоящие. **У кого из двух видны каналы-выбросы (*outlier channels*)?**
"""

# %% [markdown] key="layer" lang="en"
r"""
## One layer from inside

One answer proves nothing. Take a longer text, the rules of the library and the questions, 512 tokens, and look at layer 24. In [lesson 09.5](09.5_quantization.ipynb) K and V were invented to look like real ones. **In which of the two do you see outlier channels (*каналы-выбросы*)?**
"""

# %% key="layer-map"
text = tokenizer.encode(f"{LIBRARY}\n\n{' '.join(QUESTIONS)}")[:513]
seen = []


def watch(layer, q, k, v):
    if layer == 24:
        seen.append((q, k, v))


exact = log_probabilities(model, text, BlockPool(32, *shape), watch=watch)
Q, K, V = map(np.concatenate, zip(*seen, strict=True))
layer_map(K, V, layer=24)

# %% [markdown] key="layer-errors" lang="ru"
r"""
Жёлтые линии — это выбросы, и они есть только у K; белые лишь отделяют голову от головы. Теперь способы из [лестницы урока 09.5](09.5_quantization.ipynb#Лестница) на этих настоящих K и V: насколько меняется ответ внимания последних 32 токенов, если квантовать только K или только V. **Кому биты нужнее?**
"""

# %% [markdown] key="layer-errors" lang="en"
r"""
The yellow lines are the outliers, and K alone has them; the white ones only set the heads apart. Now the ways of [the ladder in lesson 09.5](09.5_quantization.ipynb#The-ladder) on these real K and V: how much the answer of attention changes for the last 32 tokens if only K or only V is quantised. **Who needs the bits more?**
"""

# %% key="layer-errors-figure"
past = K[:480], V[:480], Q[480:]
ways = {scheme.name: scheme for scheme in ladder(*past[:2])}
names = ("int8 tensor", "int8 head", "fp8 static", "int4 tensor", "int4 head")
names += ("int4 token", "Hadamard int4", "KIVI-4", "KIVI-2")
k_only = [measure(replace(ways[n], v=None), *past).out_error for n in names]
v_only = [measure(replace(ways[n], k=None), *past).out_error for n in names]
layer_errors(names, k_only, v_only)

# %% [markdown] key="layer-after" lang="ru"
r"""
Похоже на придуманные данные, но не во всём. Там, где масштаб один на токен или на канал, ошибка в K дороже, но от силы раза в два с половиной. А у int8 с грубым масштабом страдает скорее V. Об «очень чувствительных ключах» по одному слою не догадаться.
"""

# %% [markdown] key="layer-after" lang="en"
r"""
It looks like the invented data, but not in everything. Where each token or channel has a scale, an error in K costs more, but two and a half times as much at most. And with int8 and a coarse scale it is rather V that suffers. From one layer nobody would guess at “very sensitive keys”.
"""

# %% [markdown] key="schemes" lang="ru"
r"""
## Что предсказывает модель целиком

Теперь квантованы все тридцать слоёв, и модель на каждом токене текста предсказывает следующий. Полные блоки она читает из кодов, хвост — точно, как при декоде. Сравним с предсказаниями из точного пула:

- **перплексия** (*perplexity*) — насколько её удивил сам текст;
- **KL** — насколько её распределение отошло от точного;
- **другой токен** — как часто она выбрала бы не то же слово.

`K8 V4` значит: восемь бит на K, четыре на V; `R=128` — точное окно (*exact window*) из последних 128 токенов. **Предскажите**: кто хуже, `K8 V4` или `K4 V8`? Что лучше, два бита с окном или четыре без него?
"""

# %% [markdown] key="schemes" lang="en"
r"""
## What the whole model predicts

Now all thirty layers are quantised, and at each token of the text the model predicts the next one. Full blocks are read from their codes and the tail exactly, as in a decode. We compare with the predictions from an exact pool:

- **perplexity** (*перплексия*): how much the text itself surprised the model;
- **KL**: how far its distribution moved from the exact one;
- **another token**: how often it would have chosen a different word.

`K8 V4` means eight bits for K, four for V; `R=128` is an exact window (*точное окно*) of the last 128 tokens. **Predict**: which is worse, `K8 V4` or `K4 V8`? Which is better, two bits with a window or four without?
"""

# %% key="quality"
eight, four = SymmetricInt(8, "token"), SymmetricInt(4, "token")
names = ("int8 head", "fp8 static", "K8 V4", "K4 V8", "int4 head")
names += ("Hadamard int4", "KIVI-4", "KIVI-2", "KIVI-2 R=128")
ways["K8 V4"] = Scheme("K8 V4", eight, four)
ways["K4 V8"] = Scheme("K4 V8", four, eight)
results = {"float32": (32.0, compare(exact, exact, text))}
for name in progress(names, len(names)):
    predicted = decoded_log_probabilities(model, text, ways[name])
    bits = ways[name].bits(512, c.n_kv_heads, c.head_dim)
    results[name] = bits, compare(exact, predicted, text)
predictions(results)

# %% key="bits-ladder"
bits_ladder(results)

# %% [markdown] key="quantised-after" lang="ru"
r"""
**Ошибка в K обходится дороже, чем в V.** Сравните `K8 V4` и `K4 V8`, бит в них поровну: KL различается на порядок. Один слой этого не показал; ошибка в K меняет то, *на кого* смотрит внимание, и от слоя к слою это копится.

**Окно помогает и стоит.** Два бита с окном лучше двух бит без него. Но 128 точных токенов из 512 — это четверть кэша, и по честному счёту бит такой способ дороже четырёхбитного, а предсказывает хуже. На длинном контексте окно обойдётся дешевле, но и поможет меньшей доле токенов.

> **Ловушка: «перплексия не выросла, значит, ничего не потеряно».** Посмотрите на первые столбики: у нескольких способов она почти как у точного пула, а то и *ниже*, хотя распределение сдвинулось и часть слов модель выбрала бы другие. На одном тексте перплексия улучшается и случайно. Рядом с ней всегда спрашивайте KL и долю тех же токенов.

На другом процессоре ваши числа будут чуть другими: сложение в другом порядке меняет последний бит, на границе округления от него меняется код, а от кода — всё дальше по слоям. Поэтому способы сравнивают по средним на длинном тексте, а не по отдельным токенам.
"""

# %% [markdown] key="quantised-after" lang="en"
r"""
**An error in K costs more than one in V.** Compare `K8 V4` and `K4 V8`, which have equal bits: KL differs by an order of magnitude. One layer did not show that; an error in K changes *whom* attention looks at, and from layer to layer this adds up.

**The window helps, and costs.** Two bits with a window are better than two bits without. But 128 exact tokens of 512 are a quarter of the cache, and counted honestly this way takes more bits than four-bit KIVI and predicts worse. In a long context the window costs less, but also helps a smaller share of the tokens.

> **Trap: “perplexity has not grown, so nothing was lost”.** Look at the first bars: with several ways it is about that of the exact pool, or even *lower*, although the distribution has moved and some of the words would be others. On one text perplexity also improves by luck. Beside it, always ask for KL and for the share of equal tokens.

On another processor your numbers will differ a little: adding in another order changes the last bit, at a rounding border that changes a code, and the code changes everything in the layers above. So schemes are compared by means over a long text, not by single tokens.
"""

# %% [markdown] key="not-reproduced" lang="ru"
r"""
## Что на этой модели не повторилось

- **«Один масштаб на весь тензор губит int8».** На слое 24 ошибка с ним в полтора-два раза больше, чем с масштабом на голову: заметно, но не катастрофа. Порядок способов становится важен с четырёх бит.
- **«FP8 точнее int8».** При тех же байтах предсказания из FP8 отошли от точных дальше, чем из int8.
- **«int4 без хитростей ещё терпим».** Здесь простой int4 на голову менял бы каждое пятое слово; поворот Адамара или каналы KIVI при почти тех же битах возвращают большинство из них.

Веса этой модели сами четырёхбитные, и она маленькая. Поэтому это не опровержение чужих статей, а напоминание: чужие цифры не переносятся на вашу модель ни в ту, ни в другую сторону. Измеряйте свою.
"""

# %% [markdown] key="not-reproduced" lang="en"
r"""
## What did not reproduce on this model

- **“One scale for the whole tensor ruins int8.”** In layer 24 its error is one and a half to two times that of a scale per head: noticeable, but no disaster. Which way you choose begins to matter at four bits.
- **“FP8 is more exact than int8.”** For the same bytes the predictions from FP8 moved further from the exact ones than those from int8.
- **“int4 without tricks is still bearable.”** Here plain int4 per head would change every fifth word; a Hadamard rotation or KIVI's channels bring most of them back for almost the same bits.

The weights of this model have four bits themselves, and it is small. So this refutes nobody's paper, it is a reminder: other people's figures do not carry over to your model, in either direction. Measure your own.
"""

# %% [markdown] key="multi-turn" lang="ru"
r"""
## Разговор из трёх реплик

Чат-сервис не держит последовательность живой между репликами: человек думает минуту, а блоки нужны другим. Каждая реплика приходит новым запросом со всей историей. Кэш префиксов (*prefix cache*) из [урока 09.4](09.4_prefix_cache.ipynb) находит историю в свободных блоках, если их ещё не успели занять.

Одна тонкость. Историю надо продолжать **теми же токенами**, которые были сгенерированы. Если превратить ответ в текст и закодировать снова, границы токенов могут сместиться, и хеш не совпадёт. Поэтому `follow_up` дописывает к токенам, а не к тексту.

**Какую долю токенов промпта найдёт кэш за три реплики?**
"""

# %% [markdown] key="multi-turn" lang="en"
r"""
## A conversation of three turns

A chat service does not keep a sequence alive between turns: the person thinks for a minute, and others need the blocks. Each turn arrives as a new request with the whole history. The prefix cache (*кэш префиксов*) of [lesson 09.4](09.4_prefix_cache.ipynb) finds the history in free blocks, unless they have been taken meanwhile.

There is a subtlety. The history has to be continued with **the same tokens** that were generated. If an answer is turned into text and encoded again, the borders between tokens may shift, and the hash does not match. So `follow_up` appends to tokens, not to text.

**What share of the prompt tokens will the cache find in three turns?**
"""

# %% key="turns"
TURNS = (
    "How many items can I borrow at a time?",
    "How long may I keep a book?",
    "How do I get a library card?",
)

who, _, card, borrowing, *_ = LIBRARY.split("\n\n")
short_rules = Message("system", f"{who}\n\n{card}\n\n{borrowing}")


def converse(cache_type):
    engine = Engine(model, num_blocks=64, cache_type=cache_type)
    ids = tokenizer.chat([short_rules, Message("user", TURNS[0])])
    answers = []
    for turn in progress(range(len(TURNS)), len(TURNS)):
        request = engine.submit(ids, max_tokens=12, stop=[tokenizer.end])
        engine.run()
        (answer,) = request.answers
        answers.append(answer)
        if turn + 1 < len(TURNS):
            ids = [*ids, *answer.tokens, *tokenizer.follow_up(TURNS[turn + 1])]
    return engine, answers


# %% key="conversation"
_, plain = converse(None)
engine, cached = converse(PrefixCache)
said = [tokenizer.decode(a.tokens) for a in cached]
print("the same answers:", said == [tokenizer.decode(a.tokens) for a in plain])
Table({tr("question"): TURNS, tr("answer"): said}, tr("Three turns"))


# %% key="first-tokens"
def waits(answers):
    return [a.first_token_at - a.request.submitted_at for a in answers]


computed = [
    tuple(len(a.request.prompt) - a.n_cached for a in pair)
    for pair in zip(plain, cached, strict=True)
]
first_tokens(waits(plain), waits(cached), computed)

# %% key="hit-rate"
stats = engine.cache.stats
print(f"found {stats.hit_tokens} of {stats.lookup_tokens} prompt tokens", end=", ")
print(f"hit rate {stats.hit_rate:.0%}, blocks in use {engine.pool.used}")

# %% [markdown] key="multi-turn-after" lang="ru"
r"""
Первая реплика платит за всё, остальные — только за новое. И заметьте: занятых блоков в конце нет ни одного. Всё найденное лежало в *свободных* блоках. Кэш ничего не отнимает у других: кому блок понадобится, тот его и возьмёт.
"""

# %% [markdown] key="multi-turn-after" lang="en"
r"""
The first turn pays for everything, the others for what is new. And notice: in the end not one block is in use. All that was found lay in *free* blocks. The cache takes nothing away from others: whoever needs a block takes it.
"""

# %% [markdown] key="engines" lang="ru"
r"""
## Как это устроено в движках

- **vLLM**: цикл живёт в `vllm/v1/engine/core.py`: спланировать шаг, выполнить модель, разобрать выход. Планировщик, `vllm/v1/core/sched/scheduler.py`, не различает префилл и декод: на шаг даётся бюджет токенов, и каждый запрос получает из него столько, сколько ему осталось вычислить.
- **SGLang**: планировщик — `python/sglang/srt/managers/scheduler.py`. Пока видеокарта считает один пакет, процессор готовит следующий (`event_loop_overlap`).
- **FlashInfer** запросов не ведёт: раз за шаг он составляет план по таблицам всего пакета (`plan`), а затем выполняет его в каждом слое (`run`); то и другое — в `flashinfer/decode.py`.

Наш планировщик устроен так же, как у vLLM: бюджет токенов, префилл по частям, вытеснение с пересчётом. Но у нас шаги идут строго один за другим, а внимание считается запрос за запросом; ядро берёт весь пакет за один запуск ([урок 09.6](09.6_gpu.ipynb)).
"""

# %% [markdown] key="engines" lang="en"
r"""
## How the engines do it

- **vLLM**: the loop is in `vllm/v1/engine/core.py`: schedule a step, run the model, process its output. The scheduler, `vllm/v1/core/sched/scheduler.py`, makes no difference between prefill and decode: a step has a budget of tokens, and each request gets as many of them as it still has to compute.
- **SGLang**: the scheduler is `python/sglang/srt/managers/scheduler.py`. While the GPU computes one batch, the CPU prepares the next (`event_loop_overlap`).
- **FlashInfer** keeps no requests: once per step it makes a plan from the tables of the whole batch (`plan`), and then carries it out in each layer (`run`); both are in `flashinfer/decode.py`.

Our scheduler works as vLLM's does: a budget of tokens, chunked prefill, preemption by recompute. But here steps follow strictly one after another, and attention is computed request by request; a kernel takes the whole batch in one launch ([lesson 09.6](09.6_gpu.ipynb)).
"""

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Модель и пул связывают три вызова: зарезервировать, записать слой, прочитать слой. Чьи это классы, модели всё равно.
- Общий префикс считают один раз; ответы те же до токена.
- Без копирования при записи читателю отвечают на чужой вопрос, и ни счётчики, ни журнал этого не видят.
- Пакет делит на всех веса, но не внимание. Место в кэше превращается в скорость с убывающей отдачей.
- Тесный пул платит вытеснениями, запас обменивает их на размер пакета.
- О квантовании судят по предсказаниям модели целиком: KL и доля тех же токенов, а не одна перплексия и не один слой. Ошибка в K обходится дороже, чем в V; точное окно тоже считайте в битах.
- Кэш префиксов живёт в свободных блоках и никому не мешает.

Это последний урок модуля: `progress()` из `paged_kv.checks` покажет, какие упражнения ещё ждут вас, а [карта](../index.ipynb) — к какому уроку вернуться. Модуль 10 поведёт дальше: распределённое обслуживание и спекулятивное декодирование.

Код этого урока читается за вечер: [`llama.py`](../../paged_kv/model/llama.py), [`cache.py`](../../paged_kv/model/cache.py), [`scheduler.py`](../../paged_kv/model/scheduler.py), [`engine.py`](../../paged_kv/model/engine.py).

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4 (форки), §4.5 (вытеснение). Yu et al., Orca, OSDI'22: пакетирование по шагам. Agrawal et al., [Sarathi-Serve](https://arxiv.org/abs/2403.02310), OSDI'24: префилл по частям. Allal et al., [SmolLM2](https://arxiv.org/abs/2502.02737): модель, лицензия Apache-2.0.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- Three calls join the model and the pool: reserve, write a layer, read a layer. Whose classes they are is all the same to the model.
- A shared prefix is computed once; the answers are the same to the token.
- Without copy-on-write a reader gets the answer to somebody else's question, and neither counts nor the log show it.
- A batch shares the weights, not attention. Room in the cache turns into speed with diminishing returns.
- A tight pool pays in preemptions; a reserve trades them for the size of the batch.
- Quantisation is judged by what the whole model predicts: KL and the share of equal tokens, not perplexity alone and not a single layer. An error in K costs more than one in V; count the bits of an exact window too.
- A prefix cache lives in free blocks and is in nobody's way.

This is the last lesson of the module: `progress()` of `paged_kv.checks` shows which exercises still wait for you, and the [map](../index.ipynb) which lesson to return to. Module 10 leads on, to distributed serving and speculative decoding.

The code of this lesson can be read in an evening: [`llama.py`](../../paged_kv/model/llama.py), [`cache.py`](../../paged_kv/model/cache.py), [`scheduler.py`](../../paged_kv/model/scheduler.py), [`engine.py`](../../paged_kv/model/engine.py).

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4 (forks), §4.5 (preemption). Yu et al., Orca, OSDI'22: batching by iteration. Agrawal et al., [Sarathi-Serve](https://arxiv.org/abs/2403.02310), OSDI'24: chunked prefill. Allal et al., [SmolLM2](https://arxiv.org/abs/2502.02737): the model, Apache-2.0.
"""
