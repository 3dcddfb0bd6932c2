"""Exported programs against torch itself: tensors bit for bit, graphs node by node."""

from __future__ import annotations

import io
import warnings
import zipfile

import pytest

import pparse
from tests.rows import rows

torch = pytest.importorskip("torch")

nn = torch.nn


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)
        self.register_buffer("scale", torch.arange(3.0))
        self.register_buffer("passing", torch.ones(2), persistent=False)
        self.fixed = torch.full((2,), 3.0)

    def forward(self, x):
        return self.second(self.first(x).relu()) * self.fixed + self.scale.sum() + self.passing


class Conv(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

    def forward(self, x):
        parts = self.norm(self.conv(x)).split(2, 1)
        return torch.cat([parts[1], parts[0]], 1).relu(), x.sum()


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(10, 4)
        self.register_buffer("ids", torch.arange(6).reshape(2, 3))
        self.register_buffer("mask", torch.tensor([True, False]))

    def forward(self, x):
        self.ids.add_(1)
        return self.table(x), self.table(self.ids % 10), self.mask


class Cond(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        def inner(x):
            return torch.cond(x.max() > 1, lambda x: x * 2, lambda x: x * 3, (x,))

        return torch.cond(x.sum() > 0, lambda x: inner(self.linear(x)), lambda x: self.linear(x).cos(), (x,))


class Shared(nn.Module):
    """Weights that are one, views of one storage with offsets and strides, one of them of another type."""

    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 4, bias=False), nn.Linear(4, 4, bias=False)
        self.other.weight = self.one.weight
        whole = torch.arange(24.0).reshape(4, 6)
        for name, view in (("whole", whole), ("rows", whole[1:3]), ("columns", whole[:, ::2]), ("turned", whole.t())):
            self.register_buffer(name, view)
        self.register_buffer("empty", torch.zeros(0, 3))
        self.register_buffer("spread", torch.tensor([5.0]).expand(4))

    def forward(self, x):
        total = self.rows.sum() + self.columns.sum() + self.turned.sum() + self.whole.sum() + self.spread.sum()
        return self.other(self.one(x)) + total + self.empty.sum()


class Types(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4).to(torch.bfloat16)
        for dtype in (torch.float16, torch.float64, torch.complex64, torch.int8, torch.uint8, torch.int16, torch.int32):
            self.register_buffer(str(dtype).rpartition(".")[2], torch.arange(5).to(dtype))
        self.register_buffer("eight", torch.arange(5.0).to(torch.float8_e4m3fn))

    def forward(self, x):
        return self.linear(x) + self.float16.sum().to(torch.bfloat16)


class Loop(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        def step(number, x):
            return number + 1, self.linear(x)

        return torch._higher_order_ops.while_loop(lambda number, x: number < 3, step, (torch.tensor(0), x))


ROWS = torch.export.Dim("rows", max=64)
ZOO = {
    "mlp": (Mlp, lambda: (torch.randn(2, 4),), None),
    "conv": (Conv, lambda: (torch.randn(1, 3, 8, 8),), None),
    "embedding": (Embedding, lambda: (torch.tensor([1, 2]),), None),
    "dynamic": (Mlp, lambda: (torch.randn(3, 4),), {"x": {0: ROWS}}),
    "cond": (Cond, lambda: (torch.randn(2, 4),), None),
    "shared": (Shared, lambda: (torch.randn(2, 4),), None),
    "types": (Types, lambda: (torch.randn(2, 4, dtype=torch.bfloat16),), None),
    "loop": (Loop, lambda: (torch.randn(2, 4),), None),
}


def exported(name):
    kind, arguments, dynamic = ZOO[name]
    return torch.export.export(kind().eval(), arguments(), dynamic_shapes=dynamic)


def saved(program) -> bytes:
    out = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.save(program, out)
    return out.getvalue()


def saved_before(program) -> bytes:
    """Return the program as torch wrote it before 2.8; what is in the members is of today."""
    from torch._export.serde.serialize import SCHEMA_VERSION, serialize

    told, out = serialize(program), io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("serialized_exported_program.json", told.exported_program)
        archive.writestr("serialized_state_dict.pt", told.state_dict)
        archive.writestr("serialized_constants.pt", told.constants)
        archive.writestr("serialized_example_inputs.pt", told.example_inputs)
        archive.writestr("version", ".".join(map(str, SCHEMA_VERSION)))
    return out.getvalue()


def saved_between(program) -> bytes:
    """Return the program with a dict of tensors by ``torch.save`` in the folder of its weights."""
    from torch._export.serde.serialize import serialize
    from torch.export.pt2_archive._package import PT2ArchiveWriter

    told, out = serialize(program), io.BytesIO()
    with PT2ArchiveWriter(out) as archive:
        archive.write_bytes("data/weights/model.pt", told.state_dict)
        archive.write_bytes("data/constants/model.pt", told.constants)
        archive.write_bytes("models/model.json", told.exported_program)
        archive.write_bytes("data/sample_inputs/model.pt", told.example_inputs)
    return out.getvalue()


def same(tensor, wanted) -> bool:
    """Whether type, shape and bits are those that torch has."""
    found = torch.frombuffer(bytearray(tensor.numpy().tobytes()) or bytearray(8), dtype=torch.uint8)
    plain = wanted.detach().contiguous()
    bits = plain.reshape(-1).view(torch.uint8) if plain.numel() else torch.zeros(8, dtype=torch.uint8)
    return (
        tensor.shape == tuple(wanted.shape)
        and str(wanted.dtype) == f"torch.{tensor.dtype}"
        and torch.equal(found, bits)
    )


@rows("name", ZOO)
@rows("save", [saved, saved_before, saved_between])
def test_tensors_are_those_that_torch_loads(name, save):
    content = save(exported(name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.export.load(io.BytesIO(content))
    wanted = {**program.state_dict, **program.constants}
    with pparse.view(content) as model:
        assert model.format == "pt2"
        found = {key: one for key, one in model.items() if not model.is_bookkeeping(one)}
        assert found.keys() == wanted.keys()
        assert [key for key, one in found.items() if not same(one, wanted[key])] == []
        examples = [one for key, one in model.items() if key not in found]
        given = [one for one in program.example_inputs[0] if isinstance(one, torch.Tensor)]
        assert len(examples) == len(given)
        assert all(map(same, examples, given))
        assert model.extent().status == "complete"


def calls(graph):
    """Return names, operations and inputs of the nodes that torch has; results of several values are inputs by name."""
    for node in graph.nodes:
        if node.op == "call_function" and getattr(node.target, "__name__", "") != "getitem":
            inputs = [str(one) for one in node.all_input_nodes if one.op != "get_attr"]
            yield node.name, str(node.target), inputs


@rows("name", ZOO)
def test_graphs_are_those_that_torch_has(name):
    program = exported(name)
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    names |= signature.inputs_to_lifted_tensor_constants
    with pparse.view(saved(program)) as model:
        graph = model.graph
        compare(graph, program.graph, names)
        assert list(graph.inputs) == list(signature.user_inputs)
        bodies = dict(graph.bodies.items())
        waiting = [("", program.graph_module)]
        while waiting:
            around, module = waiting.pop()
            for node in module.graph.nodes:
                if node.op == "get_attr" and hasattr(inner := getattr(module, node.target, None), "graph"):
                    (user,) = node.users
                    key = f"{around}{user.name}.{node.name}"
                    key = key if key in bodies else f"{around}{first_of(user)}.{node.name}"
                    compare(bodies.pop(key), inner.graph, {})
                    waiting.append((f"{key}/", inner))
        assert not bodies
        for node in program.graph.nodes:
            shape = getattr(node.meta.get("val"), "shape", None)
            known = graph.source.value(names.get(node.name, node.name), None)
            if shape is not None and known is not None:
                assert [str(size) for size in known.shape] == [str(size) for size in shape]


def first_of(node):
    return next(iter(node.users)).name


def compare(graph, wanted, names):
    found = [(node.name, node.op, node.inputs) for node in graph.nodes.values()]
    listed = list(calls(wanted))
    plain = [(label, op.removeprefix("torch.ops.").removeprefix("higher_order.")) for label, op, _ in found]
    assert plain == [one[:2] for one in listed]
    for (label, _, inputs), (_, _, meant) in zip(found, listed, strict=True):
        assert set(inputs) == {names.get(one, one) for one in meant}, label


def test_several_programs_and_compiled_code(tmp_path):
    from torch.export.pt2_archive._package import package_pt2

    (tmp_path / "code.so").write_bytes(b"\x7fELF" + bytes(64))
    path = tmp_path / "both.pt2"
    programs = {"encoder": exported("mlp"), "model": exported("conv")}
    package_pt2(str(path), exported_programs=programs, aoti_files={"model": [str(tmp_path / "code.so")]})
    with pparse.view(path) as model:
        for prefix, program in (("encoder/", programs["encoder"]), ("", programs["model"])):
            for name, wanted in {**program.state_dict, **program.constants}.items():
                assert same(model[prefix + name], wanted), name
        assert list(model.signatures) == ["encoder", "model"]
        assert [len(model.graph_of(number).nodes) for number in (0, 1)] == [7, 6]
        assert "not read" in dict(model.parser.details())["compiled"]
