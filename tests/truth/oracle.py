"""The oracle: knows the original, and says what of an attempt is wrong. One function for each clause.

A clause yields sentences; none means that the rule holds.
"""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import json
import lzma
import tarfile
import zipfile
import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests import zstd
from tests.pickle_arrays import arrays_in
from tests.truth.archived import (
    delivered_files,
    delivered_parts,
    ends_between_fields,
    file_vouched,
    is_exempt,
    is_shorter_file,
    is_shorter_tar,
    is_unwritten,
)
from tests.truth.attempt import BUDGET, Attempt, Command, Seen
from tests.truth.salvaged import has_grown, judge_file
from tests.truth.samples_proto import numbers_behind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.truth.cases import Case
    from tests.truth.damage import Reach
    from tests.truth.samples import Value

CODES = (0, 2, 3, 4, 5)
# Samples whose values only the place of the next one tells the end of.
PRECEDING = {
    "flax",
    "onnx",
    "coreml",
    "coreml-weights",
    "sentencepiece",
    "paddle",
    "paddle-params",
    "pickle",
    "pickle-dill",
    "pytorch-tar",
}
# Bytes that all sources may serve, each question on its own: so many times the file with all that is packed in it.
TIMES, CONSTANT = 60, 8 << 20
# Reads and findings of a question, besides one for each 16 bytes.
STEPS = 10_000
# Ways that ask for the values from Python.
FROM_PYTHON = {"view", "threads", "far", "handle", "check"}
# Wrappings whose outermost layer is gzip, and the bytes of its header that no checksum covers and that change nothing:
# the time, the level, the system (RFC 1952, 2.3.1).
GZIPPED, UNCOVERED = ("gz", "gz-members", "tar-gz", "tar-gz-stored", "tar-gz-of-zip"), range(4, 10)
# The head of a storage of an old checkpoint: a pickle that begins with its number.
KEY = len(b"\x80\x02J") + 4
# Of a Riegeli file.
BLOCK, BLOCK_HEADER, CHUNK_HEADER = 1 << 16, 24, 40
TAR_BLOCK = 512
DECODERS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.decompress,
    "zlib": zlib.decompress,
    "bz2": bz2.decompress,
    "xz": lzma.decompress,
    "zst": lambda content: zstd.decompressor().decompress(content),
}
CLAUSES: dict[str, Callable[[Attempt], Iterator[str]]] = {}


def clause(function: Callable[[Attempt], Iterator[str]]) -> Callable[[Attempt], Iterator[str]]:
    """Register a clause under the letter that its name begins with."""
    CLAUSES[function.__name__[0]] = function
    return function


def judge(attempt: Attempt) -> list[tuple[str, str]]:
    """Return what is wrong, as pairs of clause and sentence; at most eight a clause."""
    found = []
    for letter, function in CLAUSES.items():
        for number, sentence in enumerate(function(attempt)):
            if number == 8:
                found.append((letter, "…"))
                break
            found.append((letter, sentence))
    return found


def untouched(attempt: Attempt, name: str) -> bool:
    """Whether the damage leaves a value, and all that leads to it, alone."""
    case = attempt.case
    if case.damage.file:  # the index of a folder is hit: nobody need find the shards
        return False
    if name not in case.sample.values:
        return True
    if has_grown(attempt) or precedes_break(case, name):  # nobody can know where the bytes came in
        return False
    if case.sample.name == "msgpack-old" and case.sample.spread(case.reach) != case.reach:
        return False  # a map that is taken apart may end early, and be the first of several values
    ends = case.sample.values[name].ends
    if ends is not None and case.reach.touches(*ends) and not is_zeroed(case):
        return False
    return case.sample.untouched(name, case.reach) and not has_rival(case, name)


def precedes_break(case: Case, name: str) -> bool:
    """Whether the damage lies right behind a value of which nothing but its own length tells where it ends.

    What follows it cannot be read: bytes may have gone from it, or come into it.
    """
    if case.sample.name == "pytorch-legacy":  # behind it the number of the next one's elements is looked for
        return case.reach.shifted and case.reach.first == case.sample.values[name].place[1]
    if case.sample.name not in PRECEDING or case.reach.first is None:
        return False
    end = case.sample.values[name].place[1]
    begins = [value.place[0] for value in case.sample.values.values() if value.place[0] >= end]
    return end <= case.reach.first <= min(begins, default=len(case.sample.content))


