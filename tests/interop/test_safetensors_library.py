from __future__ import annotations

import importlib
import json
import os
import random
import struct

import ml_dtypes
import numpy as np
import pytest

import pparse
from pparse.limits import Limits
from tests import sweep
from tests.rows import rows


def library(name):
    """Import what we are compared with; without it skip, or fail where PPARSE_REQUIRE_INTEROP=1."""
    if os.environ.get("PPARSE_REQUIRE_INTEROP") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


safetensors = library("safetensors")
safetensors_numpy = library("safetensors.numpy")

BITS = {
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    "U8": 8,
    "I8": 8,
    "F8_E5M2": 8,
    "F8_E4M3": 8,
    "F8_E8M0": 8,
    "F8_E4M3FNUZ": 8,
    "F8_E5M2FNUZ": 8,
    "I16": 16,
    "U16": 16,
    "F16": 16,
    "BF16": 16,
    "I32": 32,
    "U32": 32,
    "F32": 32,
    "C64": 64,
    "F64": 64,
    "I64": 64,
    "U64": 64,
}
# BF16 because ml_dtypes is imported here, which teaches numpy the word.
NUMPY = ("BOOL", "U8", "I8", "I16", "U16", "F16", "BF16", "I32", "U32", "F32", "C64", "F64", "I64", "U64")
SHAPES = (
    (),
    (1,),
    (7,),
    (3, 5),
    (2, 3, 4),
    (2, 1, 3, 2),
    (2, 3, 1, 2, 2),
    (0,),
    (0, 3),
    (3, 0),
    (2, 0, 4),
    (1, 2, 3, 0),
    (0, 0, 0, 0, 0),
)


def frame(header, data=b"", *, length=None):
    """A safetensors file; ``header`` is text, bytes or what JSON is made of."""
    text = header if isinstance(header, bytes) else (header if isinstance(header, str) else json.dumps(header)).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def entry(dtype, shape, begin, end, **more):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": [begin, end], **more}


def noise(count, seed):
    return np.random.default_rng(seed).integers(0, 256, count, np.uint8).tobytes()


def pack(dtype_of, seed=0):
    """A file with a tensor of random bits for each ``(name, dtype, shape)``; returns it and each tensor's bytes."""
    header, data, parts = {}, b"", {}
    for number, (name, dtype, shape) in enumerate(dtype_of):
        size = int(np.prod(shape, dtype=np.int64)) * BITS[dtype] // 8
        part = noise(size, seed + number)
        if dtype == "BOOL":
            part = bytes(byte & 1 for byte in part)
        header[name] = entry(dtype, shape, len(data), len(data) + size)
        parts[name] = part
        data += part
    return frame(header, data), parts


def same_bits(ours, theirs):
    assert ours.shape == theirs.shape
    assert ours.dtype == theirs.dtype
    assert ours.tobytes() == theirs.tobytes()


# -- tensors, bit for bit --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", NUMPY)
def test_every_numpy_dtype_and_rank_is_equal_bit_for_bit(tmp_path, dtype):
    path = tmp_path / "model.safetensors"
    names = [(f"t{number}", dtype, shape) for number, shape in enumerate(SHAPES)]
    path.write_bytes(pack(names, seed=NUMPY.index(dtype) * 100)[0])
    with pparse.view(path) as model, safetensors.safe_open(path, "np") as reference:
        assert list(model) == [name for name, _, _ in names]
        assert sorted(model) == sorted(reference.keys())
        for name, _, shape in names:
            theirs = reference.get_tensor(name)
            tensor = model[name]
            assert (tensor.stored_dtype, tensor.shape, tensor.dtype.numpy) == (dtype, shape, theirs.dtype)
            assert tensor.nbytes == tensor.stored_nbytes == theirs.nbytes
            same_bits(tensor.numpy(), theirs)
            same_bits(tensor.numpy(copy=False), theirs)
            same_bits(np.asarray(tensor), theirs)
            joined = b"".join(block.tobytes() for block in tensor.blocks(16))
            assert joined == theirs.tobytes()
            buffer = bytearray(theirs.nbytes)
            assert tensor.readinto(buffer) == theirs.nbytes
            assert bytes(buffer) == theirs.tobytes()


