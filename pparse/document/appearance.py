"""What data look like from outside: text, zeros, a web page, a format that is known but not read."""

from __future__ import annotations

import re
from codecs import getincrementaldecoder

from pparse.codecs.table import CODECS
from pparse.document.folder import all_of, folders_with, which_part
from pparse.errors import EndOfDataError, GapError, PparseError, told
from pparse.limits import MIB
from pparse.tree.parser import bare_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Final

    from pparse.tree.host import Host

# -- Formats that are recognised but not read yet: for messages, `pparse formats` and the README -----------------------

NOT_YET: Final = "which this version does not read yet"
# The most names looked at to find out what an archive holds.
MOST_NAMES: Final = 10_000

# A format a row: name, extensions, what it is, how it is told, what reads it; and what the first 64 bytes of its files
# begin with, or have ``@`` a place, or which regular expression (``~``) matches them. An indented line goes on.
# Source: the formats' specifications, and the table of file(1).
_MODELS: Final = r"""
ggml | .ggml .ggjt | GGML model, from before GGUF | lmgg, fmgg, tjgg or algg |
    llama.cpp before August 2023; its convert-llama-ggml-to-gguf.py makes a GGUF of it, which pparse reads |
    lmgg or fmgg or tjgg or algg
imatrix | .imatrix | importance matrix of llama.cpp, from before GGUF | two numbers and blk. at byte 8 |
    llama-quantize of llama.cpp | ~..\0\0..\0\0(blk\.|output)
tensorrt | .engine .plan .trt | TensorRT engine | ftrt | tensorrt.Runtime, of the version and GPU it was made for | ftrt
mlir | .mlirbc | MLIR bytecode (StableHLO?) | ML ef R | mlir-opt, stablehlo-translate | ML\xefR
llvm-bitcode | .bc | LLVM bitcode | BC c0 de | llvm-dis | BC\xc0\xde
ncnn-param | .param | ncnn network, as text | the line 7767517 | ncnn.Net | 7767517\n or 7767517\r
ncnn-binary | .param.bin | ncnn network, binary | dd 85 76 00 | ncnn.Net | \xdd\x85v\0
openvino | .xml | OpenVINO model (its numbers are in the .bin beside it) | XML with the root net |
    openvino.Core().read_model (package openvino) | ~(<\?xml[^>]*\?>)?\s*<net[ >]
mxnet | .params | MXNet parameters | 12 01 00 00 00 00 00 00 | mxnet.nd.load | \x12\x01\0\0\0\0\0\0
darknet | .weights | Darknet weights (YOLO) | the version 0.2.5 as three numbers | darknet, cv2.dnn.readNetFromDarknet |
    \0\0\0\0\x02\0\0\0\x05\0\0\0
fasttext | .ftz | fastText model | ba 16 4f 2f | fasttext.load_model | \xba\x16O/
tiktoken | .tiktoken | tiktoken vocabulary | the line 'IQ== 0' | tiktoken.load | IQ== 0\n or IQ== 0\r
xgboost | .deprecated | XGBoost model, old binary form | binf or bs64 | xgboost.Booster | binf or bs64
ubjson | .ubj | Universal Binary JSON (XGBoost model?) | an object with a counted key |
    xgboost.Booster, or the package py-ubjson | ~\{(L\0{7}.|l\0{3}.|[iU].)[A-Za-z_]
lightgbm | .lgb | LightGBM model | the lines tree and version= | lightgbm.Booster | ~tree\r?\nversion=
faiss | .faiss .index.faiss | faiss index | the kind of index in four letters | faiss.read_index |
    ~(IxF2|IxFI|IxFl|IwFl|IwPQ|IwSq|IxPq|IxPT|IxMp|IxM2|IHNf|IHNs|IHNp|IxHe|IxSQ)..\0\0
hdf5 | .h5 .hdf5 .keras | HDF5 file (Keras weights?) | 89 HDF |
    h5py.File (package h5py); a .keras of Keras 3 is a zip, whose members pparse reads | \x89HDF
joblib-zfile | .pkl.z | compressed pickle of joblib before 0.10 | ZF0x |
    joblib.load (package joblib), which still knows it | ZF0x
zarr | .zarr | Zarr folder | .zarray, .zgroup, .zmetadata or zarr.json in it | zarr.open (package zarr) | ~(?!)
orbax | .orbax-checkpoint | Orbax checkpoint (JAX), a folder | _CHECKPOINT_METADATA or manifest.ocdbt in it |
    orbax.checkpoint (package orbax-checkpoint) | ~(?!)
"""
_TABLES: Final = r"""
parquet | .parquet | Parquet file | PAR1 | pyarrow.parquet, duckdb, polars | PAR1 or PARE
arrow | .arrow .feather | Arrow file (Feather) | ARROW1 | pyarrow.ipc.open_file | ARROW1 or FEA1
arrow-stream | .arrows | Arrow stream | ff ff ff ff and a length | pyarrow.ipc.open_stream | ~\xff{4}..\0\0\x10
orc | .orc | ORC file | ORC | pyarrow.orc | ORC
avro | .avro | Avro container file | Obj 01 | fastavro.reader | Obj\x01
sqlite | .sqlite .sqlite3 .db | SQLite database | SQLite format 3 | sqlite3 | SQLite format 3\0
duckdb | .duckdb | DuckDB database | DUCK at byte 8 | duckdb.connect | DUCK @8
lmdb | .mdb | LMDB database | de c0 ef be at byte 16 | lmdb.open (package lmdb) | \xde\xc0\xef\xbe @16
leveldb | .ldb | LevelDB or RocksDB folder | CURRENT and MANIFEST-… in it | plyvel.DB, rocksdb | ~(?!)
cbor | .cbor | CBOR | the tag d9 d9 f7 | cbor2.load (package cbor2) | \xd9\xd9\xf7
bson | .bson | BSON (MongoDB dump) | a length, a type and a name | bson.decode_file_iter (package pymongo) |
    ~[^\0]..\0[\1-\x13][A-Za-z_][A-Za-z0-9_.$]*\0
netcdf | .nc | NetCDF classic file | CDF 01, 02 or 05 | netCDF4, xarray | CDF\x01 or CDF\x02 or CDF\x05
matlab | .mat | MATLAB file | MATLAB 5.0 MAT-file | scipy.io.loadmat | MATLAB 5.0 MAT-file
rdata | .rdata .rda | R workspace | RDX2 or RDX3 | R, pyreadr | RDX2\n or RDX3\n
fits | .fits | FITS file | SIMPLE  = | astropy.io.fits | SIMPLE  =
pcap | .pcap .pcapng | captured network packets | d4 c3 b2 a1 or 0a 0d 0d 0a | wireshark | \xd4\xc3\xb2\xa1 or \n\r\r\n
"""
_OTHERS: Final = r"""
7z | .7z | 7-Zip archive | 7z bc af 27 1c | 7z, py7zr | 7z\xbc\xaf'\x1c
rar | .rar | RAR archive | Rar! | unrar, bsdtar | Rar!\x1a\x07
lzip | .lz | lzip stream | LZIP | lzip | LZIP\x01
lzop | .lzo | lzop stream | 89 LZO | lzop | \x89LZO\0\r\n\x1a\n
compress | .z | stream of compress(1) | 1f 9d | gzip -d | ~\x1f\x9d[\x80-\x90]
cpio | .cpio | cpio archive | 070701, 070702 or 070707 | cpio, bsdtar | 070701 or 070702 or 070707
ar | .ar .a .deb | ar archive (Debian package?) | !<arch> | ar | !<arch>\n
rpm | .rpm | RPM package | ed ab ee db | rpm2cpio | \xed\xab\xee\xdb
cab | .cab | cabinet of Windows | MSCF | cabextract, bsdtar | MSCF\0\0\0\0
xar | .xar .pkg | xar archive | xar! | xar, bsdtar | xar!
squashfs | .squashfs .sqfs | SquashFS image | hsqs | unsquashfs | hsqs
png | .png | PNG picture | 89 PNG | Pillow | \x89PNG\r\n\x1a\n
jpeg | .jpg .jpeg | JPEG picture | ff d8 ff | Pillow | \xff\xd8\xff
gif | .gif | GIF picture | GIF87a or GIF89a | Pillow | GIF87a or GIF89a
tiff | .tif .tiff | TIFF picture | II*00 or MM00* | Pillow, tifffile | II*\0 or MM\0*
webp | .webp | WebP picture | RIFF … WEBP | Pillow | ~RIFF.{4}WEBP
wav | .wav | WAV sound | RIFF … WAVE | soundfile, scipy.io.wavfile | ~RIFF.{4}WAVE
flac | .flac | FLAC sound | fLaC | soundfile | fLaC
ogg | .ogg .opus | Ogg stream | OggS | soundfile | OggS
mp4 | .mp4 .mov .m4a | MP4 film or sound | ftyp at byte 4 | ffmpeg | ftyp @4
matroska | .mkv .webm | Matroska film | 1a 45 df a3 | ffmpeg | \x1aE\xdf\xa3
pdf | .pdf | PDF document | %PDF- | pypdf | %PDF-
ole | .doc .xls .ppt | old Office document | d0 cf 11 e0 | olefile | \xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1
elf | .so .elf | program or library of Linux | 7f ELF | readelf, pyelftools | \x7fELF
wasm | .wasm | WebAssembly module | 00 asm | wasm-objdump | \0asm
"""


