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

- tell how the model and the pool meet: who reserves slots, who writes, who reads;
- show that ten readers with a common prompt get the same answers several times faster;
- explain why copy-on-write (*копирование при записи*) is a matter of security and not of thrift;
- measure what a large batch helps with, and what it does not;
- choose a quantiser by what the model *predicts*.

You need lessons [09.2](09.2_attention.ipynb), [09.3](09.3_sharing.ipynb) and [09.4](09.4_prefix_cache.ipynb), and [09.5](09.5_quantization.ipynb) for the fourth part. The model understands English alone, so the questions to it are in English.
"""

# %% key="setup"
import time

import numpy as np

from paged_kv import BlockPool, Sequence, gather_kv
from paged_kv.checks import check
from paged_kv.checks.sharing import run_experiment
from paged_kv.figures.model import (
    batch_curve,
    first_tokens,
    layer_map,
    pool_sizes,
    predictions,
    sharing_times,
)
from paged_kv.messages import tr, use_language
from paged_kv.model import Engine, Message, generate, load
from paged_kv.model.generation import extend
from paged_kv.model.library import LIBRARY, QUESTIONS
from paged_kv.model.measure import compare, decode_time, log_probabilities
from paged_kv.prefix_cache import PrefixCache
from paged_kv.quantization import (
    Fp8E4M3,
    GroupedInt,
    Hadamard,
    QuantizedBlockPool,
    SymmetricInt,
)
from paged_kv.serving import Table, number, size
from paged_kv.widgets.chat import ChatWidget
from paged_kv.widgets.progress import progress

use_language("{{lang}}")
model, tokenizer = load("smollm2-135m")
c = model.config
c

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

The model knows nothing of caches. In each layer it hands over `q`, `k` and `v` of the new tokens and wants attention back:

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
pool = BlockPool(32, c.n_layers, c.n_kv_heads, c.head_dim)
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
Тот же разговор пойдёт и на **ваших** классах. Скопируйте `BlockPool` и `Sequence` из [упражнения 09.1](../../exercises/ru/09.1_block_pool.ipynb), `paged_attention` из [09.2](../../exercises/ru/09.2_paged_attention.ipynb) и выполните:

```python
ChatWidget(
    model,
    tokenizer,
    pool_type=BlockPool,
    sequence_type=Sequence,
    attention=paged_attention,
)
```

Ваш `append` пишет все слои сразу, а модели нужно по одному. Выручает приём в двадцать строк ([`adapter.py`](../../paged_kv/model/adapter.py)): сначала ваш `append` получает нули, то есть берёт блок и, если надо, копирует общий хвост; потом каждый слой пишет поверх нулей туда, куда указывает ваша таблица. Ошибка в таблице, в счётчике или в маске теперь слышна: модель начнёт заговариваться.
"""

# %% [markdown] key="own-classes" lang="en"
r"""
The same conversation runs on **your** classes. Copy `BlockPool` and `Sequence` from [exercise 09.1](../../exercises/en/09.1_block_pool.ipynb), `paged_attention` from [09.2](../../exercises/en/09.2_paged_attention.ipynb), and run:

```python
ChatWidget(
    model,
    tokenizer,
    pool_type=BlockPool,
    sequence_type=Sequence,
    attention=paged_attention,
)
```

Your `append` writes all layers at once, and the model needs them one by one. A trick of twenty lines helps ([`adapter.py`](../../paged_kv/model/adapter.py)): first your `append` is given zeros, so it takes a block and copies a shared tail where it must; then each layer writes over the zeros, where your table says they are. A mistake in the table, in a count or in the mask can be heard now: the model begins to ramble.
"""

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
    requests = [engine.submit(p, max_tokens=16, stop=[tokenizer.end]) for p in prompts]
    steps = iter(engine.stream())
    next(steps)
    blocks = int((engine.pool.ref > 1).sum())
    for _ in progress(steps, 16 * len(requests)):
        pass
    answers = [request.answers[0] for request in requests]
    waits = [a.first_token_at - a.request.submitted_at for a in answers]
    return {
        "engine": engine,
        "texts": [tokenizer.decode(a.tokens) for a in answers],
        "tokens": [a.tokens for a in answers],
        "prefill": max(a.first_token_at for a in answers) - start,
        "first_token": float(np.median(waits)),
        "computed": sum(s.prefill for s in engine.steps) + shared * len(prefix),
        "shared_blocks": blocks,
    }


