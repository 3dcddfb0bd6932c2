"""The code of TorchScript: statements, the graph that they make, modules, byte code; what is hostile or cut."""

from __future__ import annotations

import io
import json
import pickle
import zipfile
from typing import Any

import pytest

import pparse
from pparse.errors import DataError, LimitError
from pparse.parsers.pytorch.script import definitions, head_of, statements
from tests.pytorch_files import _number, _rebuilt, _text
from tests.rows import rows

NET = """class Net(Module):
  __parameters__ = ["weight", ]
  __buffers__ = ["mean", ]
  weight : Tensor
  mean : Tensor
  training : bool
  state : Tensor
  block : __torch__.blocks.Block
  __annotations__["0"] = __torch__.blocks.Block
  def forward(self: __torch__.Net,
    x: Tensor,
    n: int=2) -> Tuple[Tensor, Dict[str, Tensor]]:
    block = self.block
    _0 = getattr(self, "0")
    mean = self.mean
    y = torch.add((block).forward(x, ), mean, alpha=2)
    training = self.training
    if training:
      z = torch.relu((_0).forward(y, ))
    else:
      z = y
    w = z
    for i in range(n):
      w0 = torch.mul(w, i)
      w = w0
    _1 = bool(torch.gt(torch.sum(w), 10.))
    v = w
    while _1:
      v0 = torch.div(v, 2, rounding_mode="floor")
      _1, v = bool(torch.gt(torch.sum(v0), 10.)), v0
    state = self.state
    a, b, = (self).pair(v, state, )
    self.state = a
    c, d = torch.max(b, 0)
    e = __torch__.blocks.shift(c, by=CONSTANTS.c0, )
    return (e, {"d": d})
  def pair(self: __torch__.Net,
    x: Tensor,
    s: Tensor) -> Tuple[Tensor, Tensor]:
    return (x, torch.cat([x, s], -1))
"""
BLOCKS = """class Block(Module):
  __parameters__ = ["weight", "bias", ]
  __buffers__ = []
  weight : Tensor
  bias : Tensor
  training : bool
  stride : Final[Tuple[int, int]] = (1, 1)
  def forward(self: __torch__.blocks.Block,
    x: Tensor) -> Tensor:
    weight = self.weight
    bias = self.bias
    return torch.conv2d(x, weight, bias, [1, 1], ops.prim.dtype(x))
def shift(x: Tensor,
    by: Tensor,
    scale: float=1.) -> Tensor:
  return torch.add(x, torch.mul(by, scale))
"""


class Saved:
    """An object, by its class and attributes."""

    def __init__(self, kind: str, **attributes: Any) -> None:
        self.kind, self.attributes = kind, attributes


def value(what: Any, count: list[int]) -> bytes:
    """Return the opcodes of a value; of a list of numbers, a tensor of that shape, with the next storage."""
    if isinstance(what, Saved):
        items = b"".join(_text(name) + value(one, count) for name, one in what.attributes.items())
        return b"c" + "\n".join(what.kind.rsplit(".", 1)).encode() + b"\n)\x81}(" + items + b"ub"
    if isinstance(what, list):
        count[0] += 1
        return _rebuilt(count[0] - 1, "float32", what)
    if isinstance(what, int) and not isinstance(what, bool):
        return _number(what)
    return {True: b"\x88", False: b"\x89", None: b"N"}[what]


def block(*shape: int) -> Saved:
    return Saved("__torch__.blocks.Block", weight=list(shape), bias=[shape[0]], training=False)


def net() -> Saved:
    parts = {"weight": [2], "mean": [3], "training": False, "state": [1], "block": block(2, 3), "0": block(4, 5)}
    return Saved("__torch__.Net", **parts)


def archive(
    sources: dict[str, str], root: Saved | None = None, method: int = zipfile.ZIP_DEFLATED, **more: Any
) -> bytes:
    """Return a TorchScript archive; ``more`` are further members."""
    count = [0]
    saved = b"\x80\x02" + value(root or Saved("__torch__.Net"), count) + b"."
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        for number in range(count[0]):
            made.writestr(f"m/data/{number}", bytes(4 * 64))
        made.writestr("m/data.pkl", saved)
        for name, text in sources.items():
            made.writestr(f"m/code/{name}.py", text, method)
        made.writestr("m/constants/0", bytes(4))
        made.writestr("m/constants.pkl", b"\x80\x02(" + _rebuilt(0, "float32", [1]) + b"t.")
        for name, content in more.items():
            made.writestr(f"m/{name}.pkl", content)
        made.writestr("m/version", b"3\n")
    return out.getvalue()


