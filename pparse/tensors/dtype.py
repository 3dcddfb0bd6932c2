"""Element types: every fixed-width type of numpy and ml_dtypes, including those below 8 bits; numbers cast to others.

numpy and ml_dtypes are imported only when an array is needed.
"""

from __future__ import annotations

from pparse.data.base import byte_view
from pparse.display.text import shorten
from pparse.errors import LimitError, OptionError, UnsupportedError
from pparse.limits import format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

    import numpy as np
    from numpy.typing import NDArray


_LAST_CHARACTER: Final = 0x10FFFF
# Bytes of a character of text, of bytes, of plain bytes.
_WIDTHS: Final = {"S": 1, "U": 4, "V": 1}


def _is_of_no_size(name: str) -> bool:
    """Return whether ``name`` is that of texts or bytes of a size that numpy has not; numpy 1 cuts it to 32 bits."""
    size = name[1:].lstrip("0")
    if name[:1] not in _WIDTHS or not size:
        return False
    return size[0] == "-" or (size.isdecimal() and (len(size) > 10 or int(size) * _WIDTHS[name[0]] >> 31 > 0))


class DType:
    """An element type. ``str(dtype)`` is its numpy or ml_dtypes name."""

    __slots__ = ("_numpy", "bits", "itemsize", "kind", "name")

    def __init__(self, name: str, bits: int, kind: str) -> None:
        self.name = name
        """Its numpy or ml_dtypes name."""
        self.bits = bits
        """Bits per element in a file."""
        self.kind = kind
        """``bool``, ``int``, ``uint``, ``float``, ``complex`` or ``other``."""
        self.itemsize = max(1, bits // 8)
        """Bytes per element in an array; types below 8 bits take one byte each there."""
        self._numpy: Any = None

    @staticmethod
    def of(name: str) -> DType:
        """Return the type with that name, or with a type string of numpy (``<f4``, ``S5``, ``datetime64[s]``).

        A structure is named as numpy describes it in files: ``[('x', '<f4'), ('y', '>i2', (3,))]``. Raises ValueError
        if there is none.
        """
        known = DTYPES.get(name)
        if known is not None:
            return known
        if name.startswith("["):
            from pparse.tensors.npy import type_of_text

            try:
                return type_of_text(name)
            except ValueError as error:
                raise ValueError(f"not an element type: {shorten(name)!r}: {error}") from error
        import numpy as np

        # numpy reads control characters as its type numbers, and "1f4" as an array; numpy 1 reads "f4," as "f4".
        kind = name.lstrip("<>|=")
        if not name.isprintable() or "," in name or kind[:1].isdigit() or _is_of_no_size(kind):
            raise ValueError(f"not an element type: {shorten(name)!r}")
        try:
            dtype = np.dtype(name).newbyteorder("=")
        except (TypeError, ValueError, SyntaxError) as error:
            raise ValueError(f"not an element type: {name!r}") from error
        if dtype.hasobject or dtype.fields is not None or dtype.subdtype is not None or not dtype.itemsize:
            raise ValueError(f"not a fixed-width element type: {name!r}")
        known = DTYPES.get(dtype.name)
        if known is not None:
            return known
        other = DType(dtype.str if dtype.kind in "SUV" else dtype.name, 8 * dtype.itemsize, "other")
        other._numpy = dtype
        return other

    @staticmethod
    def named(meant: object) -> DType:
        """Return the type that a person means: by a `DType`, a type of numpy or torch, or any name that is in use.

        Names are those of `of`, with or without the library's (``torch.float32``, ``np.float16``), and short ones
        (``bf16``, ``fp16``, ``half``; ``BF16``, ``F8_E4M3`` and ``I8`` as safetensors has them). Where libraries
        differ numpy's meaning counts: ``float`` is float64, ``torch.float`` float32, ``i8`` int64; only ``f16`` is
        float16. Raises ValueError if there is none.
        """
        if isinstance(meant, DType):
            return meant
        text = str(meant)
        if not isinstance(meant, str) and not text.startswith("torch."):
            import numpy as np

            try:  # numpy takes None for float64
                text = np.dtype(meant).name if meant is not None else ""  # type: ignore[call-overload]
            except TypeError as error:
                raise ValueError(f"not an element type: {shorten(text)!r}") from error
        library, _, name = text.rpartition(".")
        if library in _LIBRARIES:
            text = (_TORCH if library == "torch" else {}).get(name, name)
        known = SHORT.get(text)
        if known is not None:
            return DTYPES[known]
        try:
            return DType.of(text)
        except ValueError:
            known = SHORT.get(text.upper(), text.lower())
            if known not in DTYPES:
                raise
            return DTYPES[known]

    @property
    def is_number(self) -> bool:
        """Whether its elements are numbers: not texts, times, structures or plain bytes."""
        return self.kind != "other" or self.name.startswith(("float", "complex"))

    @property
    def packed(self) -> bool:
        """Whether several elements share a byte in a file."""
        return self.bits < 8

    @property
    def numpy(self) -> np.dtype[Any]:
        """The numpy dtype of an array of this type; that of ml_dtypes if numpy has none.

        Raises `UnsupportedError` if the installed ml_dtypes is too old, or numpy has no such type on this machine.
        """
        if self._numpy is None:
            import numpy as np

            if self.name in DTYPES and self.name not in _OF_NUMPY:
                import ml_dtypes

                scalar = getattr(ml_dtypes, self.name, None)
                if scalar is None:
                    raise UnsupportedError(f"the installed ml_dtypes has no {self.name}", package="ml_dtypes>=0.6")
                self._numpy = np.dtype(scalar)
            else:
                self._numpy = self._of_numpy()
        return self._numpy  # type: ignore[no-any-return]

    def _of_numpy(self) -> np.dtype[Any]:
        import numpy as np

        try:
            if self.name.startswith("["):
                from pparse.tensors.npy import numpy_structure

                return numpy_structure(self.name)  # type: ignore[no-any-return]
            return np.dtype(self.name)
        except (TypeError, ValueError) as error:
            raise UnsupportedError(f"numpy has no type {shorten(self.name)} here: {error}") from error

    @property
    def dtype(self) -> np.dtype[Any]:
        """The same as `numpy`: so ``np.dtype(tensor.dtype)`` works."""
        return self.numpy

    @property
    def hasobject(self) -> bool:
        """False: no element is a Python object."""
        return False

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return DType.of, (self.name,)

    @property
    def raw_numpy(self) -> np.dtype[Any]:
        """The unsigned integer dtype that holds an element's bits; bytes if there is none of that width."""
        import numpy as np

        size = self.itemsize
        return np.dtype(f"u{size}" if size in (1, 2, 4, 8) else f"V{size}")

    def stored_nbytes(self, count: int) -> int:
        """Return how many bytes ``count`` elements take in a file; the last byte may be partly used."""
        return -(-count * self.bits // 8)

    def unpack(self, packed: NDArray[np.uint8], count: int) -> NDArray[np.uint8]:
        """Return the codes of ``count`` elements, one per byte; the first element is in the lowest bits.

        A view of them as `numpy` are these elements: ml_dtypes uses only the low bits of each byte.
        """
        import numpy as np

        bits = self.bits
        if bits == 8:
            return packed[:count]
        if 8 % bits == 0:
            shifts = np.arange(0, 8, bits, dtype=np.uint8)
            codes = (packed[:, None] >> shifts) & np.uint8((1 << bits) - 1)
            return codes.reshape(-1)[:count]
        # Six bits: four elements in three bytes.
        whole = np.zeros(-(-len(packed) // 3) * 3, np.uint8)
        whole[: len(packed)] = packed
        triples = whole.reshape(-1, 3).astype(np.uint32)
        words = triples[:, 0] | triples[:, 1] << np.uint32(8) | triples[:, 2] << np.uint32(16)
        sixes = (words[:, None] >> np.arange(0, 24, 6, dtype=np.uint32)) & np.uint32(0x3F)
        flat: NDArray[np.uint8] = sixes.astype(np.uint8).reshape(-1)[:count]
        return flat

    def pack(self, codes: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return the bytes that `unpack` makes ``codes`` of; bits of the last one that are left over are zero."""
        import numpy as np

        bits = np.unpackbits(codes.reshape(-1, 1), axis=1, count=self.bits, bitorder="little")
        return np.packbits(bits, bitorder="little")

    def __eq__(self, other: object) -> bool:
        return self.name == (other.name if isinstance(other, DType) else other)

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"DType({self.name!r})"

    def __str__(self) -> str:
        return self.name


# The others among `DTYPES` are those of ml_dtypes.
_OF_NUMPY: Final = frozenset(
    (
        *("bool", "float16", "float32", "float64", "complex64", "complex128"),
        *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    )
)

DTYPES: Final = {
    dtype.name: dtype
    for dtype in (
        DType("bool", 8, "bool"),
        *(DType(f"int{bits}", bits, "int") for bits in (1, 2, 4, 8, 16, 32, 64)),
        *(DType(f"uint{bits}", bits, "uint") for bits in (1, 2, 4, 8, 16, 32, 64)),
        *(DType(f"float{bits}", bits, "float") for bits in (16, 32, 64)),
        DType("bfloat16", 16, "float"),
        *(
            DType(f"float8_{form}", 8, "float")
            for form in ("e3m4", "e4m3", "e4m3b11fnuz", "e4m3fn", "e4m3fnuz", "e5m2", "e5m2fnuz", "e8m0fnu")
        ),
        DType("float6_e2m3fn", 6, "float"),
        DType("float6_e3m2fn", 6, "float"),
        DType("float4_e2m1fn", 4, "float"),
        DType("complex32", 32, "complex"),
        DType("bcomplex32", 32, "complex"),
        DType("complex64", 64, "complex"),
        DType("complex128", 128, "complex"),
    )
}

# What people write before a name, and names that mean something else there than in numpy.
_LIBRARIES: Final = frozenset(("torch", "np", "numpy", "jnp", "jax.numpy", "ml_dtypes", "tf"))
_TORCH: Final = {
    "float": "float32",
    "int": "int32",
    "short": "int16",
    "long": "int64",
    "chalf": "complex32",
    "cfloat": "complex64",
    "cdouble": "complex128",
}
# Short names. Formats write those in upper case; they count in lower case, too, unless numpy knows that: not i8.
SHORT: Final = {
    **{f"{short}{bits}": f"float{bits}" for short in ("F", "FP") for bits in (16, 32, 64)},
    **{f"{kind[0].upper()}{bits}": f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)},
    "f16": "float16",
    "BOOL": "bool",
    "HALF": "float16",
    "SINGLE": "float32",
    "DOUBLE": "float64",
    "BF16": "bfloat16",
    "F4": "float4_e2m1fn",
    "F6_E2M3": "float6_e2m3fn",
    "F6_E3M2": "float6_e3m2fn",
    **{f"{short}8_E4M3": "float8_e4m3fn" for short in ("F", "FP")},
    **{
        f"{short}8_{form}": f"float8_{form.lower()}"
        for short in ("F", "FP")
        for form in ("E5M2", "E4M3FNUZ", "E5M2FNUZ")
    },
    "F8_E8M0": "float8_e8m0fnu",
    "C64": "complex64",
    "C128": "complex128",
}


def dtype_named(word: str, names: Mapping[str, str] | None = None) -> DType | None:
    """Return the element type that a format's word means: one of ``names``, or the type's own name in capitals."""
    return DTYPES.get((names or {}).get(word, word.lower().replace("float8e", "float8_e")))


def in_bytes(name: str) -> DType:
    """Return the type with that name as it is stored in whole bytes, by TensorFlow and numpy: a byte each below 8 bits.

    Raises KeyError if there is none.
    """
    known = DTYPES[name]
    return DType(name, 8, known.kind) if known.packed else known


# -- Arrays to fill, and what the missing elements of a truncated tensor are filled up with ----------------------------


def filler(dtype: DType, form: Any, value: Any) -> NDArray[Any]:
    """Return an array of one element, of numpy's type ``form``, that stands for ``value``; of texts, 0 is an empty one.

    Raises ValueError if the type has no such value.
    """
    import numpy as np

    found = np.zeros(1, form)
    if type(value) is int and not value:
        if found.dtype.name in ("datetime64", "timedelta64"):
            # "NaT" of times that may have no unit, and so no zero; numpy warns if it is to convert a text.
            found.view(f"{found.dtype.byteorder}i8")[0] = np.iinfo("i8").min
        return found
    try:
        found[0] = value
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(f"cannot fill {dtype} with {value!r}: {error}") from error
    return found


def bytes_of(buffer: Any) -> memoryview:
    """Return a flat view of a buffer's bytes, also for arrays with types that the buffer protocol does not know.

    Raises ValueError if they are not in a row.
    """
    if not hasattr(buffer, "__array_interface__"):
        return byte_view(buffer)
    if not buffer.flags.c_contiguous:
        raise ValueError("the array is not contiguous")
    view: memoryview = buffer.reshape(-1).view("u1").data
    return view


def new_array(shape: int | tuple[int, ...], form: np.dtype[Any], name: str) -> NDArray[Any]:
    """Return an array of this shape to fill, for the tensor ``name``. Raises `LimitError` if there is no room.

    Few bytes may stand for any number of elements.
    """
    import numpy as np

    try:
        return np.empty(shape, form)
    except (MemoryError, ValueError) as error:
        size = int(np.prod(shape, dtype=object)) * form.itemsize
        reason = f"the array would take {format_size(size)}"
        raise LimitError(reason, option="a slice", wanted=size, path=name) from error


def new_floats(count: int, name: str) -> NDArray[Any]:
    """Return an array of ``count`` float32 to fill, as `new_array` does."""
    return new_array(count, DTYPES["float32"].numpy, name)


# -- Numbers from one type to another; floating ones rounded to the nearest, ties to even ------------------------------

_BY_NUMPY: Final = ("float64", "float32", "float16")


def are_characters(array: Any) -> bool:
    """Return whether all texts in an array, or in the fields of a structure, are of characters that exist: numpy makes
    texts of others, on which Python breaks."""
    import numpy as np

    parts = [np.ma.getdata(array)]
    while parts:
        part = parts.pop()
        if part.dtype.names is not None:
            parts += [part[name] for name in part.dtype.names]
        elif part.dtype.kind == "U" and part.size:
            codes = np.ascontiguousarray(part).view(part.dtype.byteorder + "u4")
            if (codes > _LAST_CHARACTER).any():
                return False
    return True


def as_type(values: NDArray[Any], target: DType) -> tuple[NDArray[Any], int]:
    """Return ``values`` as ``target``, and how many of the numbers that cannot hold, not even rounded.

    Raises `OptionError` for complex numbers as real ones.
    """
    import numpy as np

    if target.kind == "float" and (values.dtype.kind == "f" or values.dtype.isbuiltin == 2):
        return cast(values, target)
    if values.dtype.kind == "c" and target.kind != "complex":
        raise OptionError(f"complex numbers would lose their imaginary parts as {target}; use complex64")
    with np.errstate(all="ignore"):
        made = values.astype(target.numpy)
        if made.dtype.kind in "biu":
            lost = np.count_nonzero(made != np.trunc(values))
        else:
            lost = np.count_nonzero(np.isfinite(values)) - np.count_nonzero(np.isfinite(made))
    return made, max(0, int(lost))


def cast(values: NDArray[Any], target: DType) -> tuple[NDArray[Any], int]:
    """Return floating ``values`` as ``target``, and how many finite ones are too large for it.

    Those become infinite, or NaN in a type without infinity. A NaN stays a NaN.
    """
    import numpy as np

    with np.errstate(all="ignore"):
        if values.dtype.isbuiltin != 1:  # types of ml_dtypes: float32 holds each of their numbers
            values = values.astype(np.float32)
        if target.name in _BY_NUMPY:
            found = values.astype(target.numpy)
        else:
            found = _rounded_to_odd(values).astype(target.numpy)
        lost = np.count_nonzero(np.isfinite(values)) - np.count_nonzero(np.isfinite(found))
    return found, int(lost)


def _rounded_to_odd(values: NDArray[Any]) -> NDArray[Any]:
    """Return ``values`` as float32, of which rounding once more gives what rounding ``values`` once would.

    A value between two float32 becomes the one with an odd last bit, so it stays off the ties of any narrower type.
    Rounded to the nearest twice, it could come to lie on a tie by the first, and go the wrong way by the second.
    """
    import numpy as np

    if values.dtype != np.float64:
        return values.astype(np.float32, copy=False)
    near = values.astype(np.float32)
    back = near.astype(np.float64)
    bits = near.view(np.uint32)
    even = (bits & 1 == 0) & (back != values) & ~np.isnan(values)
    # The other neighbour: nearer to zero if the nearest is too large, else farther from it (of zero: with its sign).
    inward = np.abs(back) > np.abs(values)
    step = np.where(inward, np.uint32(0xFFFFFFFF), np.uint32(1))
    bits = np.where(even, bits + step, bits)
    return bits.view(np.float32)
