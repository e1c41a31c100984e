"""Execute notebooks with this environment's own kernel, two at a time."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellControlSignal, CellExecutionError, DeadKernelError
from traitlets import default

_PROCESSES = 2
_CELL_SECONDS = 300
# With a thread per core each, the processes would mostly wait for one another.
_ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def execute(notebooks: Mapping[str, Any], root: Path) -> list[str]:
    """Run each notebook in place, in its own folder below ``root``.

    Returns
    -------
    list[str]
        Notebooks whose kernel died or ran out of time. An exception in a cell is no
        such problem: it is stored as an output, and refused there.
    """
    return asyncio.run(_execute_all(notebooks, root))


class _OwnKernel(AsyncKernelManager):
    """The kernel of this interpreter, whatever kernels the user has installed."""

    @default("kernel_spec_manager")
    def _no_installed_kernels(self) -> KernelSpecManager:
        return KernelSpecManager(kernel_dirs=[])


async def _execute_all(notebooks: Mapping[str, Any], root: Path) -> list[str]:
    gate = asyncio.Semaphore(_PROCESSES)

    async def one(path: str, notebook: Any) -> str | None:
        async with gate:
            print(f"running {path}", flush=True)
            return await _execute(path, notebook, root)

    results = await asyncio.gather(*(one(*item) for item in notebooks.items()))
    return [result for result in results if result]


async def _execute(path: str, notebook: Any, root: Path) -> str | None:
    folder = (root / path).parent
    folder.mkdir(parents=True, exist_ok=True)
    client = NotebookClient(
        notebook,
        kernel_manager_class=_OwnKernel,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=_CELL_SECONDS,
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
        store_widget_state=False,
        coalesce_streams=True,
    )
    try:
        await client.async_execute(env=os.environ | _ENVIRONMENT)
    except CellExecutionError:
        pass
    except (CellControlSignal, DeadKernelError) as error:
        return f"{path}: {type(error).__name__}: {error}"
    return None
