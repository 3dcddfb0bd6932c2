"""Checkpoints of DeepSpeed's ZeRO, made without torch as its engine writes them (0.19)."""

from __future__ import annotations

import io
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.bench.inputs_pytorch import _REBUILD, _Global, _Pickler, _Storage
from tests.pytorch_files import _Members, strides_of

if TYPE_CHECKING:
    from pathlib import Path

_SIZE = _Global("torch", "Size")
STATE = "optimizer_state_dict"
GROUPS = [["emb.weight", "l.0.weight", "head"], ["l.0.bias", "none", "one", "two"]]
SHAPES = {
    "emb.weight": (17, 6),
    "l.0.weight": (6, 5),
    "head": (3, 7),
    "l.0.bias": (5,),
    "none": (0, 4),
    "one": (),
    "two": (),
}
RANKS = 3
STATES_FILE = "mp_rank_00_model_states.pt"


class _Shape:
    def __init__(self, numbers: Any) -> None:
        self.numbers = tuple(numbers)

    def __reduce__(self) -> Any:
        return _SIZE, (self.numbers,)


class Saved:
    """What ``torch.save`` writes: arrays of float32 anywhere in a value."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []

    def tensor(self, array: np.ndarray) -> Any:
        key, shape = len(self.storages), tuple(array.shape)
        self.storages.append(np.ascontiguousarray(array, "f4").tobytes())
        arguments = (_Storage(key, max(1, array.size)), 0, shape, tuple(strides_of(list(shape))), False, OrderedDict())

        class Tensor:
            def __reduce__(self) -> Any:
                return _REBUILD, arguments

        return Tensor()

    def write(self, path: Path, value: Any) -> None:
        path.write_bytes(self.archive(value).out.getvalue())

    def archive(self, value: Any) -> _Members:
        """Return what is written of a value."""
        pickled = io.BytesIO()
        _Pickler(pickled, 2).dump(value)
        archive = _Members("archive")
        archive.add("data.pkl", pickled.getvalue())
        archive.add("byteorder", b"little")
        for key, content in enumerate(self.storages):
            archive.add(f"data/{key}", content)
        archive.add("version", b"3\n")
        archive.close()
        return archive


def padded(flat: np.ndarray, to: int) -> np.ndarray:
    return np.concatenate([flat, np.full(-len(flat) % to, 7, "f4")])


class Zero:
    """A checkpoint of a stage: ``files`` by name, ``values`` of all that it holds, and where parameters lie."""

    def __init__(
        self,
        stage: int,
        paddings: list[list[int]] | None = None,
        *,
        said: int = RANKS,
        shapes: dict[str, tuple[int, ...]] = SHAPES,
        cut: int = 20,
    ) -> None:
        """``said``: how many ranks the model's state tells of (0: it does not); ``cut``: where ranks cut their row of
        parameters, of stage 3."""
        rng, buffer, frozen = np.random.default_rng(3), np.arange(8, dtype="f4"), np.arange(12, dtype="f4")
        found = {name: rng.standard_normal(shape).astype("f4") for name, shape in shapes.items()}
        self.values = {**found, "frozen": frozen.reshape(4, 3), "buffer": buffer, "tied": found[GROUPS[0][0]]}
        self.files: dict[str, _Members] = {}
        # Of each parameter and rank: the number of its flat, where it begins there, and in itself, and how many.
        self._pieces: dict[tuple[str, int], list[tuple[int, int, int, int]]] = {}
        for rank in range(RANKS if stage == 3 else 1):
            saved = Saved()
            value = {
                "module": OrderedDict(buffer=saved.tensor(buffer)),
                "buffer_names": ["buffer"],
                "param_shapes": [OrderedDict((name, _Shape(shapes[name])) for name in group) for group in GROUPS],
                "frozen_param_shapes": {"frozen": _Shape((4, said or RANKS))},
                "frozen_param_fragments": {"frozen": saved.tensor(_of_rank(frozen, rank) if stage == 3 else frozen)},
                "shared_params": {"tied": GROUPS[0][0]},
                "dp_world_size" if said else "other": said,
                "ds_version": "0.19.8",
            }
            self.files[(f"zero_pp_rank_{rank}_" if stage == 3 else "") + STATES_FILE] = saved.archive(value)
        flats = self._in_rows(found, cut) if stage == 3 else self._in_groups(found, paddings)
        key = "fp32_flat_groups" if stage == 3 else "single_partition_of_fp32_groups"
        for rank in range(RANKS):
            saved = Saved()
            state: dict[str, Any] = {"zero_stage": stage, "partition_count": RANKS}
            state[key] = [saved.tensor(flat) for flat in flats[rank]]
            if paddings:
                state["param_alignment_paddings"] = paddings
            self.files[name_of(rank)] = saved.archive({STATE: state})

    def _in_groups(self, found: dict[str, np.ndarray], paddings: list[list[int]] | None) -> list[list[np.ndarray]]:
        """Return the flats of each rank, of stages 1 and 2."""
        flats: list[list[np.ndarray]] = [[] for _ in range(RANKS)]
        for number, group in enumerate(GROUPS):
            parts, begins = list[np.ndarray](), dict[str, int]()
            for at, name in enumerate(group):
                begins[name] = sum(map(len, parts))
                parts += [found[name].reshape(-1), np.full(paddings[number][at] if paddings else 0, 9, "f4")]
            rows = padded(np.concatenate(parts), 2 * RANKS).reshape(RANKS, -1)
            size = rows.shape[1]
            for rank, row in enumerate(rows):
                flats[rank].append(row)
                for name, begin in begins.items():
                    first, last = max(begin, rank * size), min(begin + found[name].size, (rank + 1) * size)
                    if first < last:
                        self._pieces[name, rank] = [(number, first - rank * size, first - begin, last - first)]
        return flats

    def _in_rows(self, found: dict[str, np.ndarray], cut: int) -> list[list[np.ndarray]]:
        """Return the flats of each rank, of stage 3."""
        flats = []
        for rank in range(RANKS):
            row = np.zeros(0, "f4")
            for name in (name for group in GROUPS for name in group):
                part, size = _of_rank(found[name].reshape(-1), rank), found[name].size
                at, begin = len(row), min(size, rank * len(part))
                row, end = np.append(row, part), min(size, begin + len(part))
                middle = min(max(at, cut), at + end - begin)
                pieces = [
                    (0, at, begin, middle - at),
                    (1, middle - cut, begin + middle - at, end - begin - middle + at),
                ]
                self._pieces[name, rank] = [piece for piece in pieces if piece[3]]
            flats.append([row[:cut], row[cut:]])
        return flats

    def pieces(self, name: str, rank: int) -> list[tuple[str, int, tuple[int, int]]]:
        """Return the pieces of a parameter that a rank has: member, where it begins in the value, and its place."""
        archive, found = self.files[name_of(rank)], []
        for flat, at, begin, count in self._pieces.get((name, rank), ()):
            start = archive.place(f"data/{flat}")[0] + 4 * at
            found.append((f"data/{flat}", 4 * begin, (start, start + 4 * count)))
        return found


def _of_rank(flat: np.ndarray, rank: int) -> np.ndarray:
    return padded(flat, RANKS).reshape(RANKS, -1)[rank]


def name_of(rank: int) -> str:
    return f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt"


def rank_file(folder: Path, rank: int) -> Path:
    return folder / name_of(rank)


def write(
    folder: Path, stage: int, paddings: list[list[int]] | None = None, *, said: int = RANKS
) -> dict[str, np.ndarray]:
    """Write a checkpoint of a stage; return the values of all that it holds."""
    made = Zero(stage, paddings, said=said)
    for name, archive in made.files.items():
        (folder / name).write_bytes(archive.out.getvalue())
    return made.values
