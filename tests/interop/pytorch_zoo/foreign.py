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
from collections import namedtuple
from typing import Dict, List, Optional

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

class Collected(nn.Module):
    rows: List[torch.Tensor]
    named: Dict[str, torch.Tensor]
    maybe: Optional[torch.Tensor]

    def __init__(self):
        super().__init__()
        base = torch.arange(6, dtype=torch.float16).reshape(2, 3)
        self.rows = [base, base.t(), torch.arange(3)]
        self.named = {"x": torch.tensor([True, False]), "y.z": torch.arange(2, dtype=torch.uint8)}
        self.maybe = torch.tensor(1.5, dtype=torch.float64)
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 1)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        maybe = self.maybe
        if maybe is not None:
            x = x + maybe
        return x + self.rows[0].sum() + self.named["x"].sum()

class Convolved(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 2)

    def forward(self, x):
        return self.conv(x) * torch.tensor([[[1.0, 2.0, 4.0]]]) + torch.tensor([7, 8, 9])

class Plain(nn.Module):
    def __init__(self):
        super().__init__()
        self.count = 3
        self.name = "plain"

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.count

Pair = namedtuple("Pair", "left right")

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
    "joblib": "",
    "joblib.numpy_pickle": """
class NumpyArrayWrapper:
    def __init__(self, subclass, shape, order, dtype, allow_mmap=False, numpy_array_alignment_bytes=16):
        self.subclass = subclass
        self.shape = shape
        self.order = order
        self.dtype = dtype
        self.allow_mmap = allow_mmap
        self.numpy_array_alignment_bytes = numpy_array_alignment_bytes
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
    """Make the modules importable, for as long as a with statement takes; real ones of these names come back then."""
    real = {name: sys.modules.pop(name) for name in SOURCES if name in sys.modules}
    try:
        yield {name: _module(name, source) for name, source in SOURCES.items()}
    finally:
        for name in SOURCES:
            sys.modules.pop(name, None)
            linecache.cache.pop(f"{name}.py", None)
        sys.modules.update(real)
