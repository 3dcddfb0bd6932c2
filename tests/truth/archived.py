"""What the oracle says of files that came out of an archive, or were recovered."""

from __future__ import annotations

import io
import tarfile
import zlib
from typing import TYPE_CHECKING

from tests.truth.damage import Reach

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.truth.attempt import Attempt, Seen
    from tests.truth.cases import Case
    from tests.truth.wrappers import File


# Wrappings whose outermost layer is a tar as it is.
TARRED = ("tar", "gz-in-tar", "odd-zip-in-tar")


BLOCK, RECORD = 512, 10_240  # of a tar: what members, and what the whole archive fill up


def is_shorter_file(case: Case) -> bool:
    """Say whether a cut leaves another whole file: records files have no mark of their end, and this one ends between
    two chunks, or two records. So does a gzip file that ends between two members, zeros behind it or not; and a JSON
    document without the line feed behind it."""
    if case.wrapper == "gz-members" and case.damage.kind in ("cut", "unwritten"):
        return case.damage.offset in ends_of_members(case.wrapped.content)
    if case.wrapper == "plain" and case.sample.file.endswith(".json"):
        return not case.sample.content[case.damage.offset :].strip()
    records = case.sample.kind == "records" or case.sample.name == "json-lines"
    if not case.damage.reach(case.wrapped.content).cut or case.wrapper != "plain" or not records:
        return False
    cut = case.damage.offset
    return not any(start < cut < end for start, end in (value.place for value in case.sample.values.values()))


def ends_between_fields(case: Case) -> bool:
    """Whether the file is a message that was cut between two fields (or before the first): that is a message, too."""
    if (
        not case.damage.reach(case.wrapped.content).cut
        or case.sample.layout != "stream"
        or case.sample.name == "json"
        or case.damage.file
    ):
        return False
    if case.sample.name == "paddle-params":  # or a file of records without a mark of its end
        return case.wrapper == "plain" and case.damage.offset in [one.place[1] for one in case.sample.values.values()]
    from google.protobuf.message import DecodeError

    from pparse.protos import message_class

    try:  # to this type, the fields of any other are unknown, and passed over by their lengths
        message_class("tensorflow.VersionDef").FromString(case.sample.content[: case.damage.offset])
    except DecodeError:
        return False
    return case.wrapper == "plain"


def ends_of_members(content: bytes) -> list[int]:
    """Return where the members of a gzip file end."""
    found, rest = [], content
    while rest:
        decoder = zlib.decompressobj(31)
        decoder.decompress(rest)
        rest = decoder.unused_data
        found.append(len(content) - len(rest))
    return found