SOURCES = {"__torch__": NET, "__torch__/blocks": BLOCKS}
MADE = archive(SOURCES, net())


def graph_in(content: bytes) -> Any:
    return pparse.view(content).graph


def method(*lines: str) -> str:
    return "class Net(Module):\n  def forward(self: __torch__.Net,\n    x: Tensor) -> Tensor:\n" + "".join(
        f"    {line}\n" for line in lines
    )


def test_graph_of_modules_functions_branches_and_loops():
    graph = graph_in(MADE)
    assert not graph.check()
    assert {row[1]: (row[2], " ".join(row[3]), row[4]) for row in graph.rows()} == {
        "block.dtype@12": ("prim::dtype", "x", "block"),
        "block.conv2d@12": ("aten::conv2d", "x block.weight block.bias =[1, 1] block.dtype@12", "block"),
        "y": ("aten::add", "block.conv2d@12 mean =2", ""),
        "If@18": ("prim::If", "=False", ""),
        "Loop@23": ("prim::Loop", "n z#2", ""),
        "sum@26": ("aten::sum", "w#2", ""),
        "gt@26": ("aten::gt", "sum@26 =10.", ""),
        "_1": ("aten::Bool", "gt@26", ""),
        "Loop@28": ("prim::Loop", "_1 w#2", ""),
        "state#2": ("prim::GetAttr", "state =state", ""),
        "pair.ListConstruct@40": ("prim::ListConstruct", "v#2 state#2", ""),
        "pair.cat@40": ("aten::cat", "pair.ListConstruct@40 =-1", ""),
        "pair.TupleConstruct@40": ("prim::TupleConstruct", "v#2 pair.cat@40", ""),
        "a": ("prim::TupleUnpack", "pair.TupleConstruct@40", ""),
        "SetAttr@33": ("prim::SetAttr", "a =state", ""),
        "c": ("aten::max", "b =0", ""),
        "shift.mul@16": ("aten::mul", "CONSTANTS.c0 =1.", ""),
        "shift.add@16": ("aten::add", "c shift.mul@16", ""),
        "DictConstruct@36": ("prim::DictConstruct", '="d" d', ""),
    }
    ends = ["x Tensor[…]", "n int[]", "shift.add@16 Tensor[…]", "DictConstruct@36 Dict[str, Tensor][…]"]
    assert [str(graph.value(name)) for name in (*graph.inputs, *graph.outputs)] == ends
    assert str(graph.value("0.weight")) == "0.weight float32[4,5]"
    bodies = {name: (body.kind, list(body.arguments), dict(body.results)) for name, body in graph.bodies.items()}
    assert bodies == {
        "pair": ("function", ["x", "s"], {"x": "x", "cat@40": "cat@40"}),
        "If@18.then": ("body", [], {"z": "z"}),
        "If@18.else": ("body", [], {"z": "y"}),
        "Loop@23.body": ("body", ["i", "w"], {"w": "w0"}),
        "Loop@28.body": ("body", ["_1#2", "v"], {"_1": "Bool@30", "v": "v0"}),
    }
    assert all(not body.check() for body in graph.bodies.values())
    inside = [(row[2], list(row[3])) for row in graph.bodies["If@18.then"].rows()]
    assert inside[1:] == [
        ("aten::conv2d", ["y", "0.weight", "0.bias", "=[1, 1]", "0.dtype@12"]),
        ("aten::relu", ["0.conv2d@12"]),
    ]
    needed = graph.subgraph(["If@18"])
    assert list(needed) == ["x", "block.dtype@12", "block.conv2d@12", "y", "If@18"]
    assert list(needed.constants()) == ["block.weight", "block.bias", "mean", "0.weight", "0.bias"]


