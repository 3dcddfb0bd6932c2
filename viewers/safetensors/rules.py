"""The rules of safetensors, checked for a file or a set of shards.

The rules of the reference reader (huggingface/safetensors, safetensors/src/tensor.rs, ``Metadata::validate`` and
``SafeTensors::read_metadata``), each confirmed by running it:

- the header has at most 100,000,000 bytes, is valid UTF-8 and one JSON object, followed only by JSON whitespace;
- ``__metadata__`` maps strings to strings (or is null), and occurs once;
- an entry has dtype, shape, data_offsets, each once; dtype and shape need the bytes that the offsets span;
- sorted by offsets, the first tensor begins at 0, each begins where the previous one ends, the last ends with the file;
- its JSON reader (serde_json) refuses brackets nested deeper than 127, and ``-0`` for a count.

A header that breaks a rule is damaged, and so are the document and the tensors concerned. Without ``strict``, the limit
on the header's length is a warning, and the last rule is not checked. With ``strict`` both are errors, and so is a
boolean that is neither 0 nor 1, which the reference accepts.
"""

from __future__ import annotations

from array import array

from pparse.data.trailing_bytes import trailing_severity
from pparse.data.zero_runs import runs_from, zero_runs
from pparse.errors import (
    EndOfDataError,
    LimitError,
    MalformedError,
    PparseError,
    TruncatedTensorError,
    UnsupportedError,
)
from pparse.findings import Finding, FindingList, Severity, Status
from pparse.lazy import lazy_pattern
from pparse.parsers.safetensors.header import FIELDS, METADATA, REFERENCE_HEADER_LIMIT
from pparse.tensors.status import SETTLED, WHOLE_OR_CUT
from pparse.tree.entry import LIST, MAP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Any, Final

    from pparse.parsers.safetensors.parser import SafetensorsParser
    from pparse.tensors.tensor import Tensor
    from pparse.tree.node import Node
    from pparse.viewers.safetensors.sharded import SafetensorsSetViewer
    from pparse.viewers.safetensors.viewer import SafetensorsViewer

# Findings on files with complete tensors that the reference refuses all the same.
REFUSED: Final = frozenset(("trailing-bytes", "gap", "overlap", "metadata", "byte-order-mark", "header-too-large"))
_BOOL_BLOCK: Final = 1 << 20
_TEXT_BLOCK: Final = 256 << 10
_REFERENCE_DEPTH: Final = 127
_MINUS_ZERO: Final = lazy_pattern(rb"-0(?![\d.eE])")
_ONE_KIND: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKET: Final = bytes(set(range(256)) - set(b"[]{}"))


class _FileFindings:
    """Makes findings on one file, and returns the new ones."""

    def __init__(self, viewer: SafetensorsViewer, strict: bool) -> None:
        self.document = viewer.findings
        # A list of its own: the document's list may hold the same findings with the severity of another check.
        self.findings = FindingList(viewer.extraction.session.limits.findings)
        self.source = viewer.extraction.name
        self.rule = Severity.ERROR if strict else Severity.WARNING
        self._shown = 0

    def add(self, code: str, reason: str, severity: Severity = Severity.ERROR, **where: Any) -> None:
        self.findings.add(Finding(code, reason, severity=severity, source=self.source, **where))

    def new(self) -> Iterator[Finding]:
        """Yield the findings made since the last call."""
        kept = len(self.findings) - self.findings.omitted
        while self._shown < kept:
            finding = self.findings[self._shown]
            self._shown += 1
            self.document.add(finding)
            yield finding


def _omitted(findings: FindingList, source: str) -> Iterator[Finding]:
    """Yield a finding on those that were only counted: an error if any of them is one."""
    if findings.omitted:
        errors = findings.errors - sum(finding.severity is Severity.ERROR for finding in findings)
        reason = f"{findings.omitted} more findings were counted, but not kept; {errors} of them are errors"
        severity = Severity.ERROR if errors else Severity.WARNING
        yield Finding("findings-omitted", reason, severity=severity, source=source)


