"""Options of the writer, as text: ``"transpose,zstd:9,chunk_size:4M"``.

Items are separated by commas; empty ones are ignored. Each item is a key, or a key and a value after the first colon.
Case and blanks matter. Each key may appear once (google/riegeli, doc/record_writer_options.md).
"""

from __future__ import annotations

import math
import re

from pparse.lazy import lazy_pattern
from pparse.riegeli.errors import InvalidArgumentError
from pparse.riegeli.parts import BROTLI, NONE, SNAPPY, ZSTD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

COMPRESSIONS: Final = {"uncompressed": NONE, "brotli": BROTLI, "zstd": ZSTD, "snappy": SNAPPY}
_PADDINGS: Final = ("padding", "initial_padding", "final_padding")
_OF_CHUNKS: Final = ("chunk_size", "bucket_fraction", *_PADDINGS, "parallelism")
VALID: Final = ("default", "transpose", *COMPRESSIONS, "window_log", "brotli_encoder", *_OF_CHUNKS)
LEVELS: Final = {"brotli": (0, 11, 6), "zstd": (-131072, 22, 3), "snappy": (1, 2, 1)}
WINDOW_LOGS: Final = {"brotli": (10, 30), "zstd": (10, 31)}
DEFAULT_PADDING: Final = 64 << 10
MAX_SIZE: Final = (1 << 64) - 1
_SUFFIXES: Final = {"": 0, "B": 0, "k": 10, "K": 10, "M": 20, "G": 30, "T": 40, "P": 50, "E": 60}
_REAL: Final = lazy_pattern(r"[ \t\n\v\f\r]*([+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?)([A-Za-z]*)", re.ASCII)
_INTEGER: Final = lazy_pattern(r"[ \t\n\v\f\r]*([+-]?\d{1,30})[ \t\n\v\f\r]*", re.ASCII)


class RecordWriterOptions:
    """What a `RecordWriter` does. `parse_options` makes one from text."""

    __slots__ = (
        "bucket_fraction",
        "chunk_size",
        "compression",
        "final_padding",
        "initial_padding",
        "level",
        "parallelism",
        "transpose",
        "window_log",
    )

    def __init__(self) -> None:
        self.transpose = False
        """Whether chunks are transposed: records taken apart by field."""
        self.compression = BROTLI
        """Compression in the file: 0 for none, or the byte of ``b`` (Brotli), ``z`` (Zstandard), ``s`` (Snappy)."""
        self.level = 6
        """Compression level."""
        self.window_log: int | None = None
        """Binary logarithm of the compression window; None for the default of the library."""
        self.chunk_size = 1 << 20
        """Bytes of records after which a chunk is closed."""
        self.bucket_fraction = 1.0
        """Size of a bucket of a transposed chunk, as a fraction of the chunk size."""
        self.initial_padding = 1
        """Multiple of bytes up to which the file is padded before the first chunk; 1 for no padding."""
        self.final_padding = 1
        """Multiple of bytes up to which the file is padded at the end; 1 for no padding."""
        self.parallelism = 0
        """Chunks that are compressed at the same time, beside the one being filled."""

    @property
    def bucket_size(self) -> int | None:
        """Bytes of one bucket of a transposed chunk; None for no limit."""
        if self.compression == NONE:
            return None
        size = self.chunk_size * self.bucket_fraction
        return max(1, int(min(size, float(MAX_SIZE)) + 0.5))

    def __repr__(self) -> str:
        return "RecordWriterOptions(" + ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__) + ")"


def parse_options(text: str) -> RecordWriterOptions:
    """Parse the options in ``text``.

    Raise `InvalidArgumentError`, with the option, its value and the valid ones, if an option is unknown or invalid.
    """
    given: dict[str, str | None] = {}
    for item in text.split(","):
        if not item:
            continue
        key, colon, value = item.partition(":")
        if key not in VALID:
            raise InvalidArgumentError(f"unknown option {key}; valid options: {', '.join(VALID)}")
        if key in given:
            raise InvalidArgumentError(f"option {key} is present more than once")
        if key == "default" and given:
            raise InvalidArgumentError("option default must be the first one")
        given[key] = value if colon else None
    options = RecordWriterOptions()
    _compression(given, options)
    _chunks(given, options)
    if given.get("default") is not None:
        raise _bad("default", given["default"], "(empty)")
    return options


