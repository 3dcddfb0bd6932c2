"""Wrappers: archives and compressed streams around a sample, by the usual libraries, and what damage to them means.

Each wrapping gives a `Layer` for every file in it: the layer knows how bytes of the wrapped file become bytes of that
file, and so which of them a damage reaches. `Wrapped.reach` follows a chain of layers inwards.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from dataclasses import dataclass, field, replace
from functools import cache, partial
from typing import TYPE_CHECKING

from tests import zstd
from tests.truth.damage import Damage, Reach
from tests.truth.samples import Sample, csv_bytes, load, mixed, text_bytes

if TYPE_CHECKING:
    from collections.abc import Callable

STAMP = 1_700_000_000


@dataclass(frozen=True)
class Layer:
    """Where one file lies in a wrapping: bytes ``[start, end)``, ``needs``, the bytes of its header.

    ``decoded`` says how much of the file a prefix of its compressed bytes gives (None: it is stored). ``covered``: a
    checksum confirms the bytes; it stands in the ranges ``checks``. ``size`` of the file. ``edge``: where bytes that
    come in or go are not told from a change of the file itself (the padding behind a member of a tar). ``exact``:
    ``decoded`` is not just the least that can be had. ``listed``: where its name stands once more, in a directory whose
    word counts: if that is hit, the file may have another name.
    """

    start: int
    end: int
    size: int
    needs: tuple[tuple[int, int], ...] = ()
    decoded: Callable[[int], int] | None = None
    covered: bool = False
    checks: tuple[tuple[int, int], ...] = ()
    edge: tuple[int, int] | None = None
    exact: bool = True
    listed: tuple[int, int] | None = None

    def inward(self, reach: Reach) -> Reach:
        """Return what of the file is reached."""
        lost = reach.lost or any(reach.touches(*need) for need in self.needs)
        lost = lost or any(at == end == self.start for at, end in reach.ranges)  # between the header and its file
        hit = reach.touches(self.start, self.end)
        doubt = reach.doubt or (self.covered and not reach.cut and any(reach.touches(*check) for check in self.checks))
        if self.edge is not None and reach.shifted:
            doubt = doubt or any(at <= self.edge[1] and end >= self.edge[0] for at, end in reach.ranges)
        if not hit:
            vouched = self.covered and not any(reach.touches(*check) for check in self.checks)
            return Reach((), False, reach.cut, lost, doubt, reach.frayed, vouched)
        if self.decoded is not None:
            first = min(max(at, self.start) for at, end in reach.ranges if end >= self.start)
            at = self.decoded(first - self.start)
            ranges: tuple[tuple[int, int], ...] = ((at, self.size),) if at < self.size else ()
            return Reach(ranges, False, reach.cut, lost, doubt or not reach.cut, True)
        ranges = tuple(
            (max(at, self.start) - self.start, min(end, self.end) - self.start)
            for at, end in reach.ranges
            if Reach(((at, end),)).touches(self.start, self.end)
        )
        if self.edge is not None and reach.came:
            # The header of a tar's member says how long it is: as many bytes as came in lie beyond its end now.
            ranges += ((max(0, self.size - reach.came), self.size),)
        # Behind a checksum, the whole of a file that was hit is in doubt.
        return Reach(ranges, reach.shifted, reach.cut, lost, doubt or (self.covered and not reach.cut), True)


@dataclass(frozen=True)
class File:
    """A file somewhere in a wrapping: its bytes, and the layers that lead to it, outermost first."""

    content: bytes
    chain: tuple[Layer, ...]

    @property
    def covered(self) -> bool:
        """Whether a checksum is over its bytes."""
        return any(layer.covered for layer in self.chain)

    def renamed(self, damage: Reach) -> bool:
        """Whether damage of the outermost file reaches its name in a directory."""
        for layer in self.chain:
            if layer.listed is not None and damage.touches(*layer.listed):
                return True
            damage = layer.inward(damage)
        return False

    @property
    def exact(self) -> bool:
        """Whether no more can be had of it than `reach` says."""
        return all(layer.exact for layer in self.chain)

    def reach(self, damage: Reach) -> Reach:
        """Return what of this file is reached, if ``damage`` of the outermost one is."""
        for layer in self.chain:
            damage = layer.inward(damage)
        return damage


@dataclass(frozen=True)
class Wrapped:
    """A sample in its wrapping: ``content`` of the file ``name``; ``inner``, how to go on to the sample from there.

    ``files`` are all in it that `recover` should write, by the path below its folder; ``main`` is that of the sample.
    ``directory``: where a directory stands, if nothing else tells which of two files with one name is the present one.
    """

    sample: Sample
    name: str
    content: bytes
    inner: tuple[str, ...]
    files: dict[str, File]
    main: str
    landmarks: tuple[int, ...] = ()
    folder: bool = False
    known: tuple[bytes, ...] = field(default=())
    directory: tuple[int, int] | None = None

    def reach(self, damage: Damage) -> Reach:
        """Return what of the sample's file is reached."""
        return self.files[self.main].reach(damage.reach(self.content))

    @property
    def given(self) -> bool:
        """Whether a member of an archive is the sample itself, not a stream of it."""
        return bool(self.inner) and self.inner[-1].endswith(self.sample.file)

    @property
    def covered(self) -> bool:
        """Whether a checksum is over all bytes of the sample."""
        return self.sample.hashed or self.files[self.main].covered


