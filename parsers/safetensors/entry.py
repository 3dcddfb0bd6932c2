"""One entry of a safetensors header, parsed and checked."""

from __future__ import annotations

from math import prod

from pparse.findings import Severity
from pparse.lazy import lazy_pattern
from pparse.tensors.dtype import DTYPES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.tensors.dtype import DType
    from pparse.tree.result import Result

    Kind = tuple[DType | None, tuple[int, ...], str]

METADATA: Final = "__metadata__"
# The reference reader refuses longer headers (tensor.rs, MAX_HEADER_SIZE).
REFERENCE_HEADER_LIMIT: Final = 100_000_000

# What may stand between the parts of a JSON text (RFC 8259, section 2).
BLANKS: Final = b" \t\n\r"

# Fields of an entry, in the order in which the reference reader also accepts them from a JSON array (serde does so).
FIELDS: Final = ("dtype", "shape", "data_offsets")
_U64: Final = 1 << 64

# All 22 dtype words of the format (tensor.rs, enum Dtype).
STORED_DTYPES: Final[dict[str, DType]] = {
    word: DTYPES[name]
    for word, name in {
        "BOOL": "bool",
        "F4": "float4_e2m1fn",
        "F6_E2M3": "float6_e2m3fn",
        "F6_E3M2": "float6_e3m2fn",
        "U8": "uint8",
        "I8": "int8",
        "F8_E5M2": "float8_e5m2",
        "F8_E4M3": "float8_e4m3fn",
        "F8_E8M0": "float8_e8m0fnu",
        "F8_E4M3FNUZ": "float8_e4m3fnuz",
        "F8_E5M2FNUZ": "float8_e5m2fnuz",
        "I16": "int16",
        "U16": "uint16",
        "F16": "float16",
        "BF16": "bfloat16",
        "I32": "int32",
        "U32": "uint32",
        "F32": "float32",
        "C64": "complex64",
        "F64": "float64",
        "I64": "int64",
        "U64": "uint64",
    }.items()
}

_WORDS: Final = {dtype.name: word for word, dtype in STORED_DTYPES.items()}


def word_of(dtype: DType) -> str | None:
    """Return what safetensors calls a type; None if it has none, or stores it in fewer bits than these."""
    word = _WORDS.get(dtype.name)
    return word if word is not None and STORED_DTYPES[word].bits == dtype.bits else None


# A member of the header: tells its level from others if brackets are damaged.
_TEXT: Final = rb'"[^"\\\x00-\x1f]*+(?:\\.[^"\\\x00-\x1f]*+)*+"'
_BLANKS: Final = rb"[ \t\n\r]*+"
MEMBER: Final = lazy_pattern(
    _BLANKS
    + _TEXT
    + _BLANKS
    + b":"
    + _BLANKS
    + rb"\{(?:"
    + _BLANKS
    + rb'"(?:dtype|shape|data_offsets)"'
    + _BLANKS
    + b":"
    + _BLANKS
    + b"(?:"
    + _TEXT
    + rb"|\[[0-9, \t\n\r]*+\])"
    + _BLANKS
    + rb",?){3}\}"
)


class TensorInfo:
    """One entry of the header: a faultless one, as nearly all are; `CheckedInfo` is any other."""

    __slots__ = ("begin", "end", "kind")

    problem: str | None = None
    """What is wrong with the entry, in words; None: nothing."""
    unsupported = False
    """Whether the problem is a limit of ours or of numpy, rather than a fault of the file."""
    is_scalar = False
    """Whether a lone value stands where the entry should be."""
    wanted: int | None = None
    """Number that the problem is about: what was needed …"""
    got: int | None = None
    """… and what was found."""

    def __init__(self, kind: Kind, begin: int, end: int) -> None:
        self.kind = kind
        """Element type, None if it is unknown; length of each dimension; the word for the type in the header. If there
        is a problem, they may be incomplete."""
        self.begin = begin
        """Where its bytes begin, from the start of the data section."""
        self.end = end
        """Where its bytes end."""

    @property
    def is_placed(self) -> bool:
        """Whether it says where its bytes are."""
        return self.problem is None or self.begin != self.end

    @property
    def severity(self) -> Severity:
        """Severity of the problem; more dimensions than an array can have are not a fault of the file."""
        return Severity.WARNING if self.unsupported and self.kind[0] is not None else Severity.ERROR

    def with_problem(self, problem: str) -> TensorInfo:
        """Return the same entry with a problem."""
        info = CheckedInfo.__new__(CheckedInfo)
        TensorInfo.__init__(info, self.kind, self.begin, self.end)
        info.problem, info.unsupported, info.is_scalar, info.wanted, info.got = problem, False, False, None, None
        return info


