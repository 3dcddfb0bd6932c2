"""Formats that are recognised but not read yet: one table for messages, `pparse formats` and the README."""

from __future__ import annotations

import re

from pparse.errors import told

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Final, Literal

NOT_YET: Final = "which this version does not read yet"
# The most names looked at to find out what an archive holds.
MOST_NAMES: Final = 10_000


class Named:
    """A format that is recognised, but not read."""

    __slots__ = ("extensions", "name", "read_by", "size", "test", "told_by", "what")

    def __init__(
        self,
        name: str,
        extensions: str,
        what: str,
        told_by: str,
        read_by: str,
        test: Callable[[bytes, bytes], bool],
        size: Callable[[bytes], int | None] = lambda head: None,
    ) -> None:
        self.name = name
        """Its name, as for ``-f``."""
        self.extensions = tuple(extensions.split())
        """Usual extensions of file names, with the dot."""
        self.what = what
        """What it is, in words."""
        self.told_by = told_by
        """How it is recognised, in words."""
        self.read_by = read_by
        """What reads it."""
        self.test = test
        """Takes the first 64 and the last 8 bytes (none if the end is unknown); tells whether they match."""
        self.size = size
        """Takes the first 64 bytes; returns the size of the file as they tell it, None if they do not."""

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


def _looks(pattern: bytes) -> Callable[[bytes, bytes], bool]:
    return lambda head, tail: re.match(pattern, head, re.DOTALL) is not None


def _number(at: int, size: int = 4, order: Literal["little", "big"] = "little", add: int = 0) -> Callable[[bytes], int]:
    return lambda head: int.from_bytes(head[at : at + size], order) + add


def _sqlite_size(head: bytes) -> int | None:
    page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
    return (65_536 if page == 1 else page) * pages or None


def _riff(kind: bytes) -> Callable[[bytes, bytes], bool]:
    return lambda head, tail: head.startswith(b"RIFF") and head[8:12] == kind


_NEVER: Final = _looks(b"(?!)")

