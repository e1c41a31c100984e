"""Prompts that begin alike, token by token, and what a prefix cache finds in them.

`requests` draws them for four typical services, `trace` reads them from a file, and
`scheduler` sends them through a cache.
"""

from paged_kv.serving.prefix_workload.requests import (
    PREFIX_WORKLOADS,
    PrefixRequest,
    chat,
    few_shot,
    system_prompts,
    tree_of_thought,
)
from paged_kv.serving.prefix_workload.scheduler import Served, replay
from paged_kv.serving.prefix_workload.trace import read_prefix_trace

__all__ = [
    "PREFIX_WORKLOADS",
    "PrefixRequest",
    "Served",
    "chat",
    "few_shot",
    "read_prefix_trace",
    "replay",
    "system_prompts",
    "tree_of_thought",
]