def check_file(viewer: SafetensorsViewer, *, strict: bool) -> Iterator[Finding]:
    """Check one file; yield each finding as it is made."""
    notes = _FileFindings(viewer, strict)
    extraction = viewer.extraction
    zeros: array[int] | None = None
    if extraction.data.size is None:  # its end must be known first: so all of a stream is decoded just once
        zeros = array("q")
        for run in zero_runs(extraction.data, extraction.start, 1 << 62, extraction.session.check_cancelled):
            zeros.extend(run)
    if _check_beginning(viewer, notes):
        yield from _check_tensors(viewer, notes, strict, zeros)
    yield from notes.new()


def _check_beginning(viewer: SafetensorsViewer, notes: _FileFindings) -> bool:
    """Check the length of the header and what it is; False where it says nothing of any tensor."""
    parser = viewer.parser
    zeroed = parser.zeroed_header()
    if zeroed is not None:
        notes.findings.add(zeroed)
        _note_holes(viewer, notes)
        return False
    try:
        size = parser.header_size
        parser.resolve_header()
        is_object = parser.is_object
    except MalformedError:
        viewer.close_extent(viewer.new_extent())  # adds what is wrong
        notes.findings.extend(viewer.findings)
        return False
    if size > REFERENCE_HEADER_LIMIT:
        reason, at = "the reference reader refuses headers above 100,000,000 bytes", viewer.extraction.start
        notes.add("header-too-large", reason, notes.rule, offset=at, wanted=REFERENCE_HEADER_LIMIT, got=size)
    if not is_object:
        for finding in parser.header.check():
            _take_header_finding(finding, notes)
        notes.add("malformed", "the header is not a JSON object", offset=parser.header.root.start)
        return False
    if parser.wrong_length is not None:
        notes.findings.add(parser.wrong_length)
    return True


def _check_tensors(
    viewer: SafetensorsViewer, notes: _FileFindings, strict: bool, zeros: array[int] | None
) -> Iterator[Finding]:
    """Check each tensor, and what is said of all of them; ``zeros`` are the runs of zeros, if they are known."""
    parser = viewer.parser
    clean = parser.is_plain or _metadata_is_plain(viewer)
    viewer.resolve_all()
    extent = viewer.new_extent()
    for tensor in viewer.tensors():
        status, _ = extent.add(tensor)
        finding = tensor.finding
        if finding is not None:
            clean &= finding.code != "bad-entry"
            # Of shifted tensors, the bytes behind have one finding for all.
            if tensor.status in SETTLED and finding.code != "shifted":
                notes.findings.add(finding)
        if strict and tensor.stored_dtype == "BOOL" and status in WHOLE_OR_CUT:
            _check_booleans(viewer, tensor, notes)
        yield from notes.new()
    # Listing decoded every entry strictly. Only if something is wrong the text is read again, token by token, to find
    # the exact place.
    odd = not clean or parser.text_status is not Status.COMPLETE or parser.has_duplicates or parser.text_findings
    if odd and not parser.is_plain:
        for finding in parser.header.check():
            _take_header_finding(finding, notes)
            yield from notes.new()
    for finding in metadata_findings(viewer):
        notes.findings.add(finding)
    if strict:
        _check_reference_json(viewer, notes)
    viewer.close_extent(extent)
    if extent.missing_bytes:
        notes.findings.add(viewer.truncation(extent))
    for finding in layout_findings(parser):
        notes.findings.add(finding)
    _note_holes(viewer, notes)
    at_end = [] if notes.findings.errors else list(viewer.zeros_at_end())
    _note_zeros(viewer, notes, zeros, at_end[0].offset if at_end else None)
    for finding in at_end:
        notes.findings.add(finding)
    yield from _omitted(notes.findings, notes.source)


def _take_header_finding(finding: Finding, notes: _FileFindings) -> None:
    code, severity = finding.code, finding.severity
    if code == "byte-order-mark":
        severity = Severity.ERROR
    elif code == "duplicate-key":
        from pparse.paths import parse_path

        keys = [step.key for step in parse_path(finding.path)]
        if len(keys) < 2 and keys != [METADATA]:
            code, severity = "duplicate-name", Severity.ERROR
        elif len(keys) == 2 and keys[0] != METADATA and keys[1] in FIELDS:
            severity = Severity.ERROR  # the reference accepts them elsewhere
    where = {name: getattr(finding, name) for name in ("path", "offset", "length", "wanted", "got")}
    notes.add(code, f"the header: {finding.reason}", severity, **where)