def is_shorter_tar(case: Case) -> bool:
    """Say whether a cut leaves a tar that lacks its mark of the end only: it ends where a header began. Or it lacks
    some of the mark, which is two blocks of zeros, but not all, or what fills up the last record behind it.

    Tars that were written so are read everywhere; a finding tells of it, and no more can be known.
    """
    is_sample = case.wrapper == "plain" and case.sample_name == "pytorch-tar"
    if case.damage.kind != "cut" or not (case.wrapper in TARRED or is_sample):
        return False
    with tarfile.open(fileobj=io.BytesIO(case.wrapped.content)) as archive:
        members = archive.getmembers()
    last = members[-1]
    end = last.offset_data + -(-last.size // BLOCK) * BLOCK
    return case.damage.offset in [*(member.offset for member in members[1:]), end] or case.damage.offset >= end + BLOCK


def file_vouched(attempt: Attempt, path: str, seen: Seen) -> Iterator[str]:
    """Judge one file that came out of an archive."""
    if seen.status != "complete" or attempt.case.damage.file:  # of a folder, another file was hit
        return
    what = f"file {path!r} by {seen.by}: complete, verified {seen.verified}"
    file = attempt.case.wrapped.files.get(path)
    reach = file.reach(attempt.case.damage.reach(attempt.case.wrapped.content)) if file is not None else Reach()
    if (
        reach.cut
        and file is not None
        and file.exact
        and any(start < end for start, end in reach.ranges)
        and not is_made(attempt, path)
        and not is_shorter_file(attempt.case)
        and not is_shorter_tar(attempt.case)
        and not ends_between_fields(attempt.case)
    ):
        yield f"{what}, though the archive ends before it does"
    if file is not None and is_unwritten(attempt.case, file):
        yield f"{what}, though it was never written to its end"
    if seen.verified is False:
        yield f"{what}, though a checksum contradicts"
    if seen.content is None or is_exempt(path):
        return
    files = attempt.case.wrapped.files
    known = [file.content for file in files.values()] + list(attempt.case.wrapped.known)
    known += [attempt.case.wrapped.content, *members_of(attempt.case, seen.content)]
    known += attempt.case.sample.siblings.values() if attempt.case.sample.leads else ()
    if seen.content in known or is_made(attempt, path) or is_shorter_file(attempt.case):
        return
    if seen.verified is True and not is_shorter_file(attempt.case):
        yield f"{what}, and not the original"
        return
    if file is None:
        if all(one.covered for one in files.values()) and attempt.read_all:
            yield f"{what}, and none of the originals"
        return
    if (file.covered and attempt.read_all) or (seen.by == "extract" and file.chain[-1].covered):
        yield f"{what}, and not the original, though a checksum covers it"
    elif reach.is_clean:
        yield f"{what}, and not the original, though the damage does not reach it"


def members_of(case: Case, content: bytes) -> list[bytes]:
    """Return ``content`` if it is a member of the sample, which is an archive of stored files itself."""
    zips = (
        "deepspeed-zero",
        "deepspeed-zero-3",
        "pytorch",
        "pytorch-rezipped",
        "pytorch-script",
        "pytorch-sharded",
        "pytorch-distcp",
        "pt2",
        "pytorch-dcp",
    )
    archives = ("pytorch-tar", *zips, "npz", "npz-zipped")
    files = [case.sample.content, *case.sample.siblings.values()]
    return [content] if case.sample.name in archives and any(content in file for file in files) else []


def is_unwritten(case: Case, file: File) -> bool:
    """Whether bytes of a file in a tar were never written: they lie in a hole, or right beside it.

    Nothing in the format tells, and so the hole must. What is in a compressed stream, or has a checksum, is told so.
    """
    if case.wrapper not in TARRED or not case.damage.leaves_hole(len(case.wrapped.content)):
        return False
    ranges = file.reach(case.damage.reach(case.wrapped.content)).ranges
    if ranges == ((0, len(file.content)),) and len(case.wrapped.content) - case.damage.offset <= RECORD:
        return False  # so many zeros end an archive
    if sum(end - start for start, end in ranges) < 16:
        return False  # so few zeros beside a hole may be the file's own
    return any(file.content[start:end].strip(b"\0") for start, end in ranges)


def is_made(attempt: Attempt, path: str) -> bool:
    """Whether a file is made anew by recovery: lists of what is lost, pieces, a message of its chunks."""
    return path.endswith((".rest.json", ".pb")) and attempt.case.sample.kind == "tensors"


def is_shard(case: Case, path: str) -> bool:
    """Whether a file is another shard of the sample."""
    return path.rpartition("/")[2] in case.sample.siblings and path.endswith((".safetensors", ".bin", ".pt"))


def is_exempt(path: str) -> bool:
    """Whether a name says that nothing is promised of the file."""
    return ".doubtful" in path or ".partial/" in path or path.startswith("nameless/") or "/nameless/" in path


def delivered_files(attempt: Attempt) -> Iterator[str]:
    """Every file of the archive that is whole was written, or given, with its bytes."""
    case = attempt.case
    if case.way not in ("extract", "recover", "ls", "open") or not case.wrapped.inner:
        return
    damage = case.damage.reach(case.wrapped.content)
    for path, file in case.wrapped.files.items():
        if not is_deliverable(file, damage, case.way) or (
            len(file.chain) > depth(case.wrapped.files) and case.way != "recover"
        ):
            continue
        seen = attempt.files.get(path)
        if seen is None:
            outer = case.wrapped.inner[0]
            whole = attempt.files.get(outer)  # what is sound need not be taken apart
            sound = whole is not None and whole.content in case.wrapped.known
            if case.way == "recover" and (sound or (whole is not None and case.wrapper == "odd-zip-in-tar")):
                continue
            renamed = file.renamed(damage)
            if is_swallowed(case, file):
                continue
            if (renamed or is_moved_zip(case)) and is_there_renamed(attempt, file, contradicted=renamed):
                continue
            yield f"{case.way}: {path!r} is not there, though it is whole"
        elif seen.status != "complete" or (seen.by != "ls" and seen.content != file.content):
            yield f"{case.way}: {path!r} is {seen.status} {seen.error}, though it is whole"


def is_moved_zip(case: Case) -> bool:
    """Whether a zip is stored in one in which bytes moved: its members may be taken for those of the outer one."""
    return case.wrapper == "zip-in-zip" and case.damage.kind in ("insert", "remove")


def is_swallowed(case: Case, file: File) -> bool:
    """Whether a file before an empty one in a tar lost as many bytes as the header of that has: it is part of it now.

    All headers are where they should be then, and a file may well end in one.
    """
    layer, (at, end) = file.chain[0], (case.damage.offset, case.damage.offset + case.damage.length)
    lost = case.wrapper in TARRED and case.damage.kind == "remove" and case.damage.length == BLOCK and not file.content
    layers = [one.chain[0] for one in case.wrapped.files.values()]
    return lost and any(one.start <= at and end <= one.end <= layer.start - BLOCK < one.end + BLOCK for one in layers)


def is_there_renamed(attempt: Attempt, file: File, *, contradicted: bool) -> bool:
    """Whether a file was given under a name that nothing has: the directory's word counts, and it was hit.

    Nobody can know which one of two names is right; what matters is that nothing of the file is lost. If they are
    ``contradicted``, a file whose local header has another name of the same length may be called damaged for that.
    """
    others = [seen for path, seen in attempt.files.items() if path not in attempt.case.wrapped.files]
    named = ("complete", "damaged") if contradicted else ("complete",)
    return any(
        (seen.content == file.content and seen.status in named) or (seen.by == "ls" and seen.status == "complete")
        for seen in others
    )


def depth(files: dict[str, File]) -> int:
    """Return how many layers there are around the files of the outermost archive."""
    return min(len(file.chain) for file in files.values())


def is_deliverable(file: File, damage: Reach, way: str) -> bool:
    """Whether a file is wholly outside of the damage, and so is all that leads to it.

    Of a stream that is in doubt, what a checksum of its own confirms; by `recover`, which asks that.
    """
    reach = file.reach(damage)
    return reach.is_clean or (way == "recover" and reach.vouched and not reach.lost)


def delivered_rows(attempt: Attempt, reach: Reach, content: bytes) -> Iterator[str]:
    """Every row that is whole, with the line breaks around it, was written, and none that the file never had."""
    sample = attempt.case.sample
    places = [value.place for value in sample.values.values()]
    kept = content.splitlines()
    whole = {sample.content[start:end] for start, end in places if not reach.touches(start - 1, end + 1)}
    missing = whole - set(kept)
    if missing:
        yield f"recover: {len(missing)} rows that are whole were not written, first {min(missing)!r}"
    odd = [row for row in kept if row not in whole]
    if len(odd) > len(places) - len(whole) + 1:
        yield f"recover: {len(odd)} rows were written that the file never had, first {odd[0]!r}"


def delivered_parts(attempt: Attempt) -> Iterator[str]:
    """Of a file that is cut, what precedes the cut was written; of one that is hit in place, what lies beside that.

    Model files are another matter: of these a new file is made.
    """
    case = attempt.case
    if case.way not in ("extract", "recover") or (case.wrapper == "plain" and case.sample.kind == "blob"):
        return  # text and noise alone are of no format
    damage = case.damage.reach(case.wrapped.content)
    for path, file in case.wrapped.files.items():
        made_anew = case.sample.kind not in ("blob", "keys") or case.sample.name == "protobuf"
        if made_anew and (path == case.wrapped.main or (case.way == "recover" and is_shard(case, path))):
            continue
        reach = file.reach(damage)
        if reach.lost or reach.doubt or reach.shifted or reach.first in (None, 0):
            continue
        if case.way == "extract" and (not case.wrapped.inner or len(file.chain) > depth(case.wrapped.files)):
            continue
        seen = attempt.files.get(path)
        # An index, or a program, whose data nobody looked for; a map of which no new file is made.
        if seen is None and (case.sample.leads or case.sample.name in ("msgpack-old", "paddle", "paddle-json")):
            seen = attempt.files.get(f"{path}.partial/as-found.bin")
        if seen is None or seen.content is None:
            yield f"{case.way}: nothing is written of {path!r}, whose first {reach.first} bytes are whole"
            continue
        if case.sample.name == "json-lines" and case.way == "recover" and path == case.wrapped.main:
            yield from delivered_rows(attempt, reach, seen.content)
            continue
        pairs = zip(file.content, seen.content, strict=False)
        wrong = next(
            (at for at, (one, other) in enumerate(pairs) if one != other and not reach.touches(at, at + 1)), None
        )
        if wrong is not None:
            yield f"{case.way}: byte {wrong} of {path!r} is another, though the damage does not reach it"
        elif len(seen.content) < (reach.first if reach.cut else len(file.content)):
            yield f"{case.way}: {path!r} has {len(seen.content)} bytes, and more of it is whole"
