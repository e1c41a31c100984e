# %% [markdown] key="title" lang="ru"
r"""
# Модуль 09. PagedAttention

**Русский** · [English](#Module-09.-PagedAttention)

Пока языковая модель отвечает, в памяти растёт её KV-кэш (*KV cache*): ключи и значения всех токенов, которые она прочла и написала. Долгое время под каждый запрос сразу отводили место на самый длинный возможный ответ, и большая часть этой памяти так и оставалась пустой.

PagedAttention поступает так, как операционная система с памятью программ: режет кэш на блоки по 16 токенов, берёт их из общего пула по мере надобности и помечает в таблице блоков, где какой лежит. Память почти не пропадает, а запросы с одинаковым началом могут хранить его в одном экземпляре.

Здесь вы построите такой кэш своими руками, на чистом numpy.
"""

# %% [markdown] key="title" lang="en"
r"""
# Module 09. PagedAttention

[*Русский*](#Модуль-09.-PagedAttention) · **English**

While a language model answers, its KV cache grows in memory: the keys and values of every token read and written so far. For a long time each request had room set aside in advance for the longest answer it could possibly give, and most of that memory was never filled.

PagedAttention solves this the way an operating system does: the cache is cut into blocks of 16 tokens, blocks are taken from one shared pool as they are needed, and a block table notes which lies where. Next to nothing is wasted, and requests that begin alike can keep that beginning in a single copy.

Here you build such a cache with your own hands, in plain numpy.
"""

# %% [markdown] key="for-whom" lang="ru"
r"""
## Что понадобится

- Python и numpy на уровне «читаю чужой код без словаря».
- Представление о том, как считается внимание: $\mathrm{softmax}(QK^\top)\,V$.
- Обычный ноутбук. Видеокарта не нужна, интернет после установки тоже.
"""

# %% [markdown] key="for-whom" lang="en"
r"""
## What you need

- Python and numpy well enough to read other people's code without a dictionary.
- An idea of how attention is computed: $\mathrm{softmax}(QK^\top)\,V$.
- An ordinary laptop. No GPU, and no internet once everything is installed.
"""

# %% [markdown] key="map" lang="ru"
r"""
## Карта модуля

Идите сверху вниз. Время указано с запасом на размышления.

{{map}}
"""

# %% [markdown] key="map" lang="en"
r"""
## Map of the module

Go from top to bottom. The times leave room to think.

{{map}}
"""

# %% [markdown] key="how" lang="ru"
r"""
## Как проходит упражнение

1. Прочтите условие и замените `raise NotImplementedError` своим кодом.
2. Запустите (**Shift+Enter**) ячейку со своим кодом, а за ней ячейку с `check(…)`.
3. Прочтите отчёт. Он показывает первый случай, на котором код ошибся: что делали, чего ждали, что получили и в чём, скорее всего, дело.
4. Исправьте и запустите обе ячейки снова. Когда проверка пройдена, ниже оживает эксперимент.
"""

# %% [markdown] key="how" lang="en"
r"""
## How an exercise works

1. Read the task and replace `raise NotImplementedError` with your code.
2. Run (**Shift+Enter**) the cell with your code, then the cell with `check(…)`.
3. Read the report. It shows the first case your code got wrong: what was done, what was expected, what came out, and the likely reason.
4. Mend it and run both cells again. Once the check passes, the experiment below it comes to life.
"""

# %% [markdown] key="stuck" lang="ru"
r"""
## Если не получается

- Спрашивайте подсказки по одной: `hint("09.1", 1)`, потом `2` и `3`; каждая следующая говорит больше.
- Возьмите лист бумаги, пул из четырёх блоков и проследите таблицу блоков токен за токеном.
- Странности после многих правок лечит **Kernel → Restart Kernel and Run All Cells**.
- Отложите и идите дальше: следующие упражнения стоят на готовых классах модуля, а не на вашем решении.
"""

# %% [markdown] key="stuck" lang="en"
r"""
## When you are stuck

- Ask for the hints one by one: `hint("09.1", 1)`, then `2` and `3`; each says more than the one before.
- Take a sheet of paper and a pool of four blocks, and follow the block table token by token.
- If things turn strange after many edits, **Kernel → Restart Kernel and Run All Cells** helps.
- Leave it and go on: the next exercises stand on the module's own classes, not on your solution.
"""