class Named:
    """A format that is recognised, but not read."""

    __slots__ = ("_at", "_marks", "extensions", "name", "read_by", "told_by", "what")

    def __init__(self, row: str) -> None:
        self.name, extensions, self.what, self.told_by, self.read_by, marks = row.replace("\n   ", "").split(" | ", 5)
        self.extensions = tuple(extensions.split())
        """Usual extensions of file names, with the dot."""
        marks, _, at = marks.partition(" @")
        self._at = int(at or 0)
        self._marks: tuple[bytes, ...] | str = marks[1:]
        if marks[0] != "~":
            escaped = marks.encode("latin-1").decode("unicode_escape")
            self._marks = tuple(mark.encode("latin-1") for mark in escaped.split(" or "))

    def fits(self, head: bytes) -> bool:
        """Return whether files of the format begin with ``head``, the first 64 bytes of one."""
        if isinstance(self._marks, tuple):
            return head.startswith(self._marks, self._at)
        return re.match(self._marks.encode("latin-1"), head, re.DOTALL) is not None

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "name": self.name,
            "extensions": list(self.extensions),
            "description": self.what,
            "told_by": self.told_by,
            "read_by": self.read_by,
        }


def _named(rows: str) -> tuple[Named, ...]:
    return tuple(map(Named, re.split(r"\n(?! )", rows.strip())))


