"""Workers: tasks that are done elsewhere, with results that come back in order, and are the same whoever did them.

- `pool`: processes, of which one may die.
- `results`: tasks given to anything with the interface of `concurrent.futures.Executor`, in batches; retries.
- `parts`: tensors in parts, each a task.
- `notes`: what was done, line by line, for a run that goes on where another one ended.
"""

from __future__ import annotations

from pparse.lazy import lazy_names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.workers.pool import ProcessPool
    from pparse.workers.results import Workers
__getattr__ = lazy_names(__name__, {"ProcessPool": "pool", "Workers": "results"})
__all__ = ["ProcessPool", "Workers"]