def _metadata_is_plain(viewer: SafetensorsViewer) -> bool:
    """Return whether ``__metadata__`` is short and can be decoded."""
    parser = viewer.parser
    try:
        for ordinal in parser.metadata_at():
            parser.header.root.child(ordinal).to_python(viewer.extraction.session.limits.leaf_bytes)
    except (EndOfDataError, MalformedError, LimitError, UnsupportedError):
        return False
    return True


def metadata_findings(viewer: SafetensorsViewer) -> Iterator[Finding]:
    """Yield what is wrong with the map of texts in the header."""
    parser, ordinals = viewer.parser, viewer.parser.metadata_at()

    def bad(reason: str, node: Node, path: str = METADATA) -> Finding:
        return Finding("metadata", reason, path=path, source=viewer.extraction.name, offset=node.start)

    if not ordinals or (parser.is_plain and not parser.bad_metadata):
        return
    root = parser.header.root
    if len(ordinals) > 1:
        yield bad(f"{METADATA} occurs more than once", root.child(ordinals[1]))
    node = root.child(ordinals[0])
    if node.kind == "null" or node.known_status is not Status.COMPLETE:
        return
    if node.kind != "object":
        yield bad(f"{METADATA} is a JSON {node.kind}, not an object of strings", node)
        return
    for kid in node.children():
        if kid.kind != "string":
            yield bad(f"a value in {METADATA} is a JSON {kid.kind}, not a string", kid, kid.path)


def _check_reference_json(viewer: SafetensorsViewer, notes: _FileFindings) -> None:
    """Find what JSON allows, but the reference's JSON reader refuses."""
    parser = viewer.parser
    data, pos = viewer.extraction.data, parser.result.extraction.start + 8
    end = min(parser.data_start, viewer.extraction.find_end())
    depth, in_text, zero, last = 0, False, False, b""
    while pos < end:
        viewer.extraction.session.check_cancelled()
        block = data.pread(pos, min(_TEXT_BLOCK, end - pos))
        if not block:
            break
        odd = (len(block) - len(block.rstrip(b"\\"))) % 2
        if odd and len(block) > 1:
            block = block[:-1]  # keep an escape together with its character
        pieces = block.replace(b"\\\\", b"__").replace(b'\\"', b"__").split(b'"')
        outside = b'"'.join(pieces[in_text::2])
        in_text ^= not len(pieces) % 2
        zero = zero or _MINUS_ZERO.search(last + outside) is not None
        last = outside[-1:]
        deepest, depth = _depth(outside.translate(_ONE_KIND, _NO_BRACKET), depth)
        if deepest > _REFERENCE_DEPTH:
            reason = f"the reference reader refuses brackets nested deeper than {_REFERENCE_DEPTH}"
            notes.add("nested-too-deep", reason, offset=pos, length=len(block))
            break
        pos += len(block)
    if zero:
        _check_minus_zeros(viewer, notes)


def _depth(brackets: bytes, depth: int) -> tuple[int, int]:
    """Return the greatest depth of ``brackets`` (if it matters) and the depth at their end, from ``depth`` on."""
    rest = brackets
    rounds = 8
    for _ in range(rounds):  # each removes one level of pairs
        rest = rest.replace(b"[]", b"")
    opening = rest.count(b"[")
    last = depth + 2 * opening - len(rest)
    if depth + opening + rounds <= _REFERENCE_DEPTH:
        return last, last
    deepest = depth
    for bracket in brackets:
        depth += 1 if bracket == 0x5B else -1
        deepest = max(deepest, depth)
    return deepest, depth


def _check_minus_zeros(viewer: SafetensorsViewer, notes: _FileFindings) -> None:
    header = viewer.parser.header
    for ordinal, name, info, entry in viewer.parser.infos():
        if entry is not None or info.problem is not None or (info.begin and 0 not in info.kind[1]):
            continue
        node = header.root.child(ordinal)
        for number, field in enumerate(FIELDS):
            kid = node.child(number) if node.shape == LIST else node.find(field)
            if kid is None or kid.shape == MAP or kid.end is None:
                continue
            if _MINUS_ZERO.search(viewer.extraction.data.pread(kid.start, kid.end - kid.start)) and field != "dtype":
                reason = f"{field} contains -0, which the reference reader does not accept as a count"
                notes.add("bad-entry", reason, path=name or f"header[#{ordinal}]", offset=kid.start)


