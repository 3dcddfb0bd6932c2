"""Tensors and viewers that came from another process: pickled as handles, opened on use.

Until then such an object is of a class of its own, made of the mixin `Unopened` and the real class. The first attribute
it lacks opens the document (`pparse.document.handles`); then it takes over what the tensor or viewer of that document
has, and becomes one of its class. So objects of this process pay nothing for it.
"""

from __future__ import annotations

from pparse.document.handles import Handle, handle_of, reopen_view
from pparse.errors import DataChangedError, SourceError
from pparse.tensors.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

# What a tensor knows before its document is opened, beside its name and type.
_TOLD: Final = ("shape", "stored_dtype", "byteorder", "encoding")


class Unopened:
    """Mixin of what was unpickled and not used yet."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # other libraries ask for all kinds of protocols
            raise AttributeError(name)
        self._open()
        return getattr(self, name)

    def _open(self) -> None:
        raise NotImplementedError


class _UnopenedTensor(Unopened):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if not any(name in vars(owner).get("__slots__", ()) for owner in type(self).__mro__):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        return super().__getattr__(name)

    def _open(self) -> None:
        found = reopen_view(self._shared)[self.name]
        if any(getattr(found, name) != getattr(self, name) for name in ("dtype", *_TOLD)):
            raise DataChangedError("the tensor is not the one that was pickled", path=found.name)
        take_over(self, found)


class _UnopenedViewer(Unopened):
    __slots__ = ()

    def _open(self) -> None:
        found = reopen_view(self.__dict__["_handle"])
        self.__class__ = type(found)
        self.__dict__ = found.__dict__  # type: ignore[misc]  # the same viewer, whoever opened it


def take_over(tensor: Any, found: Tensor) -> None:
    """Make ``tensor`` the same as ``found``."""
    for owner in type(found).__mro__:
        for name in vars(owner).get("__slots__", ()):
            try:
                setattr(tensor, name, getattr(found, name))
            except AttributeError:  # not set
                continue
    tensor.__class__ = type(found)


_classes: Final[dict[type, type[Any]]] = {}


def unopened(base: type, mixin: type[Unopened]) -> type[Any]:
    """Return the class of unopened objects of class ``base``."""
    made = _classes.get(base)
    if made is None:
        made = type(f"Unopened{base.__name__}", (base, mixin), {"__slots__": (), "__module__": __name__})
        made = _classes.setdefault(base, made)
    return made


def reduce_tensor(tensor: Tensor) -> tuple[Any, tuple[object, ...]]:
    """Return what `pickle` keeps of a tensor. Raises `SourceError`, see `pparse.document.handles.handle_of`."""
    handle: Any = tensor._shared
    kind = type(tensor)
    if isinstance(tensor, Unopened):
        kind = kind.__mro__[1]
    else:
        if tensor._owner is None:
            raise SourceError("a tensor that belongs to no document cannot be pickled", source=tensor.name)
        handle = handle_of(tensor._owner.extraction.outermost, [span.data for span in tensor.spans])
    dtype = None if tensor.dtype is None else tensor.dtype.name
    return restore_tensor, (kind, handle, tensor.name, dtype, *(getattr(tensor, name) for name in _TOLD))


def restore_tensor(kind: type[Tensor], handle: Handle, name: str, dtype: str | None, *told: object) -> Tensor:
    """Return a tensor that was pickled; its document is opened when it is used."""
    tensor: Any = object.__new__(unopened(kind, _UnopenedTensor))
    tensor._shared = handle
    tensor.name = name
    tensor.dtype = None if dtype is None else DType.of(dtype)
    for slot, value in zip(_TOLD, told, strict=True):
        setattr(tensor, slot, value)
    return tensor  # type: ignore[no-any-return]


def reduce_viewer(viewer: Viewer) -> tuple[Any, tuple[object, ...]]:
    """Return what `pickle` keeps of a viewer."""
    kind = type(viewer)
    if isinstance(viewer, Unopened):
        return restore_viewer, (kind.__mro__[1], viewer.__dict__["_handle"])
    return restore_viewer, (kind, handle_of(viewer.extraction.outermost))


def restore_viewer(kind: type[Viewer], handle: Handle) -> Viewer:
    """Return a viewer that was pickled; its document is opened when it is used."""
    viewer: Any = object.__new__(unopened(kind, _UnopenedViewer))
    viewer.__dict__["_handle"] = handle
    return viewer  # type: ignore[no-any-return]
