"""Makes the graph of a TorchScript model: goes through its code, statement by statement and into each call.

There is a stack of functions, and in each the steps of a statement have their effect on a stack of values. What the
code gives a name, is: a value of the graph, or what needs no node, as a literal, an object, a method.

Operations are called as in torch's own graphs (torch/csrc/jit/serialization/python_print.cpp says what is printed how);
whether ``x[0]`` is an element of a list or a tuple, and ``a, b, = x`` unpacks one, is inferred from what makes ``x``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from pparse.errors import LimitError, MalformedError
from pparse.findings import Finding
from pparse.lazy import lazy_pattern
from pparse.parsers.pytorch.script import assigned, head_of, statements
from pparse.viewers.pytorch.script import COMPILED, OWN, literal, plain_class, shorten
from pparse.viewers.pytorch.script_graph import ScriptGraph

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from typing import Any, Final

    from pparse.parsers.pytorch.script import Definition, Statement, Step
    from pparse.viewers.pytorch.script import Script, ScriptSource

# Steps that are gone through, so that functions which call others again and again come to an end.
_MOST_STEPS: Final = 2_000_000
# Steps that a call costs.
_CALL: Final = 30
# Calls in each other, and blocks.
_DEEPEST: Final = 500
_NESTED: Final = 200
# Characters of the type of what a method returns.
_TYPED: Final = 5_000
# Memory of a node, without its names, and of a name.
_NODE: Final = 500
_NAME: Final = 100
# Functions of Python's that stand for operators. Others are called as in the code.
_BUILTIN: Final = {"bool": "aten::Bool", "int": "aten::Int", "float": "aten::Float", "complex": "aten::Complex"}
_IMPLICIT: Final = {"int": "aten::IntImplicit", "float": "aten::FloatImplicit", "number": "aten::ScalarImplicit"}
_TYPES: Final = frozenset(
    ("List", "Dict", "Tuple", "Optional", "Union", "Future", "Await", "RRef", "Tensor", "Device", "Any", "NoneType")
    + ("int", "float", "bool", "str", "complex", "number")
)
_STATE: Final = lazy_pattern(r"(?m)^ +[^\s=\"']+\.(\w+) = ")
# What values are: of a graph, literals, names of functions, objects by path, methods, outputs of one node, and graphs
# of what is run apart.
_VALUE, _LITERAL, _NAMED, _OBJECT, _METHOD, _SEVERAL, _APART = range(7)
_NONE: Final = (_LITERAL, "None", "")

if TYPE_CHECKING:
    Held = tuple[int, Any, str]  # which of these, name or text or the like, and its type: a class, "list", "tuple"


def parts_of(text: str) -> list[str]:
    """Return the parts of a list of types in brackets."""
    parts, depth = [""], 0
    for char in text.strip()[1:-1]:
        depth += (char in "[(") - (char in "])")
        if char == "," and not depth:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts if part.strip()]


def kind_of(text: str) -> str:
    """Return of a type what its values are: a class of the model's code, ``tuple``, ``list``, or another word."""
    return text if text.startswith(OWN) else text.partition("[")[0].lower()


def is_word(value: Held) -> bool:
    """Return whether a value is a literal or a type; a name that nothing has set is none."""
    kind, what, _ = value
    return kind == _LITERAL or (kind == _NAMED and (what in _TYPES or not what.isidentifier()))


def values_of(names: Iterable[str]) -> list[Held]:
    """Return values of the graph, by their names."""
    return [(_VALUE, name, "") for name in names]


class _Methods(Mapping[str, ScriptGraph]):
    """The other methods of a model; the graph of one is made when it is asked for."""

    def __init__(self, script: Script, names: Sequence[str]) -> None:
        self._script = script
        self._names = names
        self._made: dict[str, ScriptGraph] = {}

    def __len__(self) -> int:
        return len(self._names)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __getitem__(self, name: str) -> ScriptGraph:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._made:
            self._made[name] = _GraphMaker(self._script, ScriptGraph(self._script, "function", name)).of(name)
        return self._made[name]


