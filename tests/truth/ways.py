"""The ways into a document: from Python, and every command; each tells what it was given, for the oracle to judge."""

from __future__ import annotations

import json
import pickle
import random
import re
import sys
import threading
from typing import TYPE_CHECKING, Any

from pparse.containers.stream import StreamParser
from pparse.document import handles
from pparse.errors import DamagedTensorError, PparseError
from tests.truth.attempt import Attempt, Seen

if TYPE_CHECKING:
    from collections.abc import Callable

SLICES = 4  # tensors that are sliced, or asked for by a command of their own
NUMBERED = re.compile(r"~\d+(?=/)")
WAYS: dict[str, Callable[[Attempt], None]] = {}


def way(function: Callable[[Attempt], None]) -> Callable[[Attempt], None]:
    """Register a way under the name of its function."""
    WAYS[function.__name__.rstrip("_")] = function
    return function


# -- values of the sample --------------------------------------------------------------------------------------------


def ask(seen: list[Seen], thing: Any, name: str, by: str, give: Callable[[], bytes]) -> bytes | None:
    """Ask for bytes, and note what was given, with the status that is said afterwards."""
    content, error = None, ""
    try:
        content = give()
    except PparseError as problem:
        error = type(problem).__name__
    # A container is complete if it has an end, whatever is wrong below it.
    verified = getattr(thing, "verified", None)
    status = "container" if error and getattr(thing, "shape", "") in ("map", "list") else str(thing.status)
    seen.append(Seen(name, status, verified, content, error, by))
    return content


def listed(tensor: Any, by: str) -> Seen:
    """Note what is said of a tensor.

    Whether it is verified first: between two questions another thread may find out that its bytes are wrong.
    """
    verified = tensor.verified
    return Seen(tensor.name, str(tensor.status), verified, by=by)


def read_tensor(attempt: Attempt, viewer: Any, tensor: Any, seen: list[Seen], slices: bool) -> None:
    """Ask for a tensor whole, in slices, and whole again; note where the second answer forgets the first."""
    name = tensor.name
    seen.append(listed(tensor, "listed"))
    first = ask(seen, tensor, name, "numpy", lambda: tensor.numpy().tobytes())
    found_damage = seen[-1].error == DamagedTensorError.__name__
    if slices and tensor.shape and tensor.shape[0]:
        half = tensor.shape[0] // 2
        parts = [slice(0, half), slice(half, None)]
        content = ask(seen, tensor, name, "slices", lambda: b"".join(tensor[part].tobytes() for part in parts))
        if found_damage and content is not None:
            attempt.forgotten.append(f"{name}: numpy() raises DamagedTensorError, slices are handed out")
        blocks = ask(seen, tensor, name, "blocks", lambda: b"".join(block.tobytes() for block in tensor.blocks(4096)))
        if found_damage and blocks is not None:
            attempt.forgotten.append(f"{name}: numpy() raises DamagedTensorError, blocks() hands them out")
        again = ask(seen, tensor, name, "numpy again", lambda: tensor.numpy().tobytes())
        if first is not None and again is not None and first != again:
            attempt.forgotten.append(f"{name}: numpy() gives something else the second time")
        if found_damage and again is not None:
            attempt.forgotten.append(f"{name}: numpy() raises DamagedTensorError, and the second time it does not")
    if found_damage:
        for what, status in (
            ("tensor.status", tensor.status),
            ("viewer[name].status", viewer[name].status),
            ("viewer.status", viewer.status),
        ):
            if str(status) == "complete":
                attempt.forgotten.append(f"{name}: numpy() raised DamagedTensorError, and {what} is complete")


def read_tensors(attempt: Attempt, viewer: Any, seen: list[Seen]) -> None:
    """Ask for every tensor of a model, and then for the status of all once more."""
    tensors = list(viewer.tensors())
    sliced = set(random.Random(str(attempt.case)).sample(range(len(tensors)), min(SLICES, len(tensors))))
    for number, tensor in enumerate(tensors):
        with attempt.guarded(f"tensor {tensor.name!r}"):
            read_tensor(attempt, viewer, tensor, seen, number in sliced)
    damaged = {one.name for one in seen if one.error == DamagedTensorError.__name__}
    for tensor in viewer.tensors():
        seen.append(listed(tensor, "listed again"))
        if tensor.name in damaged and str(tensor.status) == "complete":
            attempt.forgotten.append(f"{tensor.name}: found damaged, and listed as complete afterwards")
    if any(one.status != "complete" for one in seen if one.by == "listed again") and str(viewer.status) == "complete":
        attempt.forgotten.append("the viewer is complete, and a tensor of it is not")


def node_bytes(kind: str, node: Any) -> bytes:
    """Return the value of a node as bytes."""
    if kind == "keys":
        value = node.to_python()
        if isinstance(value, bytes):
            return value
        if node.kind.rstrip("?") == "text":
            return value.encode()
        try:
            return json.dumps(value, sort_keys=True, default=repr).encode()
        except TypeError:  # keys that damage made, of which JSON has none, or that cannot be sorted
            return repr(value).encode()
    if node.shape != "scalar":  # a record that is a message
        node.load()
        return node.open().read()
    return bytes(node.load())


