"""A folder with one model file of any format that a viewer exists for: opened as that file.

Asked only for folders that no format's own folder parser recognises. Which files may be models, their parsers declare
by their extensions and viewers; each is looked into. Several files are one model if the parser's `Parser.model_name` is
the same for all.

States of the root::

    state          needs  reads                                             goes to
    expect_file    0      nothing: the file becomes a child                 DONE
"""

from __future__ import annotations

from pparse.display.text import few
from pparse.document.folder import several_models
from pparse.document.registry import viewed_parsers, viewer_for
from pparse.errors import DataError, SourceError, UnsupportedError
from pparse.tree.context import DONE
from pparse.tree.entry import MAP, Entry
from pparse.tree.parser import Confidence, Container, Parser, bare_name

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import ClassVar, Final

    from pparse.document.extraction import Extraction, FolderExtraction
    from pparse.tree.context import NodeContext, Step
    from pparse.tree.result import Result

# How many files are looked into; of the others, the name is enough.
_MOST_FILES: Final = 64


class ModelFolderParser(Parser, Container):
    """A folder that stands for the one model file in it."""

    name = "model-folder"
    description = "folder with one model file of another format"
    reads = "folder"
    is_generic = True
    shapes: ClassVar[dict[str, str]] = {"model-folder": MAP}
    limitations: ClassVar[tuple[str, ...]] = (
        "a folder with several models lists them and asks for one",
        "files beside a safetensors or PyTorch model are not looked for",
    )

    def __init__(self, result: Result) -> None:
        super().__init__(result)
        folder: FolderExtraction = result.extraction  # type: ignore[assignment]
        models = [*self.models_in(folder)] or _models_of(folder)
        if len(models) > 1:
            raise several_models(folder.folder, models)
        self.member: Extraction | None = folder.sibling(models[0]) if models else None
        """The file, of several the first one."""

    @classmethod
    def match_folder(cls, folder: FolderExtraction) -> Confidence:
        """POSSIBLE for a folder with a model."""
        return Confidence.POSSIBLE if _models_of(folder) else Confidence.NO

    def unwrapped(self) -> Extraction | None:
        """Return the file."""
        return self.member

    def model_file(self) -> Extraction | None:
        """Return the file. Raises `UnsupportedError` if the model is in several, of which each is to be named."""
        if self.member is not None:
            known = self.member.parse().parser
            name = known.model_name(self.member.name)
            others = self.result.extraction.members  # type: ignore[attr-defined]
            files = [other for other in others if known.model_name(other) == name]
            if len(files) > 1:
                names = few(files, count=len(files))
                reason = f"the model is in {len(files)} files, which are saved one by one; name one: {names}"
                raise UnsupportedError(reason, path=self.member.name)
        return self.member

    def enter(self, name: str) -> Extraction | None:
        """Return the file, by its name."""
        return self.member if self.member is not None and self.member.name == name else None

    def root_entry(self) -> Entry:
        """Describe the root."""
        return Entry(None, self.name, 0, 0, status=None)

    def begin(self, ctx: NodeContext) -> Step:
        """Begin the root."""
        return 0, self.expect_file, 0

    def expect_file(self, ctx: NodeContext, block: bytes, base: int) -> Step:
        """Emit the file with its size."""
        if self.member is not None:
            ctx.emit(Entry(self.member.name, "file", 0, 0, self.member.size))
        return 0, DONE, 0


def _models_of(folder: FolderExtraction) -> list[str]:
    """Return the models in a folder, each as the file to open."""
    parsers = viewed_parsers(folder.session.registry)
    endings = tuple(ending for known in parsers for ending in known.extensions)
    models: dict[str, str] = {}
    looked = 0
    for name in folder.members:
        if not bare_name(name).endswith(endings):
            continue
        told = {known.model_name(name) for known in parsers if bare_name(name).endswith(known.extensions)}
        if not told.isdisjoint(models):
            continue
        looked += 1
        if looked > _MOST_FILES or _is_model(folder, name):
            models.update(dict.fromkeys(told, name))
    return list(dict.fromkeys(models.values()))


def _is_model(folder: FolderExtraction, name: str) -> bool:
    try:
        found = viewer_for(folder.sibling(name)) is not None
    except (DataError, SourceError):  # it cannot be opened, or is of no format
        found = False
    if not found:
        folder.children.pop(name, None)  # those are the files of the model
    return found
