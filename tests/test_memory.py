from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import textwrap

import pytest

from tests import sweep

pytestmark = pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="no /proc/self/status here")

MIB = 1 << 20
GIB = 1 << 30
SLACK = 8 * MIB

# What every script below begins with: everything imported, then `start()`, and at the end `finish()` prints the growth.
PRELUDE = """
import json, sys
import ml_dtypes, numpy as np
import pparse, pparse.compressed.inflated, pparse.data.spliced, pparse.tensors.dtype, pparse.parsers.safetensors.parser
import pparse.tensors.selection
import pparse.viewers.safetensors.viewer
import pparse.parsers.json.parser, pparse.kernels.json_numpy, pparse.data.file_object

def memory(word):
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) << 10 for line in status if line.startswith(word + ":"))

np.zeros(1000).sum()
before = memory("VmRSS")

def finish(**more):
    print(json.dumps({"grown": memory("VmHWM") - before, **more}))
"""


def run(script, *arguments):
    """Run the script in a fresh interpreter; return what it prints: bytes that its memory grew by at most, and more."""
    code = PRELUDE + textwrap.dedent(script)
    done = subprocess.run([sys.executable, "-c", code, *map(os.fspath, arguments)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def sparse(path, tensors, writes=()):
    """Write a file of zeros with a header of ``(name, dtype, shape, bytes)``; ``writes`` are ``(offset, bytes)``."""
    header, at = {}, 0
    for name, dtype, shape, size in tensors:
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    try:
        with path.open("wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for offset, content in writes:
                file.seek(8 + len(text) + offset)
                file.write(content)
            file.truncate(8 + len(text) + at)
    except OSError as error:
        pytest.skip(f"the file system has no such files: {error}")
    if path.stat().st_blocks * 512 > 64 * MIB:
        path.unlink()
        pytest.skip("the file system has no sparse files")
    return path


def test_the_measure_itself_notices_memory():
    """What is allocated and touched shows, also if it is gone at the end: else the tests below could not fail."""
    grown = run("block = bytearray(b'x') * (50 << 20); del block; finish()")["grown"]
    assert 49 * MIB < grown < 50 * MIB + SLACK  # the system counts pages in batches
    assert run("finish()")["grown"] < SLACK


@pytest.mark.parametrize("budget", ["1MiB", "64MiB"])
def test_reading_all_tensors_one_after_the_other(tmp_path, budget):
    size = 16 * MIB
    path = sparse(
        tmp_path / "model.safetensors",
        [(f"layer.{number}", "F32", (size // 4096, 1024), size) for number in range(10)],
        [(number * size + 4 * number, b"\0\0\x80\x3f") for number in range(10)],
    )
    assert path.stat().st_size > 150 * MIB
    result = run(
        """
        with pparse.view(sys.argv[1], budget=sys.argv[2]) as model:
            ones = [int(np.flatnonzero(tensor.numpy()).item()) for tensor in model.values()]
        finish(ones=ones)
        """,
        path,
        budget,
    )
    assert result["ones"] == list(range(10))
    assert result["grown"] <= (MIB if budget == "1MiB" else 64 * MIB) + SLACK + size
    assert result["grown"] <= SLACK + size + MIB  # reading itself buffers nothing


@pytest.mark.parametrize("dtype", ["BF16", "F8_E4M3", "BOOL", "C64"])
def test_other_types_are_read_without_a_second_copy(tmp_path, dtype):
    size = (64 if sweep.full else 32) * MIB
    width = {"BF16": 2, "F8_E4M3": 1, "BOOL": 1, "C64": 8}[dtype]
    path = sparse(tmp_path / "model.safetensors", [("a", dtype, (size // width,), size)])
    result = run("with pparse.view(sys.argv[1]) as model: a = model['a'].numpy(); finish(bytes=a.nbytes)", path)
    assert result["bytes"] == size
    assert result["grown"] <= size + SLACK


def test_blocks_stay_within_their_limit(tmp_path):
    size = 100 * MIB
    path = sparse(tmp_path / "model.safetensors", [("a", "F32", (size // 4,), size)], [(size - 4, b"\0\0\x80\x3f")])
    limits = (64 << 10, MIB, 16 * MIB)  # from small to large: the peak of one process only rises
    result = run(
        """
        seen = []
        for limit in map(int, sys.argv[2:]):
            with pparse.view(sys.argv[1], budget="1MiB") as model:
                largest = total = 0
                for block in model["a"].blocks(limit):
                    largest, total = max(largest, block.nbytes), total + block.nbytes
                last = float(block[-1])
            seen.append((largest, total, last, memory("VmHWM") - before))
        finish(seen=seen)
        """,
        path,
        *map(str, limits),
    )
    for limit, (largest, total, last, grown) in zip(limits, result["seen"], strict=True):
        assert (largest, total, last) == (limit, size, 1.0)
        assert grown <= 2 * limit + SLACK  # the block in hand, and the next one


def test_blocks_of_sub_byte_elements_stay_near_their_limit(tmp_path):
    count = (64 if sweep.full else 40) * MIB
    tensors = [("a", "F4", (count,), count // 2), ("b", "F6_E2M3", (count,), count // 4 * 3)]
    path = sparse(tmp_path / "model.safetensors", tensors)
    result = run(
        """
        with pparse.view(sys.argv[1], budget="1MiB") as model:
            counts = {name: sum(len(block) for block in tensor.blocks("2MiB")) for name, tensor in model.items()}
        finish(counts=counts)
        """,
        path,
    )
    assert result["counts"] == {"a": count, "b": count}
    assert result["grown"] <= 12 * 2 * MIB + SLACK  # unpacking works on wider words


def test_slices_of_a_tensor_of_four_gib(tmp_path):
    rows = GIB // 1024
    marks = {0: 1.0, 12345: 2.0, rows // 2: 3.0, rows - 1: 4.0}
    path = sparse(
        tmp_path / "model.safetensors",
        [("a", "F32", (rows, 1024), 4 * GIB)],
        [(row * 4096 + 4 * 7, struct.pack("<f", value)) for row, value in marks.items()],
    )
    result = run(
        """
        with pparse.view(sys.argv[1], budget="1MiB") as model:
            a = model["a"]
            rows = a.shape[0]
            found = [float(a[row, 7]) for row in (0, 12345, rows // 2, rows - 1, 5)]
            found += [float(a[rows - 10 :].sum()), float(a[12000:13000, 7:8].sum()), float(a[:: rows - 1, 7].sum())]
            found += [float(a[rows // 2 - 1 : rows // 2 + 2, 5:9].max()), a[100:100].size]
        finish(found=found)
        """,
        path,
    )
    assert result["found"] == [1.0, 2.0, 3.0, 4.0, 0.0, 4.0, 2.0, 5.0, 3.0, 0]
    assert result["grown"] <= 2 * 4 * MIB + MIB + SLACK


def test_gibibytes_in_one_tensor_are_read_bit_exactly(tmp_path):
    size = 5 * GIB + 3 if sweep.full else 2 * GIB + 300_000_003
    places = [0, 1, (1 << 31) - 4097, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, 1 << 32, (1 << 32) + 123_456_789, size - 1]
    places = [place for place in places if place < size]
    stretches: list = []
    for place in () if sweep.full else places:  # all of it is read, or half a MiB on both sides of what is to be found
        first, last = max(0, place - MIB // 2), min(size, place + MIB // 2)
        if stretches and first <= stretches[-1][1]:
            first = stretches.pop()[0]
        stretches.append((first, last))
    path = sparse(
        tmp_path / "model.safetensors",
        [("before", "U8", (5,), 5), ("a", "U8", (size,), size), ("after", "U8", (2,), 2)],
        [(5 + at, bytes([number + 1])) for number, at in enumerate(places)] + [(5 + size, b"\xaa\xbb")],
    )
    result = run(
        """
        with pparse.view(sys.argv[1], budget="1MiB") as model:
            a = model["a"]
            found, at = [], 0
            stretches = json.loads(sys.argv[2])
            starts = [first for first, _ in stretches]
            for block in (a[first:last] for first, last in stretches) if stretches else a.blocks("1MiB"):
                at = starts.pop(0) if starts else at
                if block.max():
                    found += [(at + int(place), int(block[place])) for place in np.flatnonzero(block)]
                at += len(block)
            single = [int(a[place]) for place, _ in found]
            around = [a[max(0, place - 2) : place + 3].tolist() for place, _ in found]
            mapped = a.numpy(copy=False)
            finish(found=found, at=at, single=single, around=around, after=model["after"].numpy().tolist(),
                   mapped=[int(mapped[place]) for place, _ in found], length=len(mapped))
        """,
        path,
        json.dumps(stretches),
    )
    assert result["at"] == result["length"] == size
    assert result["found"] == [[at, number + 1] for number, at in enumerate(places)]
    assert result["single"] == result["mapped"] == list(range(1, len(places) + 1))
    assert result["around"][0] == [1, 2, 0]
    assert result["around"][3] == [0, 0, 4, 5, 0]
    assert result["around"][-1] == [0, 0, len(places)]
    assert result["after"] == [0xAA, 0xBB]
    assert result["grown"] <= 2 * MIB + MIB + SLACK


def test_listing_and_checking_keep_within_the_budget(tmp_path):
    """Tens of thousands of tensors: what is kept of the header is its index, not its text."""
    number_of = 100_000 if sweep.full else 30_000
    budget = 8 if sweep.full else 4
    names = [f"model.layers.{number // 10}.mlp.experts.{number % 10}.weight" for number in range(number_of)]
    path = sparse(tmp_path / "model.safetensors", [(name, "BF16", (8, 8), 128) for name in names])
    result = run(
        """
        seen = []
        for strict in (False, True):
            with pparse.view(sys.argv[1], budget=sys.argv[2]) as model:
                count = sum(1 for _ in model.tensors())
                errors = [f.code for f in model.check(strict=strict) if f.severity.value == "error"]
                errors = [code for code in errors if code != "unwritten"]
                seen.append((count, errors, model.extraction.session.budget.peak))
        finish(seen=seen)
        """,
        path,
        f"{budget}MiB",
    )
    for count, errors, peak in result["seen"]:
        assert (count, errors) == (number_of, [])
        assert peak <= budget * MIB
    assert result["grown"] <= budget * MIB + SLACK
    # As Python's numbers, these elements would take 16 times as much as in the file.
    path = sparse(tmp_path / "large.safetensors", [("w", "BF16", (1024, 3072), 6 * MIB)])
    with open(path, "r+b") as file:  # no holes, which are told
        file.seek(-6 * MIB, 2)
        file.write(bytes(6 * MIB))
    script = "from pparse.cli import main; assert main(['get', sys.argv[1], 'w', '--json', '-o', sys.argv[2]]) == 0"
    written = tmp_path / "w.json"
    assert run(f"{script}; finish()", path, written)["grown"] <= 16 * MIB + SLACK
    assert written.stat().st_size > 3 * 5 * MIB


def test_a_model_in_json_form_is_listed_and_read_without_its_texts_in_memory(tmp_path):
    """10 base64 texts of 5 MiB: none is held, and what is decoded is what is asked for."""
    path = tmp_path / "large.onnx.json"
    block = b"AAAAPwAAgD8AAABA" * (1 << 15)  # 0.5, 1, 2
    with path.open("wb") as out:
        out.write(b'{"irVersion":"8","graph":{"initializer":[')
        for number in range(10):
            head = b'{"dims":["983040"],"dataType":1,"name":"w%d","rawData":"' % number
            out.write((b"," if number else b"") + head)
            for _ in range(10):
                out.write(block)
            out.write(b'"}')
        out.write(b']},"opsetImport":[{"version":"17"}]}')
    found = run(
        """
        import pparse.parsers.onnx.json_model, pparse.parsers.onnx.parser, pparse.viewers.onnx.viewer
        with pparse.view(sys.argv[1], budget="16MiB") as view:
            rows = [(tensor.name, str(tensor.status)) for tensor in view.tensors()]
            total = float(view["w7"][:3000].sum())
            found = list(view.check())
        finish(rows=len(rows), statuses=sorted({status for _, status in rows}), total=total, findings=len(found))
        """,
        path,
    )
    assert (found["rows"], found["statuses"], found["findings"]) == (10, ["complete"], 0)
    assert found["total"] == 3500.0
    assert found["grown"] < 16 * MIB + SLACK
