"""Zip files that torch writes only on another machine, in another version, or never: put together from its records.

`zip_bytes` writes the records; each sample says what is unusual. What torch reads in them is the truth; those that it
refuses are listed apart.
"""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from dataclasses import dataclass, replace

import torch
from torch.utils.serialization import config

from tests.interop.pytorch_zoo.sample import add, ramp, saved, written
from tests.interop.pytorch_zoo.tensors import of_type

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any


@dataclass(frozen=True)
class Record:
    """A member: its name and content, and what its headers say of it."""

    name: str
    content: bytes
    align: int = 1
    deflated: bool = False
    crc: int | None = None
    """Instead of the right one."""
    flags: int = 0x0800
    local_flags: int | None = None
    local_name: str | None = None
    local_size: int | None = None
    """Instead of the right one, in the local header only."""
    size: int | None = None
    """Instead of the right one, in the directory only."""
    descriptor: bool = False


def torch_records(value: Any, **options: Any) -> list[Record]:
    """Return the records that torch writes of a value, without the top folder."""
    buffer = io.BytesIO()
    torch.save(value, buffer, **options)
    with zipfile.ZipFile(buffer) as archive:
        return [Record(name.split("/", 1)[1], archive.read(name)) for name in archive.namelist()]


def local_header(record: Record, at: int, stored: bytes, top: str) -> bytes:
    name = f"{top}{record.local_name or record.name}".encode()
    crc = zlib.crc32(record.content) if record.crc is None else record.crc
    numbers = (crc, len(stored), len(record.content))
    if record.local_size is not None:
        numbers = (crc, record.local_size, record.local_size)
    if record.descriptor:
        numbers = (0, 0, 0)
    extra = b""
    if record.align > 1:
        room = -(at + 30 + len(name) + 4) % record.align
        extra = struct.pack("<2sH", b"FB", room) + b"Z" * room
    flags = record.flags if record.local_flags is None else record.local_flags
    method = 8 if record.deflated else 0
    sizes = (len(name), len(extra))
    return struct.pack("<4s5H3I2H", b"PK\3\4", 20, flags, method, 0, 0, *numbers, *sizes) + name + extra


def zip_bytes(records: list[Record], top: str = "archive/", comment: bytes = b"", shift: int = 0) -> bytes:
    """Return a zip file; all its offsets are larger by ``shift``."""
    body, directory = bytearray(), bytearray()
    for record in records:
        at = len(body)
        stored = record.content
        if record.deflated:
            packer = zlib.compressobj(9, zlib.DEFLATED, -15)
            stored = packer.compress(record.content) + packer.flush()
        body += local_header(record, at, stored, top) + stored
        crc = zlib.crc32(record.content) if record.crc is None else record.crc
        if record.descriptor:
            body += struct.pack("<4s3I", b"PK\7\10", crc, len(stored), len(record.content))
        name = f"{top}{record.name}".encode()
        size = len(record.content) if record.size is None else record.size
        head = (20, 20, record.flags | 8 * record.descriptor, 8 if record.deflated else 0, 0, 0, crc)
        packed = len(stored) if record.size is None else record.size
        tail = (packed, size, len(name), 0, 0, 0, 0, 0, at + shift)
        directory += struct.pack("<4s6H3I5H2I", b"PK\1\2", *head, *tail) + name
    end = (0, 0, len(records), len(records), len(directory), len(body) + shift, len(comment))
    return bytes(body + directory) + struct.pack("<4s4H2IH", b"PK\5\6", *end) + comment


def value() -> dict[str, torch.Tensor]:
    base = ramp(4, 5)
    return {"a": base, "view": base.t()[1:], "b": ramp(6, dtype=torch.int64), "c": ramp(3, dtype=torch.bfloat16)}


def is_data(record: Record) -> bool:
    return record.name.startswith("data/")


REFUSED_AND_WHOLE = {
    *("no_top.pt", "deep_top.pt", "hostile/encrypted_flag.pt", "hostile/encrypted_flag_pickle.pt"),
    *("hostile/patch_flag.pt", "hostile/long_storage.pt", "hostile/no_version.pt", "hostile/late_version.pt"),
}


def by_hand(name: str, note: str, meant: Any = None, **options: Any) -> Callable[[Any], None]:
    """Add a file of the records that the decorated function makes of torch's."""

    def decorate(change: Callable[[list[Record]], list[Record]]) -> None:
        def write(path: Any) -> None:
            path.write_bytes(zip_bytes(change(torch_records(value())), **options))

        known = value if name in REFUSED_AND_WHOLE else meant
        add(name, write, f"{note}; zip written by hand", meant=known)

    return decorate


def changed(records: list[Record], which: Callable[[Record], bool] = is_data, **fields: Any) -> list[Record]:
    return [replace(record, **fields) if which(record) else record for record in records]


def is_pickle(record: Record) -> bool:
    return record.name == "data.pkl"


# -- options of torch ------------------------------------------------------------------------------------------------


@written("alignment_4096.pt")
def _alignment(path):
    with config.patch({"save.storage_alignment": 4096}):
        torch.save(value(), path)


