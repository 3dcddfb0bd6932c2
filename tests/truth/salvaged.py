"""What `recover` wrote, read by the format's own library, and compared with the original."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.pickle_arrays import OtherObjectError
from tests.truth.samples import read_safetensors
from tests.truth.samples_checkpoint import DATA, places_in
from tests.truth.samples_proto import read_riegeli

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.truth.attempt import Attempt
    from tests.truth.cases import Case
    from tests.truth.samples import Sample


# The messages of samples that are one as they are.


def values_in(sample: Sample, path: Path) -> dict[str, bytes]:
    """Return the values of a file that was made of the sample; raises what the format's own library raises."""
    return read_safetensors(path) if path.suffix == ".safetensors" else sample.read(sample, path)


def judge_file(attempt: Attempt, path: Path, row: dict[str, Any]) -> Iterator[str]:
    """Say what is wrong with a file that was written."""
    case = attempt.case
    sample = case.sample
    if sample.leads and case.wrapped.inner and row["status"] != "complete":
        return  # it is written as it is: `checkpoint_values` says what must be in it
    if row["path"].rpartition("/")[2] in sample.saved_as and sample.kind in ("tensors", "records"):
        try:
            if path.suffix == ".cpb" and metadata_lost(attempt):
                read_riegeli(sample, path)
                return
            found = values_in(sample, path)
        except OtherObjectError:
            return  # a name of a class is hit: the pickle is one of other objects now
        except Exception as error:
            if is_unrecognised(attempt, row):
                return
            yield f"its own library refuses it ({row['status']}): {type(error).__name__}: {error}"
            return
        judge_all = judge_copied if is_copied(case) else judge_values
        yield from judge_all(attempt, found, row)
    elif path.suffix == ".gz" and not path.read_bytes().startswith(b"\x1f\x8b"):
        yield "it has the name of a gzip file, and is none"
    elif row["status"] == "complete":
        try:
            load(path)
        except Exception as error:
            yield f"complete, and its own library refuses it: {type(error).__name__}: {error}"


def is_unrecognised(attempt: Attempt, row: dict[str, Any]) -> bool:
    """Whether a file is hit before its first array, and written as it is: nothing tells that it had some.

    Pickles may be of anything, and so may files that are called ``.bin``. A value of ONNX is one message among others:
    those of no known type are complete if their fields are.
    """
    case = attempt.case
    message = case.sample_name == "onnx-data"
    anything = message or case.sample.file.endswith((".pkl", ".dill", ".bin"))
    if not anything or (row["status"] == "complete" and not message) or not row["path"].endswith(case.sample.file):
        return False
    first = min(value.place[0] for value in case.sample.values.values())
    return case.reach.lost or case.reach.touches(0, first)


def metadata_lost(attempt: Attempt) -> bool:
    """Whether the last record of a `.cpb` is hit: nothing says what belongs where, and chunks are all there is."""
    case = attempt.case
    last = max(need for value in case.sample.values.values() for need in value.needs)
    reach = case.reach
    return reach.lost or reach.touches(*last)


def load(path: Path) -> None:
    """Load a file in the usual library, if there is one for it."""
    if path.suffix == ".json":
        json.loads(path.read_bytes())
    elif path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            archive.testzip()
    elif path.suffix == ".gz":
        import gzip

        gzip.decompress(path.read_bytes())
    elif path.suffix == ".safetensors":
        read_safetensors(path)


def has_grown(attempt: Attempt) -> bool:
    """Whether a file came out longer or shorter than it says, so that nobody can tell which of its values have moved.

    Bytes came into a member of a tar, or went, and the header behind it tells that, and nothing where: what is left of
    the padding counts as its own. Hashed pieces are found by themselves. Of files as they are, safetensors, GGUF and
    external data tell it.
    """
    case = attempt.case
    damage = case.damage
    if damage.kind not in ("insert", "remove") or damage.file or case.sample.hashed:
        return False
    if case.wrapper == "tar":
        layer = case.wrapped.files[case.wrapped.main].chain[0]
        if not (layer.size | damage.length) % 512:
            return False  # behind a member without padding, whole blocks may as well be a header that is destroyed
        return layer.start + case.sample.header <= damage.offset <= layer.end
    if not case.sample.name.startswith(("safetensors", "gguf", "onnx-external")):
        return False
    return damage.kind == "insert" and case.wrapper in ("plain", "folder") and damage.offset >= case.sample.header


def is_copied(case: Case) -> bool:
    """Whether the sample is the data file of a checkpoint in an archive, with no checksum but those in the index.

    Who walks through the archive does not look for the index: the file is written as it is.
    """
    file = case.wrapped.files[case.wrapped.main]
    return bool(case.sample.leads and case.wrapped.inner) and case.sample.file == DATA and not file.covered