def read_nodes(attempt: Attempt, document: Any, seen: list[Seen]) -> None:
    """Ask for every value of a document that has no tensors."""
    kind = attempt.case.sample.kind
    if kind == "blob":
        if attempt.case.wrapped.given:
            parser, member = document.origin
            # By its place: a member whose entry is read again, in another thread or later, is another object.
            node = next(node for node in parser.result.root.children() if node.note.at == member.at)
            ask(seen, node, "", "load", lambda: bytes(node.load()))
        return
    if isinstance(document.result.parser, StreamParser):
        return  # the stream itself: nothing of what is in it is told by its nodes
    root = document.root
    if kind == "keys":
        names = [(str(node.key if node.key is not None else node.ordinal), node) for node in root.children()]
    else:
        parser = document.result.parser
        listed = [member.name for member in parser.members() if member.kind == "record"]
        names = [(name, parser.find_member(name)) for name in listed]
    for name, node in names:
        if node is None:
            attempt.forgotten.append(f"{name}: listed, and then not found")
            continue
        with attempt.guarded(f"node {name!r}"):
            ask(seen, node, name, "load", lambda: node_bytes(kind, node))  # noqa: B023 -- called at once
            if seen[-1].content is not None:
                node.unload()
                ask(seen, node, name, "load again", lambda: node_bytes(kind, node))  # noqa: B023


def read_values(attempt: Attempt, document: Any, seen: list[Seen]) -> None:
    """Ask for every value of the sample."""
    if attempt.case.sample.kind == "tensors":
        read_tensors(attempt, document.view(), seen)
    else:
        read_nodes(attempt, document, seen)


# -- the ways --------------------------------------------------------------------------------------------------------


@way
def open_(attempt: Attempt) -> None:
    """Walk all nodes from the outside, read the members of an archive, and then the sample's nodes."""
    attempt.inside(attempt.path, lambda document: walk_outside(attempt, document))
    attempt.inside(attempt.target, lambda document: walk_sample(attempt, document))


def walk_outside(attempt: Attempt, document: Any) -> None:
    """Walk all nodes, and read the members of an archive."""
    for _ in document.walk():
        pass
    if not attempt.case.wrapped.inner:
        return
    for node in document.root.children():
        if getattr(node.note, "kind", "") == "file":
            found: list[Seen] = []
            ask(found, node, str(node.key), "load", lambda: bytes(node.load()))  # noqa: B023 -- called at once
            attempt.files.setdefault(found[0].name, found[0])


def walk_sample(attempt: Attempt, document: Any) -> None:
    """Walk the sample's nodes, and read them, twice."""
    for _ in document.walk():
        pass
    for _ in range(2):
        if attempt.case.sample.kind != "tensors":
            read_values(attempt, document, attempt.values)
        elif attempt.case.sample.name.startswith("safetensors") and not attempt.case.wrapped.folder:
            for node in document.node("tensors").children():
                data = node["data"]
                ask(attempt.values, data, str(node.key), "node", lambda: data.open().read())  # noqa: B023


@way
def view(attempt: Attempt) -> None:
    """Every tensor by its viewer; the values of other documents by their nodes."""
    attempt.inside(attempt.target, lambda document: read_values(attempt, document, attempt.values))


@way
def threads(attempt: Attempt) -> None:
    """Four threads that ask one document for everything at the same time."""
    attempt.inside(attempt.target, lambda document: ask_together(attempt, document))


def ask_together(attempt: Attempt, document: Any) -> None:
    """Let four threads read all values of one document, and switch between them as often as can be."""
    seen: list[list[Seen]] = [[] for _ in range(4)]
    viewer = document.view() if attempt.case.sample.kind == "tensors" else None

    def work(number: int) -> None:
        with attempt.guarded(f"thread {number}"):
            if viewer is not None:
                read_tensors(attempt, viewer, seen[number])
            else:
                read_nodes(attempt, document, seen[number])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        workers = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    finally:
        sys.setswitchinterval(interval)
    attempt.questions += 3
    attempt.values = [one for part in seen for one in part]


@way
def far(attempt: Attempt) -> None:
    """What `view` asks, of files that are far away: read through a cache, the shards of a set from a given folder."""
    attempt.inside(attempt.path, lambda document: read_values(attempt, document, attempt.values), attempt.open_far)


@way
def handle(attempt: Attempt) -> None:
    """What `view` asks, of a document that was pickled and opened again; and each tensor by a handle of its own."""
    try:
        attempt.inside(attempt.target, lambda document: ask_by_handles(attempt, document))
    finally:
        handles.at_fork()  # the next case is another process