Entries = list[tuple[str, bytes]]
Layers = dict[str, Layer]

# -- archives: what they make of some files --------------------------------------------------------------------------


def zipped(method: int) -> Callable[[Entries], tuple[bytes, Layers, tuple[int, ...]]]:
    """Return what makes a zip, as the standard library writes it."""

    def make(entries: Entries) -> tuple[bytes, Layers, tuple[int, ...]]:
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in entries:
                info = zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10))
                info.compress_type = method
                info.external_attr = 0o100644 << 16
                archive.writestr(info, content)
            infos = archive.infolist()
            directory = archive.start_dir
        whole = out.getvalue()
        layers, marks, entry = {}, [directory, len(whole) - 22], directory
        for info, (name, content) in zip(infos, entries, strict=True):
            at = info.header_offset
            start = at + 30 + sum(struct.unpack_from("<HH", whole, at + 26))
            end = start + info.compress_size
            packed = whole[start:end]
            decoded = prefix_decoder("deflate", packed) if method else None
            listed = (entry + 46, entry + 46 + len(info.filename.encode()))
            checks = (at + 14, at + 18), (entry + 16, entry + 20)  # if one of them contradicts, no one knows
            entry += 46 + sum(struct.unpack_from("<HHH", whole, entry + 28))
            layers[name] = Layer(start, end, len(content), ((at, start),), decoded, True, checks, listed=listed)
            marks += [at, at + 14, start, end]
        return whole, layers, tuple(marks)

    return make


