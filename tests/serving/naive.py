"""The same engine, token by token: slow, obvious, and written apart from the fast one.

Reserved systems keep chunks by address in a list; paging keeps block tables over the
books of the real pool.
"""

from dataclasses import dataclass, field

from paged_kv import BlockAllocator


@dataclass
class Request:
    number: int
    arrival: float
    prompt: int
    output: int
    done: int = 0
    table: list = field(default_factory=list)

    @property
    def length(self):
        return self.prompt + self.done


def serve_paged(workload, slots, block_size, watermark, cost, max_batch):
    """Return finish times, batch size of every iteration, (tokens, empty), preemptions.

    The third is a pair for every iteration: tokens held and empty slots of last blocks.
    """
    books = BlockAllocator(slots // block_size, block_size)
    spare = int(watermark * books.num_blocks)
    todo = [
        Request(i, a, p, o)
        for i, (a, p, o) in enumerate(
            zip(
                workload.arrival.tolist(),
                workload.prompt.tolist(),
                workload.output.tolist(),
                strict=True,
            )
        )
    ]
    waiting, running = [], []
    finish = [0.0] * len(todo)
    batches, held, preemptions, now = [], [], 0, 0.0

    def blocks(n):
        return -(-n // block_size)

    while todo or waiting or running:
        while todo and todo[0].arrival <= now:
            waiting.append(todo.pop(0))
        grow = sum(blocks(r.length + 1) - len(r.table) for r in running)
        while grow > books.free:
            last = running.pop()
            grow -= blocks(last.length + 1) - len(last.table)
            books.release_many(last.table)
            last.table = []
            waiting.insert(0, last)
            preemptions += 1
        prefill = 0
        while waiting and len(running) < max_batch:
            first = waiting[0]
            needed = blocks(first.length + 1)
            if books.free - grow - needed < spare:
                break
            first.table = books.allocate_many(blocks(first.length))
            grow += needed - len(first.table)
            prefill += first.length
            running.append(waiting.pop(0))
        if not running:
            now = todo[0].arrival
            continue
        for r in running:
            r.done += 1
            r.table += books.allocate_many(blocks(r.length) - len(r.table))
        books.check(holders=[_Holder(running)])
        tokens = sum(r.length for r in running)
        batches.append(len(running))
        held.append((tokens, books.used * block_size - tokens))
        now += cost.seconds(len(running), tokens, prefill)
        for r in [r for r in running if r.done == r.output]:
            books.release_many(r.table)
            running.remove(r)
            finish[r.number] = now
    return finish, batches, held, preemptions


class _Holder:
    def __init__(self, running):
        self.running = running

    def held_blocks(self):
        return [block for r in self.running for block in r.table]
