"""How much work a function does, counted: for what must not grow with the square of its input."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from types import ModuleType


def instructions(call: Any, *modules: ModuleType) -> int:
    """Call, and return the count of bytecode instructions that ran in these modules."""
    files = {module.__file__ for module in modules}
    count = 0

    def trace(frame: Any, event: str, argument: object) -> Any:
        nonlocal count
        if frame.f_code.co_filename not in files:
            return None
        frame.f_trace_opcodes = True
        count += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(before)
    return count