def has_rival(case: Case, name: str) -> bool:
    """Whether behind the damage another field of that number may be read, in a message without a schema: it counts.

    Behind bytes that came in or went, and in what is decoded from damaged bytes, a tag may be any of the bytes.
    """
    reach = case.reach
    if case.sample.name == "pytorch-tar":  # or another storage may have its key, which is the head of what is before it
        start = case.sample.values[name].place[0]
        head = max((need for need in case.sample.values[name].needs if need[1] <= start), key=lambda need: need[1])[0]
        return case.damage.apply(case.wrapped.content).count(case.sample.content[head : head + KEY]) > 1
    if case.sample.name != "protobuf" or not (reach.shifted or reach.doubt):
        return False
    (layer, *more) = case.wrapped.files[case.wrapped.main].chain
    if more or layer.decoded is not None:
        return True  # what is decoded may be longer than it was
    if reach.first is None:
        return False
    content = case.damage.apply(case.wrapped.content)
    if layer.edge is not None:  # a tar's member is as long as its header says
        content = content[layer.start : layer.start + layer.size]
    return name in numbers_behind(content, reach.first)


def is_zeroed(case: Case) -> bool:
    """Whether zeros stand in the sample where it was damaged."""
    stored = all(layer.decoded is None for layer in case.wrapped.files[case.wrapped.main].chain)
    return case.damage.kind in ("zeros", "unwritten") and stored


def same_where_untouched(value: Value, got: bytes, reach: Reach) -> bool:
    """Whether a value and another one of its length differ only where damage reaches them."""
    start, end = value.place[0] - value.at, value.place[1]
    return all(
        one == other or (value.at <= at < end - start and reach.touches(start + at, start + at + 1))
        for at, (one, other) in enumerate(zip(value.content, got, strict=True))
    )


@clause
def a_nothing_false_is_vouched_for(attempt: Attempt) -> Iterator[str]:
    """Nothing verified differs from the original, and nothing complete where a checksum was, or could have been, asked.

    A value that no checksum covers may differ where the damage reaches it. One that is covered may be handed out before
    its checksum was come to: then it is not ``verified``, only bytes that are reached differ, and ``check`` finds it.
    """
    truth = attempt.truth
    case = attempt.case
    covered = case.wrapped.covered
    hidden = False
    for seen in attempt.values:
        # Between two questions, another thread may find that its own checksum agrees after all.
        if seen.status == "complete" and seen.verified is False and case.way != "threads":
            yield f"{seen.name} by {seen.by}: complete, though a checksum contradicts"
        if seen.status == "complete" and attempt.read_all and hash_contradicts(attempt, seen.name):
            yield f"{seen.name} by {seen.by}: complete, though the hash of the chunk that it is in contradicts"
        if seen.status == "complete" and is_cut_off(attempt, seen.name):
            yield f"{seen.name} by {seen.by}: complete, though the file ends before it does"
        if seen.content is None:
            continue
        yield from vouched(attempt, seen, truth)
        hidden = hidden or not is_true(attempt, seen, truth)
    shorter = ends_between_fields(case) or (case.sample.name == "json-lines" and is_shorter_file(case))
    cut = not shorter and any(is_cut_off(attempt, name) for name in case.sample.values)
    for command in attempt.commands if cut else ():
        if command.words[-1] == attempt.target and (command.json or {}).get("status") == "complete":
            yield f"{command.words[0]} says that the file is complete, though it ends before its values do"
    for path, seen in attempt.files.items():
        yield from file_vouched(attempt, path, seen)
    yield from against_pickle(attempt)
    if hidden and covered and not attempt.read_all:
        found = attempt.run("check", "-q", "-R", attempt.path)
        if found.code == 0:
            yield "a wrong value was handed out, and check finds nothing though a checksum covers it"