LINES = [
    ("x = torch.add(a, -1.5e-05, alpha=b)", "assign", "x", "name method name literal name call"),
    ("a, b, = (self.l1).forward(x, )", "assign", "a b unpacks", "name attr method name call"),
    ("a, b = c, (d, )", "assign", "a b", "name name tuple"),
    ("hx0 : Optional[Tuple[Tensor, Tensor]] = hx1", "assign", "hx0", "name"),
    ("self.l1.state = x[0][1:2]", "set", "state", "name attr name literal index literal literal index"),
    ("s = {\"a = (\": x, 'b': []}", "assign", "s", "literal name literal list dict"),
    ("for i in range(torch.len(x)):", "for", "i", "name name method name call call"),
    ("with _22 as c:", "with", "c", "name"),
    ("if torch.eq(x, inf):", "if", "", "name method name literal call"),
    ("return a, -inf", "return", "", "name literal"),
    ("return", "return", "", ""),
    ("else:", "else", "", ""),
    ("pass", "pass", "", ""),
    ("x = a + b", "bad", "x", "'+ b' is not understood"),
    ("x = f(a", "bad", "x", "a bracket is not closed"),
    ("x = f(a=1, b)", "bad", "x", "an argument has no name behind one that has, or no value"),
    ("x = f(a=)", "bad", "x", "an argument has no name behind one that has, or no value"),
    ('x = "a', "bad", "x", "'\"a' is not understood"),
    ("x = ", "bad", "x", "there is no value"),
    ("a, b = c, d, e", "bad", "a b", "'assign' has 3 values"),
    ("a b", "bad", "", "'b' follows a value"),
    ("if a, b:", "bad", "", "'if' has 2 values"),
    ("if a", "bad", "", "there is no colon at its end"),
    ("x = " + "(" * 300 + ")" * 300, "bad", "x", "more than 200 brackets are open"),
    ("x = a.b." + "y" * (1 << 20), "bad", "x", "a line has 1,048,584 characters: more than 1,048,576"),
    ("f(x)\0", "bad", "", "'\\x00' is not understood"),
    ("1 = x", "bad", "", "what stands before '=' is not a list of names"),
]


@rows("line, kind, names, steps", LINES)
def test_statements(line, kind, names, steps):
    (found,) = statements(f"  {line}\n", 0, len(line) + 3, 7)
    assert (found.indent, found.line, found.kind) == (2, 7, kind)
    assert " ".join(found.names + ["unpacks"] * found.unpacks) == names
    told = found.text if kind == "bad" else " ".join(what for what, *_ in found.program)
    assert told == steps


def test_definitions_and_heads():
    found = definitions(NET + BLOCKS)
    assert {name: (one.line, one.base, list(one.methods)) for name, one in found.items()} == {
        "Net": (1, "Module", ["forward", "pair"]),
        "Block": (41, "Module", ["forward"]),
        "shift": (53, None, []),
    }
    assert found["Net"].fields["0"] == "__torch__.blocks.Block"
    assert (found["Net"].parameters, found["Net"].buffers) == (["weight"], ["mean"])
    head = head_of(NET + BLOCKS, found["shift"])
    assert [tuple(one) for one in head.parameters] == [
        ("x", "Tensor", ""),
        ("by", "Tensor", ""),
        ("scale", "float", "1."),
    ]
    assert (head.returns.strip(), head.line) == ("Tensor", 56)
    for text in ("def f(x", "def f(x: T) -> T", "def f(x: T)) -> T:\n", "def f\n"):
        with pytest.raises(DataError):
            head_of(text, definitions(text)["f"])


FORKED = """class Net(Module):
  packed : __torch__.torch.classes.quantized.LinearPackedParamsBase
  def forward(self: __torch__.Net,
    x: Tensor) -> Tensor:
    y = torch.relu(x)
    def __forked_function():
      return torch.neg(torch.abs(y))
    fut = fork(__forked_function)
    sizes = [1, 2]
    _0 = torch.append(sizes, 3)
    with y as z:
      packed = self.packed
      w = ops.quantized.linear_dynamic(z, packed)
    return torch.view(torch.add(w, torch.wait(fut)), sizes)
"""


