"""Formats that are recognised but not read yet: one table for messages, `pparse formats` and the README."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final

NOT_YET: Final = "which this version does not read yet"
# The most names looked at to find out what an archive holds.
MOST_NAMES: Final = 10_000


class Named:
    """A format that is recognised, but not read."""

    __slots__ = ("extensions", "name", "read_by", "test", "told_by", "what")

    def __init__(
        self,
        name: str,
        extensions: tuple[str, ...],
        what: str,
        told_by: str,
        read_by: str,
        test: Callable[[bytes, bytes], bool],
    ) -> None:
        self.name = name
        """Its name, as for ``-f``."""
        self.extensions = extensions
        """Usual extensions of file names, with the dot."""
        self.what = what
        """What it is, in words."""
        self.told_by = told_by
        """How it is recognised, in words."""
        self.read_by = read_by
        """What reads it."""
        self.test = test
        """Takes the first 64 and the last 8 bytes (none if the end is unknown); tells whether they match."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "name": self.name,
            "extensions": list(self.extensions),
            "description": self.what,
            "told_by": self.told_by,
            "read_by": self.read_by,
        }


def _starts(*magics: bytes, at: int = 0) -> Callable[[bytes, bytes], bool]:
    return lambda head, tail: head.startswith(magics, at)


NAMED: Final = (
    Named(
        "ort",
        (".ort",),
        "ONNX Runtime model (ORT format)",
        "ORTM at byte 4",
        "onnxruntime.InferenceSession (package onnxruntime); the .onnx that it was made of, pparse reads",
        _starts(b"ORTM", at=4),
    ),
    Named(
        "tflite",
        (".tflite",),
        "TensorFlow Lite model",
        "TFL3 at byte 4",
        "the Interpreter of tensorflow.lite or ai-edge-litert",
        _starts(b"TFL3", at=4),
    ),
    Named(
        "hdf5",
        (".h5", ".hdf5", ".keras"),
        "HDF5 file (Keras weights?)",
        "89 HDF",
        "h5py.File (package h5py); a .keras of Keras 3 is a zip, whose members pparse reads",
        _starts(b"\x89HDF"),
    ),
    Named(
        "joblib-zfile",
        (".pkl.z",),
        "compressed pickle of joblib before 0.10",
        "ZF0x",
        "joblib.load (package joblib), which still knows it",
        _starts(b"ZF0x"),
    ),
    Named(
        "zarr",
        (".zarr",),
        "Zarr folder",
        ".zarray, .zgroup, .zmetadata or zarr.json in it",
        "zarr.open (package zarr)",
        lambda head, tail: False,
    ),
)
_ZARR: Final = frozenset((".zarray", ".zgroup", ".zmetadata", "zarr.json"))


def named(head: bytes, tail: bytes = b"") -> Named | None:
    """Return the format that the first (and last) bytes of a file match, if any."""
    return next((known for known in NAMED if known.test(head, tail)), None)


def named_as(name: str) -> Named | None:
    """Return the format with that name."""
    return next((known for known in NAMED if known.name == name), None)


def named_by(word: str) -> Named | None:
    """Return the format with that name, or with that extension, with or without its dot."""
    extension = "." + word.lower().removeprefix(".")
    return named_as(word) or next((known for known in NAMED if extension in known.extensions), None)


def named_folder(members: Iterable[str]) -> Named | None:
    """Return the format that a folder with these members matches, if any."""
    return named_as("zarr") if not _ZARR.isdisjoint(members) else None


def words(known: Named) -> str:
    """Describe a file of this format."""
    article = "an" if known.what[0] in "HO" else "a"
    return f"{article} {known.what}, {NOT_YET}"


def held_model(names: Iterable[str]) -> str | None:
    """Return what kind of model a zip with these member names holds; None: no model."""
    last = {name.rpartition("/")[2] for name in names}
    if "archive_format" in last and "model.json" in last:
        return "a PyTorch exported program (.pt2)"
    return "a Keras model" if "config.json" in last and "model.weights.h5" in last else None