def is_cut_off(attempt: Attempt, name: str) -> bool:
    """Whether the file ends before this value does. Records are told one by one in a chunk that is cut."""
    sample, reach = attempt.case.sample, attempt.case.reach
    if attempt.case.damage.file or not attempt.case.wrapped.files[attempt.case.wrapped.main].exact:
        return False
    if not reach.cut or sample.layout == "chunks" or sample.kind == "blob" or name not in sample.values:
        return False
    start, end = sample.values[name].place
    return start < end and reach.touches(start, end)


def is_beyond_proof(case: Case, name: str) -> bool:
    """Whether a record's hash cannot be compared: bytes that went out of the last chunk make a file that ends in it.

    So does a download that was cut, of which all that is there is right. Wrappings that have an end of their own tell.
    """
    if case.damage.kind != "remove":
        return False
    values = case.sample.values
    if case.sample.kind != "records" or case.wrapper not in ("plain", "zst"):
        return False
    return name in values and values[name].place == max(value.place for value in values.values())


def seems_cut(case: Case) -> bool:
    """Whether damage to a gzip or zlib stream makes one that does not end where it did: its checksum is never come to.

    The library takes it for one that was cut, of which all that there is is right.
    """
    content = case.damage.apply(case.wrapped.content)
    if case.wrapper == "gz-in-tar":
        content = tar_members(content).get("pack/" + case.sample.file + ".gz", b"")
    elif case.wrapper not in (*GZIPPED, "zlib"):
        return False
    magic, bits = (b"x", 15) if case.wrapper == "zlib" else (b"\x1f\x8b", 31)
    while content.startswith(magic):
        decoder = zlib.decompressobj(bits)
        try:
            decoder.decompress(content)
        except zlib.error:
            return False
        if not decoder.eof:
            return True
        content = decoder.unused_data
    return False


def hash_contradicts(attempt: Attempt, name: str) -> bool:
    """Whether damage changed data of the chunk that a value is in, so that its hash fails.

    Not if a header of the chunk or of a block is hit: those are made good again if the data prove whole.
    """
    case = attempt.case
    if not case.sample.hashed or name not in case.sample.values or case.damage.kind not in ("bit", "noise", "zeros"):
        return False
    place = case.sample.values[name].place
    reach = case.reach
    if reach.lost or reach.doubt or len(reach.ranges) != 1:
        return False
    ((start, end),) = reach.ranges
    near_block = start % BLOCK < BLOCK_HEADER or end // BLOCK != start // BLOCK
    return place[0] + CHUNK_HEADER <= start and end <= place[1] and not near_block


def miscounted(attempt: Attempt, value: Value) -> bool:
    """Whether a value of a JSON list that damage does not reach came out as another one, though the text is broken."""
    case = attempt.case
    if case.sample.name != "json-list" or case.wrapper != "plain" or case.reach.touches(*value.place):
        return False
    try:
        json.loads(case.damage.apply(case.wrapped.content))
    except ValueError:
        return True
    return False


def against_pickle(attempt: Attempt) -> Iterator[str]:
    """Compare what was handed out of a damaged pickle with what `pickle` reads in it, if it reads it at all."""
    case = attempt.case
    if case.sample.layout != "pickle" or case.wrapper != "plain":
        return
    try:
        found = arrays_in(case.damage.apply(case.wrapped.content))
    except Exception:
        return
    # Of two that have one name, `pickle` keeps the last; the second is called ``name#2`` here.
    seconds = {seen.name.rpartition("#")[0] for seen in attempt.values}
    given = set()
    for seen in attempt.values:
        if seen.content is not None and seen.status == "complete":
            name = seen.name.rpartition("#")[0] or seen.name
            given.add(name)
            if name not in seconds and found.get(name) != seen.content:
                yield f"{seen.name!r} by {seen.by}: {seen.status}, and not what pickle reads there"
    if case.way in FROM_PYTHON:
        yield from (f"{name!r} is not delivered, and pickle reads it" for name in found if name not in given)


def is_placed(name: str) -> bool:
    """Whether a value is called by where it is, since nothing tells its name."""
    return name.startswith(("@", "param_at_"))