together, apart = serve(shared=True), serve(shared=False)
together["engine"].check()
for name, run in (("shared", together), ("apart", apart)):
    computed, common = run["computed"], run["shared_blocks"]
    print(f"{name:7} prompt tokens computed={computed:4} shared blocks={common:2}")
print("the same answers, token for token:", together["tokens"] == apart["tokens"])

# %% key="sharing-times"
sharing_times(
    (together["prefill"], apart["prefill"]),
    (together["first_token"], apart["first_token"]),
    (together["computed"], apart["computed"]),
)

# %% [markdown] key="sharing-after" lang="ru"
r"""
Ответы совпали до токена. Логиты при этом совпали не до бита: матрицы другой формы складывают те же числа в другом порядке. Поэтому вопросы здесь подобраны так, чтобы лучший токен везде опережал второй с запасом; в чужих сравнениях «бит в бит» спросите, как это сделано.

Вот что услышали читатели. Модель маленькая и правила читает невнимательно, но отвечает на тот вопрос, который ей задали. Запомните эту таблицу.
"""

# %% [markdown] key="sharing-after" lang="en"
r"""
The answers agree to the token. The logits do not agree to the bit: matrices of another shape add the same numbers in another order. So the questions were chosen such that the best token is well ahead of the second everywhere; when others claim "bit for bit", ask how they did it.

This is what the readers heard. The model is small and reads the rules carelessly, but it answers the question that it was asked. Remember this table.
"""


# %% key="answers"
def show(run, caption):
    return Table({tr("question"): QUESTIONS, tr("answer"): run["texts"]}, caption)


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
wrong = [a != b for a, b in zip(leaked["tokens"], together["tokens"], strict=True)]
last = leaked["texts"][-1]
others = [text == last for text in leaked["texts"][:-1]]
print(f"answers changed: {sum(wrong)} of {len(wrong)}")
print(f"readers told the last reader's answer: {sum(others)} of {len(others)}")

# %% [markdown] key="leak-why" lang="ru"
r"""
Читатель спросил, как получить карточку, а узнал, о чём спросил **другой читатель**. Десять запросов писали начало своих вопросов в одни и те же двенадцать слотов; уцелело то, что записано последним, и все ответили на него. Сервис при этом работал: токены шли, блоки освобождались, ни одной ошибки в журнале.

Вот зачем нужны счётчики ссылок. Экономия памяти — приятное следствие, а смысл их в том, что чужой запрос не попадёт в ваш.

Кто бы это заметил? Спросим троих: `pool.check`, наш настоящий `BlockPool.write` и проверку упражнения 09.3.
"""

# %% [markdown] key="leak-why" lang="en"
r"""
A reader asked how to get a card and learnt what **another reader** had asked. Ten requests wrote the beginnings of their questions into the same twelve slots; what was written last survived, and all of them answered that. The service kept working meanwhile: tokens flowed, blocks were freed, not an error in the log.

This is what reference counts are for. Saving memory is a pleasant consequence; the point is that somebody else's request does not get into yours.

Who would have noticed? Let us ask three: `pool.check`, our real `BlockPool.write`, and the check of exercise 09.3.
"""

# %% key="who-notices"
leaked["engine"].check()
print("pool.check: nothing to report\n")
try:
    serve(shared=True, sequence_type=MySequence)
    print("BlockPool.write: nothing to report")
except ValueError as error:
    print(f"BlockPool.write: {error}")

# %% key="check-09-3"
report = check("09.3", MySequence, run_experiment)
print(f"check: {report.state}, {report.code}")
print(report.message)