# Extensions of archives and compressed streams; not those of files that also happen to be zips (.jar, .npz, …).
ARCHIVE_EXTENSIONS: Final = (".zip", ".tar", *(name for codec in CODECS.values() for name in codec.extensions))
# Models, tables and records: what `pparse.document.inventory` lists.
DATA_FORMATS: Final = (*_named(_MODELS), *_named(_TABLES))
NAMED: Final = (*DATA_FORMATS, *_named(_OTHERS))
# Names that are said letter by letter, and begin with a vowel then.
_SPELLED: Final = ("HDF5", "MLIR", "LLVM", "LMDB", "MXNet", "MP4", "RPM", "R w", "XG")
_FOLDERS: Final = {
    "zarr": ((".zarray",), (".zgroup",), (".zmetadata",), ("zarr.json",)),
    "orbax": (("_CHECKPOINT_METADATA",), ("manifest.ocdbt",)),
    "leveldb": (("CURRENT", "LOCK"),),
}


def named(head: bytes) -> Named | None:
    """Return the format that the first bytes of a file match, if any."""
    return next((known for known in NAMED if known.fits(head)), None)


def named_as(name: str) -> Named | None:
    """Return the format with that name."""
    return next((known for known in NAMED if known.name == name), None)


def known_by(word: str) -> Named | None:
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
    wanted = _size_told(known.name, head) if there is not None and len(head) >= 32 else None
    cut = ""
    if wanted is not None and there is not None and there < wanted < 1 << 62:
        cut = f"; it is cut: {there:,} of the {wanted:,} bytes that its header tells are there"
    other = told(f": 'pparse formats {known.name}' says what does", f"; read by {known.read_by}")
    return f"{article} {known.what}, {NOT_YET}{other}{cut}"


