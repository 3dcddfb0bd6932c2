"""Tensors and viewers that came from another process: pickled as handles, opened on use.

Until then such an object is of a class of its own, made of the mixin `Unopened` and the real class. The first attribute
it lacks opens the document (`pparse.document.handles`); then it takes over what the tensor or viewer of that document
has, and becomes one of its class. So objects of this process pay nothing for it.
"""

from __future__ import annotations

from pparse.display.text import safe, shorten, table
from pparse.document.handles import Handle, handle_of, reopen_view
from pparse.errors import DataChangedError, SourceError
from pparse.locking import RLock
from pparse.tensors.dtype import DType

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, Final

# What a tensor knows before its document is opened, beside its name and type.
_TOLD: Final = ("shape", "stored_dtype", "byteorder", "encoding")


# Taken while an object becomes what it stands for: other threads may be using it.
_becoming: Final = RLock()


class Unopened:
    """Mixin of what was unpickled and not used yet."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # other libraries ask for all kinds of protocols
            raise AttributeError(name)
        _open_viewer(self)
        return getattr(self, name)


class _UnopenedTensor(Unopened):
    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if not any(name in vars(owner).get("__slots__", ()) for owner in type(self).__mro__):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        _open_tensor(self)
        return getattr(self, name)


def _open_tensor(tensor: Any) -> None:
    """Open the document of ``tensor``, which becomes one of its tensors."""
    handle = tensor._shared
    if not isinstance(handle, Handle):
        with _becoming:  # another thread was quicker, and is done now
            return
    found = reopen_view(handle)[tensor.name]
    if any(getattr(found, name) != getattr(tensor, name) for name in ("dtype", *_TOLD)):
        raise DataChangedError("the tensor is not the one that was pickled", path=found.name)
    with _becoming:
        if isinstance(tensor, Unopened):
            _take_over(tensor, found)


def _open_viewer(viewer: Any) -> None:
    """Open the document of ``viewer``, which becomes its viewer: the same, whoever opened it first."""
    handle = viewer.__dict__.get("_handle")
    if handle is None:
        with _becoming:  # another thread was quicker, and is done now
            return
    found = reopen_view(handle)
    with _becoming:
        viewer.__dict__ = found.__dict__  # first: until the class is another one, what is missing is asked for here
        viewer.__class__ = type(found)


def _take_over(tensor: Any, found: Any) -> None:
    """Make ``tensor`` the same as ``found``; its class last, as above."""
    _ = found.spans  # what places them would tell ``found`` later that they are lost
    tensor._shared = found._shared
    for owner in type(found).__mro__:
        for name in vars(owner).get("__slots__", ()):
            try:
                setattr(tensor, name, getattr(found, name))
            except AttributeError:  # not set
                continue
    tensor.__class__ = type(found)


# -- what is known without opening -------------------------------------------------------------------------------------


def _tensor_text(tensor: Any) -> str:
    dtype = tensor.dtype or tensor.stored_dtype
    return f"<Tensor {shorten(safe(tensor.name))!r} {dtype} {tensor.shape_text}, not opened yet>"


def _viewer_text(viewer: Any) -> str:
    kind, handle = type(viewer).__mro__[1].__name__, viewer.__dict__.get("_handle")
    source = handle.source if handle is not None and isinstance(handle.source, str) else "…"
    return f"<{kind} of {shorten(safe(source))!r}, not opened yet>"


def _leave(thing: Any, *error: object) -> None:
    """End a ``with`` block that began before `thing` was opened; it may have been opened in it."""
    if not isinstance(thing, Unopened):
        thing.__exit__(*error)


def _close(viewer: Any) -> None:
    """Close what is not open."""


def _html(thing: Any) -> str:
    return table(repr(thing), (), ())


_TENSOR: Final = {"__repr__": _tensor_text, "_repr_html_": _html, "__exit__": _leave}
_VIEWER: Final = {"__repr__": _viewer_text, "_repr_html_": _html, "__exit__": _leave, "close": _close}
_viewer_text.__guarded__ = True  # type: ignore[attr-defined]  # needs no lock, see `pparse.locking.guard`
_classes: Final[dict[type, type[Any]]] = {}


def unopened(base: type, mixin: type[Unopened], known: Mapping[str, Any]) -> type[Any]:
    """Return the class of unopened objects of class ``base``; ``known`` are methods that need no document."""
    made = _classes.get(base)
    if made is None:
        made = type(f"Unopened{base.__name__}", (base, mixin), {"__slots__": (), "__module__": __name__, **known})
        made = _classes.setdefault(base, made)
    return made


def reduce_tensor(tensor: Any) -> tuple[Any, tuple[object, ...]]:
    """Return what `pickle` keeps of a tensor. Raises `SourceError`, see `pparse.document.handles.handle_of`."""
    with _becoming:
        handle: Any = tensor._shared
        kind = type(tensor)
        is_open = not isinstance(tensor, Unopened)
    if not is_open:
        kind = kind.__mro__[1]
    else:
        if tensor._owner is None:
            raise SourceError("a tensor that belongs to no document cannot be pickled", source=tensor.name)
        handle = handle_of(tensor._owner.extraction.outermost, [span.data for span in tensor.spans])
    dtype = None if tensor.dtype is None else tensor.dtype.name
    return restore_tensor, (kind, handle, tensor.name, dtype, *(getattr(tensor, name) for name in _TOLD))


def restore_tensor(kind: type[Any], handle: Handle, name: str, dtype: str | None, *told: object) -> Any:
    """Return a tensor that was pickled; its document is opened when it is used."""
    tensor: Any = object.__new__(unopened(kind, _UnopenedTensor, _TENSOR))
    tensor._shared = handle
    tensor.name = name
    tensor.dtype = None if dtype is None else DType.of(dtype)
    for slot, value in zip(_TOLD, told, strict=True):
        setattr(tensor, slot, value)
    return tensor


def reduce_viewer(viewer: Any) -> tuple[Any, tuple[object, ...]]:
    """Return what `pickle` keeps of a viewer."""
    with _becoming:
        kind, handle = type(viewer), viewer.__dict__.get("_handle")
    if handle is not None:
        return restore_viewer, (kind.__mro__[1], handle)
    return restore_viewer, (kind, handle_of(viewer.extraction.outermost))


def restore_viewer(kind: type[Any], handle: Handle) -> Any:
    """Return a viewer that was pickled; its document is opened when it is used."""
    viewer: Any = object.__new__(unopened(kind, Unopened, _VIEWER))
    viewer.__dict__["_handle"] = handle
    return viewer
