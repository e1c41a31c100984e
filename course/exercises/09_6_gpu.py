# ---
# jupyter:
#   course:
#     minutes: 50
#     difficulty: 4
#     summary:
#       ru: "По желанию: пишете внутренний цикл ядра Triton и смотрите, что оно читает. Без видеокарты."
#       en: "Optional: write the inner loop of a Triton kernel and see what it reads. No GPU needed."
# ---

# %% [markdown] key="title" lang="ru"
r"""
# Внутренний цикл ядра Triton

Необязательное упражнение к [уроку 09.6](../../notebooks/ru/09.6_gpu.ipynb). Математика здесь та же, что в [упражнении 09.2](09.2_paged_attention.ipynb): $m$, $\ell$, $\mathrm{acc}$ и поправка $\alpha$. Новое — адреса. В ядре (*kernel*) нет ни объектов, ни срезов: есть указатель на начало кэша и числа, которые вы к нему прибавляете.

Видеокарта не нужна: ядро исполнит интерпретатор Triton. Triton есть только для Linux (в Windows — внутри WSL); там, где его нет, тетрадь откроется, а проверка об этом скажет.
"""

# %% [markdown] key="title" lang="en"
r"""
# The inner loop of a Triton kernel

An optional exercise to [lesson 09.6](../../notebooks/en/09.6_gpu.ipynb). The mathematics is that of [exercise 09.2](09.2_paged_attention.ipynb): $m$, $\ell$, $\mathrm{acc}$ and the correction $\alpha$. What is new are addresses. A kernel (*ядро*) has no objects and no slices: there is a pointer to the beginning of the cache, and numbers that you add to it.

You need no GPU: Triton's interpreter will run the kernel. Triton exists for Linux only (on Windows inside WSL); where it is missing the notebook opens, and the check says so.
"""

# %% [markdown] key="program" lang="ru"
r"""
## От чьего лица пишется ядро

Ядро запускается сразу много раз, по экземпляру программы (*program instance*) на каждую пару «запрос и KV-голова». Экземпляр узнаёт свои номера, загружает query-головы своей группы и идёт по блокам запроса. Всё, кроме тела цикла, уже написано.

| Имя | Что это |
|---|---|
| `seq`, `kv_head` | номера экземпляра |
| `g`, `t`, `d` | `0 … GROUP − 1`, `0 … BLOCK_SIZE − 1`, `0 … HEAD_DIM − 1` |
| `q` | `(GROUP, HEAD_DIM)`: query-головы группы |
| `length` | сколько токенов в запросе |
| `m`, `l`, `acc` | `(GROUP,)`, `(GROUP,)`, `(GROUP, HEAD_DIM)`, `float32` |
| `table_ptr` | таблица `(num_seqs, width)`, `int32`, подряд по строкам |
| `k_ptr`, `v_ptr` | кэш `(num_blocks, BLOCK_SIZE, N_KV_HEADS, HEAD_DIM)`, подряд |
"""

# %% [markdown] key="program" lang="en"
r"""
## From whose point of view a kernel is written

The kernel is launched many times at once, one program instance (*экземпляр программы*) for each pair of request and KV head. An instance learns its numbers, loads the query heads of its group and walks the blocks of the request. Everything but the body of the loop is there already.

| Name | What it is |
|---|---|
| `seq`, `kv_head` | the instance's numbers |
| `g`, `t`, `d` | `0 … GROUP − 1`, `0 … BLOCK_SIZE − 1`, `0 … HEAD_DIM − 1` |
| `q` | `(GROUP, HEAD_DIM)`: the query heads of the group |
| `length` | how many tokens the request has |
| `m`, `l`, `acc` | `(GROUP,)`, `(GROUP,)`, `(GROUP, HEAD_DIM)`, `float32` |
| `table_ptr` | the table `(num_seqs, width)`, `int32`, row after row |
| `k_ptr`, `v_ptr` | the cache `(num_blocks, BLOCK_SIZE, N_KV_HEADS, HEAD_DIM)`, in a row |
"""

