"""Samples: numpy's files, an array by itself and an archive of arrays."""

from __future__ import annotations

import io
import random
import zipfile

from tests.truth.known import Sample, Value, mixed, sample

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Final

SHAPES: Final = {
    "wte": ("<f4", (64, 48)),
    "h/0/weight": ("<f2", (40, 40)),
    "h/0/bias": ("<i8", (40,)),
    "mask": ("|b1", (40, 3)),
    "h/1/weight": ("<f8", (20, 40)),
    "scale": ("<f8", ()),
    "wpe": ("|u1", (100, 17)),
    "empty": ("<f4", (0, 4)),
}


def header(descr: str, shape: tuple[int, ...]) -> bytes:
    """Return what numpy writes before the elements."""
    text = f"{{'descr': {descr!r}, 'fortran_order': False, 'shape': {shape!r}, }}".encode()
    text += b" " * (-(10 + len(text) + 1) % 64) + b"\n"
    return b"\x93NUMPY\x01\0" + len(text).to_bytes(2, "little") + text


def elements(rng: random.Random, descr: str, shape: tuple[int, ...], number: int) -> bytes:
    """Return the bytes of an array."""
    count = int(descr[2:])
    for length in shape:
        count *= length
    content = mixed(rng, count, number)
    return bytes(byte & 1 for byte in content) if descr == "|b1" else content


def read_arrays(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the arrays of numpy's files; raises what numpy raises."""
    import numpy as np

    if sample.name.startswith("npy"):
        return dict.fromkeys(sample.values, np.load(io.BytesIO(path.read_bytes())).tobytes())
    with np.load(io.BytesIO(path.read_bytes())) as arrays:
        return {name: arrays[name].tobytes() for name in arrays.files}


@sample
def make_npy() -> Sample:
    return array("npy", "<f4", (90, 64), 41)


@sample
def make_npy_bfloat16() -> Sample:
    """Of ml_dtypes: numpy calls it bytes of its width."""
    return array("npy-bfloat16", "<V2", (90, 64), 43)


@sample
def make_npy_float8() -> Sample:
    """Of ml_dtypes, or int4: the file says nothing but that elements are of a byte."""
    return array("npy-float8", "<V1", (90, 64), 44)


def array(name: str, descr: str, shape: tuple[int, ...], seed: int) -> Sample:
    """Return a sample of one array."""
    content = elements(random.Random(seed), descr, shape, 2)
    head = header(descr, shape)
    values = {"weight": Value(content, (len(head), len(head) + len(content)), ((0, len(head)),))}
    landmarks = (6, 10, len(head) // 2, len(head))
    more = {"header": len(head), "read": read_arrays}
    return Sample(name, "weight.npy", head + content, "tensors", values, "offset", landmarks, **more)  # type: ignore[arg-type]


@sample
def make_npz() -> Sample:
    """An archive of arrays, as `numpy.savez` writes it."""
    rng, out, spans = random.Random(42), io.BytesIO(), {}
    contents = {key: elements(rng, *SHAPES[key], number) for number, key in enumerate(SHAPES)}
    with zipfile.ZipFile(out, "w") as made:
        for key, content in contents.items():
            at = out.tell()
            with made.open(f"{key}.npy", "w", force_zip64=True) as member:
                member.write(header(*SHAPES[key]) + content)
            spans[key] = at, out.tell()
        directory = out.tell()
    raw = out.getvalue()
    values, entry = {}, directory
    for key, (at, end) in spans.items():
        following = entry + 46 + len(f"{key}.npy".encode())
        place = (end - len(contents[key]), end)
        values[key] = Value(contents[key], place, ((at, place[0]), (entry, following)))
        entry = following
    landmarks = (*(place for span in spans.values() for place in span), directory, len(raw) - 22)
    return Sample("npz", "arrays.npz", raw, "tensors", values, "offset", landmarks, hashed=True, read=read_arrays)