def test_numpy_reads_no_other_dtype(tmp_path):
    """The table of what numpy's safe_open reads is true: if the library learns more, `NUMPY` must too."""
    path = tmp_path / "model.safetensors"
    read = []
    for dtype, bits in BITS.items():
        path.write_bytes(frame({"a": entry(dtype, [4], 0, bits // 2)}, bytes(bits // 2)))
        with safetensors.safe_open(path, "np") as reference:
            try:
                reference.get_tensor("a")
            except Exception:  # whatever it raises for a type that it does not know
                continue
            read.append(dtype)
    assert sorted(read) == sorted(NUMPY)


def test_slices_are_equal_to_the_library(tmp_path):
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack([("a", "F32", (9, 8, 7)), ("b", "I16", (50,))])[0])
    cases = [
        (slice(2, 5),),
        (slice(None), slice(1, 7)),
        (slice(1, 9), slice(0, 1), slice(6, 7)),
        (3,),
        (3, 2),
        (3, 2, 1),
        (slice(4, 4),),
        (slice(None), 5),
        (slice(7, 9),),
    ]
    with pparse.view(path) as model, safetensors.safe_open(path, "np") as reference:
        whole = model["a"].numpy()
        part = reference.get_slice("a")
        for index in cases:
            ours = model["a"][index]
            assert np.array_equal(ours, part[index], equal_nan=True), index
            assert np.array_equal(ours, whole[index], equal_nan=True), index
        assert np.array_equal(model["b"][10:20], reference.get_slice("b")[10:20])


def test_library_written_file_has_equal_metadata_and_names(tmp_path):
    path = tmp_path / "model.safetensors"
    generator = np.random.default_rng(5)
    arrays = {
        "w.é\u4e2d\U0001f600": generator.standard_normal((4, 5)).astype(np.float32),
        'quote"back\\slash': np.arange(6, dtype=np.uint16),
        "new\nline\tand\x01control": np.array(3.5),
        "": np.zeros((0, 2), np.int8),
        "flag": np.array([True, False]),
    }
    metadata = {"format": "np", "text": 'a"\\\n\u2028é', "empty": ""}
    safetensors_numpy.save_file(arrays, path, metadata)
    with pparse.view(path) as model, safetensors.safe_open(path, "np") as reference:
        assert dict(model.metadata) == reference.metadata() == metadata
        assert sorted(model) == sorted(arrays)
        for name, array in arrays.items():
            same_bits(model[name].numpy(), array)
        assert list(model.check(strict=True)) == []


@pytest.mark.parametrize(
    ("dtype", "attribute"),
    [
        ("BF16", "bfloat16"),
        ("F8_E4M3", "float8_e4m3fn"),
        ("F8_E5M2", "float8_e5m2"),
        ("F8_E8M0", "float8_e8m0fnu"),
        ("F8_E4M3FNUZ", "float8_e4m3fnuz"),
        ("F8_E5M2FNUZ", "float8_e5m2fnuz"),
    ],
)
def test_torch_written_tensors_are_equal_bit_for_bit(tmp_path, dtype, attribute):
    torch = library("torch")
    safetensors_torch = library("safetensors.torch")
    path = tmp_path / "model.safetensors"
    target = getattr(torch, attribute)
    carrier = torch.int16 if BITS[dtype] == 16 else torch.uint8
    codes = torch.from_numpy(np.arange(1 << BITS[dtype], dtype=np.int64)).to(carrier)  # every value there is
    tensors = {
        "all": codes.view(target),
        "matrix": codes.clone().view(target).reshape(16, -1),
        "scalar": codes[5:6].clone().view(target).reshape(()),
        "none": codes[:0].clone().view(target),
    }
    safetensors_torch.save_file(tensors, path)
    with pparse.view(path) as model:
        for name, wanted in tensors.items():
            tensor = model[name]
            assert tensor.stored_dtype == dtype
            got = tensor.torch()
            assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
            assert torch.equal(got.reshape(-1).view(carrier), wanted.reshape(-1).view(carrier))
            array = tensor.numpy()
            assert array.dtype == np.dtype(getattr(ml_dtypes, attribute))
            assert array.tobytes() == wanted.reshape(-1).view(carrier).numpy().tobytes()
        # The values too: a wrong type of the right width would keep the bits.
        ours = model["all"].numpy().astype(np.float32)
        assert np.array_equal(ours, tensors["all"].to(torch.float32).numpy(), equal_nan=True)


@pytest.mark.parametrize("dtype", sorted(set(BITS) - {"F6_E2M3", "F6_E3M2", "F4"}))
def test_torch_gives_what_the_library_gives_torch(tmp_path, dtype):
    torch = library("torch")
    path = tmp_path / "model.safetensors"
    path.write_bytes(pack([("a", dtype, (3, 4)), ("s", dtype, ()), ("z", dtype, (0, 2))], seed=3)[0])
    with pparse.view(path) as model, safetensors.safe_open(path, "pt") as reference:
        for name in model:
            ours, theirs = model[name].torch(), reference.get_tensor(name)
            assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
            assert torch.equal(ours.reshape(-1).view(torch.uint8), theirs.reshape(-1).view(torch.uint8))


def test_torch_four_bit_tensor_is_equal_packed(tmp_path):
    torch = library("torch")
    path = tmp_path / "model.safetensors"
    path.write_bytes(frame({"a": entry("F4", [2, 8], 0, 8)}, noise(8, 1)))
    with pparse.view(path) as model, safetensors.safe_open(path, "pt") as reference:
        ours, theirs = model["a"].torch(), reference.get_tensor("a")
        assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
        assert torch.equal(ours.view(torch.uint8), theirs.view(torch.uint8))


SMALL_FLOATS = {
    "F8_E8M0": (ml_dtypes.float8_e8m0fnu, 8),
    "F8_E4M3": (ml_dtypes.float8_e4m3fn, 8),
    "F8_E5M2": (ml_dtypes.float8_e5m2, 8),
    "F8_E4M3FNUZ": (ml_dtypes.float8_e4m3fnuz, 8),
    "F8_E5M2FNUZ": (ml_dtypes.float8_e5m2fnuz, 8),
    "F6_E2M3": (ml_dtypes.float6_e2m3fn, 6),
    "F6_E3M2": (ml_dtypes.float6_e3m2fn, 6),
    "F4": (ml_dtypes.float4_e2m1fn, 4),
    "BF16": (ml_dtypes.bfloat16, 16),
}


def put_bits(codes, bits):
    """Pack codes one after the other, the first one in the lowest bits."""
    number = sum(int(code) << (bits * at) for at, code in enumerate(codes))
    return number.to_bytes(len(codes) * bits // 8, "little")


@pytest.mark.parametrize("dtype", sorted(SMALL_FLOATS))
def test_hand_made_small_floats_are_ml_dtypes_values(dtype):
    scalar, bits = SMALL_FLOATS[dtype]
    codes = np.arange(1 << bits, dtype=np.uint16 if bits == 16 else np.uint8)
    codes = np.random.default_rng(0).permutation(np.concatenate([codes, codes[::-1]]))
    stored = put_bits(codes, bits) if bits < 8 else codes.tobytes()
    shape = (4, len(codes) // 8, 2)
    source = frame({"a": entry(dtype, shape, 0, len(stored))}, stored)
    safetensors.deserialize(source)  # the file itself is a good one
    wanted = codes.view(scalar).reshape(shape)
    with pparse.view(source) as model:
        tensor = model["a"]
        assert str(tensor.dtype) == np.dtype(scalar).name
        got = tensor.numpy()
        same_bits(got, wanted)
        same_bits(tensor.numpy(raw=True), codes.reshape(shape))
        for index in [slice(1, 3), (slice(None), slice(1, None, 3)), (2, 3), (slice(None, None, -1), 0), (3, -1, 1)]:
            part, expected = tensor[index], wanted[index]
            assert part.tobytes() == expected.tobytes(), index
            assert part.dtype == expected.dtype
        assert b"".join(block.tobytes() for block in tensor.blocks(64)) == wanted.tobytes()


@pytest.mark.parametrize("dtype", ["F4", "F6_E2M3", "F6_E3M2"])
def test_sub_byte_tensors_that_begin_inside_a_byte_group(dtype):
    """Rows that do not fill whole bytes: [4, 3] of four bits, [8, 5] of six."""
    scalar, bits = SMALL_FLOATS[dtype]
    shape = (8, 3) if bits == 4 else (8, 5)
    count = shape[0] * shape[1]
    codes = np.random.default_rng(1).integers(0, 1 << bits, count, np.uint8)
    stored = put_bits(codes, bits)
    with pparse.view(frame({"a": entry(dtype, shape, 0, len(stored))}, stored)) as model:
        wanted = codes.view(scalar).reshape(shape)
        for row in range(shape[0]):
            assert model["a"][row].tobytes() == wanted[row].tobytes(), row
            assert model["a"][row, 1:].tobytes() == wanted[row, 1:].tobytes(), row
        assert model["a"][::3].tobytes() == wanted[::3].tobytes()


# -- the strict verdict ----------------------------------------------------------------------------------------------

A = '{"dtype":"U8","shape":[4],"data_offsets":[0,4]}'
FOUR = b"\0\1\2\3"


def one(text, data=FOUR, name='"a"'):
    return frame(b"{" + name.encode() + b":" + text.encode() + b"}", data)


def around(before=b"", after=b""):
    return frame(before + b'{"a":' + A.encode() + b"}" + after, FOUR)


def fields(dtype='"U8"', shape="[4]", offsets="[0,4]", more="", data=FOUR):
    return one(f'{{"dtype":{dtype},"shape":{shape},"data_offsets":{offsets}{more}}}', data)


def tensors(data, **entries):
    return frame(entries, data)


def nested(opening, closing, depth):
    return fields(more=f',"x":{opening * depth}1{closing * depth}')


BIG = 1 << 32
LAYOUT = {"a": entry("U8", [2], 0, 2), "z": entry("U8", [0], 2, 2), "b": entry("U8", [2], 2, 4)}

VERDICTS = {
    # The text around the object.
    "plain": around(),
    "no tensors": frame("{}"),
    "leading spaces": around(b"   "),
    "leading tab, newline": around(b"\t\r\n "),
    "leading NUL": around(b"\0"),
    "space padding": around(after=b"     "),
    "newline padding": around(after=b"\n\n"),
    "NUL padding": around(after=b"\0\0\0"),
    "vertical tab padding": around(after=b"\x0b"),
    "form feed before": around(b"\x0c"),
    "no-break space padding": around(after=b"\xc2\xa0"),
    "trailing garbage": around(after=b"x"),
    "trailing comma behind": around(after=b","),
    "trailing bracket": around(after=b"}"),
    "second object": around(after=b"{}"),
    "second object after spaces": around(after=b"   {}"),
    "byte order mark": around(b"\xef\xbb\xbf"),
    "UTF-16": frame(('{"a":' + A + "}").encode("utf-16"), FOUR),
    "UTF-16 without mark": frame(('{"a":' + A + "}").encode("utf-16-le"), FOUR),
    "root array": frame("[]"),
    "root null": frame("null"),
    "root text": frame('"a"'),
    "root number": frame("1"),
    "empty header": frame(""),
    "blank header": frame("      "),
    "only a brace": frame("{"),
    "only a closing brace": frame("}"),
    "unclosed object": frame(b'{"a":' + A.encode(), FOUR),
    # JSON's grammar, where readers differ.
    "trailing comma": frame(b'{"a":' + A.encode() + b",}", FOUR),
    "leading comma": frame(b'{,"a":' + A.encode() + b"}", FOUR),
    "two commas": frame(b'{"a":' + A.encode() + b',,"b":[]}', FOUR),
    "comma in entry": fields(more=","),
    "comma in shape": fields(shape="[4,]"),
    "no comma": one('{"dtype":"U8" "shape":[4],"data_offsets":[0,4]}'),
    "no colon": one('{"dtype" "U8","shape":[4],"data_offsets":[0,4]}'),
    "comment": frame(b'{/**/"a":' + A.encode() + b"}", FOUR),
    "name without quotes": one(A, name="a"),
    "name in single quotes": one(A, name="'a'"),
    "NaN": fields(more=',"x":NaN'),
    "Infinity": fields(more=',"x":-Infinity'),
    "bad literal": fields(more=',"x":nul'),
    "capital literal": fields(more=',"x":Null'),
    "wrong bracket": fields(more=',"x":[1}'),
    "crossed brackets": fields(more=',"x":[{]}'),
    "bad array": fields(more=',"x":[1,,2]'),
    "leading zero": fields(more=',"x":01'),
    "bare minus": fields(more=',"x":-'),
    "fraction without digits": fields(more=',"x":1.'),
    "exponent without digits": fields(more=',"x":1e'),
    "large exponent": fields(more=',"x":1e308'),
    "minus zero, ignored": fields(more=',"x":-0'),
    "nested 125 deep": nested("[", "]", 125),
    "nested 126 deep": nested("[", "]", 126),
    "objects nested 125 deep": nested('{"y":', "}", 125),
    "objects nested 126 deep": nested('{"y":', "}", 126),
    "brackets in text": fields(more=',"x":"' + "[" * 200 + '"'),
    # Text.
    "lone high surrogate in name": one(A, name='"\\ud800"'),
    "lone low surrogate in name": one(A, name='"\\udc00"'),
    "surrogate pair in name": one(A, name='"\\ud83d\\ude00"'),
    "reversed pair in name": one(A, name='"\\ude00\\ud83d"'),
    "lone surrogate in metadata": frame('{"__metadata__":{"a":"\\ud800"}}'),
    "lone surrogate in a key of metadata": frame('{"__metadata__":{"\\ud800":"a"}}'),
    "escaped backslash before u": one(A, name='"\\\\ud800"'),
    "bytes that are not UTF-8 in name": frame(b'{"\xff":' + A.encode() + b"}", FOUR),
    "bytes that are not UTF-8 in metadata": frame(b'{"__metadata__":{"a":"\xff"}}'),
    "surrogate in UTF-8": frame(b'{"\xed\xa0\x80":' + A.encode() + b"}", FOUR),
    "overlong UTF-8": frame(b'{"\xc0\x80":' + A.encode() + b"}", FOUR),
    "cut UTF-8": frame(b'{"\xc3":' + A.encode() + b"}", FOUR),
    "control character in name": frame(b'{"\x01":' + A.encode() + b"}", FOUR),
    "newline in name": frame(b'{"\n":' + A.encode() + b"}", FOUR),
    "delete character in name": frame(b'{"\x7f":' + A.encode() + b"}", FOUR),
    "escaped NUL in name": one(A, name='"\\u0000"'),
    "unknown escape": one(A, name='"\\x41"'),
    "short escape": one(A, name='"\\u00"'),
    "empty name": one(A, name='""'),
    "name of 300 kB": one(A, name='"' + "n" * 300_000 + '"'),
    # __metadata__.
    "metadata": frame('{"__metadata__":{"a":"b"}}'),
    "metadata last": frame('{"a":' + A + ',"__metadata__":{"a":"b"}}', FOUR),
    "metadata empty": frame('{"__metadata__":{}}'),
    "metadata null": frame('{"__metadata__":null}'),
    "metadata with a number": frame('{"__metadata__":{"a":1}}'),
    "metadata with null": frame('{"__metadata__":{"a":null}}'),
    "metadata with an object": frame('{"__metadata__":{"a":{"b":"c"}}}'),
    "metadata with a list": frame('{"__metadata__":{"a":["b"]}}'),
    "metadata with true": frame('{"__metadata__":{"a":true}}'),
    "metadata as list": frame('{"__metadata__":[]}'),
    "metadata as list of pairs": frame('{"__metadata__":[["a","b"]]}'),
    "metadata as text": frame('{"__metadata__":"x"}'),
    "metadata as number": frame('{"__metadata__":0}'),
    "metadata as true": frame('{"__metadata__":true}'),
    "metadata in the form of a tensor": frame('{"__metadata__":' + A + "}", FOUR),
    "metadata twice": frame('{"__metadata__":{"a":"b"},"__metadata__":{"a":"b"}}'),
    "metadata twice, null": frame('{"__metadata__":null,"__metadata__":null}'),
    "metadata three times": frame('{"__metadata__":{},"__metadata__":{},"__metadata__":{}}'),
    "metadata twice, one escaped": frame('{"__metadata__":{},"__\\u006detadata__":{}}'),
    "metadata with a key twice": frame('{"__metadata__":{"a":"b","a":"c"}}'),
    "metadata under an escaped name": frame('{"__\\u006detadata__":{"a":"b"}}'),
    "bad metadata under an escaped name": frame('{"__\\u006detadata__":{"a":1}}'),
    "long metadata": frame('{"__metadata__":{"a":"' + "x" * 300_000 + '"}}'),
    "long metadata that is not UTF-8": frame(b'{"__metadata__":{"a":"' + b"x" * 300_000 + b'\xff"}}'),
    "long metadata that is no text": frame('{"__metadata__":{"a":[' + f"1{' ' * 99}," * 4_000 + "1]}}"),
    # Where tensors lie.
    "two": tensors(b"123456", a=entry("U8", [4], 0, 4), b=entry("U8", [2], 4, 6)),
    "two, header the other way": tensors(b"123456", a=entry("U8", [4], 2, 6), b=entry("U8", [2], 0, 2)),
    "unaligned": tensors(b"12345", a=entry("U8", [1], 0, 1), b=entry("F32", [1], 1, 5)),
    "begin above end": fields(offsets="[4,0]"),
    "begin above end, empty": fields(shape="[0]", offsets="[1,0]", data=b""),
    "hole at the start": fields(shape="[2]", offsets="[2,4]"),
    "hole between": tensors(b"12345", a=entry("U8", [2], 0, 2), b=entry("U8", [2], 3, 5)),
    "overlap": tensors(b"123456", a=entry("U8", [4], 0, 4), b=entry("U8", [4], 2, 6)),
    "shared range": tensors(b"1234", a=entry("U8", [4], 0, 4), b=entry("U8", [4], 0, 4)),
    "one inside the other": tensors(b"1234", a=entry("U8", [4], 0, 4), b=entry("U8", [2], 1, 3)),
    "same begin": tensors(b"1234", a=entry("U8", [2], 0, 2), b=entry("U8", [4], 0, 4)),
    "trailing byte": fields(data=FOUR + b"x"),
    "trailing NUL": fields(data=FOUR + b"\0"),
    "bytes and no tensor": frame("{}", b"x"),
    "last byte missing": fields(data=FOUR[:-1]),
    "all bytes missing": fields(data=b""),
    "empty tensor first": tensors(FOUR, z=entry("U8", [0], 0, 0), a=entry("U8", [4], 0, 4)),
    "empty tensor at 0, header last": tensors(FOUR, a=entry("U8", [4], 0, 4), z=entry("U8", [0], 0, 0)),
    "empty tensor at the end": tensors(FOUR, a=entry("U8", [4], 0, 4), z=entry("U8", [0], 4, 4)),
    "empty tensor at a boundary": frame(LAYOUT, FOUR),
    "empty tensor at a boundary, reversed": frame(dict(reversed(LAYOUT.items())), FOUR),
    "empty tensor inside another": tensors(FOUR, a=entry("U8", [4], 0, 4), z=entry("U8", [0], 2, 2)),
    "empty tensor inside another, reversed": tensors(FOUR, z=entry("U8", [0], 2, 2), a=entry("U8", [4], 0, 4)),
    "empty tensor beyond": tensors(FOUR, a=entry("U8", [4], 0, 4), z=entry("U8", [0], 5, 5)),
    "empty tensor alone": fields(shape="[0]", offsets="[0,0]", data=b""),
    "empty tensor alone, not at 0": fields(shape="[0]", offsets="[1,1]", data=b""),
    "empty tensor alone at the end of a byte": fields(shape="[0]", offsets="[1,1]", data=b"x"),
    "several empty tensors": tensors(b"", x=entry("U8", [0], 0, 0), y=entry("F32", [3, 0], 0, 0)),
    "scalar": fields(shape="[]", offsets="[0,1]", data=b"x"),
    "scalar of four bytes": fields('"F32"', "[]"),
    "scalar without bytes": fields(shape="[]", offsets="[0,0]", data=b""),
    "fewer elements than bytes": fields(shape="[3]"),
    "more elements than bytes": fields(shape="[5]"),
    "no elements and bytes": fields(shape="[0]"),
    # Sizes that overflow.
    "2^64 elements": fields(shape=f"[{BIG},{BIG}]", offsets="[0,0]", data=b""),
    "2^64 elements, then 0": fields(shape=f"[{BIG},{BIG},0]", offsets="[0,0]", data=b""),
    "0, then 2^64 elements": fields(shape=f"[0,{BIG},{BIG}]", offsets="[0,0]", data=b""),
    "2^64 - 1, then 0": fields(shape=f"[{BIG**2 - 1},0]", offsets="[0,0]", data=b""),
    "0, then 2^64 - 1": fields(shape=f"[0,{BIG**2 - 1}]", offsets="[0,0]", data=b""),
    "a length of 2^64": fields(shape=f"[{BIG**2},0]", offsets="[0,0]", data=b""),
    "bits overflow": fields(shape=f"[{1 << 61}]", offsets="[0,0]", data=b""),
    "bits overflow, then 0": fields(shape=f"[{1 << 61},0]", offsets="[0,0]", data=b""),
    "bits of 8 bytes overflow": fields('"F64"', f"[{1 << 58}]", f"[0,{1 << 61}]", data=b""),
    "bits of half a byte do not": fields('"F4"', f"[{(1 << 62) - 2}]", f"[0,{(1 << 61) - 1}]", data=b""),
    "offsets at 2^64 - 1": fields(shape="[0]", offsets=f"[{BIG**2 - 1},{BIG**2 - 1}]", data=b""),
    "offsets at 2^64": fields(shape="[0]", offsets=f"[{BIG**2},{BIG**2}]", data=b""),
    # Less than a byte.
    "F4, even": fields('"F4"', "[2,2]", "[0,2]", data=b"12"),
    "F4, odd": fields('"F4"', "[3]", "[0,2]", data=b"12"),
    "F4, odd, rounded down": fields('"F4"', "[3]", "[0,1]", data=b"1"),
    "F4, odd rows": fields('"F4"', "[2,3]", "[0,3]", data=b"123"),
    "F4, scalar": fields('"F4"', "[]", "[0,1]", data=b"1"),
    "F4, empty": fields('"F4"', "[0]", "[0,0]", data=b""),
    "F6, four": fields('"F6_E2M3"', "[4]", "[0,3]", data=b"123"),
    "F6, three": fields('"F6_E2M3"', "[3]", "[0,3]", data=b"123"),
    "F6, two": fields('"F6_E3M2"', "[2]", "[0,2]", data=b"12"),
    # dtype.
    **{f"dtype {word}": tensors(bytes(bits // 2), a=entry(word, [4], 0, bits // 2)) for word, bits in BITS.items()},
    **{
        f"dtype {word!r}": fields(json.dumps(word))
        for word in ("f32", "", "F8", "F8_E4M3FN", "I4", "U4", "BF32", "BOOLEAN", " U8", "C128")
    },
    "dtype escaped": fields('"\\u00558"'),
    "dtype null": fields("null"),
    "dtype number": fields("1"),
    "dtype list": fields('["U8"]'),
    "dtype object": fields('{"U8":1}'),
    "dtype object of null": fields('{"U8":null}'),
    "dtype object of two": fields('{"U8":null,"I8":null}'),
    # Entries.
    "extra fields": fields(more=',"x":{"y":[1,2.5,{"z":null}]},"w":"v"'),
    "extra field first": one('{"x":true,"dtype":"U8","shape":[4],"data_offsets":[0,4]}'),
    "extra field twice": fields(more=',"x":1,"x":2'),
    "extra field with a key twice": fields(more=',"x":{"y":1,"y":2}'),
    "extra field, long": fields(more=',"x":"' + "y" * 300_000 + '"'),
    "extra field, long and not UTF-8": frame(
        b'{"a":' + A.encode()[:-1] + b',"x":"' + b"y" * 300_000 + b'\xff"}}', FOUR
    ),
    "dtype twice": fields(more=',"dtype":"U8"'),
    "shape twice": fields(more=',"shape":[4]'),
    "data_offsets twice": fields(more=',"data_offsets":[0,4]'),
    "dtype twice, one escaped": fields(more=',"\\u0064type":"U8"'),
    "field named shape#2": fields(more=',"shape#2":[5]'),
    "only shape#2": one('{"dtype":"U8","shape#2":[4],"data_offsets":[0,4]}'),
    "field in capitals": one('{"Dtype":"U8","shape":[4],"data_offsets":[0,4]}'),
    "no dtype": one('{"shape":[4],"data_offsets":[0,4]}'),
    "no shape": one('{"dtype":"U8","data_offsets":[0,4]}'),
    "no data_offsets": one('{"dtype":"U8","shape":[4]}'),
    "empty entry": one("{}", b""),
    "name twice, the first one bad": frame('{"a":{"dtype":"U8"},"a":' + A + "}", FOUR),
    "entry null": one("null", b""),
    "entry number": one("1", b""),
    "entry text": one('"U8"', b""),
    "entry true": one("true", b""),
    "entry list": one('["U8",[4],[0,4]]'),
    "entry list with a wrong size": one('["U8",[5],[0,4]]'),
    "entry list too short": one('["U8",[4]]'),
    "entry list too long": one('["U8",[4],[0,4],1]'),
    "entry list in another order": one('[[4],"U8",[0,4]]'),
    "entry empty list": one("[]", b""),
    "shape null": fields(shape="null"),
    "shape number": fields(shape="4"),
    "shape text": fields(shape='"4"'),
    "shape object": fields(shape='{"0":4}'),
    "three offsets": fields(offsets="[0,4,4]"),
    "one offset": fields(offsets="[4]"),
    "no offsets": fields(offsets="[]"),
    "offsets null": fields(offsets="null"),
    "offsets object": fields(offsets='{"0":0,"1":4}'),
    **{
        f"length {text}": fields(shape=f"[{text}]")
        for text in ("4.0", "4e0", "-4", "null", '"4"', "true", "[4]", "04", "+4", "0x4", "4.5", str(BIG**2), "9" * 400)
    },
    **{
        f"offset {text}": fields(offsets=f"[0,{text}]")
        for text in ("4.0", "4e0", "-4", "null", '"4"', "false", "04", "+4", str(BIG**2), "9" * 400)
    },
    **{
        f"zero length {text}": fields(shape=f"[{text}]", offsets="[0,0]", data=b"")
        for text in ("0", "-0", "0.0", "-0.0", "0e0", "00", "1.0", "1e0")
    },
    **{f"zero offset {text}": fields(offsets=f"[{text},4]") for text in ("-0", " -0 ", "0.0", "0e0", "00", "-00")},
    "64 dimensions": fields(shape=str([1] * 64), offsets="[0,1]", data=b"x"),
    "65 dimensions": fields(shape=str([1] * 65), offsets="[0,1]", data=b"x"),
    "1,000 dimensions": fields(shape=str([1] * 1000), offsets="[0,1]", data=b"x"),
    # The file.
    "no bytes": b"",
    "7 bytes": b"\2\0\0\0\0\0\0",
    "8 bytes": struct.pack("<Q", 2),
    "8 zeros": bytes(8),
    "100 zeros": bytes(100),
    "header longer than the file by 1": frame("{}", length=3),
    "header shorter than it is": frame('{"a":' + A + "}", FOUR, length=len(A) + 5),
    "header of 2^63": frame("{}", length=1 << 63),
    "header of 2^64 - 1": frame("{}", length=(1 << 64) - 1),
    "header of 100,000,001 in a short file": frame("{}", length=100_000_001),
    "cut in the header": around()[:40],
    "cut behind the header": around()[:-4],
    "booleans": fields('"BOOL"', data=b"\0\1\1\0"),
}


def library_refuses(source):
    try:
        safetensors.deserialize(source)
    except safetensors.SafetensorError:
        return True
    return False


def errors_of(source, **options):
    with pparse.open(source, format="safetensors", **options) as document:
        return [finding for finding in document.check(strict=True) if finding.severity is pparse.Severity.ERROR]


def test_there_are_cases_on_both_sides():
    refused = sum(map(library_refuses, VERDICTS.values()))
    assert refused > 120
    assert len(VERDICTS) - refused > 70


@rows("case", sorted(VERDICTS))
def test_strict_verdict_is_the_librarys(case):
    source = VERDICTS[case]
    assert bool(errors_of(source)) == library_refuses(source)


def test_verdict_of_safe_open_is_that_of_deserialize(tmp_path):
    """`safe_open` maps the file, `deserialize` takes bytes: the verdict is one, so that tests may use the fast one."""
    path = tmp_path / "model.safetensors"
    for case, source in VERDICTS.items():
        path.write_bytes(source)
        try:
            with safetensors.safe_open(path, "np") as reference:
                reference.keys()
            refused = False
        except (safetensors.SafetensorError, OSError, ValueError):
            refused = True
        assert refused == library_refuses(source), case


@pytest.mark.parametrize("number", ["1e999", "-1e999", "9" * 5000, "1" * 300 + "e400"])
def test_strict_verdict_on_numbers_beyond_any(number):
    for source in (fields(more=f',"x":{number}'), fields(shape=f"[{number}]"), fields(offsets=f"[0,{number}]")):
        assert library_refuses(source)
        assert errors_of(source)


def test_strict_verdict_on_a_name_of_two_megabytes():
    source = one(A, name='"' + "n" * (2 << 20) + '"')
    assert not library_refuses(source)
    with pparse.view(source, limits=Limits(name_bytes=4 << 20)) as model:
        assert [f for f in model.check(strict=True) if f.severity is pparse.Severity.ERROR] == []
        assert model["n" * (2 << 20)].numpy().tobytes() == FOUR


@pytest.mark.parametrize("length", sweep.part([100_000_000, 100_000_001]))
def test_strict_verdict_on_the_longest_header(tmp_path, length):
    path = tmp_path / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", length))
        file.write(b"{}")
        for _ in range(length // 1_000_000):
            file.write(b" " * 1_000_000)
        file.truncate(8 + length)
    refused = False
    try:
        with safetensors.safe_open(path, "np") as reference:
            reference.keys()
    except safetensors.SafetensorError:
        refused = True
    assert refused == (length > 100_000_000)
    errors = errors_of(path)
    assert [finding.code for finding in errors] == (["header-too-large"] if refused else [])


EXTRAS = {
    "name twice": (frame('{"a":' + A + ',"a":' + A + "}", FOUR), "duplicate-name"),
    "name twice, one escaped": (frame('{"a":' + A + ',"\\u0061":' + A + "}", FOUR), "duplicate-name"),
    "odd boolean": (fields('"BOOL"', data=b"\0\1\2\0"), "odd-boolean"),
    "odd boolean at the end": (fields('"BOOL"', data=b"\0\1\1\xff"), "odd-boolean"),
}


@pytest.mark.parametrize("case", sorted(EXTRAS))
def test_documented_extras_are_found_though_the_library_is_silent(case):
    source, code = EXTRAS[case]
    assert not library_refuses(source)
    assert code in [finding.code for finding in errors_of(source)]


def test_keys_that_occur_twice_below_the_names_are_warnings():
    """The library lets them pass, and so does strict; but it says so."""
    for source in (
        VERDICTS["metadata with a key twice"],
        VERDICTS["extra field twice"],
        VERDICTS["extra field with a key twice"],
    ):
        with pparse.open(source, format="safetensors") as document:
            findings = list(document.check(strict=True))
        assert [(f.code, f.severity) for f in findings] == [("duplicate-key", pparse.Severity.WARNING)]


TOKENS = (
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b" ",
    b"\n",
    b"0",
    b"1",
    b"-",
    b".",
    b"e",
    b"\\",
    b"\\u0041",
    b"\\ud800",
    b"\xff",
    "é".encode(),
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'"dtype"',
    b'"U8"',
    b'"shape":[4],',
    b"NaN",
    b"1e5",
    b"-0",
    b'"a":1,',
    b'"a":',
    b"\0",
    b"\t",
    b"\x7f",
    b'"__metadata__":{},',
)
BASES = (
    frame(
        {
            "__metadata__": {"format": "pt", "k": "v"},
            "a": entry("F32", [2, 2], 0, 16),
            "b.c": entry("U8", [0], 16, 16),
            "d": entry("BOOL", [3], 16, 19),
            "e": entry("I16", [], 19, 21),
        },
        bytes(21),
    ),
    around(),
    frame({"x": entry("F4", [2, 2], 0, 2), "y": entry("BF16", [1], 2, 4, q=[1, {"z": None}])}, bytes(4)),
    frame('{"é\\u00e9\\ud83d\\ude00":{"dtype":"F64","shape":[1],"data_offsets":[0,8]},"__metadata__":null}', bytes(8)),
)


def mutated(source, rng):
    """The file with its header changed at one to three places, and its length made right again."""
    size = int.from_bytes(source[:8], "little")
    text, data = bytearray(source[8 : 8 + size]), source[8 + size :]
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(text) + 1)
        way = rng.randrange(6)
        if way == 0 and at < len(text):
            text[at] = rng.randrange(256)
        elif way == 1:
            text[at:at] = rng.choice(TOKENS)
        elif way == 2:
            del text[at : at + rng.choice((1, 1, 2, 5, 20))]
        elif way == 3 and at < len(text):
            text[at] = rng.choice(b'0123456789"{}[],: ')
        elif way == 4:
            other = rng.randrange(len(text) + 1)
            text[at:at] = text[min(at, other) : max(at, other)][:80]
        elif way == 5:
            token = rng.choice(TOKENS)
            text[at : at + len(token)] = token
    return frame(bytes(text), data)


@pytest.mark.parametrize("options", [{}, {"block_size": 7, "limits": Limits(leaf_bytes=64)}], ids=["whole", "streamed"])
def test_strict_verdict_on_thousands_of_mutations(options):
    rng = random.Random(20)
    accepted = 0
    for number in range(sweep.scaled(3_000)):
        source = mutated(rng.choice(BASES), rng)
        refused = library_refuses(source)
        errors = errors_of(source, **options)
        if not refused and any(finding.code == "duplicate-name" for finding in errors):
            continue  # the documented extra
        accepted += not refused
        assert bool(errors) == refused, (number, source, errors)
    assert accepted > (50 if sweep.full else 0)


def test_the_sample_of_the_matrix_is_what_the_library_writes():
    import numpy as np

    from tests.truth.samples_writers import as_library, contents_of

    shapes = {
        "z": ("U8", [3]),
        "b": ("F32", [2, 2]),
        "a": ("I64", [2]),
        "c": ("F16", [4]),
        "d": ("F64", []),
        "e": ("BOOL", [5]),
    }
    kinds = {"U8": "u1", "F32": "<f4", "I64": "<i8", "F16": "<f2", "F64": "<f8", "BOOL": "?"}
    contents = contents_of(shapes, 7)
    arrays = {name: np.frombuffer(contents[name], kinds[kind]).reshape(shape) for name, (kind, shape) in shapes.items()}
    from safetensors.numpy import save

    assert save(arrays, {"format": "pt"}) == as_library(shapes, contents, {"format": "pt"})