def _check_booleans(viewer: SafetensorsViewer, tensor: Tensor, notes: _FileFindings) -> None:
    at = tensor.spans[0].offset
    try:
        for block in tensor.raw_blocks(_BOOL_BLOCK):
            viewer.extraction.session.check_cancelled()
            odd = block.translate(None, b"\0\1")
            if odd:
                reason = f"a boolean has the value {odd[0]}, which is neither 0 nor 1"
                notes.add("odd-boolean", reason, path=tensor.name, offset=at + block.find(odd[:1]), length=1)
                return
            at += len(block)
    except TruncatedTensorError:
        return  # reported elsewhere


def layout_findings(parser: SafetensorsParser) -> Iterator[Finding]:
    """Yield what is wrong with the layout of the tensors; nothing before all were read."""
    places = parser.places
    if places is None:
        return
    base, told = parser.data_start, parser.finding_at
    for end, begin in places.breaks:
        if begin > end and places.known:
            reason = "bytes between two tensors belong to no tensor"
            yield told("gap", reason, "", base + end, length=begin - end)
        elif begin < end:
            yield told("overlap", "two tensors share bytes", "", base + begin, length=end - begin)
    there = parser.result.extraction.find_end() - base
    if parser.text_status is Status.COMPLETE and places.known and there > places.end:
        more: Any = {"severity": trailing_severity("document"), "length": there - places.end}
        more |= {"wanted": places.end, "got": there}
        yield told("trailing-bytes", "bytes after the last tensor belong to no tensor", "", base + places.end, **more)


def _note_holes(viewer: SafetensorsViewer, notes: _FileFindings) -> None:
    for start, end in viewer.holes:
        reason = f"{end - start} bytes were never written (a file hole): they read as zeros"
        notes.add("unwritten", reason, offset=start, length=end - start)


def _note_zeros(viewer: SafetensorsViewer, notes: _FileFindings, zeros: array[int] | None, end: int | None) -> None:
    """Report long runs of zeros in the data, up to ``end``: tensors of zeros, or bytes that were lost."""
    extraction, begin = viewer.extraction, viewer.parser.data_start
    end = extraction.find_end() if end is None else end
    holes = viewer.holes
    runs: Iterable[tuple[int, int]]
    if zeros is None:
        runs = zero_runs(extraction.data, begin, end, extraction.session.check_cancelled)
    else:
        runs = runs_from(zip(zeros[::2], zeros[1::2], strict=True), begin)
    for start, length in runs:
        if not any(low <= start and start + length <= high for low, high in holes):
            reason = f"{length:,} bytes of zeros, in whole pages: a tensor of zeros, or bytes that were lost"
            notes.add("zeros", reason, Severity.WARNING, offset=start, length=length)


def check_set(viewer: SafetensorsSetViewer, *, strict: bool) -> Iterator[Finding]:
    """Check an index against its shards, and every shard; yield each finding as it is made."""
    seen: set[Finding] = set()

    def fresh(findings: Any) -> Iterator[Finding]:
        for finding in findings:
            if finding not in seen:
                seen.add(finding)
                yield finding

    index = viewer.parser.index
    if index is not None:
        for finding in index.json.check():
            viewer.findings.add(finding)
        yield from fresh(viewer.findings)
    names = viewer.parser.shard_names()
    session = viewer.extraction.session
    for number, name in enumerate(names):
        if session.progress is not None:
            session.progress(number, len(names), f"checking {name}")
        try:
            shard = viewer.shard_viewer(name)
        except PparseError:
            continue  # reported below, with the tensors it should have
        for finding in check_file(shard, strict=strict):
            viewer.findings.add(finding)
            yield from fresh([finding])
        viewer.let_go(shard)
    for _ in viewer.tensors():
        session.check_cancelled()
    yield from fresh(viewer.findings)
    yield from _omitted(viewer.findings, viewer.extraction.name)
