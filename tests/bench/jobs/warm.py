"""Import what a first call would import: what is timed after it is work on the file."""

from __future__ import annotations

import importlib
import pkgutil

PACKAGES = ("pparse.parsers", "pparse.viewers", "pparse.kernels", "pparse.riegeli", "pparse.proto_splitter")


def import_all(*more: str) -> None:
    """Import pparse and all modules of the packages that read and write protocol buffers, and ``more``."""
    import pparse
    import pparse.protos
    import pparse.writers.files

    for name in PACKAGES:
        package = importlib.import_module(name)
        for module in pkgutil.walk_packages(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    for name in ("open", "view"):
        getattr(pparse, name)
    for module_name in more:
        importlib.import_module(module_name)