def graph_of(script: Script) -> ScriptGraph:
    """Return the graph of ``forward``; of a model without one, of its first method. Raises `DataError`."""
    kind = script.objects.get("")
    if kind is None:
        raise MalformedError("the pickle does not say of what class the model is")
    source, defined = script.find(kind)
    if defined is None or not defined.methods:
        lacks = "is not in the file" if source is None else "has no such class" if defined is None else "has no methods"
        raise MalformedError(f"the code of {kind} {lacks}")
    names = sorted(defined.methods, key=lambda name: name != "forward")
    made = _GraphMaker(script, ScriptGraph(script, "graph", "")).of(names[0])
    made.others = _Methods(script, names[1:])
    return made


class _Branch:
    """A branch or loop that is not ended, and the graph of its present body."""

    __slots__ = ("carried", "condition", "graph", "kind", "names", "other", "outer", "statement")

    def __init__(self, statement: Statement, kind: str, condition: Held, outer: ScriptGraph) -> None:
        self.statement, self.kind, self.condition = statement, kind, condition
        self.outer = outer
        self.graph: ScriptGraph = outer
        self.names: dict[str, Held] = {}
        """What its present body has set."""
        self.other: tuple[ScriptGraph, dict[str, Held]] | None = None
        """Of a branch with an ``else``, the first body and what it has set."""
        self.carried: dict[str, Held] = {}
        """Of a loop, what goes into it."""


class _CallFrame:
    """A function that is gone through, for one call of it."""

    __slots__ = (
        *("at", "blocks", "end", "held", "key", "lines", "module", "names", "scope", "source", "stack", "statement"),
    )

    def __init__(self, source: ScriptSource, definition: Definition, scope: str, module: str, key: object) -> None:
        self.source, self.scope, self.module, self.key = source, scope, module, key
        self.end = definition.end
        self.names: dict[str, Held] = {}
        self.blocks: list[_Branch] = []
        self.stack: list[Held] = []
        self.lines: Iterator[Statement] = iter(())
        self.statement: Statement | None = None
        self.at = self.held = 0

    def find(self, name: str) -> Held | None:
        for block in reversed(self.blocks):
            if name in block.names:
                return block.names[name]
        return self.names.get(name)