# %% [markdown] key="leak-lesson" lang="ru"
r"""
> **Ловушка.** «`pool.check` проходит, значит, всё в порядке». Он сверяет счётчики с таблицами, и они сходятся: блок честно числится за одиннадцатью. Книги верны, неверно *содержимое*. Увидеть это могут лишь двое: тот, кто пишет (у блока один владелец?), и тот, кто сравнивает ответы с ответами поодиночке. Держите обоих.
"""

# %% [markdown] key="leak-lesson" lang="en"
r"""
> **Trap.** "`pool.check` passes, so all is well." It compares counts with tables, and they agree: the block is duly listed by eleven. The books are right, the *contents* are wrong. Only two can see that: the one who writes (does the block have one owner?), and the one who compares answers with those given one by one. Keep both.
"""

# %% [markdown] key="batch" lang="ru"
r"""
## Пакет: что он ускоряет

Шаг декода читает все веса, сколько бы ответов ни было в пакете. Значит, шестнадцать ответов за один проход должны стоить почти как один? Измерим: 1, 2, 4, 8 и 16 ответов по 32 токена контекста, и отдельно время в весах и время во внимании.

**Какая из двух частей растёт вместе с пакетом?**
"""

# %% [markdown] key="batch" lang="en"
r"""
## Batches: what they speed up

A decode step reads all weights, however many answers are in the batch. So sixteen answers in one pass should cost about as much as one? Let us measure: 1, 2, 4, 8 and 16 answers with a context of 32 tokens, and the time spent in weights and in attention apart.

**Which of the two parts grows with the batch?**
"""

# %% key="batch-curve"
batches = (1, 2, 4, 8, 16)
times = [decode_time(model, b, context=32) for b in progress(batches, len(batches))]
batch_curve(batches, [t.weights for t in times], [t.attention for t in times])

# %% [markdown] key="batch-after" lang="ru"
r"""
Веса и правда делятся на всех: проход по ним дорожает медленнее, чем растёт пакет. Внимание не делится: у каждого ответа свой кэш, и читать его приходится каждому. С длиной контекста эта часть растёт, и на длинных контекстах пакет помогает всё меньше.

> **Ловушка.** «Вдвое больше места в кэше — вдвое больше токенов в секунду». Верно, только пока шаг занят весами. Сравните сплошную линию с пунктиром. У этой кривой есть и своя причуда: произведение двух строк на матрицу — уже не вектор на матрицу, и библиотека берётся за него иначе. Поэтому наш `matmul` умножает до четырёх строк по одной, а большее дополняет до кратного четырём.
"""

# %% [markdown] key="batch-after" lang="en"
r"""
The weights are indeed shared by all: passing over them gets dearer more slowly than the batch grows. Attention is not shared: each answer has a cache of its own, and each has to read it. This part grows with the context, so with long contexts a batch helps less and less.

> **Trap.** "Twice the room in the cache, twice the tokens per second." True only while a step is busy with weights. Compare the solid line with the dashed one. The curve has a quirk of its own as well: two rows times a matrix are no longer a vector times a matrix, and the library goes about them in another way. That is why our `matmul` takes up to four rows one by one, and pads more to a multiple of four.
"""

# %% [markdown] key="capacity" lang="ru"
r"""
## Место — это скорость

Пакет бывает большим, только если под него хватает блоков. Десять запросов: от 16 до 48 токенов промпта, от 8 до 24 токенов ответа. Сначала как до 2023 года: каждому отводится место на 128 токенов, и одновременно работают лишь те, кому хватило. Потом по блокам, с тем же пулом и с пулом побольше.

Блоки выдаются по мере роста, поэтому однажды их не хватит. Тогда последний пришедший отдаёт всё и встаёт в очередь: его ключи и значения придётся считать заново (*preemption by recompute*, вытеснение с пересчётом). **Сколько раз такое случится? Что даст запас (*watermark*), который новичкам трогать нельзя?**
"""

# %% [markdown] key="capacity" lang="en"
r"""
## Room is speed

A batch can be large only where there are blocks for it. Ten requests: prompts of 16 to 48 tokens, answers of 8 to 24. First as before 2023: everybody has room for 128 tokens set aside, and only those run for whom it sufficed. Then by blocks, with the same pool and with a larger one.

Blocks are handed out as answers grow, so one day there are none. Then the latest arrival gives all of its own back and queues again: its keys and values have to be computed anew (preemption by recompute, *вытеснение с пересчётом*). **How often will that happen? What does a reserve (*watermark*) do that newcomers must not touch?**
"""


