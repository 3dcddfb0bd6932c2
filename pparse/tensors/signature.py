"""How a model is called: its signatures, with the type and shape of each argument and result."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pparse.tensors.dtype import DType


class TensorInfo:
    """One argument or result of a signature."""

    __slots__ = ("dtype", "parts", "shape", "stored_dtype", "tensor")

    def __init__(
        self, tensor: str, dtype: DType | None, stored_dtype: str, shape: tuple[int, ...] | None, parts: dict[str, str]
    ) -> None:
        self.tensor = tensor
        """Name of the tensor (``node:output``)."""
        self.dtype = dtype
        """Element type; None if it is not a number."""
        self.stored_dtype = stored_dtype
        """The format's word for the type, such as DT_STRING."""
        self.shape = shape
        """Shape, with -1 for unknown dimensions; None if the rank is unknown."""
        self.parts = parts
        """Names of the tensors of a sparse or composite one."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        found: dict[str, object] = {
            "tensor": self.tensor,
            "dtype": self.dtype.name if self.dtype is not None else None,
            "stored_dtype": self.stored_dtype,
            "shape": list(self.shape) if self.shape is not None else None,
        }
        return {**found, "parts": self.parts} if self.parts else found

    def __repr__(self) -> str:
        shape = "×".join(map(str, self.shape)) or "scalar" if self.shape is not None else "of unknown rank"
        return f"<TensorInfo {self.tensor!r} {self.dtype or self.stored_dtype} {shape}>"


class Signature:
    """How a model is called."""

    __slots__ = ("inputs", "method_name", "name", "outputs")

    def __init__(
        self, name: str, inputs: dict[str, TensorInfo], outputs: dict[str, TensorInfo], method_name: str
    ) -> None:
        self.name = name
        """Name of the signature."""
        self.inputs = inputs
        """Arguments by name."""
        self.outputs = outputs
        """Results by name."""
        self.method_name = method_name
        """The method that it describes."""

    def to_dict(self) -> dict[str, object]:
        """Return the attributes as plain data, for JSON."""
        return {
            "inputs": {name: info.to_dict() for name, info in self.inputs.items()},
            "outputs": {name: info.to_dict() for name, info in self.outputs.items()},
            "method_name": self.method_name,
        }

    def __repr__(self) -> str:
        return f"<Signature {self.name!r}: {', '.join(self.inputs) or 'nothing'} -> {', '.join(self.outputs)}>"