def _bad(key: str, value: str | None, valid: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"option {key}: invalid value: {value or '(empty)'}; valid values: {valid}")


def _compression(given: dict[str, str | None], options: RecordWriterOptions) -> None:
    named = [key for key in COMPRESSIONS if key in given]
    if len(named) > 1:
        raise InvalidArgumentError(f"options {named[0]} and {named[1]} exclude each other")
    name = named[0] if named else "brotli"
    options.compression = COMPRESSIONS[name]
    if name == "uncompressed":
        if given.get(name):
            raise _bad(name, given[name], "(empty)")
        options.level = 0
        options.chunk_size = 4 << 10
    else:
        least, most, usual = LEVELS[name]
        value = given.get(name)
        options.level = _integer(name, value, least, most, "(empty), ") if value else usual
    if "window_log" in given:
        if name not in WINDOW_LOGS:
            raise InvalidArgumentError(f"options window_log and {name} exclude each other")
        if given["window_log"] != "auto":
            least, most = WINDOW_LOGS[name]
            options.window_log = _integer("window_log", given["window_log"], least, most, "auto, ")
    encoder = given.get("brotli_encoder", "rbrotli_or_cbrotli")
    if encoder not in ("rbrotli_or_cbrotli", "cbrotli", "rbrotli"):
        raise _bad("brotli_encoder", encoder, "rbrotli_or_cbrotli, cbrotli, rbrotli")


def _chunks(given: dict[str, str | None], options: RecordWriterOptions) -> None:
    if "transpose" in given:
        value = given["transpose"]
        if value not in (None, "", "true", "false"):
            raise _bad("transpose", value, "(empty), true, false")
        options.transpose = value != "false"
    if "chunk_size" in given and given["chunk_size"] != "auto":
        options.chunk_size = _size("chunk_size", given["chunk_size"], "auto, ")
    if "bucket_fraction" in given:
        options.bucket_fraction = _fraction(given["bucket_fraction"])
    if "parallelism" in given:
        options.parallelism = _integer("parallelism", given["parallelism"], 0, (1 << 31) - 1, "")
    for key, value in given.items():  # the later one wins, so keep the order
        if key in _PADDINGS:
            size = _size(key, value, "(empty), ") if value else DEFAULT_PADDING
            if key != "final_padding":
                options.initial_padding = size
            if key != "initial_padding":
                options.final_padding = size


def _integer(key: str, value: str | None, least: int, most: int, also: str) -> int:
    match = _INTEGER.fullmatch(value or "")
    if match is None or not least <= int(match[1]) <= most:
        raise _bad(key, value, f"{also}integers in the range [{least}..{most}]")
    return int(match[1])


def _size(key: str, value: str | None, also: str) -> int:
    match = _REAL.fullmatch(value or "")
    number = float(match[1]) if match else math.nan
    shift = _SUFFIXES.get(match[2]) if match else None
    if shift is None or not number * 2.0**shift >= 0.5:
        what = f"{also}integers expressed as reals with optional suffix [BkKMGTPE]"
        raise _bad(key, value, f"{what}, in the range [1..{MAX_SIZE}]")
    scaled = number * 2.0**shift
    return MAX_SIZE if scaled >= MAX_SIZE else int(scaled + 0.5)


def _fraction(value: str | None) -> float:
    match = _REAL.fullmatch(value or "")
    number = float(match[1]) if match and not match[2] else math.nan
    if not 0 <= number <= 1:
        raise _bad("bucket_fraction", value, "reals in the range [0..1]")
    return number