def tarred(entries: Entries) -> tuple[bytes, Layers, tuple[int, ...]]:
    """Make a tar, as the standard library writes it."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, content in entries:
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(content), STAMP
            archive.addfile(info, io.BytesIO(content))
    whole = out.getvalue()
    layers, marks = {}, []
    with tarfile.open(fileobj=io.BytesIO(whole)) as archive:
        for info, (name, content) in zip(archive.getmembers(), entries, strict=True):
            start, end = info.offset_data, info.offset_data + info.size
            padded = end + -end % tarfile.BLOCKSIZE
            layers[name] = Layer(start, end, len(content), ((info.offset, start),), edge=(end, padded))
            marks += [info.offset, info.offset + 124, info.offset + 148, start, end]
    return whole, layers, (*marks, len(whole) - 1024)


# -- streams ---------------------------------------------------------------------------------------------------------


def lz4_blocks(packed: bytes) -> list[tuple[int, int]]:
    """Return where the blocks of an LZ4 frame end in it, and how many bytes are decoded up to there, at least."""
    flags, sizes = packed[4], packed[5]
    largest = 1 << (8 + 2 * (sizes >> 4 & 7))
    at, made, found = 7 + (8 if flags & 8 else 0), 0, []
    while True:
        length = struct.unpack_from("<I", packed, at)[0] & 0x7FFFFFFF
        if not length:
            return found
        at += 4 + length + (4 if flags & 16 else 0)
        made += largest
        found.append((at, made))


def prefix_decoder(codec: str, packed: bytes) -> Callable[[int], int]:
    """Return what says how many bytes the first so many of ``packed`` give."""

    def decoded(count: int) -> int:
        head = packed[:count]
        try:
            if codec == "deflate":
                return len(zlib.decompressobj(-15).decompress(head))
            if codec in ("gz", "gz-stored"):
                return len(zlib.decompressobj(31).decompress(head))
            if codec == "zlib":
                return len(zlib.decompressobj().decompress(head))
            if codec == "bz2":
                return len(bz2.BZ2Decompressor().decompress(head))
            if codec == "lzma":
                return len(lzma.LZMADecompressor().decompress(head))
            if codec == "xz":
                return len(lzma.LZMADecompressor().decompress(head))
            if codec == "zst":
                return len(zstd.decompressor().decompress(head))
        except EOFError:
            return 0
        # Whole blocks only; the last one is shorter, which `min` sees to.
        return max((made for end, made in lz4_blocks(packed) if end <= count), default=0)

    return cache(decoded)


def compress(codec: str, content: bytes) -> bytes:
    """Compress with the codec's own library, with a checksum over the content if the format has one."""
    if codec in ("gz", "gz-stored"):
        return gzip.compress(content, 6 if codec == "gz" else 0, mtime=STAMP)
    if codec == "zlib":
        return zlib.compress(content)
    if codec == "bz2":
        return bz2.compress(content, 1)
    if codec == "lzma":
        return lzma.compress(content, lzma.FORMAT_ALONE)
    if codec == "xz":
        return lzma.compress(content, check=lzma.CHECK_CRC64)
    if codec == "zst":
        return zstd.compress(content, checksum=True)
    import cramjam

    packed = bytes(cramjam.lz4.compress(content))
    assert packed[4] & 4, "a frame with a checksum of its content"
    return packed


def in_members(content: bytes) -> tuple[bytes, Layer, tuple[int, ...]]:
    """Compress ``content`` as three gzip members, one behind the other, as tools that work in parallel do."""
    third = len(content) // 3 + 1
    parts = [compress("gz", content[at : at + third]) for at in range(0, len(content), third)]
    packed = b"".join(parts)
    begins = [sum(map(len, parts[:number])) for number in range(len(parts))]

    def decoded(count: int) -> int:
        made = 0
        for begin, part in zip(begins, parts, strict=True):
            if count > begin:
                made += len(zlib.decompressobj(31).decompress(part[: count - begin]))
        return made

    checks = tuple((begin, begin + len(part)) for begin, part in zip(begins, parts, strict=True))
    layer = Layer(0, len(packed), len(content), ((0, 10),), cache(decoded), True, checks)
    return packed, layer, (10, *begins, *(begin - 8 for begin in begins[1:]), len(packed) - 8, len(packed) - 4)