# %% [markdown] key="language" lang="ru"
r"""
Слова Triton, которых хватит:

- `tl.load(ptr + offsets, mask=..., other=0)` — прочитать сразу массив; где `mask` ложна, память не трогают и берут `other`;
- `x[:, None]`, `x[None, :]` — как в numpy; `tl.where(cond, a, b)`;
- `tl.dot(a, b)` — матричное произведение, `tl.trans(a)` — транспонирование;
- `tl.max(S, 1)`, `tl.sum(P, 1)` — по оси 1; `tl.maximum(a, b)`, `tl.exp(x)`;
- `x.to(tl.int64)` — другой тип.
"""

# %% [markdown] key="language" lang="en"
r"""
The words of Triton that will do:

- `tl.load(ptr + offsets, mask=..., other=0)`: read a whole array; where `mask` is false memory is not touched, and `other` is taken;
- `x[:, None]`, `x[None, :]` as in numpy; `tl.where(cond, a, b)`;
- `tl.dot(a, b)`: matrix product, `tl.trans(a)`: transposed;
- `tl.max(S, 1)`, `tl.sum(P, 1)`: along axis 1; `tl.maximum(a, b)`, `tl.exp(x)`;
- `x.to(tl.int64)`: another type.
"""

# %% [markdown] key="on-paper" lang="ru"
r"""
## Сначала на бумаге

Кэш: `BLOCK_SIZE = 16`, `N_KV_HEADS = 8`, `HEAD_DIM = 128`. Физический блок 5, слот 3, KV-голова 2.

1. Если смотреть на кэш как на строки по `HEAD_DIM` чисел, какой номер у этой строки? С какого элемента она начинается?
2. На сколько элементов отстоит тот же слот у следующей головы? А следующий слот той же головы?
3. Блоков в кэше 150 тысяч. Поместится ли смещение последнего в `int32`?
"""

# %% [markdown] key="on-paper" lang="en"
r"""
## On paper first

The cache: `BLOCK_SIZE = 16`, `N_KV_HEADS = 8`, `HEAD_DIM = 128`. Physical block 5, slot 3, KV head 2.

1. If you see the cache as rows of `HEAD_DIM` numbers, which number has this row? At which element does it begin?
2. How many elements further is the same slot of the next head? And the next slot of the same head?
3. The cache has 150 thousand blocks. Does the offset of the last one fit `int32`?
"""

# %% [markdown] key="on-paper-answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Строка $(5 \cdot 16 + 3) \cdot 8 + 2 = 666$, элемент $666 \cdot 128 = 85\,248$.
2. На 128 и на $8 \cdot 128 = 1024$.
3. Нет: $150\,000 \cdot 16\,384 \approx 2{,}46 \cdot 10^9$, а в `int32` помещается чуть больше $2{,}14 \cdot 10^9$.
"""

# %% [markdown] key="on-paper-answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "on-paper-answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. Row $(5 \cdot 16 + 3) \cdot 8 + 2 = 666$, element $666 \cdot 128 = 85\,248$.
2. By 128, and by $8 \cdot 128 = 1024$.
3. No: $150\,000 \cdot 16\,384 \approx 2.46 \cdot 10^9$, and `int32` holds little more than $2.14 \cdot 10^9$.
"""

# %% [markdown] key="rules" lang="ru"
r"""
## Правила

1. Логический блок `i` — это физический блок из таблицы. Строки таблицы длиной `width`, хвост строки дополнен числами $-1$.
2. Слоты за концом запроса не загружаются: там может лежать NaN, а $0 \cdot \mathrm{NaN}$ — это NaN. Их оценки — $-\infty$.
3. Номер блока переводится в `int64` **до** умножения.
4. Пишите только на языке Triton: ни numpy, ни `@` в ядре нет.

`launch` запускает ядро под присмотром: если указатель уйдёт за пределы данных, вы получите исключение, а не падение тетради.
"""

