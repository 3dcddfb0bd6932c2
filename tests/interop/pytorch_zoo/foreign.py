"""Classes of libraries that are not there when a checkpoint is read: modules that exist only while the zoo is made.

Their source is a text, so that what PyTorch notes of it (file names, lines) is the same wherever the zoo is made.
"""

from __future__ import annotations

import contextlib
import linecache
import sys
import types

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

SOURCES = {
    "zoo_models": """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, kernel_size=3, stride=2, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.head = nn.Sequential(nn.Flatten(), nn.Linear(16, 5), nn.ReLU(), nn.Linear(5, 2, bias=False))
        self.scale = nn.Parameter(torch.tensor(2.0))
        self.register_buffer("steps", torch.tensor(7))
        self.register_buffer("scratch", torch.arange(3.0), persistent=False)
        self.register_parameter("absent", None)
        self.plain = torch.arange(4, dtype=torch.int16)
        self.label = "net"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.conv(x))) * self.scale + self.scratch.sum()

class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.register_buffer("mean", torch.arange(4.0))
        self.table = torch.arange(6, dtype=torch.float64).reshape(2, 3)
        self.sizes = [1, 2, 3]
        self.flag = True

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x - self.mean) + self.table.sum().to(torch.float32)

class TiedNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.embed(x))

class Tagged(torch.Tensor):
    pass

class Config:
    def __init__(self, **values):
        self.__dict__.update(values)

class Slotted:
    __slots__ = ("weight", "count")
""",
    "pytorch_lightning": "",
    "pytorch_lightning.callbacks": "",
    "pytorch_lightning.callbacks.model_checkpoint": """
class ModelCheckpoint:
    def __init__(self, monitor, best_k):
        self.monitor = monitor
        self.best_k_models = best_k
""",
    "pytorch_lightning.utilities": "",
    "pytorch_lightning.utilities.parsing": """
class AttributeDict(dict):
    def __getattr__(self, name):
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None
""",
    "omegaconf": "",
    "omegaconf.base": """
class ContainerMetadata:
    def __init__(self, **values):
        self.__dict__.update(values)
""",
    "omegaconf.nodes": """
class AnyNode:
    def __init__(self, value):
        self._val = value
""",
    "omegaconf.dictconfig": """
class DictConfig:
    def __init__(self, content, metadata):
        self._content = content
        self._metadata = metadata

    def __getstate__(self):
        return {"_metadata": self._metadata, "_content": self._content, "_parent": None}
""",
    "hydra_like": """
import enum

class Phase(enum.Enum):
    TRAIN = "train"
    TEST = "test"

def collate(batch):
    return batch
""",
}


def _module(name: str, source: str) -> types.ModuleType:
    """Run a source as a module whose file has that name, without a folder."""
    module = types.ModuleType(name)
    file = f"{name}.py"
    module.__file__ = file
    module.__path__ = []
    linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
    sys.modules[name] = module
    exec(compile(source, file, "exec", dont_inherit=True), module.__dict__)
    return module


@contextlib.contextmanager
def importable() -> Iterator[dict[str, types.ModuleType]]:
    """Make the modules importable, for as long as a with statement takes."""
    assert not set(SOURCES) & set(sys.modules)
    try:
        yield {name: _module(name, source) for name, source in SOURCES.items()}
    finally:
        for name in SOURCES:
            sys.modules.pop(name, None)
            linecache.cache.pop(f"{name}.py", None)