def is_true(attempt: Attempt, seen: Seen, truth: dict[str, Value]) -> bool:
    """Whether what was handed out is the original; a record may stand elsewhere now, a chunk have lost its name.

    What is found of a FlexBuffer without a root is called ``@`` and its offset, since its name is lost; a parameter of
    Paddle behind damage ``param_at_`` and its offset, since nobody knows how many are lost before it. A row of JSON
    Lines has the number of lines before it: two lines that damage joined are one.
    """
    sample = attempt.case.sample
    is_nameless = seen.name not in truth and (sample.layout == "chunks" or is_placed(seen.name))
    if is_nameless or sample.kind == "records" or sample.name == "json-lines":
        return any(seen.content == value.content for value in truth.values())
    value = truth.get(seen.name) or truth.get(seen.name.rpartition("#")[0])  # bytes may come twice
    return value is not None and seen.content == value.content


def vouched(attempt: Attempt, seen: Seen, truth: dict[str, Value]) -> Iterator[str]:
    """Judge one value that was handed out."""
    case = attempt.case
    if is_true(attempt, seen, truth) or seen.content is None or is_shorter_file(case):
        return
    what = f"{seen.name!r} by {seen.by}: {seen.status}, verified {seen.verified}, not the original"
    if seen.verified is True:
        yield f"{what}, though verified"
    # A tensor that is not complete is refused; of members and records some bytes may be had.
    if seen.status != "complete":
        return
    # Of a checkpoint of TensorFlow, that of a tensor is compared before it is handed out.
    asked = (attempt.read_all and not seems_cut(case)) or case.sample.name.startswith("tf-checkpoint")
    # Behind a gap of a stream whose length is not known, a map without marks may be taken apart at the wrong places.
    misplaced = case.sample.name == "msgpack-old" and case.reach.doubt and seen.name not in truth
    if case.wrapped.covered and asked and not misplaced and not is_beyond_proof(case, seen.name):
        yield f"{what}, though a checksum covers it, and was compared"
    reach = case.sample.spread(case.reach)
    value = truth.get(seen.name)
    if value is None:
        # Names stand in bytes too: those of the header, or of a message.
        if not reach.lost and not reach.doubt and not reach.ranges:
            yield f"{what}: nothing has this name"
    elif case.damage.file:
        # A damaged index may lead to another shard, or none; a shard says itself what is in it.
        yield f"{what}, though only the index is damaged"
    elif untouched(attempt, seen.name):
        yield f"{what}, though the damage does not reach it"
    elif has_grown(attempt):
        yield f"{what}, though bytes came into the file, or went"
    elif miscounted(attempt, value):
        yield f"{what}: an element under another one's number"
    elif (
        len(value.content) == len(seen.content)
        and case.sample.layout == "offset"
        and not reach.lost
        and not same_where_untouched(value, seen.content, reach)
    ):
        yield f"{what} in bytes that the damage does not reach"


@clause
def b_ways_agree(attempt: Attempt) -> Iterator[str]:
    """``check`` and ``recover`` look at everything and agree; what one question has found out, the next one knows.

    What is sound is said to be sound, by every way.
    """
    yield from attempt.forgotten
    for seen in attempt.values:
        if seen.status == "complete" and seen.error and seen.by != "get":
            yield f"{seen.name!r} by {seen.by}: complete, and refused with {seen.error}"
    codes = {command.words[0]: settled(command) for command in reversed(attempt.commands)}
    if {"check", "recover"} <= set(codes) and codes["check"] != codes["recover"] and not is_searched(attempt, codes):
        yield f"check gives exit code {codes['check']}, recover {codes['recover']}"
    for command in attempt.commands:
        found = command.json
        if command.words[0] == "check" and found is not None and found["ok"] != (command.code == 0):
            yield f"check says ok is {found['ok']}, with exit code {command.code}"
    if attempt.case.damage.kind == "none":
        yield from is_called_sound(attempt)
    elif attempt.read_all and attempt.report is not None:
        wrong = [row for row in attempt.report["files"] if row["status"] != "complete"]
        if wrong and codes.get("recover") == 0:
            yield f"recover ends with 0, though {wrong[0]['path']} is {wrong[0]['status']}"
    yield from must_be_noticed(attempt, codes)