def ask_by_handles(attempt: Attempt, document: Any) -> None:
    """Let a document, and then its tensors, travel."""
    attempt.questions += 2
    read_values(attempt, pickle.loads(pickle.dumps(document)), attempt.values)
    if attempt.case.sample.kind == "tensors":
        for kept in [pickle.dumps(tensor) for tensor in document.view().tensors()]:
            tensor = pickle.loads(kept)
            with attempt.guarded(f"tensor {tensor.name!r}"):
                ask(attempt.values, tensor, tensor.name, "numpy by a handle", lambda: tensor.numpy().tobytes())  # noqa: B023


@way
def ls(attempt: Attempt) -> None:
    """The list, of the sample and of what is around it."""
    listing = attempt.run("ls", "--json", attempt.target).json
    if listing is not None:
        for row in listing["tensors"]:
            attempt.values.append(Seen(row["name"], row["status"], row["verified"], by="ls"))
        if attempt.case.sample.kind == "records":
            for row in listing["members"]:
                attempt.values.append(Seen(row["name"], row["status"], by="ls"))
        attempt.listed = {row["name"]: row["status"] for row in [*listing["tensors"], *listing["members"]]}
    if attempt.case.wrapped.inner:
        outer = attempt.run("ls", "--json", attempt.path).json
        for row in outer["members"] if outer is not None else ():
            attempt.files.setdefault(row["name"], Seen(row["name"], row["status"], by="ls"))
        attempt.run("ls", "-R", "--json", attempt.path)


@way
def info(attempt: Attempt) -> None:
    """What the file is."""
    attempt.run("info", "--json", attempt.target)
    if attempt.case.wrapped.inner:
        attempt.run("info", "--json", attempt.path)


@way
def get(attempt: Attempt) -> None:
    """Some values one by one, each by a command of its own; and a member of the archive."""
    case = attempt.case
    rng = random.Random(str(case))
    names = sorted(case.sample.values)
    # Of a stream in an archive, `get` gives the member as it is; of what has no format, it gives nothing.
    if case.sample.kind == "blob" and not case.wrapped.given and (case.wrapped.inner or case.wrapper == "plain"):
        names = []
    out = attempt.folder / "got"
    for name in rng.sample(names, min(SLICES, len(names))):
        out.unlink(missing_ok=True)
        if case.sample.kind == "keys":
            path = [f"[{name}]" if name.isdecimal() else f"[{json.dumps(name)}]"]
        else:
            path = [name] if name else []
        how = ["--json"] if case.sample.name in ("json", "sentencepiece", "paddle") else ["--raw"]
        command = attempt.run("get", attempt.target, *path, *how, "-o", str(out))
        content = None
        if command.code == 0 and out.exists():
            content = out.read_bytes()
            if how == ["--json"]:
                content = json.dumps(json.loads(content)["value"], sort_keys=True).encode()
        status = "complete" if command.code == 0 else "damaged"
        attempt.values.append(Seen(name, status, None, content, command.err, "get"))


@way
def check(attempt: Attempt) -> None:
    """Look at everything, the documents inside an archive too."""
    attempt.read_all = True
    attempt.run("check", "--json", "-R", attempt.path)
    if attempt.case.wrapped.inner:
        attempt.run("check", "--json", attempt.target)
    # The list that is made after all was read, by the same document.
    attempt.inside(attempt.target, lambda document: read_checked(attempt, document))


def read_checked(attempt: Attempt, document: Any) -> None:
    """Look at everything first, and then ask for the values."""
    for _ in document.check():
        pass
    read_values(attempt, document, attempt.values)


@way
def extract(attempt: Attempt) -> None:
    """Write the members of the archive, or the content of the stream.

    It reads what it writes: not what follows in a stream around the archive, where a checksum may stand.
    """
    attempt.out = attempt.folder / "out"
    found = attempt.run("extract", "--json", attempt.file, "-o", str(attempt.out)).json
    for row in found["files"] if found is not None else ():
        if row["path"] is None:
            continue
        content = (attempt.out / row["path"]).read_bytes()
        attempt.files[row["path"]] = Seen(row["path"], row["status"], row["verified"], content, by="extract")


@way
def recover(attempt: Attempt) -> None:
    """Save everything; and look at everything, which must come to the same."""
    attempt.read_all = True
    attempt.out = attempt.folder / "out"
    attempt.run("recover", "--json", attempt.file, "-o", str(attempt.out))
    report = attempt.out / "RECOVERY.json"
    if report.exists():
        attempt.report = json.loads(report.read_text())
        for row in attempt.report["files"]:
            if row["path"] is not None:
                content = (attempt.out / row["path"]).read_bytes()
                seen = Seen(row["path"], row["status"], row["verified"], content, by="recover")
                attempt.files[row["path"]] = seen
                # Where a damaged name came first, one that is the same on some disks is another one here: pack~2/a.
                attempt.files.setdefault(NUMBERED.sub("", row["path"]), seen)
    attempt.run("check", "--json", "-R", attempt.file)