def _size_told(name: str, head: bytes) -> int | None:
    """Return the size of a file as its first 64 bytes tell it; None if they do not."""
    if name == "sqlite":
        page, pages = int.from_bytes(head[16:18], "big"), int.from_bytes(head[28:32], "big")
        return (65_536 if page == 1 else page) * pages or None
    # Where numbers stand, how long they are, and what is added to their sum.
    places, add = {
        "7z": (((12, 8), (20, 8)), 32),
        "cab": (((8, 4),), 0),
        "squashfs": (((40, 8),), 0),
        "webp": (((4, 4),), 8),
        "wav": (((4, 4),), 8),
    }.get(name, ((), 0))
    return sum(int.from_bytes(head[at : at + size], "little") for at, size in places) + add if places else None


def held_model(names: Iterable[str]) -> str | None:
    """Return what kind of model a zip with these member names holds; None: no model."""
    last = {name.rpartition("/")[2] for name in names}
    return "a Keras model" if "config.json" in last and "model.weights.h5" in last else None


# -- What a file is instead of a model ---------------------------------------------------------------------------------

# What is often found under a model's name instead: (what it may begin with, what to report).
_MISTAKEN: Final = (
    ((b"version https://git-lfs",), "a Git LFS pointer, not the file itself: run 'git lfs pull' to fetch it"),
    (
        (b"<!DOCTYPE html", b"<!doctype html", b"<html", b"<HTML"),
        "an HTML page, not a model: the download was answered with a web page",
    ),
    ((b"<?xml",), "an XML document (an error message of a file server?)"),
)

# No placeholder is larger: a pointer has three lines, a page of a server some hundred.
_LARGEST_PLACEHOLDER: Final = MIB

# Formats whose files name others that hold their content: extensions; how many are looked into, and how far.
_NAMING: Final = (".onnx",)
_MOST_NAMING, _LOOKED_INTO = 16, 8 * MIB
# A shorter name may be in any file.
_SHORTEST: Final = 5

_ZEROS: Final = MIB  # no program writes so many zeros at both ends of a file


def head_of(extraction: Host, count: int) -> bytes:
    """Return the first bytes of an extraction; empty if they are lost."""
    if extraction.size is not None:
        count = min(count, extraction.size)
    return extraction.data.known(extraction.start, count)


def mistaken(head: bytes, there: int | None = None) -> str | None:
    """Return what a file is that begins with ``head`` and is known not to be a model; None if that is not known.

    ``there``: how many bytes there are; of some formats it is told that they are cut.
    """
    known = named(head)
    if known is not None:
        return words(known, head, there)
    return next((what for start, what in _MISTAKEN if head.startswith(start)), None)


def placeholder(extraction: Host) -> str | None:
    """Return what stands where the content of a file should be: a Git LFS pointer, a web page; None if nothing does.

    Asked of every file that is opened because another one belongs to it, before it is taken for data.
    """
    try:
        size = extraction.find_end() - extraction.start
        head = extraction.data.pread(extraction.start, min(size, 64)) if 0 < size <= _LARGEST_PLACEHOLDER else b""
    except (GapError, EndOfDataError):
        return None
    head = head.lstrip()
    return next((what for start, what in _MISTAKEN if head.startswith(start)), None)


def text_start(head: bytes) -> str | None:
    """Return the first bytes of a file as text, without a character that is cut at their end; None for binary data."""
    try:
        return getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return None


def is_text(head: bytes) -> bool:
    """Return whether a file begins with what is clearly text."""
    text = text_start(head)
    return text is not None and len(text) >= 8 and all(char.isprintable() or char in "\t\r\n" for char in text)