def settled(command: Command) -> int:
    """Return the exit code of a command; of a check that calls the file dangerous, what it would be without that."""
    found = command.json
    if command.code != 5 or found is None:
        return command.code
    errors = any(finding["severity"] == "error" for finding in found["findings"])
    return 4 if errors or found["status"] in ("truncated", "damaged", "missing") else 0


def is_searched(attempt: Attempt, codes: dict[str, int]) -> bool:
    """Whether only `recover` knows the format, which searches a file that nobody recognises.

    Headers of a tar whose first one is shifted are not where they should be, and the name does not say tar.
    """
    case = attempt.case
    moved = case.reach.shifted and (case.reach.first or 0) < TAR_BLOCK
    return case.sample.name == "pytorch-tar" and case.wrapper == "plain" and moved and codes["check"] == 3


def is_called_sound(attempt: Attempt) -> Iterator[str]:
    """A sound file is said to be sound by every command, and whatever is in it."""
    for command in attempt.commands:
        if command.code not in sound_codes(attempt, command):
            yield f"{' '.join(command.words[:3])}: exit code {command.code} for a sound file"
    for seen in [*attempt.values, *attempt.files.values()]:
        if seen.status != "complete":
            yield f"{seen.name!r} by {seen.by} of a sound file: {seen.status} {seen.error}"


def sound_codes(attempt: Attempt, command: Command) -> tuple[int, ...]:
    """Return the exit codes that a command may give for a sound file."""
    if attempt.case.sample.kind == "blob":  # text and noise have no format: only what is around them does
        return 0, 2, 3
    # What is no archive has nothing to be extracted.
    return (0, 2) if command.words[0] == "extract" and not attempt.case.wrapped.inner else (0,)


def must_be_noticed(attempt: Attempt, codes: dict[str, int]) -> Iterator[str]:
    """Damage to bytes that a checksum covers is noticed by whoever looks at everything; and so is a cut."""
    case = attempt.case
    if case.damage.file or (case.wrapped.folder and case.damage.kind != "cut"):
        return
    if is_shorter_file(case) or is_shorter_tar(case):
        return
    gzip_at = case.wrapped.content.find(b"\x1f\x8b\x08") if case.wrapper == "gz-in-tar" else 0
    in_header = case.damage.kind == "bit" and case.damage.offset - gzip_at in UNCOVERED
    if in_header and (case.wrapper in GZIPPED or case.wrapper == "gz-in-tar"):
        return
    reach = case.reach
    hit = bool(case.wrapped.files[case.wrapped.main].covered and reach.ranges and not all_equal(attempt, reach))
    contradicted = any(hash_contradicts(attempt, name) for name in case.sample.values)
    if contradicted and case.sample.leads and case.wrapped.inner:
        # Who meets the files of a checkpoint one by one does not bring them together; who is given one of them does.
        contradicted = False
        given = [one for one in attempt.commands if one.words[0] == "check" and one.words[-1] == attempt.target]
        if any(command.code == 0 for command in given):
            yield "check ends with 0, though the checksum of a tensor contradicts"
    hit = hit or contradicted
    if case.damage.kind == "cut":
        # A message may end between two fields; behind the last member of a tar there are only zeros.
        hit = bool(reach.ranges) and case.sample.layout != "stream" and case.sample.kind != "blob"
    hit = hit or any(is_unwritten(case, file) for file in case.wrapped.files.values())
    for name in ("check", "recover"):
        if hit and codes.get(name) == 0:
            yield f"{name} ends with 0, though bytes that a checksum covers were changed, or are cut"


def all_equal(attempt: Attempt, reach: Reach) -> bool:
    """Whether the reach is of no bytes: damage to the end of a stream may change none, and bits of a compressed stream
    that are others may decode to the same (its library says so), as may those of a zip (`zipfile` does)."""
    case = attempt.case
    content, damaged = case.wrapped.content, case.damage.apply(case.wrapped.content)
    if case.wrapper == "gz-in-tar":
        content, damaged = (tar_members(each).get("pack/" + case.sample.file + ".gz") for each in (content, damaged))
        same = content is not None and damaged is not None and decoded(content, "gz") == decoded(damaged, "gz")
    elif (codec := case.wrapper.removeprefix("tar-").partition("-")[0]) in DECODERS:
        same = decoded(content, codec) == decoded(damaged, codec) is not None
    else:
        same = case.wrapper.startswith("zip-") and case.damage.kind == "bit" and same_members(content, damaged)
    return same or (all(start >= end for start, end in reach.ranges) and not reach.shifted)