# %% [markdown] key="rules" lang="en"
r"""
## The rules

1. Logical block `i` is the physical block in the table. Rows of the table are `width` long, the end of a row is padded with $-1$.
2. Slots beyond the end of the request are not loaded: NaN may lie there, and $0 \cdot \mathrm{NaN}$ is NaN. Their scores are $-\infty$.
3. The block id becomes `int64` **before** it is multiplied.
4. Write in Triton's language only: there is neither numpy nor `@` in a kernel.

`launch` runs the kernel under watch: if a pointer leaves the data you get an exception, and not a dead notebook.
"""

# %% key="setup"
import numpy as np
import torch

from paged_kv.checks import check, hint
from paged_kv.gpu import paged_attention_decode, record_accesses
from paged_kv.gpu.practice import launch, triton_for_exercise
from paged_kv.messages import use_language

use_language("{{lang}}")
triton, tl = triton_for_exercise()

# %% [markdown] key="kernel-task" lang="ru"
r"""
## Ядро

Допишите тело цикла. Запускать эту ячейку надо после каждой правки.
"""

# %% [markdown] key="kernel-task" lang="en"
r"""
## The kernel

Complete the body of the loop. Run this cell after each change.
"""


# %% key="kernel" nbgrader={"grade": false, "grade_id": "kernel", "locked": false, "schema_version": 3, "solution": true, "task": false}
@triton.jit
def paged_decode(
    q_ptr,
    k_ptr,
    v_ptr,
    table_ptr,
    lens_ptr,
    out_ptr,
    scale,
    width,
    N_KV_HEADS: tl.constexpr,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_SIZE: tl.constexpr,
):
    seq, kv_head = tl.program_id(0), tl.program_id(1)
    g, t, d = tl.arange(0, GROUP), tl.arange(0, BLOCK_SIZE), tl.arange(0, HEAD_DIM)
    q_rows = (seq * N_KV_HEADS + kv_head) * GROUP + g
    q = tl.load(q_ptr + q_rows[:, None] * HEAD_DIM + d[None, :])
    length = tl.load(lens_ptr + seq)
    m = tl.full([GROUP], float("-inf"), tl.float32)
    l = tl.zeros([GROUP], tl.float32)
    acc = tl.zeros([GROUP, HEAD_DIM], tl.float32)
    for i in range(tl.cdiv(length, BLOCK_SIZE)):
        # ru: Логический блок i: найдите его, прочтите K и V, обновите m, l, acc.
        # en: Logical block i: find it, read K and V, update m, l, acc.
        ### BEGIN SOLUTION
        block = tl.load(table_ptr + seq * width + i).to(tl.int64)
        valid = i * BLOCK_SIZE + t < length
        rows = (block * BLOCK_SIZE + t) * N_KV_HEADS + kv_head
        offsets = rows[:, None] * HEAD_DIM + d[None, :]
        k = tl.load(k_ptr + offsets, mask=valid[:, None], other=0)
        S = tl.dot(q, tl.trans(k)) * scale
        S = tl.where(valid[None, :], S, float("-inf"))
        m_new = tl.maximum(m, tl.max(S, 1))
        alpha = tl.exp(m - m_new)
        P = tl.exp(S - m_new[:, None])
        l = l * alpha + tl.sum(P, 1)
        v = tl.load(v_ptr + offsets, mask=valid[:, None], other=0)
        acc = acc * alpha[:, None] + tl.dot(P, v)
        m = m_new
        ### END SOLUTION
        # STUB: raise NotImplementedError
    out_offsets = q_rows[:, None] * HEAD_DIM + d[None, :]
    tl.store(out_ptr + out_offsets, acc / l[:, None])


# %% [markdown] key="check-task" lang="ru"
r"""
## Проверка

Блоки перемешаны, голов 6 и 3, в пустых слотах NaN, а один блок лежит так далеко, что его смещение не помещается в 32 бита. Если застряли: `hint("09.6", 1)`, затем `hint("09.6", 2)` и `hint("09.6", 3)`.
"""