class CheckedInfo(TensorInfo):
    """An entry that took all checks, and may have a problem."""

    __slots__ = ("got", "is_scalar", "problem", "unsupported", "wanted")

    def __init__(self, fields: object) -> None:
        super().__init__((None, (), "?"), 0, 0)
        self.problem = None
        self.unsupported = False
        self.wanted = self.got = None
        self.is_scalar = isinstance(fields, str | int | float | None)
        if isinstance(fields, list) and len(fields) == len(FIELDS):
            fields = dict(zip(FIELDS, fields, strict=True))
        if not isinstance(fields, dict):
            self.problem = "the header entry is not an object"
            return
        self._read_offsets(fields.get("data_offsets"))
        dtype, word = self._read_type(fields.get("dtype"))
        self.kind = dtype, self._read_shape(fields.get("shape")), word
        if self.problem is None:
            self._check_size(*self.kind)

    def _read_type(self, word: object) -> tuple[DType | None, str]:
        if isinstance(word, dict) and list(word.values()) == [None]:
            (word,) = word  # serde also accepts ``{"U8": null}``
        if not isinstance(word, str):
            self.problem = self.problem or ("the entry has no dtype" if word is None else "the dtype is not a string")
            return None, "?"
        dtype = STORED_DTYPES.get(word)
        if dtype is None:
            self.unsupported = True
            self.problem = self.problem or f"the dtype {word[:40]!r} is not a safetensors dtype"
        return dtype, word

    def _read_shape(self, shape: object) -> tuple[int, ...]:
        if not isinstance(shape, list):
            self.problem = self.problem or ("the entry has no shape" if shape is None else "the shape is not a list")
        elif not all(type(length) is int and 0 <= length < _U64 for length in shape):
            self.problem = self.problem or "a value in the shape is not a length"
        else:
            return tuple(shape)
        return ()

    def _read_offsets(self, offsets: object) -> None:
        if offsets is None:
            self.problem = "the entry has no data_offsets"
        elif not isinstance(offsets, list) or len(offsets) != 2:
            self.problem = "data_offsets is not a pair"
        elif not all(type(offset) is int and 0 <= offset < _U64 for offset in offsets):
            self.problem = "a value in data_offsets is not an offset"
        elif offsets[0] > offsets[1]:
            self.problem = "data_offsets end before they begin"
        else:
            self.begin, self.end = offsets

    def _check_size(self, dtype: DType | None, shape: tuple[int, ...], word: str) -> None:
        count = 1
        for length in shape:
            count *= length
            if count >= _U64:
                break
        # As the reference multiplies: an overflow counts even if a later factor is 0.
        bits = count * dtype.bits if dtype is not None else 0
        if bits >= _U64:
            self.problem = "the number of elements overflows 64 bits"
        elif bits % 8:
            self.problem = f"{count} elements of {word} do not fill whole bytes"
        elif bits // 8 != self.end - self.begin:
            self.problem = "dtype and shape need a different number of bytes than data_offsets span"
            self.wanted, self.got = bits // 8, self.end - self.begin
        elif not bits and prod(length for length in shape if length) >= 1 << 60:
            self.unsupported = True
            self.problem = "the shape is too large for an array, even for one without elements"
        elif len(shape) > 64:
            self.unsupported = True
            self.problem = f"an array cannot have {len(shape)} dimensions"
            self.wanted, self.got = len(shape), 64


def checked(fields: Any) -> TensorInfo:
    """Return an entry from its decoded fields: a `TensorInfo` if it is faultless and has elements."""
    try:
        begin, end = fields["data_offsets"]
        shape, word = fields["shape"], fields["dtype"]
        dtype = STORED_DTYPES[word]
    except (KeyError, TypeError, ValueError):
        return CheckedInfo(fields)
    if type(begin) is not int or type(end) is not int or type(shape) is not list or not 0 <= begin <= end:
        return CheckedInfo(fields)
    count = 1
    for length in shape:
        if type(length) is not int or length <= 0:
            return CheckedInfo(fields)
        count *= length
    if count * dtype.bits != (end - begin) * 8 or end >= 1 << 60 or len(shape) > 64:
        return CheckedInfo(fields)
    return TensorInfo((dtype, tuple(shape), word), begin, end)


def is_metadata(fields: object) -> bool:
    """Return whether the reference reader accepts this value of ``__metadata__``."""
    return fields is None or (isinstance(fields, dict) and all(isinstance(value, str) for value in fields.values()))


def info_of(header: Result, ordinal: int, fields: object) -> TensorInfo:
    """Return entry ``ordinal`` of ``header``, checked; repeated fields are a problem, as either may be meant."""
    info = checked(fields)
    if type(fields) is not dict or len(fields) <= len(FIELDS):
        return info
    for field in FIELDS:
        # The decoder renames the second one so; but a field may really have that name.
        if f"{field}#2" in fields and header.find(header.root.child(ordinal), field, 2) is not None:
            info = info.with_problem(f"the entry has more than one {field}")
    return info