def streamed(codec: str, content: bytes) -> tuple[bytes, Layer, tuple[int, ...]]:
    """Compress ``content``; return the stream, its layer and its landmarks."""
    packed = compress(codec, content)
    inner = prefix_decoder(codec, packed)
    size = len(content)
    # The header leads to the rest; the trailer has the checksum.
    head = {"gz": 10, "gz-stored": 10, "bz2": 4, "xz": 12, "zst": 6, "lz4": 7, "zlib": 2, "lzma": 13}[codec]
    layer = Layer(
        0,
        len(packed),
        size,
        ((0, head),),
        lambda count: min(inner(count), size),
        codec != "lzma",
        ((0, len(packed)),),
        exact=codec != "lz4",
    )
    return packed, layer, (head, len(packed) // 2, len(packed) - 28, len(packed) - 8, len(packed) - 4)


# -- wrappings -------------------------------------------------------------------------------------------------------


@cache
def companions() -> tuple[tuple[str, bytes], ...]:
    """The other files of an archive."""
    import random

    return (
        ("pack/readme.txt", text_bytes(21, 6000)),
        ("pack/table.csv", csv_bytes(22, 1500)),
        ("pack/blob.bin", mixed(random.Random(23), 20_000, 0)),
        ("pack/empty", b""),
    )


def among(name: str, content: bytes) -> Entries:
    """Return the entries of an archive, with this one among them."""
    before, *behind = companions()
    return [before, (name, content), *behind]


def archive(sample: Sample, make: Callable[[Entries], tuple], name: str) -> Wrapped:
    """Put the sample, and the other files of its folder, into an archive."""
    entry = f"pack/{sample.file}"
    entries = among(entry, sample.content) + [(f"pack/{file}", content) for file, content in sample.siblings.items()]
    whole, layers, marks = make(entries)
    files = {path: File(content, (layers[path],)) for path, content in entries}
    inside = layers[entry]
    if inside.decoded is None:
        marks = (*marks, *(inside.start + mark for mark in sample.landmarks))
    inner = f"pack/{sample.entry}" if sample.folder_only else entry
    return Wrapped(sample, name, whole, (inner,), files, entry, marks)


def updated(sample: Sample) -> Wrapped:
    """Put the sample into a zip that had another version of it, and of the table, which are still there.

    As programs do that append to an archive and write a directory of what is valid now.
    """
    entry, table = f"pack/{sample.file}", "pack/table.csv"
    stale = io.BytesIO()
    with zipfile.ZipFile(stale, "w") as old:
        for name, content in ((entry, sample.content[::-1]), (table, csv_bytes(24, 700))):
            old.writestr(zipfile.ZipInfo(name, (2024, 5, 6, 7, 8, 10)), content)
        before = old.start_dir
    made = archive(sample, STORED, "it.zip")
    whole = stale.getvalue()[:before] + made.content
    directory = before + int.from_bytes(made.content[-6:-2], "little")
    raw = bytearray(whole)
    at = directory
    while raw[at : at + 4] == b"PK\1\2":  # the places of the members count from the beginning
        place = int.from_bytes(raw[at + 42 : at + 46], "little") + before
        raw[at + 42 : at + 46] = place.to_bytes(4, "little")
        at += 46 + sum(struct.unpack_from("<HHH", raw, at + 28))
    raw[-6:-2] = directory.to_bytes(4, "little")
    files = {
        path: File(file.content, tuple(map(partial(moved, by=before), file.chain))) for path, file in made.files.items()
    }
    marks = tuple(mark + before for mark in made.landmarks)
    return Wrapped(sample, "it.zip", bytes(raw), made.inner, files, made.main, marks, directory=(directory, len(raw)))


def moved(layer: Layer, by: int) -> Layer:
    """Return a layer that begins so many bytes later."""

    def shift(span: tuple[int, int]) -> tuple[int, int]:
        return span[0] + by, span[1] + by

    return replace(
        layer,
        start=layer.start + by,
        end=layer.end + by,
        needs=tuple(map(shift, layer.needs)),
        checks=tuple(map(shift, layer.checks)),
        listed=None if layer.listed is None else shift(layer.listed),
    )


def stream(wrapped: Wrapped, codec: str) -> Wrapped:
    """Compress a file, wrapped or not."""
    packed, layer, marks = in_members(wrapped.content) if codec == "gz-members" else streamed(codec, wrapped.content)
    files = {path: File(file.content, (layer, *file.chain)) for path, file in wrapped.files.items()}
    return Wrapped(
        wrapped.sample,
        f"{wrapped.name}.{codec.partition('-')[0]}",
        packed,
        wrapped.inner,
        files,
        wrapped.main,
        marks,
        known=(*wrapped.known, wrapped.content),
    )


def nest(wrapped: Wrapped, make: Callable[[Entries], tuple], name: str) -> Wrapped:
    """Put a file, wrapped already, into an archive among others."""
    entry = f"pack/{wrapped.name}"
    entries = among(entry, wrapped.content)
    whole, layers, marks = make(entries)
    files = {path: File(content, (layers[path],)) for path, content in entries if path != entry}
    for path, file in wrapped.files.items():
        files[f"{entry}/{path}"] = File(file.content, (layers[entry], *file.chain))
    if layers[entry].decoded is None:
        marks = (*marks, *(layers[entry].start + mark for mark in wrapped.landmarks))
    return Wrapped(
        wrapped.sample,
        name,
        whole,
        (entry, *wrapped.inner),
        files,
        f"{entry}/{wrapped.main}",
        marks,
        known=(*wrapped.known, wrapped.content),
    )


def plain(sample: Sample) -> Wrapped:
    size = len(sample.content)
    files = {sample.file: File(sample.content, (Layer(0, size, size),))}
    return Wrapped(sample, sample.file, sample.content, (), files, sample.file, sample.landmarks)


def folder(sample: Sample) -> Wrapped:
    """The files of a sharded model in a folder, as they are."""
    made = plain(sample)
    return Wrapped(sample, sample.file, made.content, (), made.files, made.main, made.landmarks, folder=True)


STORED, DEFLATED = zipped(zipfile.ZIP_STORED), zipped(zipfile.ZIP_DEFLATED)
WRAPPERS: dict[str, Callable[[Sample], Wrapped]] = {
    "plain": plain,
    "zip-stored": lambda sample: archive(sample, STORED, "it.zip"),
    "zip-deflated": lambda sample: archive(sample, DEFLATED, "it.zip"),
    "tar": lambda sample: archive(sample, tarred, "it.tar"),
    "tar-gz": lambda sample: stream(archive(sample, tarred, "it.tar"), "gz"),
    "tar-gz-stored": lambda sample: stream(archive(sample, tarred, "it.tar"), "gz-stored"),
    "tar-zst": lambda sample: stream(archive(sample, tarred, "it.tar"), "zst"),
    "gz": lambda sample: stream(plain(sample), "gz"),
    "gz-members": lambda sample: stream(plain(sample), "gz-members"),
    "bz2": lambda sample: stream(plain(sample), "bz2"),
    "xz": lambda sample: stream(plain(sample), "xz"),
    "zst": lambda sample: stream(plain(sample), "zst"),
    "lz4": lambda sample: stream(plain(sample), "lz4"),
    "zlib": lambda sample: stream(plain(sample), "zlib"),
    "lzma": lambda sample: stream(plain(sample), "lzma"),
    "tar-gz-of-zip": lambda sample: stream(nest(archive(sample, DEFLATED, "in.zip"), tarred, "it.tar"), "gz"),
    "zip-in-zip": lambda sample: nest(archive(sample, DEFLATED, "in.zip"), STORED, "it.zip"),
    "zip-deflated-of-zip-stored": lambda sample: nest(archive(sample, STORED, "in.zip"), DEFLATED, "it.zip"),
    "zip-updated": updated,
    "odd-zip-in-tar": lambda sample: nest(archive(sample, DEFLATED, "layer"), tarred, "it.tar"),
    "gz-in-tar": lambda sample: nest(stream(plain(sample), "gz"), tarred, "it.tar"),
    "tar-in-zip": lambda sample: nest(archive(sample, tarred, "in.tar"), DEFLATED, "it.zip"),
    "folder": folder,
}
# Wrappings of one file, not of the others of its folder.
ALONE = ("gz", "gz-members", "bz2", "xz", "zst", "lz4", "zlib", "lzma", "gz-in-tar")


def applies(sample: str, wrapper: str) -> bool:
    """Whether a sample can be wrapped so: a folder has an index, and what lies beside a stream is not looked for."""
    made = load(sample)
    if wrapper == "folder":
        return made.entry in made.siblings
    if made.folder_only:
        return bool(made.leads) and wrapper not in ("plain", *ALONE)
    return not made.leads or wrapper not in ALONE


@cache
def wrap(sample: str, wrapper: str) -> Wrapped:
    """Return a sample in its wrapping."""
    return WRAPPERS[wrapper](load(sample))