# %% [markdown] key="check-task" lang="en"
r"""
## The check

Blocks are shuffled, there are 6 and 3 heads, NaN in the empty slots, and one block lies so far away that its offset does not fit 32 bits. If you are stuck: `hint("09.6", 1)`, then `hint("09.6", 2)` and `hint("09.6", 3)`.
"""

# %% key="check"
report = check("09.6", paged_decode)
report

# %% key="points" only="solution" nbgrader={"grade": true, "grade_id": "points", "locked": true, "points": 7, "schema_version": 3, "solution": false, "task": false}
# ru: Столько свойств выполнено: столько баллов даёт nbgrader.
# en: So many properties hold: so many points nbgrader gives.
from paged_kv.checks import points

points("09.6", paged_decode)

# %% [markdown] key="beside" lang="ru"
r"""
## Ваше ядро рядом с модулем

Один и тот же пакет из трёх запросов — в ваше ядро и в torch-вариант модуля.
"""

# %% [markdown] key="beside" lang="en"
r"""
## Your kernel beside the module

The same batch of three requests goes into your kernel and into the module's torch variant.
"""


# %% key="beside-code"
def batch_of(n_heads, n_kv_heads):
    rng = np.random.default_rng(4)
    k_cache, v_cache, q = (
        torch.tensor(rng.normal(size=shape).astype(np.float32))
        for shape in (*[(8, 16, n_kv_heads, 32)] * 2, (3, n_heads, 32))
    )
    tables = torch.tensor([[6, 1, 4], [3, 0, -1], [7, -1, -1]], dtype=torch.int32)
    lengths = torch.tensor([40, 20, 16], dtype=torch.int32)
    return q, k_cache, v_cache, tables, lengths, 32**-0.5


if report.passed:
    batch = batch_of(6, 3)
    mine, theirs = launch(paged_decode, *batch), paged_attention_decode(*batch)
    print(f"max|diff| < 1e-5: {(mine - theirs).abs().max().item() < 1e-5}")

# %% [markdown] key="group" lang="ru"
r"""
## Эксперимент: сколько стоит группа

Экземпляр берёт все query-головы группы разом. А можно было бы завести по экземпляру на каждую query-голову. **Во сколько раз больше прочтут тогда?** Подсмотрим настоящие загрузки: сначала 8 query-голов на 2 KV-головы, затем те же 8 голов без групп, как будто у каждой своя KV-голова. Второй случай читает столько, сколько читало бы ядро с экземпляром на голову.
"""

# %% [markdown] key="group" lang="en"
r"""
## Experiment: what a group is worth

An instance takes all query heads of its group together. There could be an instance for each query head instead. **How many times as much would be read then?** Let us look at the actual loads: first 8 query heads over 2 KV heads, then the same 8 heads without groups, as if each had a KV head of its own. The second case reads as much as a kernel with an instance per head would.
"""

# %% key="group-code"
if report.passed:
    for n_kv_heads in (2, 8):
        with record_accesses() as accesses:
            launch(paged_decode, *batch_of(8, n_kv_heads))
        read = dict.fromkeys(("k_ptr", "v_ptr", "table_ptr"), 0)
        for access in accesses:
            if access.tensor in read:
                read[access.tensor] += access.elements.size
        programs = len({access.program for access in accesses})
        numbers = " ".join(f"{name}={n}" for name, n in read.items())
        print(f"programs={programs} elements read: {numbers}")

# %% [markdown] key="wild" lang="ru"
r"""
## Эксперимент: что бывает с чужим номером блока

Впишем в таблицу блок, которого в кэше нет. На видеокарте ядро прочло бы чужую память или упало бы; здесь за ним присматривают. **Какой элемент оно попробует прочесть?**
"""

# %% [markdown] key="wild" lang="en"
r"""
## Experiment: what a foreign block id does

Let us write a block into the table that the cache does not have. On a GPU the kernel would read somebody else's memory, or crash; here it is watched. **Which element will it try to read?**
"""