def judge_copied(attempt: Attempt, found: dict[str, bytes], row: dict[str, Any]) -> Iterator[str]:
    """Say which values of a file that was written as it is are not the original's, though the damage is elsewhere."""
    sample, reach = attempt.case.sample, attempt.case.reach
    for name, content in found.items():
        if content != sample.values[name].content and sample.untouched(name, reach):
            yield f"{name!r} is not the original, though the damage does not reach it ({row['status']})"


def judge_values(attempt: Attempt, found: dict[str, bytes], row: dict[str, Any]) -> Iterator[str]:
    """Say which values of a saved file are not the original's, though something could have told so."""
    from tests.truth.oracle import seems_cut

    case = attempt.case
    sample = case.sample
    reach = case.reach
    if sample.kind == "records":
        known = {value.content for value in sample.values.values()}
        for name, content in found.items():
            # Of a chunk that is cut the hash cannot be compared, and the reason says so.
            cut = case.damage.kind == "remove" and "without a checksum" in (row["reason"] or "")
            if content not in known and not (cut and case.wrapper in ("plain", "zst")):
                yield f"record {name} is none of the originals"
        return
    for name, content in found.items():
        value, first = attempt.truth.get(name), attempt.truth.get(name.rpartition("#")[0])  # bytes may come twice
        # Of Paddle, behind damage: nobody knows how many are lost before it.
        named = sample.values.values() if name.startswith("param_at_") else (value, first)
        if any(known is not None and known.content == content for known in named):
            continue
        if case.wrapped.covered and not seems_cut(case):
            yield f"{name!r} is not the original, though a checksum covers it ({row['status']})"
        elif value is None:
            if not sample.spread(reach).ranges and not reach.lost:
                yield f"{name!r} is no tensor of the original"
        elif name not in sample.values or sample.untouched(name, reach):
            yield f"{name!r} is not the original, though the damage does not reach it"
        elif reach.cut and not case.damage.file:
            yield f"{name!r} is not the original, though nothing is wrong but that the end is missing"
        elif has_grown(attempt):
            yield f"{name!r} is not the original, though bytes came into the file, or went"


def saved_values(attempt: Attempt) -> set[bytes]:
    """Return the values in all files of the sample's format that were written; those that cannot be read have none."""
    sample = attempt.case.sample
    found: set[bytes] = set()
    assert attempt.out is not None
    suffixes = {Path(name).suffix for name in sample.saved_as}
    if sample.leads and not sample.folder_only:
        found |= checkpoint_values(attempt)
        suffixes = {".safetensors"}
    rows = attempt.report["files"] if attempt.report is not None else ()
    complete = {row["path"] for row in rows if row["status"] == "complete"}  # arrays that safetensors has no type for
    for path in sorted(attempt.out.rglob("*")):
        relative = path.relative_to(attempt.out).as_posix()
        if not path.is_file() or path.name == "RECOVERY.json" or (".partial/" in relative and relative not in complete):
            continue
        content = path.read_bytes()
        if sample.folder_only and attempt.case.wrapped.inner:  # files one by one, each of which has its part of a value
            parts = ((value, sample.content[slice(*value.place)]) for value in sample.values.values())
            found |= {value.content for value, part in parts if part in content}
        if content == sample.content or content in attempt.case.wrapped.known:
            return {value.content for value in sample.values.values()}
        if path.suffix in suffixes:
            try:
                found |= set(values_in(sample, path).values())
            except Exception:  # clause c says so
                continue
    return found


def checkpoint_values(attempt: Attempt) -> set[bytes]:
    """Return the values of a checkpoint whose files were written one by one, as a walk through an archive meets them.

    A value is there if its bytes stand in the data file where they did, and the block of the index that leads to it
    stands in what was written of the index, wherever.
    """
    sample = attempt.case.sample
    assert attempt.out is not None
    paths = [path for path in sorted(attempt.out.rglob("*")) if path.is_file()]
    index = [path.read_bytes() for path in paths if sample.entry in path.relative_to(attempt.out).as_posix()]
    data = [path.read_bytes() for path in paths if DATA in path.relative_to(attempt.out).as_posix()]
    whole = sample.siblings.get(sample.entry)
    places = places_in({name: value.content for name, value in sample.values.items()})
    found: set[bytes] = set()
    for name, value in sample.values.items():
        wanted = sample.content[slice(*value.place)] if whole is None else whole
        start, end = places[name]
        if any(wanted in content for content in index) and any(content[start:end] == value.content for content in data):
            found.add(value.content)
    return found