# Magic bytes: the formats' specifications, and the table of file(1).
# Models, tables and records: what `pparse.document.inventory` lists.
DATA_FORMATS: Final = (
    # -- models
    Named(
        "ort",
        ".ort",
        "ONNX Runtime model (ORT format)",
        "ORTM at byte 4",
        "onnxruntime.InferenceSession (package onnxruntime); the .onnx that it was made of, pparse reads",
        _starts(b"ORTM", at=4),
    ),
    Named(
        "tflite",
        ".tflite",
        "TensorFlow Lite model",
        "TFL3 at byte 4",
        "the Interpreter of tensorflow.lite or ai-edge-litert",
        _starts(b"TFL3", at=4),
    ),
    Named(
        "executorch", ".pte", "ExecuTorch program", "ET12 at byte 4", "executorch.runtime", _looks(b"....ET[0-9]{2}")
    ),
    Named(
        "ggml",
        ".ggml .ggjt",
        "GGML model, from before GGUF",
        "lmgg, fmgg, tjgg or algg",
        "llama.cpp before August 2023; its convert-llama-ggml-to-gguf.py makes a GGUF of it, which pparse reads",
        _starts(b"lmgg", b"fmgg", b"tjgg", b"algg"),
    ),
    Named(
        "imatrix",
        ".imatrix",
        "importance matrix of llama.cpp, from before GGUF",
        "two numbers and blk. at byte 8",
        "llama-quantize of llama.cpp",
        _looks(rb"..\0\0..\0\0(blk\.|output)"),
    ),
    Named(
        "tensorrt",
        ".engine .plan .trt",
        "TensorRT engine",
        "ftrt",
        "tensorrt.Runtime, of the version and GPU it was made for",
        _starts(b"ftrt"),
    ),
    Named(
        "mlir", ".mlirbc", "MLIR bytecode (StableHLO?)", "ML ef R", "mlir-opt, stablehlo-translate", _starts(b"ML\xefR")
    ),
    Named("llvm-bitcode", ".bc", "LLVM bitcode", "BC c0 de", "llvm-dis", _starts(b"BC\xc0\xde")),
    Named(
        "ncnn-param",
        ".param",
        "ncnn network, as text",
        "the line 7767517",
        "ncnn.Net",
        _starts(b"7767517\n", b"7767517\r"),
    ),
    Named("ncnn-binary", ".param.bin", "ncnn network, binary", "dd 85 76 00", "ncnn.Net", _starts(b"\xdd\x85\x76\0")),
    Named(
        "openvino",
        ".xml",
        "OpenVINO model (its numbers are in the .bin beside it)",
        "XML with the root net",
        "openvino.Core().read_model (package openvino)",
        _looks(rb"(<\?xml[^>]*\?>)?\s*<net[ >]"),
    ),
    Named(
        "mxnet",
        ".params",
        "MXNet parameters",
        "12 01 00 00 00 00 00 00",
        "mxnet.nd.load",
        _starts(b"\x12\1" + bytes(6)),
    ),
    Named(
        "darknet",
        ".weights",
        "Darknet weights (YOLO)",
        "the version 0.2.5 as three numbers",
        "darknet, cv2.dnn.readNetFromDarknet",
        _starts(b"\0\0\0\0\2\0\0\0\5\0\0\0"),
    ),
    Named("fasttext", ".ftz", "fastText model", "ba 16 4f 2f", "fasttext.load_model", _starts(b"\xba\x16\x4f\x2f")),
    Named(
        "sentencepiece",
        ".spm",
        "SentencePiece tokenizer",
        "a message whose first piece is <unk>, <pad> or <s>",
        "sentencepiece.SentencePieceProcessor; its message, pparse reads as the format protobuf",
        _looks(rb"\n.\n.(<unk>|<pad>|<s>)"),
    ),
    Named(
        "tiktoken",
        ".tiktoken",
        "tiktoken vocabulary",
        "the line 'IQ== 0'",
        "tiktoken.load",
        _starts(b"IQ== 0\n", b"IQ== 0\r"),
    ),
    Named(
        "xgboost",
        ".deprecated",
        "XGBoost model, old binary form",
        "binf or bs64",
        "xgboost.Booster",
        _starts(b"binf", b"bs64"),
    ),
    Named(
        "ubjson",
        ".ubj",
        "Universal Binary JSON (XGBoost model?)",
        "an object with a counted key",
        "xgboost.Booster, or the package py-ubjson",
        _looks(rb"\{(L\0{7}.|l\0{3}.|[iU].)[A-Za-z_]"),
    ),
    Named(
        "lightgbm",
        ".lgb",
        "LightGBM model",
        "the lines tree and version=",
        "lightgbm.Booster",
        _looks(rb"tree\r?\nversion="),
    ),
    Named("catboost", ".cbm", "CatBoost model", "CBM1", "catboost.CatBoost().load_model", _starts(b"CBM1")),
    Named(
        "faiss",
        ".faiss .index.faiss",
        "faiss index",
        "the kind of index in four letters",
        "faiss.read_index",
        _looks(rb"(IxF2|IxFI|IxFl|IwFl|IwPQ|IwSq|IxPq|IxPT|IxMp|IxM2|IHNf|IHNs|IHNp|IxHe|IxSQ)..\0\0"),
    ),
    Named(
        "hdf5",
        ".h5 .hdf5 .keras",
        "HDF5 file (Keras weights?)",
        "89 HDF",
        "h5py.File (package h5py); a .keras of Keras 3 is a zip, whose members pparse reads",
        _starts(b"\x89HDF"),
    ),
    Named(
        "joblib-zfile",
        ".pkl.z",
        "compressed pickle of joblib before 0.10",
        "ZF0x",
        "joblib.load (package joblib), which still knows it",
        _starts(b"ZF0x"),
    ),
    Named(
        "zarr",
        ".zarr",
        "Zarr folder",
        ".zarray, .zgroup, .zmetadata or zarr.json in it",
        "zarr.open (package zarr)",
        _NEVER,
    ),
    Named(
        "orbax",
        ".orbax-checkpoint",
        "Orbax checkpoint (JAX), a folder",
        "_CHECKPOINT_METADATA or manifest.ocdbt in it",
        "orbax.checkpoint (package orbax-checkpoint)",
        _NEVER,
    ),
    Named(
        "coreml-package",
        ".mlpackage",
        "Core ML package, a folder",
        "Manifest.json in it",
        "coremltools.models.MLModel; the .mlmodel in it, pparse reads as the format protobuf",
        _NEVER,
    ),
    # -- tables and records
    Named("parquet", ".parquet", "Parquet file", "PAR1", "pyarrow.parquet, duckdb, polars", _starts(b"PAR1", b"PARE")),
    Named(
        "arrow",
        ".arrow .feather",
        "Arrow file (Feather)",
        "ARROW1",
        "pyarrow.ipc.open_file",
        _starts(b"ARROW1", b"FEA1"),
    ),
    Named(
        "arrow-stream",
        ".arrows",
        "Arrow stream",
        "ff ff ff ff and a length",
        "pyarrow.ipc.open_stream",
        _looks(rb"\xff{4}..\0\0\x10"),
    ),
    Named("orc", ".orc", "ORC file", "ORC", "pyarrow.orc", _starts(b"ORC")),
    Named("avro", ".avro", "Avro container file", "Obj 01", "fastavro.reader", _starts(b"Obj\1")),
    Named(
        "sqlite",
        ".sqlite .sqlite3 .db",
        "SQLite database",
        "SQLite format 3",
        "sqlite3",
        _starts(b"SQLite format 3\0"),
        _sqlite_size,
    ),
    Named("duckdb", ".duckdb", "DuckDB database", "DUCK at byte 8", "duckdb.connect", _starts(b"DUCK", at=8)),
    Named(
        "lmdb",
        ".mdb",
        "LMDB database",
        "de c0 ef be at byte 16",
        "lmdb.open (package lmdb)",
        _starts(b"\xde\xc0\xef\xbe", at=16),
    ),
    Named("leveldb", ".ldb", "LevelDB or RocksDB folder", "CURRENT and MANIFEST-… in it", "plyvel.DB, rocksdb", _NEVER),
    Named("cbor", ".cbor", "CBOR", "the tag d9 d9 f7", "cbor2.load (package cbor2)", _starts(b"\xd9\xd9\xf7")),
    Named(
        "bson",
        ".bson",
        "BSON (MongoDB dump)",
        "a length, a type and a name",
        "bson.decode_file_iter (package pymongo)",
        _looks(rb"[^\0]..\0[\1-\x13][A-Za-z_][A-Za-z0-9_.$]*\0"),
    ),
    Named(
        "netcdf",
        ".nc",
        "NetCDF classic file",
        "CDF 01, 02 or 05",
        "netCDF4, xarray",
        _starts(b"CDF\1", b"CDF\2", b"CDF\5"),
    ),
    Named("matlab", ".mat", "MATLAB file", "MATLAB 5.0 MAT-file", "scipy.io.loadmat", _starts(b"MATLAB 5.0 MAT-file")),
    Named("rdata", ".rdata .rda", "R workspace", "RDX2 or RDX3", "R, pyreadr", _starts(b"RDX2\n", b"RDX3\n")),
    Named("fits", ".fits", "FITS file", "SIMPLE  =", "astropy.io.fits", _starts(b"SIMPLE  =")),
    Named(
        "pcap",
        ".pcap .pcapng",
        "captured network packets",
        "d4 c3 b2 a1 or 0a 0d 0d 0a",
        "wireshark",
        _starts(b"\xd4\xc3\xb2\xa1", b"\n\r\r\n"),
    ),
)
_OTHERS: Final = (
    # -- archives and streams
    Named(
        "7z",
        ".7z",
        "7-Zip archive",
        "7z bc af 27 1c",
        "7z, py7zr",
        _starts(b"7z\xbc\xaf\x27\x1c"),
        lambda head: 32 + _number(12, 8)(head) + _number(20, 8)(head),
    ),
    Named("rar", ".rar", "RAR archive", "Rar!", "unrar, bsdtar", _starts(b"Rar!\x1a\7")),
    Named("lzip", ".lz", "lzip stream", "LZIP", "lzip", _starts(b"LZIP\1")),
    Named("lzop", ".lzo", "lzop stream", "89 LZO", "lzop", _starts(b"\x89LZO\0\r\n\x1a\n")),
    Named("compress", ".z", "stream of compress(1)", "1f 9d", "gzip -d", _looks(rb"\x1f\x9d[\x80-\x90]")),
    Named(
        "cpio",
        ".cpio",
        "cpio archive",
        "070701, 070702 or 070707",
        "cpio, bsdtar",
        _starts(b"070701", b"070702", b"070707"),
    ),
    Named("ar", ".ar .a .deb", "ar archive (Debian package?)", "!<arch>", "ar", _starts(b"!<arch>\n")),
    Named("rpm", ".rpm", "RPM package", "ed ab ee db", "rpm2cpio", _starts(b"\xed\xab\xee\xdb")),
    Named("cab", ".cab", "cabinet of Windows", "MSCF", "cabextract, bsdtar", _starts(b"MSCF\0\0\0\0"), _number(8)),
    Named("xar", ".xar .pkg", "xar archive", "xar!", "xar, bsdtar", _starts(b"xar!")),
    Named("squashfs", ".squashfs .sqfs", "SquashFS image", "hsqs", "unsquashfs", _starts(b"hsqs"), _number(40, 8)),
    # -- pictures, sound, documents, programs
    Named("png", ".png", "PNG picture", "89 PNG", "Pillow", _starts(b"\x89PNG\r\n\x1a\n")),
    Named("jpeg", ".jpg .jpeg", "JPEG picture", "ff d8 ff", "Pillow", _starts(b"\xff\xd8\xff")),
    Named("gif", ".gif", "GIF picture", "GIF87a or GIF89a", "Pillow", _starts(b"GIF87a", b"GIF89a")),
    Named("tiff", ".tif .tiff", "TIFF picture", "II*00 or MM00*", "Pillow, tifffile", _starts(b"II*\0", b"MM\0*")),
    Named("webp", ".webp", "WebP picture", "RIFF … WEBP", "Pillow", _riff(b"WEBP"), _number(4, add=8)),
    Named("wav", ".wav", "WAV sound", "RIFF … WAVE", "soundfile, scipy.io.wavfile", _riff(b"WAVE"), _number(4, add=8)),
    Named("flac", ".flac", "FLAC sound", "fLaC", "soundfile", _starts(b"fLaC")),
    Named("ogg", ".ogg .opus", "Ogg stream", "OggS", "soundfile", _starts(b"OggS")),
    Named("mp4", ".mp4 .mov .m4a", "MP4 film or sound", "ftyp at byte 4", "ffmpeg", _starts(b"ftyp", at=4)),
    Named("matroska", ".mkv .webm", "Matroska film", "1a 45 df a3", "ffmpeg", _starts(b"\x1aE\xdf\xa3")),
    Named("pdf", ".pdf", "PDF document", "%PDF-", "pypdf", _starts(b"%PDF-")),
    Named(
        "ole",
        ".doc .xls .ppt",
        "old Office document",
        "d0 cf 11 e0",
        "olefile",
        _starts(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"),
    ),
    Named("elf", ".so .elf", "program or library of Linux", "7f ELF", "readelf, pyelftools", _starts(b"\x7fELF")),
    Named("wasm", ".wasm", "WebAssembly module", "00 asm", "wasm-objdump", _starts(b"\0asm")),
)
NAMED: Final = (*DATA_FORMATS, *_OTHERS)
# Names that are said letter by letter, and begin with a vowel then.
_SPELLED: Final = ("HDF5", "MLIR", "LLVM", "LMDB", "MXNet", "MP4", "RPM", "R w", "XG")
_FOLDERS: Final = {
    "zarr": ((".zarray",), (".zgroup",), (".zmetadata",), ("zarr.json",)),
    "orbax": (("_CHECKPOINT_METADATA",), ("manifest.ocdbt",)),
    "coreml-package": (("Manifest.json",),),
    "leveldb": (("CURRENT", "LOCK"),),
}


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
    there = frozenset(members)
    found = (name for name, marks in _FOLDERS.items() if any(there.issuperset(mark) for mark in marks))
    return next(map(named_as, found), None)


def words(known: Named, head: bytes = b"", there: int | None = None) -> str:
    """Describe a file of this format, which begins with ``head`` and of which so many bytes are there."""
    article = "an" if known.what[0] in "aeioAEIO" or known.what.startswith(_SPELLED) else "a"
    wanted = known.size(head) if there is not None and len(head) >= 32 else None
    cut = ""
    if wanted is not None and there is not None and there < wanted < 1 << 62:
        cut = f"; it is cut: {there:,} of the {wanted:,} bytes that its header tells are there"
    other = told(f": 'pparse formats {known.name}' says what does", f"; read by {known.read_by}")
    return f"{article} {known.what}, {NOT_YET}{other}{cut}"


def held_model(names: Iterable[str]) -> str | None:
    """Return what kind of model a zip with these member names holds; None: no model."""
    last = {name.rpartition("/")[2] for name in names}
    if "archive_format" in last and "model.json" in last:
        return "a PyTorch exported program (.pt2)"
    return "a Keras model" if "config.json" in last and "model.weights.h5" in last else None