@written("no_crc32.pt", "compute_crc32 = False: each CRC is 0")
def _no_crc(path):
    with config.patch({"save.compute_crc32": False}):
        torch.save(value(), path)


@written("skip_data.pt", "saved within skip_data: room for the storages, and nothing in it")
def _skip(path):
    with torch.serialization.skip_data():
        torch.save({"a": torch.zeros(4, 5), "b": torch.zeros(3, dtype=torch.int16)}, path)


saved("no_byteorder.pt", _disable_byteorder_record=True)(value)


# -- other writers ---------------------------------------------------------------------------------------------------


def old_order(align: int) -> Callable[[Any], None]:
    def write(path: Any) -> None:
        new = {"format_version", "storage_alignment", "byteorder", "serialization_id"}
        records = torch_records([ramp(3, start=number) for number in range(12)])
        kept = [record for record in records if record.name.rsplit("/", 1)[-1].removeprefix(".") not in new]
        kept.sort(key=lambda record: (record.name != "version", record.name != "data.pkl", record.name))
        records = [replace(record, align=align, descriptor=is_data(record)) for record in kept]
        path.write_bytes(zip_bytes(records, top="model/"))

    return write


add("old_writer.pt", old_order(64), "version first, storages as 0, 1, 10, 11, 2 …; zip written by hand")
add("old_writer_unaligned.pt", old_order(1), "the same, not aligned; zip written by hand")


def swapped(raw: bytes, width: int) -> bytes:
    return b"".join(raw[at : at + width][::-1] for at in range(0, len(raw), width))


def big_endian(types: tuple[str, ...]) -> Callable[[Any], None]:
    def write(path: Any) -> None:
        tensors = {name: of_type(name, 2, 3) for name in types}
        widths = [
            tensor.real.element_size() if tensor.dtype.is_complex else tensor.element_size()
            for tensor in tensors.values()
        ]
        records = []
        for record in torch_records(tensors):
            if is_data(record):
                width = widths[int(record.name.removeprefix("data/"))]
                record = replace(record, content=swapped(record.content, width), align=64)
            elif record.name == "byteorder":
                record = replace(record, content=b"big")
            records.append(record)
        path.write_bytes(zip_bytes(records))

    return write


TYPED = (
    *("float32", "float64", "float16", "bfloat16", "bool", "complex64", "complex128"),
    *("int8", "int16", "int32", "int64", "uint8"),
)
UNTYPED = ("uint16", "uint32", "uint64", "float8_e5m2")
add("big_endian.pt", big_endian(TYPED), "bytes swapped by hand, byteorder big")
add(
    "big_endian_untyped.pt",
    big_endian(UNTYPED),
    "bytes swapped by hand; torch does not swap storages without a type: or_sha256 is of the numbers that were saved",
    meant=lambda: {name: of_type(name, 2, 3) for name in UNTYPED},
)


@by_hand("cuda.pt", "saved on a GPU: read with map_location")
def _cuda(records):
    cpu, cuda = b"X\x03\0\0\0cpu", b"X\x06\0\0\0cuda:0"
    return [replace(record, content=record.content.replace(cpu, cuda)) for record in records]


@by_hand("deflated.pt", "every record compressed, as zip -9 does")
def _deflated(records):
    return changed(records, lambda _: True, deflated=True)


@by_hand("deflated_pickle.pt", "only data.pkl compressed")
def _deflated_pickle(records):
    return changed(records, is_pickle, deflated=True)


@by_hand("no_top.pt", "no top folder", top="")
def _no_top(records):
    return records


@by_hand("deep_top.pt", "a top folder of two levels", top="a/b/")
def _deep_top(records):
    return records


@by_hand("commented.pt", "a comment behind the end record", comment=b"made by hand")
def _commented(records):
    return records


# -- meant to mislead ------------------------------------------------------------------------------------------------


@by_hand("hostile/zero_crc.pt", "the CRC of each record is 0")
def _zero_crc(records):
    return changed(records, lambda _: True, crc=0)


@by_hand("hostile/wrong_crc_data.pt", "wrong CRCs of storages")
def _wrong_crc(records):
    return changed(records, crc=0x12345678)


@by_hand("hostile/wrong_crc_pickle.pt", "wrong CRC of data.pkl")
def _wrong_crc_pickle(records):
    return changed(records, is_pickle, crc=0x12345678)


@by_hand("hostile/encrypted_flag.pt", "the encryption bit is set in both headers, nothing is encrypted")
def _encrypted(records):
    return changed(records, lambda _: True, flags=0x0801)


@by_hand("hostile/encrypted_flag_local.pt", "the encryption bit is set in local headers")
def _encrypted_local(records):
    return changed(records, lambda _: True, local_flags=0x0801)


@by_hand("hostile/encrypted_flag_pickle.pt", "the encryption bit of data.pkl is set in the directory only")
def _encrypted_pickle(records):
    return changed(records, is_pickle, flags=0x0801, local_flags=0x0800)


@by_hand("hostile/patch_flag.pt", "the bit of patched data is set")
def _patched(records):
    return changed(records, lambda _: True, flags=0x0820)