def test_what_is_run_apart_packed_weights_and_lists_that_are_filled():
    packed = Saved("__torch__.torch.classes.quantized.LinearPackedParamsBase", weight=[2])
    made = archive({"__torch__": FORKED}, Saved("__torch__.Net", packed=packed))
    graph = graph_in(made)
    assert not graph.check()
    assert [(row[1], row[2], list(row[3]), list(row[5])) for row in graph.rows()] == [
        ("y", "aten::relu", ["x"], []),
        ("fut", "prim::fork", [], ["y"]),
        ("sizes", "prim::ListConstruct", ["=1", "=2"], []),
        ("_0", "aten::append", ["sizes", "=3"], []),
        ("Enter@11", "prim::Enter", ["y"], []),
        ("packed", "prim::GetAttr", ["packed.weight"], []),
        ("w", "quantized::linear_dynamic", ["Enter@11", "packed"], []),
        ("Exit@14", "prim::Exit", ["y"], []),
        ("wait@14", "aten::wait", ["fut"], []),
        ("add@14", "aten::add", ["w", "wait@14"], []),
        ("view@14", "aten::view", ["add@14", "sizes"], []),
    ]
    inner = graph.bodies["fut.body"]
    assert [(row[2], list(row[3])) for row in inner.rows()] == [("aten::abs", ["y"]), ("aten::neg", ["abs@7"])]
    assert dict(inner.results) == {"neg@7": "neg@7"}
    assert [module["name"] for module in pparse.view(made).outline()["modules"]] == [""]


# -- what is hostile: a clear error, or a graph that is marked ---------------------------------------------------------

DOUBLED = "".join(
    f"def f{n}(x: Tensor) -> Tensor:\n  a = __torch__.f{n + 1}(x, )\n  return __torch__.f{n + 1}(a, )\n"
    for n in range(60)
)
DOUBLED += "def f60(x: Tensor) -> Tensor:\n  return x\n"
NESTED = [f"{'  ' * depth}if x:" for depth in range(300)]
HOSTILE = [
    (method("return __torch__.f0(x, )") + DOUBLED, "more than 2,000,000 steps"),
    (method("y = (self).forward(x, )", "return y"), "calls itself, which TorchScript does not know"),
    (method(*NESTED), "more than 200 blocks are in each other"),
    (method(*["y = torch.relu(x)"] * 60_000, "return y"), "budget"),
    (method(*[f"y{n} = x" for n in range(80_000)], "return x"), "budget"),
    (method("y = torch.relu(x)", "return y\0"), "line 5: '\\x00' is not understood"),
    (method("  y = x", " z = y", "else:", "return w"), "'else' without 'if'"),
    (method("if x:", "  return x", "return x"), "'return' in a block"),
    (method("y = __torch__.gone.f(x, )", "return y"), "__torch__.gone.f is called, and this source is not in the file"),
    (method("y = __torch__.f(x, )", "return y"), "the function __torch__.f is called, and it is not there"),
    (method("y = (self).gone(x, )", "return y"), "the method gone of __torch__.Net is called, and it is not there"),
    (method("y = torch.relu(z)", "return y"), "consumes 'z', which does not exist"),
    (method("y = torch.relu(Z[0])", "Z = x", "return y"), "consumes 'Z', which does not exist"),
    (method("return __torch__.f(x, )") + "def f(x: Tensor, y: int) -> int:\n  return y\n", "line 4: the arguments"),
    (method("return __torch__.f(x, z=x)") + "def f(x: Tensor) -> Tensor:\n  return x\n", "line 4: the arguments"),
    (method("if x +:", "  y = x", "return x"), "line 4: '+:' is not understood"),
    ("class Net(Module):\n" * 100_000, "has no methods"),
    ("class Net(Module):\n  def forward(self, x", "cannot be read"),
    ("", "has no such class"),
    ("\0" * 1000 + "(" * 100_000 + '"' * 100_000, "has no such class"),
]  # fmt: skip


@rows("source, told", HOSTILE)
def test_hostile_code_is_an_error_or_marked(source, told):
    viewer = pparse.view(archive({"__torch__": source}), budget="16MiB")
    try:
        graph = viewer.graph_of()
        said = " ".join(finding.reason for finding in graph.check())
        assert graph.node_count < 100
    except DataError as error:
        said = str(error)
    assert told in said
    assert len(viewer.outline()["modules"]) == 1


def test_a_type_of_many_parts_and_a_line_of_many_names_take_linear_time():
    names = ", ".join(f"a{number}" for number in range(100_000))
    text = method(f"{names} = torch.split(x)", f"y = torch.f({names})", "return y")
    text = text.replace("-> Tensor", f"-> Tuple[{names}]")
    with pytest.raises(LimitError):
        pparse.view(archive({"__torch__": text}), budget="8MiB").graph_of()
    assert graph_in(archive({"__torch__": text})).node_count == 2


# -- what is cut or damaged --------------------------------------------------------------------------------------------