def nothing_there(extraction: Host) -> str | None:
    """Return a message if a file is empty, or begins and ends with more zeros than any program writes; else None."""
    if extraction.is_folder:
        return None
    data, start, end = extraction.data, extraction.start, extraction.end
    head = head_of(extraction, 64)
    if not head:
        return "the file is empty"
    if head.strip(b"\0") or end is None:  # more of a stream is known only once all of it is decoded
        return None
    for at in (start, max(start, end - _ZEROS)):
        known, unknown = data.read_known(at, min(_ZEROS, end - at))
        if unknown or not known or known.strip(b"\0"):
            return None
    where = "contains only zeros" if end - start <= 2 * _ZEROS else "begins and ends with 1 MiB of zeros"
    return f"it {where} (a download that was never written?)"


def known_other(extraction: Host) -> str | None:
    """Return what a file is if it is known but not read; None otherwise."""
    if extraction.is_folder:
        return None
    head = head_of(extraction, 64)
    end = extraction.end
    there = None if end is None else extraction.find_end() - extraction.start
    return mistaken(head, there) or mistaken(head.lstrip())


def what_it_is(extraction: Host, extensions: tuple[str, ...], of_models: tuple[str, ...]) -> str:
    """Return what to say of data that no parser recognises.

    ``extensions`` are those of the formats that are read, ``of_models`` of those whose files are models.
    """
    if extraction.is_folder:
        other = named_folder(extraction.members)  # type: ignore[attr-defined]
        if other is not None:
            return words(other)
        names = [name for name in extraction.members if bare_name(name).endswith(extensions)]  # type: ignore[attr-defined]
        hint = f"name one of its files: {', '.join(names[:4])}{' …' if len(names) > 4 else ''}"
        models = folders_with(extraction.folder, of_models)  # type: ignore[attr-defined]
        below = models or folders_with(extraction.folder, extensions)  # type: ignore[attr-defined]
        if below:
            hint = f"name a file or folder in it: {', '.join(below[:4])}{' …' if len(below) > 4 else ''}"
            hint += told(f"; {all_of(extraction.name)}", "") if models else ""
        elif not names:
            empty = not extraction.members  # type: ignore[attr-defined]
            hint = "it holds no files" if empty else "a folder is read as one model; name a file to look into it"
        return f"no model recognised in this folder; {hint}"
    what = known_other(extraction)
    if what is not None:
        return what
    owner = named_by(extraction)
    if owner is not None:
        return f"no parser recognises it, but {owner} beside it names it: it holds the bytes of tensors; open that"
    part = which_part(extraction.name, extraction.folder)  # type: ignore[attr-defined]
    if part is not None:
        return f"no parser recognises it; {part}"
    head = head_of(extraction, 64)
    if is_text(head):
        text = head.decode("utf-8", "replace")
        return f"no parser recognises this text: {text!r}; 'pparse formats' lists what is read"
    if not head.strip(b"\0"):
        return "no parser recognises it; it begins with zeros (a part that was never written?)"
    what = f"no parser recognises it (it begins with {head[:16].hex(' ')})"
    return f"{what}; 'pparse formats' lists them; {told('-f', 'format=')} names one"


def named_by(extraction: Host) -> str | None:
    """Return the file beside this one that names it as the place of its content; None if no such file is found.

    Looks for the name in the first and last 4 MiB of a few files with the extensions of such formats.
    """
    folder = extraction.folder  # type: ignore[attr-defined]
    if folder is None:
        return None
    wanted = extraction.name.rpartition("/")[2].encode("utf-8", "surrogateescape")
    if len(wanted) < _SHORTEST:
        return None
    try:
        own = wanted.decode("utf-8", "surrogateescape")
        names = [name for name in folder.names() or () if bare_name(name).endswith(_NAMING) and name != own]
        # Most probable first: model.onnx for model.onnx.data or model.onnx_data.
        names.sort(key=lambda name: not extraction.name.startswith(name))
        for name in names[:_MOST_NAMING]:
            file = extraction.sibling(name)  # type: ignore[attr-defined]
            most, end = _LOOKED_INTO // 2, file.find_end()
            head = file.data.pread(file.start, min(end - file.start, most))
            behind = max(file.start + len(head), end - most)
            if wanted in head or wanted in file.data.pread(behind, min(most, end - behind)):
                return str(name)
    except (PparseError, OSError):
        return None
    return None