def decoded(content: bytes, codec: str) -> bytes | None:
    """Return what a stream holds, and nothing more than it; None if its library refuses it."""
    try:
        return DECODERS[codec](content)
    except (zstd.library.ZstdError, zlib.error, OSError, EOFError, ValueError, lzma.LZMAError):
        return None


def tar_members(content: bytes) -> dict[str, bytes]:
    """Return the files in a tar as far as `tarfile` reads it."""
    found = {}
    try:
        with tarfile.open(fileobj=io.BytesIO(content)) as archive:
            for member in archive:
                file = archive.extractfile(member)
                if file is not None:
                    found[member.name] = file.read()
    except (tarfile.TarError, OSError, EOFError, ValueError):
        pass
    return found


def same_members(one: bytes, other: bytes) -> bool:
    """Whether `zipfile` reads the same from two archives, headers too."""
    found = []
    for content in (one, other):
        try:
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                found.append([(str(info), archive.read(info)) for info in archive.infolist()])
        except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError):
            return False
    return found[0] == found[1]


@clause
def c_what_is_recovered_loads(attempt: Attempt) -> Iterator[str]:
    """What ``recover`` writes loads in the format's own library, and every value in it is the original.

    But for flips of bytes that nothing protects, and for files whose name says that they are doubtful.
    """
    if attempt.report is None or attempt.out is None:
        return
    for row in attempt.report["files"]:
        path = row["path"]
        if path is None or is_exempt(path) or path.endswith(".rest.json"):
            continue
        yield from (f"{path}: {problem}" for problem in judge_file(attempt, Path(attempt.out, path), row))


@clause
def d_what_is_whole_is_delivered(attempt: Attempt) -> Iterator[str]:
    """What lies wholly outside of the damage is delivered: values by name, files of an archive with their bytes."""
    case = attempt.case
    reach = case.reach
    nothing = reach.lost or reach.doubt or (case.sample.kind == "blob" and reach.frayed)
    wanted = [] if nothing else [name for name in attempt.truth if untouched(attempt, name)]
    by_way = FROM_PYTHON if case.sample.kind == "tensors" else FROM_PYTHON | {"open"}
    if case.way in by_way and case.sample.kind not in ("blob", "records"):
        yield from delivered_values(attempt, wanted)
    if case.way in FROM_PYTHON and case.sample.kind == "records":
        given = {seen.content for seen in attempt.values if seen.status == "complete"}
        for name in wanted:
            if case.sample.values[name].content not in given:
                yield f"record {name} is not delivered, though its chunk is whole"
    if case.way == "get":
        for seen in attempt.values:
            if seen.name in wanted and seen.content is None and case.sample.kind != "records":
                yield f"get {seen.name!r} fails, though it is whole: {seen.error.strip()}"
    if case.way == "ls" and case.sample.kind == "tensors":
        listed = attempt.listed or {}
        for name in wanted:
            if listed.get(name) != "complete":
                yield f"ls says {listed.get(name, 'nothing')} of {name!r}, which is whole"
    yield from delivered_files(attempt)
    yield from delivered_parts(attempt)
    if attempt.report is not None:
        yield from salvaged_values(attempt, wanted)


def delivered_values(attempt: Attempt, wanted: list[str]) -> Iterator[str]:
    """Every whole value was handed out whenever it was asked for."""
    given: dict[str, list[Seen]] = {}
    for seen in attempt.values:
        given.setdefault(seen.name, []).append(seen)
    truth = attempt.truth
    for name in wanted:
        if name not in given:
            yield f"{name!r} is not there, though it is whole"
            continue
        for seen in given[name]:
            if seen.status != "complete" or seen.error:
                yield f"{name!r} by {seen.by}: {seen.status} {seen.error}, though it is whole"
            elif seen.content is not None and seen.content != truth[name].content:
                yield f"{name!r} by {seen.by}: not the original, though it is whole"