@by_hand("hostile/local_names.pt", "local headers name other records than the directory")
def _local_names(records):
    return [replace(record, local_name=f"x{number}") for number, record in enumerate(records)]


@by_hand("hostile/local_sizes.pt", "local headers tell other sizes")
def _local_sizes(records):
    return changed(records, local_size=1)


# Of records with one name torch takes whichever its binary search comes upon, which depends on their number: either is
# right. The second answer is told as well.


def zeroed() -> dict[str, torch.Tensor]:
    zeros = torch.zeros(4, 5)
    return {**value(), "a": zeros, "view": zeros.t()[1:]}


def second_data(records: list[Record]) -> list[Record]:
    return [replace(record, content=bytes(len(record.content))) for record in records if record.name == "data/0"]


@by_hand("hostile/duplicate_data.pt", "data/0 twice, with other numbers the second time; either is right", meant=value)
def _duplicate(records):
    return records + second_data(records)


@by_hand("hostile/duplicate_data_before.pt", "data/0 twice, zeros the first time; either is right", meant=zeroed)
def _duplicate_before(records):
    return second_data(records) + records


def other_pickle() -> Record:
    return torch_records({"other": ramp(4, 5, start=50)})[0]


@by_hand("hostile/duplicate_pickle.pt", "data.pkl twice, another dict the second time; either is right", meant=value)
def _duplicate_pickle(records):
    return [*records, other_pickle()]


@by_hand(
    "hostile/duplicate_pickle_before.pt",
    "data.pkl twice, another dict the first time; either is right",
    meant=lambda: {"other": ramp(4, 5)},
)
def _duplicate_pickle_before(records):
    return [other_pickle(), *records]


@written("hostile/two_tops.pt", "a second folder with a data.pkl; zip written by hand")
def _two_tops(path):
    records = [replace(record, name=f"archive/{record.name}") for record in torch_records(value())]
    path.write_bytes(zip_bytes([*records, replace(other_pickle(), name="other/data.pkl")], top=""))


@by_hand("hostile/case.pt", "a record DATA.PKL before data.pkl")
def _case(records):
    return [replace(other_pickle(), name="DATA.PKL"), *records]


@by_hand("hostile/code_after_stop.pt", "a second pickle in data.pkl, behind STOP")
def _after_stop(records):
    return [
        replace(record, content=record.content + other_pickle().content) if is_pickle(record) else record
        for record in records
    ]


@by_hand("hostile/long_storage.pt", "a storage record is longer than its tensor says")
def _long_storage(records):
    return [
        replace(record, content=record.content + b"extra bytes") if record.name == "data/0" else record
        for record in records
    ]


@by_hand("hostile/short_storage.pt", "a storage record is shorter than its tensor says")
def _short_storage(records):
    return [replace(record, content=record.content[:30]) if record.name == "data/0" else record for record in records]


@by_hand("hostile/no_storage.pt", "a storage is not there")
def _no_storage(records):
    return [record for record in records if record.name != "data/0"]


@by_hand("hostile/no_version.pt", "no version")
def _no_version(records):
    return [record for record in records if record.name != "version"]


@by_hand("hostile/late_version.pt", "a version that is not written yet")
def _late_version(records):
    return changed(records, lambda record: record.name == "version", content=b"999\n")


@by_hand("hostile/extra_records.pt", "records that torch does not ask for, and storages that nothing refers to")
def _extra(records):
    more = [Record("data/99", b"x" * 40), Record("readme.txt", b"hello"), Record("../up", b"up"), Record("sub/", b"")]
    return records + more


@written("hostile/prefix.pt", "40 bytes before the zip; its offsets count them", meant=value)
def _prefix(path):
    path.write_bytes(b"\x7fELF" + b"." * 36 + zip_bytes(torch_records(value()), shift=40))


@written("hostile/prefix_unshifted.pt", "40 bytes before the zip; its offsets do not count them", meant=value)
def _prefix_unshifted(path):
    path.write_bytes(b"#" * 40 + zip_bytes(torch_records(value())))


@written("hostile/end_in_comment.pt", "a second end record, of nothing, in the comment of the first", meant=value)
def _end_in_comment(path):
    inner = struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 0, 0, 0, 0, 0)
    path.write_bytes(zip_bytes(torch_records(value()), comment=b"note " + inner))


@written("hostile/zip_in_comment.pt", "the comment of the zip holds another zip, whose end record comes last")
def _zip_in_comment(path):
    inner = zip_bytes(torch_records({"other": ramp(4, 5, start=50)}))
    outer = torch_records(value())
    at = len(zip_bytes(outer))
    inner = zip_bytes(torch_records({"other": ramp(4, 5, start=50)}), shift=at)
    path.write_bytes(zip_bytes(outer, comment=inner))


@written("hostile/trailing.pt", "bytes behind the end record")
def _trailing(path):
    path.write_bytes(zip_bytes(torch_records(value())) + b"trailing bytes")


@written("hostile/cut.pt", "a file of torch, cut at 60 %")
def _cut(path):
    torch.save(value(), path)
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) * 6 // 10])