class _GraphMaker:
    """Makes one graph."""

    def __init__(self, script: Script, graph: ScriptGraph) -> None:
        self._script, self._main, self._graph = script, graph, graph
        self._session = script.viewer.extraction.session
        self._frames: list[_CallFrame] = []
        self._keys: set[object] = set()
        self._taken: dict[str, int] = {}
        self._scopes: dict[str, int] = {}
        self._returns = ""  # the type of what the graph returns
        self._names: Sequence[str] = ()  # what the values of the present step are to be called
        self._keywords: tuple[str, ...] = ()  # names of its arguments
        self._steps = self._size = 0
        self._told: set[str] = set()
        self._charge = self._session.budget.charge(0, "the graph of a model")

    def of(self, name: str) -> ScriptGraph:
        """Return the graph of a method of the model."""
        graph, kind = self._main, self._script.objects[""]
        self._call_method((_OBJECT, "", kind), name, None)
        frame = self._frames[0]
        for value in frame.names.values():
            if value[0] == _VALUE:
                graph.arguments.append(value[1])
                graph.made.add(value[1])
        while self._frames:
            self._go_on()
        graph.used.update((name, None) for name in graph.captured if name in self._script.tensors)
        graph.charge = self._charge
        self._script.forget()
        for one in (graph, *graph.inner.values()):  # what was only needed to make it
            one.made.clear()
            one.captured.clear()
        return graph

    # -- names, nodes, faults ------------------------------------------------------------------------------------------

    def _unique(self, scope: str, name: str) -> str:
        full = f"{scope}.{name}" if scope else name
        count = self._taken.get(full, full in self._script.tensors) + 1
        self._taken[full] = count
        self._size += _NAME + len(full)
        return full if count == 1 else f"{full}#{count}"

    def _hold(self, size: int) -> None:
        """Account for what is kept."""
        self._size += size
        if self._size > self._charge.amount:
            self._charge.resize(self._size + 0xFFFF)
            self._session.check_cancelled()

    def _set(self, frame: _CallFrame, name: str, value: Held) -> None:
        """Let a name stand for a value, in the innermost block."""
        frame.held += 2 * _NAME + len(name)
        self._hold(2 * _NAME + len(name))
        (frame.blocks[-1].names if frame.blocks else frame.names)[name] = value

    def _line(self) -> int:
        statement = self._frames[-1].statement
        return 0 if statement is None else statement.line

    def _text(self, value: Held) -> str:
        """Return a value as an input of a node."""
        kind, what, _ = value
        if kind == _VALUE:
            if what not in self._graph.made:
                self._graph.captured[what] = None
            return str(what)
        if kind == _OBJECT:
            return f"=self.{what}" if what else "=self"
        if kind == _NAMED and not is_word(value):
            frame = self._frames[-1]  # nothing has set it: a name of its own, so that what does so later is not taken
            frame.names[what] = _VALUE, self._unique(frame.scope, what), ""
            return self._text(frame.names[what])
        return f"={what}" if kind in (_LITERAL, _NAMED) else "=(function)"

    def _emit(
        self,
        op: str,
        inputs: Iterable[Held],
        names: Sequence[str] = (),
        beside: Sequence[str] = (),
        *,
        silent: bool = False,
        label: str = "",
    ) -> list[Held]:
        """Add a node; return its values: those called ``names``, or one; if it is ``silent``, none."""
        frame, graph = self._frames[-1], self._graph
        given = [self._text(value) for value in inputs]
        word = f"{op.rpartition('::')[2]}@{self._line()}"
        outputs = [] if silent and not names else [self._unique(frame.scope, name) for name in names or (word,)]
        label = label or (outputs[0] if outputs else self._unique(frame.scope, word))
        for name in beside:
            if name not in graph.made:
                graph.captured[name] = None
        graph.made.update(outputs)
        graph.listed.append((label, op, given, frame.module, tuple(beside), outputs, frame.source.path))
        self._hold(_NODE + sum(map(len, given)) + _NAME * len(beside))
        return [(_VALUE, name, "") for name in outputs]

    def _fault(self, code: str, reason: str, path: str) -> None:
        if f"{path}: {reason}" not in self._told and len(self._told) < self._session.limits.findings:
            self._told.add(f"{path}: {reason}")
            self._main.faults.add(Finding(code, reason, path=path, source=self._script.viewer.extraction.name))

    # -- statements ----------------------------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """Go on with the innermost function: to the end of it, or to a call of another."""
        frame = self._frames[-1]
        while True:
            statement = frame.statement
            if statement is None:
                statement = frame.statement = next(frame.lines, None)
                self._end_blocks(frame, statement)
                if statement is None:
                    self._return(_NONE)
                    return
                frame.at = 0
                frame.stack.clear()
            steps = statement.program
            self._steps += 1 + len(steps)
            if self._steps > _MOST_STEPS:
                raise LimitError(f"the code of the model takes more than {_MOST_STEPS:,} steps", option="")
            while frame.at < len(steps):
                frame.at += 1
                if self._step(frame, steps[frame.at - 1], statement):
                    return  # a call: its value will be on the stack
            if statement.kind == "return" and not frame.blocks:
                self._return_values(frame, statement)
                return
            self._finish(frame, statement)
            frame.statement = None

    def _finish(self, frame: _CallFrame, statement: Statement) -> None:
        """Have the effect of a statement whose values are on the stack."""
        kind, stack = statement.kind, frame.stack
        if kind == "assign":
            self._assign(frame, statement, stack)
        elif kind == "set":
            self._emit("prim::SetAttr", [stack[1], (_LITERAL, statement.names[0], "")], silent=True)
        elif kind == "return" and frame.blocks[-1].kind == "def":
            self._graph.returned.update((name, name) for name in map(self._text, map(self._as_value, stack)))
        elif kind in ("if", "for", "while", "with", "def"):
            if kind == "with":
                entered = self._emit("prim::Enter", [stack[0]])
                for name in statement.names:
                    self._set(frame, name, entered[0])
            self._open(frame, statement, kind, stack[0] if stack else _NONE)
        elif kind in ("bad", "return", "else"):
            reason = {"bad": statement.text, "return": "'return' in a block", "else": "'else' without 'if'"}[kind]
            self._fault("unreadable-code", f"line {statement.line}: {reason}", frame.source.path)
            found = self._emit("unreadable", [], statement.names, silent=True)
            for name, value in zip(statement.names, found, strict=True):
                self._set(frame, name, value)
            if statement.opens:
                self._open(frame, statement, "unreadable", _NONE)

    def _assign(self, frame: _CallFrame, statement: Statement, stack: list[Held]) -> None:
        names, values = statement.names, list(stack)
        if len(values) == 1 and (len(names) > 1 or statement.unpacks):
            kind, what, made_by = values[0]
            if kind == _SEVERAL:
                values = what
            else:
                op = "prim::ListUnpack" if made_by == "list" else "prim::TupleUnpack"
                values = self._emit(op, values, names)
        for name, value in zip(names, values, strict=False):
            self._set(frame, name, value)

    def _return_values(self, frame: _CallFrame, statement: Statement) -> None:
        """Return from a function: to the one that has called it a value, from the first one the results."""
        values = list(frame.stack)
        if len(values) > 1 and len(self._frames) > 1:
            made = self._emit("prim::TupleConstruct", values)
            values = [(_VALUE, made[0][1], "tuple")]
        if len(self._frames) == 1:
            types = [self._returns] if len(values) == 1 else parts_of(self._returns.removeprefix("Tuple"))
            for number, value in enumerate(values if values != [_NONE] else ()):
                name = self._text(self._as_value(value))
                self._main.returned[name] = name
                if number < len(types):
                    self._main.types.setdefault(name, types[number])
        self._return(values[0] if values else _NONE)

    def _return(self, value: Held) -> None:
        frame = self._frames.pop()
        self._keys.discard(frame.key)
        self._size -= frame.held
        if self._frames:
            self._frames[-1].stack.append(value)

    def _as_value(self, value: Held) -> Held:
        """Return a value of the graph: of a literal, that of a node which makes it."""
        return value if value[0] == _VALUE else self._emit("prim::Constant", [value])[0]

    # -- branches and loops --------------------------------------------------------------------------------------------

    def _open(self, frame: _CallFrame, statement: Statement, kind: str, condition: Held) -> None:
        if len(frame.blocks) >= _NESTED:
            raise LimitError(f"more than {_NESTED} blocks are in each other", option="")
        block = _Branch(statement, kind, condition, self._graph)
        frame.blocks.append(block)
        if kind == "with":
            return  # its lines are those of the function
        self._graph = block.graph = ScriptGraph(self._script, "body", "", self._graph)
        if kind not in ("for", "while"):
            return
        frame.blocks.pop()
        if kind == "for":
            number = self._unique(frame.scope, statement.names[0])
            self._graph.arguments.append(number)
            self._graph.made.add(number)
            block.names[statement.names[0]] = (_VALUE, number, "int")
        for name in assigned(frame.source.text, statement.after, frame.end, statement.indent):
            before = frame.find(name)
            if before is not None and name not in block.carried and before[0] in (_VALUE, _LITERAL):
                block.carried[name] = before
                inside = self._unique(frame.scope, name)
                self._graph.arguments.append(inside)
                self._graph.made.add(inside)
                block.names[name] = (_VALUE, inside, before[2])
        frame.blocks.append(block)

    def _end_blocks(self, frame: _CallFrame, statement: Statement | None) -> None:
        """End the blocks that the next statement is not in."""
        while frame.blocks and (statement is None or statement.indent <= frame.blocks[-1].statement.indent):
            block = frame.blocks[-1]
            is_else = statement is not None and statement.kind == "else" and block.other is None
            if is_else and statement is not None and statement.indent == block.statement.indent and block.kind == "if":
                block.other = block.graph, block.names
                self._graph = block.graph = ScriptGraph(self._script, "body", "", block.outer)
                block.names = {}
                statement.kind = "pass"
                return
            frame.blocks.pop()
            self._end(frame, block)

    def _end(self, frame: _CallFrame, block: _Branch) -> None:
        """Add the node of a branch or loop that is ended, and let its values be known behind it."""
        if block.kind == "with":
            for name, value in block.names.items():
                self._set(frame, name, value)
            self._emit("prim::Exit", [block.condition], silent=True)
            return
        if block.kind == "def":
            self._graph = block.outer
            self._set(frame, block.statement.names[0], (_APART, block.graph, ""))
            return
        following, frame.statement = frame.statement, block.statement  # names are those of its line
        loops = block.kind in ("for", "while")
        bodies = [(block.graph, block.names)]
        if block.other is not None:
            bodies.insert(0, block.other)
        elif not loops:
            bodies.append((ScriptGraph(self._script, "body", "", block.outer), {}))
        names = list(block.carried) if loops else self._outputs(frame, *(known for _, known in bodies))
        for graph, known in bodies:
            self._graph = graph
            for name in names:  # what it has set, or what was before it
                value = self._as_value(known.get(name) or frame.find(name) or _NONE)
                graph.returned[name] = self._text(value)
        self._graph = block.outer
        op = "prim::Loop" if loops else "prim::If" if block.kind == "if" else "unreadable"
        inputs = list(block.carried.values())
        if block.kind != "unreadable" and block.condition not in inputs:
            inputs.insert(0, block.condition)
        label = self._unique(frame.scope, f"{op.rpartition('::')[2]}@{block.statement.line}")
        for part, (graph, _) in zip(("body",) if loops else ("then", "else"), bodies, strict=True):
            if graph.listed or graph.returned:
                graph.name = f"{label}.{part}"
                self._main.inner[graph.name] = graph
                self._size += _NODE
        beside = dict.fromkeys(name for graph, _ in bodies for name in graph.captured)
        made = self._emit(op, inputs, names, list(beside), silent=True, label=label)
        for name, value in zip(names, made, strict=True):
            types = (known[name][2] for known in (bodies[0][1], bodies[-1][1], block.carried) if name in known)
            self._set(frame, name, (_VALUE, value[1], next(filter(None, types), "")))
        frame.statement = following

    def _outputs(self, frame: _CallFrame, first: dict[str, Held], other: dict[str, Held]) -> list[str]:
        """Return the names that are known behind a branch: what both bodies have set, or one anew."""
        found = []
        for name in dict.fromkeys((*first, *other)):
            both = name in first and name in other
            if both and first[name] == other[name] and first[name][0] not in (_VALUE, _LITERAL):
                self._set(frame, name, first[name])  # no value of a graph
            elif both or frame.find(name) is not None:
                found.append(name)
        return found

    # -- steps ---------------------------------------------------------------------------------------------------------

    def _step(self, frame: _CallFrame, step: Step, statement: Statement) -> bool:
        """Have the effect of one step on the stack; return whether it was a call, whose value is still to come."""
        what, text, count, keywords = step
        stack, steps = frame.stack, statement.program
        if what == "literal":
            stack.append((_LITERAL, text if len(text) <= 200 else shorten(text), ""))
            return False
        if what == "name":
            stack.append(frame.find(text) or (_NAMED, text, ""))
            return False
        is_last = frame.at == len(steps) and statement.count == 1 and not statement.unpacks
        names = statement.names if is_last and statement.kind == "assign" else ()
        self._names, self._keywords = names if what == "call" or len(names) == 1 else (), keywords
        if what in ("attr", "method"):
            stack.append(self._attribute(stack.pop(), text, calls=what == "method"))
            return False
        returns = frame.at == len(steps) and statement.kind == "return" and len(self._frames) == 1
        if what == "tuple" and returns and statement.count == 1 and not frame.blocks:
            return False  # they are several results
        parts = stack[len(stack) - count :] if count else []
        del stack[len(stack) - count :]
        if what == "call":
            return self._call(frame, stack.pop(), parts)
        if what == "index":
            stack.append(self._element(stack.pop(), parts))
        elif all(map(is_word, parts)) and not (names and what != "tuple"):  # which may be filled
            marks = {"list": "[]", "tuple": "()", "dict": "{}"}[what]
            listed = ", ".join(part[1] for part in parts)
            stack.append((_LITERAL, shorten(f"{marks[0]}{listed}{marks[1]}"), what))
        else:
            stack.append(self._one(f"prim::{what.capitalize()}Construct", parts, what))
        return False

    def _one(self, op: str, given: list[Held], kind: str = "") -> Held:
        """Add a node of one value, and of a kind that is known."""
        return _VALUE, self._emit(op, given, self._names[:1])[0][1], kind

    def _attribute(self, owner: Held, name: str, *, calls: bool = False) -> Held:
        kind, what, of = owner
        if kind == _NAMED:
            return self._constant(name) if what == "CONSTANTS" else (_NAMED, f"{what}.{name}", "")
        if calls:
            return _METHOD, (owner, name), ""
        if kind != _OBJECT:
            return self._one("prim::GetAttr", [owner, (_LITERAL, name, "")])
        script, path = self._script, f"{what}.{name}" if what else name
        if path in script.objects:
            held = [f"{path}.{one}" for one in script.attributes.get(path, ()) if f"{path}.{one}" in script.tensors]
            if script.objects[path].startswith(COMPILED) and held:
                return self._one("prim::GetAttr", values_of(held))
            return _OBJECT, path, script.objects[path]
        if name in self._changing:
            state = values_of([path] if path in script.tensors else [])
            return self._one("prim::GetAttr", [*state, (_LITERAL, path, "")])
        if path in script.groups:
            return self._one("prim::GetAttr", values_of(script.groups[path]), "list")
        if path in script.values:
            return _LITERAL, literal(script.values[path]), ""
        defined = script.find(of)[1]
        field = "" if defined is None else defined.fields.get(name, "")
        if field.startswith(OWN):
            return _OBJECT, path, field  # the pickle has lost it
        constant = field.rpartition("] = ")[2] if field.startswith("Final[") else ""
        return (_LITERAL, shorten(constant), "") if constant else (_VALUE, path, "")

    def _constant(self, name: str) -> Held:
        path = f"CONSTANTS.{name}"
        if path in self._script.groups:
            return _VALUE, self._emit("prim::Constant", values_of(self._script.groups[path]))[0][1], "list"
        if path in self._script.values:
            return _LITERAL, literal(self._script.values[path]), ""
        if path not in self._script.tensors:
            self._fault("missing-code", f"{path} is named, and is not in the file", self._frames[-1].source.path)
        return _VALUE, path, ""

    @cached_property
    def _changing(self) -> set[str]:
        """Names of the attributes that the code of any object sets."""
        places = {kind.rpartition(".")[0] for kind in self._script.objects.values()}
        sources = filter(None, map(self._script.source, places))
        return {name for source in sources for name in _STATE.findall(source.text)}

    def _element(self, owner: Held, keys: list[Held]) -> Held:
        if owner[0] == _NAMED and owner[1] in _TYPES:
            return _NAMED, shorten(f"{owner[1]}[{', '.join(str(key[1]) for key in keys)}]"), ""
        return self._one("prim::TupleIndex" if owner[2] == "tuple" else "aten::__getitem__", [owner, *keys])

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _call(self, frame: _CallFrame, called: Held, given: list[Held]) -> bool:
        """Call something; return whether its value is still to come."""
        kind, what, _ = called
        if kind == _METHOD:
            owner, method = what
            if owner[2].startswith(OWN):
                return self._call_method(owner, method, given)
            frame.stack.append(self._emitted(f"prim::{method}", [owner, *given]))
            return False
        if kind != _NAMED:
            frame.stack.append(self._emitted("prim::CallFunction", [called, *given]))
            return False
        space, _, rest = what.partition(".")
        if space == OWN[:-1]:
            return self._call_function(frame, what, given)
        if space in ("torch", "ops", "warnings") and rest:
            if rest == "device" and all(part[0] == _LITERAL for part in given):
                frame.stack.append((_LITERAL, f"{what}({', '.join(part[1] for part in given)})", ""))
                return False
            op = rest.replace(".", "::", 1) if space == "ops" else f"aten::{rest}"
            frame.stack.append(self._emitted(op, given))
            return False
        frame.stack.append(self._builtin(what, given))
        return False

    def _emitted(self, op: str, given: list[Held]) -> Held:
        """Add a node that may have several outputs."""
        made = self._emit(op, given, self._names)
        kind = "list" if op.startswith("aten::") else "tuple"
        return (_SEVERAL, made, "") if len(made) > 1 else (_VALUE, made[0][1], kind)

    def _builtin(self, name: str, given: list[Held]) -> Held:
        """Return what a function gives that is called as if it were one of Python's."""
        if name == "range" and len(given) == 1:
            return given[0]
        if name == "annotate" and len(given) == 2:
            op = _IMPLICIT.get(str(given[0][1]))
            if given[1][0] != _VALUE or op is None:
                kind = str(given[0][1]).partition("[")[0].lower()
                if given[1][0] == _LITERAL and kind in ("list", "dict"):  # it is filled later
                    return self._one(f"prim::{kind.capitalize()}Construct", [], kind)
                return (*given[1][:2], kind if kind in ("list", "tuple") else given[1][2])
            return self._one(op, given[1:])
        if given and given[0][0] == _APART:  # fork
            graph: ScriptGraph = given[0][1]
            made = self._emit(f"prim::{name}", given[1:], self._names[:1], list(graph.captured))[0]
            graph.name = f"{made[1]}.body"
            self._main.inner[graph.name] = graph
            return made
        if name == "getattr" and len(given) == 2 and given[1][0] == _LITERAL:
            return self._attribute(given[0], str(given[1][1]).strip("\"'"))
        if name in ("unchecked_cast", "uninitialized") and given:
            op = f"prim::{name if name != 'uninitialized' else 'Uninitialized'}"
            return self._one(op, given[1:], kind_of(str(given[0][1])))
        if name == "isinstance" and len(given) > 1:
            given = [given[0], (_LITERAL, str(given[1][1]), "")]
        return self._emitted(_BUILTIN.get(name, f"prim::{name}"), given)

    def _call_method(self, owner: Held, name: str, given: list[Held] | None) -> bool:
        """Go into a method; None for what it is given: that is not known, they are the arguments of the graph."""
        kind, path, of = owner
        source, defined = self._script.find(of)
        method = None if defined is None else defined.methods.get(name)
        is_known = defined is None or not (defined.base or "").endswith("Interface")  # else only when it runs
        inner = path if kind == _OBJECT else self._frames[-1].scope
        scope = inner if name == "forward" else f"{inner}.{name}".lstrip(".")
        key = (of, name, path)
        if source and method and is_known and (given is None or self._may_enter(source, key, of)):
            frame = _CallFrame(source, method, "" if given is None else scope, path if kind == _OBJECT else "", key)
            if self._enter(frame, method, [owner, *(given or ())], is_main=given is None):
                return True
        elif method is None:
            self._tell_lost(source, f"the method {name} of {of}", of)
        if given is None:
            raise MalformedError(f"the method {name} of {of} cannot be read")
        self._frames[-1].stack.append(self._emitted("prim::CallMethod", [owner, (_LITERAL, name, ""), *given]))
        return False

    def _call_function(self, frame: _CallFrame, what: str, given: list[Held]) -> bool:
        """Go into a function, or one of a class; a class itself makes a tuple with names."""
        source, defined = self._script.find(what)
        if defined is None:  # a function of a class
            name = what.rpartition(".")
            if name[2] == "__new__":
                frame.stack.append(self._one("prim::CreateObject", [(_LITERAL, name[0], "")], name[0]))
                return False
            place, of = self._script.find(name[0])
            source = source if of is None else place
            defined = None if of is None else of.methods.get(name[2])
        elif defined.base is not None:
            frame.stack.append(self._one("prim::TupleConstruct", given, "tuple"))
            return False
        if source is None or defined is None:
            self._tell_lost(source, f"the function {what}", what)
        elif self._may_enter(source, what, what):
            inner = _CallFrame(source, defined, f"{frame.scope}.{plain_class(what)}".lstrip("."), frame.module, what)
            if self._enter(inner, defined, given):
                return True
        frame.stack.append(self._emitted("prim::CallFunction", [(_LITERAL, what, ""), *given]))
        return False

    def _tell_lost(self, source: ScriptSource | None, what: str, name: str) -> None:
        path = f"code/{name.rpartition('.')[0].replace('.', '/')}.py" if source is None else source.path
        lost = "this source is not in the file" if source is None else "it is not there"
        if source is not None and source.finding is not None:
            lost += f": {source.finding.reason}"
        self._fault("missing-code", f"{what} is called, and {lost}", path)

    def _may_enter(self, source: ScriptSource, key: object, what: str) -> bool:
        if key in self._keys:
            self._fault("recursive-code", f"{what} calls itself, which TorchScript does not know", source.path)
            return False
        if len(self._frames) >= _DEEPEST:
            self._fault("recursive-code", f"more than {_DEEPEST} calls are in each other", source.path)
            return False
        return True

    def _enter(self, frame: _CallFrame, defined: Definition, given: list[Held], *, is_main: bool = False) -> bool:
        """Begin to go through a function; return whether its head can be read."""
        source = frame.source
        if source.finding is not None:
            self._fault("damaged-code", source.finding.reason, source.path)
        try:
            head = head_of(source.text, defined)
        except MalformedError as error:
            self._fault("unreadable-code", f"line {defined.line}: {error.reason}", source.path)
            return False
        if frame.scope:
            count = self._scopes[frame.scope] = self._scopes.get(frame.scope, 0) + 1
            frame.scope = frame.scope if count == 1 else f"{frame.scope}#{count}"
        names = [one.name for one in head.parameters]
        known: dict[str, Held] = {}
        keywords = [""] * (len(given) - len(self._keywords)) + list(self._keywords)
        for place, (keyword, argument) in enumerate(zip(keywords, given, strict=True)):
            known[keyword or (names[place] if place < len(names) else "")] = argument
        lacking = [one.name for one in head.parameters if not one.default and one.name not in known]
        if not is_main and (lacking or known.keys() - set(names)):
            self._fault("unreadable-code", f"line {self._line()}: the arguments of a call do not fit", source.path)
        for one in head.parameters:
            value, kind = known.get(one.name), kind_of(one.type)
            if value is None and is_main:
                name = self._unique("", one.name)
                self._main.types[name] = shorten(one.type)
                value = _VALUE, name, kind
            elif value is None:
                value = self._default(one.default)
            elif value[0] == _VALUE and (kind in ("tuple", "list") or kind.startswith(OWN)):
                value = _VALUE, value[1], kind
            frame.names[one.name] = value
        if is_main:
            self._returns = head.returns.strip()[:_TYPED]
        self._steps += _CALL
        frame.lines = statements(source.text, head.body, defined.end, head.line)
        self._frames.append(frame)
        self._keys.add(frame.key)
        return True

    def _default(self, text: str) -> Held:
        """Return the value of an argument that is not given."""
        return self._constant(text[10:]) if text.startswith("CONSTANTS.") else (_LITERAL, shorten(text) or "None", "")