def salvaged_values(attempt: Attempt, wanted: list[str]) -> Iterator[str]:
    """Every whole value is in what was recovered."""
    from tests.truth.salvaged import saved_values

    case = attempt.case
    if case.sample.kind not in ("tensors", "records") or not wanted or attempt.out is None:
        return
    if case.wrapper == "odd-zip-in-tar" and holds_sample(attempt, attempt.out / case.wrapped.inner[0]):
        return
    saved = saved_values(attempt)
    for name in wanted:
        if name not in case.sample.values:
            continue
        if case.sample.values[name].content not in saved:
            yield f"recover: {name!r} is in none of the files, though it is whole"


def holds_sample(attempt: Attempt, path: Path) -> bool:
    """Whether a zip that was written as it is gives the sample: a bit of its directory that means nothing was hit."""
    try:
        with zipfile.ZipFile(path) as archive:
            return any(archive.read(info) == attempt.case.sample.content for info in archive.infolist())
    except (zipfile.BadZipFile, zlib.error, OSError, ValueError, EOFError, NotImplementedError, RuntimeError):
        return False


def unpacked(attempt: Attempt) -> int:
    """Return how many bytes zlib makes of what is damaged: of zeros, some megabytes. They are in the file.

    Of a gzip or zlib file, member by member; of a deflated member of a zip, to which others may belong then.
    """
    case = attempt.case
    content = case.damage.apply(case.wrapped.content)
    if case.wrapper in (*GZIPPED, "zlib"):
        made = made_of(content, 15 if case.wrapper == "zlib" else 31)
        return max(0, made - sum(map(len, case.wrapped.known)))
    starts = [layer.start for file in case.wrapped.files.values() for layer in file.chain[:1] if layer.decoded]
    whole = sum(layer.size for file in case.wrapped.files.values() for layer in file.chain[:1] if layer.decoded)
    return max(0, sum(made_of(content[start:], -15) for start in starts) - whole) if starts else 0


def made_of(content: bytes, bits: int) -> int:
    """Return how many bytes zlib makes of compressed bytes, and of the gzip members behind them, until one fails."""
    found = 0
    with contextlib.suppress(zlib.error):
        while content:
            decoder = zlib.decompressobj(bits)
            for at in range(0, len(content), TAR_BLOCK):
                found += len(decoder.decompress(content[at : at + TAR_BLOCK]))
                if decoder.eof:
                    break
            content = decoder.unused_data + content[at + TAR_BLOCK :] if decoder.eof and bits > 0 else b""
    return found


@clause
def e_it_behaves(attempt: Attempt) -> Iterator[str]:
    """No error but the package's own, exit codes that have a meaning, memory within the budget, work in step with the
    file."""
    yield from attempt.crashes
    for command in attempt.commands:
        told = command.json is not None and command.json.get("dangerous") is True
        if command.code not in CODES or (command.code == 5 and not told):
            yield f"{' '.join(command.words[:3])}: exit code {command.code}: {command.err.strip()[-300:]}"
    if attempt.peak > BUDGET:
        yield f"{attempt.peak:,} bytes were kept, above the budget of {BUDGET:,}"
    wrapped = attempt.case.wrapped
    size = (
        len(wrapped.content) + sum(map(len, wrapped.known)) + sum(len(file.content) for file in wrapped.files.values())
    )
    size += sum(map(len, wrapped.sample.siblings.values())) if wrapped.folder or not wrapped.inner else 0
    size += unpacked(attempt)
    most = (TIMES * size + CONSTANT) * max(1, attempt.questions)
    if attempt.served > most:
        yield f"{attempt.served:,} bytes were served, {attempt.served / size:.0f} times the file"
    # Behind a gap of a deflate stream every few bytes may be a gap, which a check tells of one by one.
    if attempt.steps > (STEPS + size // 10) * max(1, attempt.questions):
        yield f"{attempt.steps:,} reads and findings, of a file of {size:,} bytes"