# %% key="wild-code"
if report.passed:
    q, k_cache, v_cache, tables, lengths, scale = batch_of(6, 3)
    tables[1, 0] = 9
    try:
        launch(paged_decode, q, k_cache, v_cache, tables, lengths, scale)
    except Exception as error:
        print(error.__cause__)
    print(f"9 * 16 * 3 * 32 = {9 * 16 * 3 * 32}, k_ptr has {k_cache.numel()}")

# %% [markdown] key="questions" lang="ru"
r"""
## Подумайте

1. Маска вычисляется на каждом шаге, хотя нужна только на последнем. Как от этого избавиться и что это даст?
2. Почему `valid` накладывают и на загрузку, и на оценки? Хватит ли одного?
3. На видеокарте `tl.dot` требует не меньше 16 строк, а в группе их 4. Что делать?
4. Что изменится, если у запроса `length == 0`? Что вернёт ваше ядро?
"""

# %% [markdown] key="questions" lang="en"
r"""
## Think about it

1. The mask is computed at every step, though only the last one needs it. How can this be avoided, and what is gained?
2. Why is `valid` applied to the load as well as to the scores? Would one be enough?
3. On a GPU `tl.dot` wants at least 16 rows, and a group has 4. What can be done?
4. What changes for a request with `length == 0`? What does your kernel return?
"""

# %% [markdown] key="answers" lang="ru" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Ответы.**

1. Пройти полные блоки циклом без маски, а последний — отдельно, с маской. Меньше команд на шаг и загрузки без условий. Так устроено ядро модуля.
2. Нет. Без маски на загрузке $V$ нулевой вес умножится на NaN. Без $-\infty$ в оценках пустые слоты получат вес $e^{0 - m}$.
3. Дополнить группу до 16 строк и маской не писать лишние. Лишние умножения ничего не стоят: декод всё равно ждёт память.
4. Цикл не выполнится, и $0 / 0$ даст NaN. Нужно делить на 1 там, где $\ell = 0$: тогда ответ 0, а $\mathrm{lse} = -\infty$.
"""

# %% [markdown] key="answers" lang="en" only="solution" nbgrader={"grade": true, "grade_id": "answers", "locked": false, "points": 0, "schema_version": 3, "solution": true, "task": false}
r"""
**Answers.**

1. Walk the full blocks in a loop without a mask, and the last one apart, with a mask. Fewer instructions per step, and loads without conditions. The module's kernel is built like that.
2. No. Without a mask on the load of $V$ a zero weight meets NaN. Without $-\infty$ in the scores the empty slots get a weight of $e^{0 - m}$.
3. Pad the group to 16 rows, and mask the store so that the extra ones are not written. The extra multiplications cost nothing: decode waits for memory anyway.
4. The loop does not run, and $0 / 0$ gives NaN. Divide by 1 where $\ell = 0$: then the answer is 0, and $\mathrm{lse} = -\infty$.
"""

# %% [markdown] key="read-next" lang="ru"
r"""
## Что читать дальше

- [`paged_kv/gpu/kernels.py`](../../paged_kv/gpu/kernels.py): то же ядро с частями (Flash-Decoding), int8 и отдельным последним куском.
- vLLM, `vllm/v1/attention/ops/triton_decode_attention.py`: настоящее ядро с частями; узнаете в нём своё тело цикла.
- Учебник Triton: «Fused Attention»; сборник задач Triton-Puzzles.

Дальше — [урок 09.7](../../notebooks/ru/09.7_serving.ipynb): настоящая модель на вашем пуле.
"""

# %% [markdown] key="read-next" lang="en"
r"""
## What to read next

- [`paged_kv/gpu/kernels.py`](../../paged_kv/gpu/kernels.py): the same kernel with parts (Flash-Decoding), int8, and a last piece of its own.
- vLLM, `vllm/v1/attention/ops/triton_decode_attention.py`: a real kernel with parts; you will recognise the body of your loop.
- Triton's tutorial “Fused Attention”; the collection of problems Triton-Puzzles.

Next comes [lesson 09.7](../../notebooks/en/09.7_serving.ipynb): a real model on your pool.
"""