def test_every_prefix_gives_what_is_whole_and_marks_the_rest():
    whole = graph_in(MADE)
    rows_of = [row[1:] for row in whole.rows()]
    begin = MADE.index(b"m/data.pkl")
    seen, reasons = set(), set()
    for end in range(begin, len(MADE), 23):
        with pparse.view(MADE[:end]) as viewer:
            graph = viewer.graph
            modules = viewer.outline().get("modules", [])
            if graph is None:
                seen.add("none")
                continue
            findings = graph.check()
            found = [row[1:] for row in graph.rows()]
            codes = {finding.code for finding in findings}
            seen |= codes
            reasons |= {finding.reason for finding in findings}
            if found != rows_of:
                assert codes & {"missing-code", "damaged-code"}
                assert not graph.source.is_whole
            assert "inferred" in str(modules) or [module["name"] for module in modules] == ["", "block", "0"]
    assert seen >= {"none", "damaged-code", "missing-code"}
    assert any("is called, and it is not there: " in reason for reason in reasons)


def test_a_flipped_byte_of_the_code_is_told():
    made = archive(SOURCES, net(), zipfile.ZIP_STORED)
    begin = made.index(b"class Net")
    whole = [row[1:] for row in graph_in(made).rows()]
    for at in range(begin, begin + len(NET), 11):
        broken = bytearray(made)
        broken[at] ^= 1 << at % 8
        with pparse.view(bytes(broken)) as viewer:
            graph = viewer.graph
            assert graph is None or "damaged-code" in {finding.code for finding in graph.check()}
            assert all("inferred" in module for module in viewer.outline()["modules"] if not module["name"])
            assert graph is None or len(list(graph.rows())) <= len(whole) + 20


# -- modules, byte code, members ---------------------------------------------------------------------------------------


def operators(*steps: tuple[str, int, int]) -> tuple[object, ...]:
    ops = (("aten::linear", "", 3), ("aten::add", "Tensor", 3))
    return "__torch__.Net.forward", (("instructions", steps), ("operators", ops), ("register_size", 2)), ()


BYTECODE = pickle.dumps((8, operators(("OP", 1, 0), ("OPN", 0, 3), ("OP", 1, 0), ("RET", 0, 0), ("OP", 9, 0))), 2)


def test_modules_and_operators_are_told(tmp_path, run):
    path = tmp_path / "m.ptl"
    path.write_bytes(archive(SOURCES, net(), bytecode=BYTECODE))
    told = json.loads(run("info", path, "--json").out)
    assert told["modules"][0] == {
        "name": "", "class": "__torch__.Net", "parameters": ["weight"], "buffers": ["mean"], "tensors": ["state"],
        "attributes": {"training": False},
    }  # fmt: skip
    assert [module["name"] for module in told["modules"]] == ["", "block", "0"]
    assert told["operators"] == {"aten::add.Tensor": 2, "aten::linear": 1}
    assert told["graph"]["node_count"] == 19
    lines = run("info", path).out.splitlines()
    assert "modules     3: Block 2, Net 1" in lines
    assert "module      block  Block  weight, bias" in lines
    assert "operators   aten::add.Tensor 2, aten::linear 1" in lines
    assert "metadata    training = False (and in 2 other places)" in lines
    assert not any("__torch__" in line for line in lines)
    assert run("get", path, "code/__torch__/blocks.py").out == BLOCKS
    assert run("graph", path, "--outputs", "block.conv2d@12", "-q").out == "block.dtype@12\nblock.conv2d@12\n"


def test_a_checkpoint_without_code_has_no_graph():
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as made:
        made.writestr("m/data.pkl", b"\x80\x02}.")
        made.writestr("m/version", b"3\n")
    with pparse.view(out.getvalue()) as viewer:
        assert viewer.graph is None
        assert viewer.outline() == {}
        with pytest.raises(pparse.UnsupportedError, match="pytorch has no graph"):
            viewer.graph_of()


def test_what_is_known_only_when_the_model_runs_is_a_call():
    code = method("y = isinstance(x, [int, Tensor])", "z = (x).run(y, )", "return z").replace(
        "x: Tensor", "x: __torch__.I"
    )
    graph = graph_in(
        archive({"__torch__": code + "class I(Interface):\n  def run(self, y: bool) -> Tensor:\n    pass\n"})
    )
    assert not graph.check()
    assert [(row[1], row[2], list(row[3])) for row in graph.rows()] == [
        ("y", "prim::isinstance", ["x", "=[int, Tensor]"]),
        ("z", "prim::CallMethod", ["x", "=run", "y"]),
    ]