# %% key="pool-sizes"
def run_mix(num_blocks, max_batch=10, watermark=0):
    rng = np.random.default_rng(11)
    engine = Engine(model, num_blocks, max_batch=max_batch, watermark=watermark)
    total = 0
    for _ in range(10):
        n, answer = int(rng.integers(16, 49)), int(rng.integers(8, 25))
        words = rng.integers(17, c.vocab_size, size=n).tolist()
        engine.submit(words, max_tokens=answer)
        total += answer
    for _ in progress(engine.stream(), total):
        pass
    decodes = [step.decode for step in engine.steps if step.decode]
    seconds = sum(step.seconds for step in engine.steps)
    return total / seconds, np.mean(decodes), engine.preemptions, len(engine.steps)


longest = spec.blocks_for(128)
runs = {
    tr("{n} blocks, reserved", n=16): run_mix(16, max_batch=16 // longest),
    tr("{n} blocks", n=16): run_mix(16),
    tr("{n} blocks, {m} kept", n=16, m=3): run_mix(16, watermark=3),
    tr("{n} blocks", n=40): run_mix(40),
}
rate, mean_batch, preemptions, steps = zip(*runs.values(), strict=True)
pool_sizes(list(runs), rate, mean_batch, preemptions)

# %% key="steps"
for name, count in zip(runs, steps, strict=True):
    print(f"{name:30} steps={count}")

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

В [уроке 09.5](09.5_quantization.ipynb) K и V были придуманы так, чтобы походить на настоящие. Посмотрим на настоящие: слой 24, правила библиотеки. **У кого из двух видны каналы-выбросы (*outlier channels*)?**
"""

# %% [markdown] key="quantised" lang="en"
r"""
## A quantised pool

In [lesson 09.5](09.5_quantization.ipynb) K and V were invented to look like real ones. Here are the real ones: layer 24, the rules of the library. **In which of the two do you see outlier channels (*каналы-выбросы*)?**
"""

# %% key="layer-map"
text = tokenizer.encode(f"{LIBRARY}\n\n{' '.join(QUESTIONS)}")[:513]
pool = BlockPool(40, c.n_layers, c.n_kv_heads, c.head_dim)
seq = Sequence(pool, "text")
_ = extend(model, pool, seq, text)
K, V = gather_kv(pool, seq, layer=24)
layer_map(K, V, layer=24)

# %% [markdown] key="schemes" lang="ru"
r"""
Теперь пусть модель читает этот текст из квантованного пула и на каждом токене предсказывает следующий. Сравним с предсказаниями из точного пула:

- **перплексия** (*perplexity*) — насколько её удивил сам текст;
- **KL** — насколько её распределение отошло от точного;
- **другой токен** — как часто она выбрала бы не то же слово.

`K8 V4` значит: восемь бит на K, четыре на V. **Кому биты нужнее, K или V?**
"""

# %% [markdown] key="schemes" lang="en"
r"""
Now let the model read this text from a quantised pool and predict the next token at each one. We compare with the predictions from an exact pool:

- **perplexity** (*перплексия*): how much the text itself surprised the model;
- **KL**: how far its distribution moved from the exact one;
- **another token**: how often it would have chosen a different word.

`K8 V4` means eight bits for K, four for V. **Which of the two needs the bits more, K or V?**
"""

# %% key="quality"
eight, four = SymmetricInt(8, "token"), SymmetricInt(4, "token")
rotated = Hadamard(four)
schemes = {
    "int8/head": (SymmetricInt(8, "head"), SymmetricInt(8, "head"), 16),
    "fp8": (Fp8E4M3(), Fp8E4M3(), 16),
    "K8 V4": (eight, four, 16),
    "K4 V8": (four, eight, 16),
    "int4/head": (SymmetricInt(4, "head"), SymmetricInt(4, "head"), 16),
    "Hadamard int4": (rotated, rotated, 16),
    "KIVI-4": (GroupedInt(4, "channel"), GroupedInt(4, "token"), 32),
}
shape = c.n_layers, c.n_kv_heads, c.head_dim
exact = log_probabilities(model, text, BlockPool(40, *shape))
results = {"float32": (32.0, compare(exact, exact, text))}
for name, (k, v, block_size) in progress(schemes.items(), len(schemes)):
    pool = QuantizedBlockPool(40, *shape, block_size, k_quantizer=k, v_quantizer=v)
    predicted = log_probabilities(model, text, pool)
    bits = 8 * pool.bytes_per_block() / (2 * block_size * np.prod(shape))
    results[name] = bits, compare(exact, predicted, text)
predictions(results)

# %% key="bits"
print(f"{len(text)} tokens")
for name, (bits, _) in results.items():
    print(f"{name:14} {bits:5.2f} bits per element")

# %% [markdown] key="quantised-after" lang="ru"
r"""
Восемь бит в любом виде почти незаметны, четыре зависят от способа, и K заметно дороже V: сравните `K8 V4` и `K4 V8`, бит в них поровну. Поворот или масштаб на канал возвращают четырём битам смысл.

> **Ловушка.** «Перплексия не выросла, значит, ничего не потеряно». Посмотрите на первые столбики: у нескольких способов она почти как у точного пула, а то и *ниже*, хотя распределение сдвинулось и часть слов модель выбрала бы другие. На одном тексте перплексия улучшается и случайно. Рядом с ней всегда спрашивайте KL и долю тех же токенов.

На другом процессоре ваши числа будут чуть другими. Сложение в другом порядке меняет последний бит, на границе от него меняется код, а от кода — всё дальше по слоям. Поэтому способы сравнивают по средним на длинном тексте, а не по отдельным токенам.

И чего мы *не* увидели: обещанной во многих статьях катастрофы int8. У этой модели её нет даже с самым грубым масштабом. Чужие цифры не переносятся на вашу модель ни в ту, ни в другую сторону.
"""

# %% [markdown] key="quantised-after" lang="en"
r"""
Eight bits in any form are hardly noticeable, four depend on the way, and K is clearly dearer than V: compare `K8 V4` and `K4 V8`, which have equal bits. A rotation or a scale per channel gives four bits a meaning again.

> **Trap.** "Perplexity has not grown, so nothing was lost." Look at the first bars: with several ways it is about that of the exact pool, or even *lower*, although the distribution has moved and some of the words would be others. On one text perplexity also improves by luck. Beside it, always ask for KL and for the share of equal tokens.

On another processor your numbers will differ a little. Adding in another order changes the last bit, at a border that changes a code, and the code changes everything in the layers above. So schemes are compared by means over a long text, not by single tokens.

And what we did *not* see: the disaster of int8 that many articles promise. This model shows none, even with the coarsest scale. Other people's figures do not carry over to your model, in either direction.
"""

# %% [markdown] key="multi-turn" lang="ru"
r"""
## Разговор из трёх реплик

Чат-сервис не держит последовательность живой между репликами: человек думает минуту, а блоки нужны другим. Каждая реплика приходит новым запросом со всей историей. Кэш префиксов (*prefix cache*) из [урока 09.4](09.4_prefix_cache.ipynb) находит историю в свободных блоках, если их ещё не успели занять.

Одна тонкость. Историю надо продолжать **теми же токенами**, которые были сгенерированы. Если превратить ответ в текст и закодировать снова, границы токенов могут сместиться, и хэш не совпадёт. Поэтому `follow_up` дописывает к токенам, а не к тексту.

**Какую долю токенов промпта найдёт кэш за три реплики?**
"""

# %% [markdown] key="multi-turn" lang="en"
r"""
## A conversation of three turns

A chat service does not keep a sequence alive between turns: the person thinks for a minute, and others need the blocks. Each turn arrives as a new request with the whole history. The prefix cache (*кэш префиксов*) of [lesson 09.4](09.4_prefix_cache.ipynb) finds the history in free blocks, unless they have been taken meanwhile.

There is a subtlety. The history has to be continued with **the same tokens** that were generated. If an answer is turned into text and encoded again, the borders between tokens may shift, and the hash does not match. So `follow_up` appends to tokens, not to text.

**What share of the prompt tokens will the cache find in three turns?**
"""

# %% key="conversation"
TURNS = (
    "How many items can I borrow at a time?",
    "How long may I keep a book?",
    "How do I get a library card?",
)


short_rules = Message("system", LIBRARY[: LIBRARY.index("Late returns.")])


def converse(cache_type):
    engine = Engine(model, num_blocks=64, cache_type=cache_type)
    ids = tokenizer.chat([short_rules, Message("user", TURNS[0])])
    answers = []
    for turn in progress(range(len(TURNS)), len(TURNS)):
        request = engine.submit(ids, max_tokens=20, stop=[tokenizer.end])
        engine.run()
        (answer,) = request.answers
        answers.append(answer)
        if turn + 1 < len(TURNS):
            ids = [*ids, *answer.tokens, *tokenizer.follow_up(TURNS[turn + 1])]
    return engine, answers


_, plain = converse(None)
engine, cached = converse(PrefixCache)
texts = [tokenizer.decode(a.tokens) for a in cached]
print("the same answers:", texts == [tokenizer.decode(a.tokens) for a in plain])
Table({tr("question"): TURNS, tr("answer"): texts}, tr("Three turns"))


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

# %% [markdown] key="summary" lang="ru"
r"""
## Коротко

- Модель и пул связывают три вызова: зарезервировать, записать слой, прочитать слой.
- Общий префикс считают один раз; ответы те же до токена.
- Без копирования при записи читателю отвечают на чужой вопрос, и ни счётчики, ни журнал этого не видят.
- Пакет делит на всех веса, но не внимание. Место в кэше превращается в скорость с убывающей отдачей.
- Тесный пул платит вытеснениями, запас обменивает их на размер пакета.
- О квантовании судят по предсказаниям: KL и доля тех же токенов, а не одна перплексия.
- Кэш префиксов живёт в свободных блоках и никому не мешает.

Код этого урока читается за вечер: [`llama.py`](../../paged_kv/model/llama.py), [`cache.py`](../../paged_kv/model/cache.py), [`scheduler.py`](../../paged_kv/model/scheduler.py), [`engine.py`](../../paged_kv/model/engine.py).

**Источники.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4 (форки), §4.5 (вытеснение). Yu et al., Orca, OSDI'22: пакетирование по шагам. Agrawal et al., [Sarathi-Serve](https://arxiv.org/abs/2403.02310), OSDI'24: префилл по частям. Allal et al., [SmolLM2](https://arxiv.org/abs/2502.02737): модель, лицензия Apache-2.0.
"""

# %% [markdown] key="summary" lang="en"
r"""
## In short

- Three calls join the model and the pool: reserve, write a layer, read a layer.
- A shared prefix is computed once; the answers are the same to the token.
- Without copy-on-write a reader gets the answer to somebody else's question, and neither counts nor the log show it.
- A batch shares the weights, not attention. Room in the cache turns into speed with diminishing returns.
- A tight pool pays in preemptions; a reserve trades them for the size of the batch.
- Quantisation is judged by predictions: KL and the share of equal tokens, not perplexity alone.
- A prefix cache lives in free blocks and is in nobody's way.

The code of this lesson can be read in an evening: [`llama.py`](../../paged_kv/model/llama.py), [`cache.py`](../../paged_kv/model/cache.py), [`scheduler.py`](../../paged_kv/model/scheduler.py), [`engine.py`](../../paged_kv/model/engine.py).

**Sources.** Kwon et al., [PagedAttention](https://arxiv.org/abs/2309.06180), SOSP'23: §4.4 (forks), §4.5 (preemption). Yu et al., Orca, OSDI'22: batching by iteration. Agrawal et al., [Sarathi-Serve](https://arxiv.org/abs/2403.02310), OSDI'24: chunked prefill. Allal et al., [SmolLM2](https://arxiv.org/abs/2502.02737): the model, Apache-2.0.
"""
