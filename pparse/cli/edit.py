"""Change metadata and names of tensors in a safetensors or GGUF file, without copying what the tensors hold.

The new head of the file is written where the old one was, if there is room; else the file system inserts blocks before
the payload (ext4, XFS); else a copy takes the name of the file, once it is on the disk. Values of tensors stay as they
are, bit by bit. Only sound files are edited. If the command is killed, 'pparse edit FILE' finishes its work. No program
should have the file open meanwhile; -o writes a copy instead.
"""

from __future__ import annotations

from pparse.cli.common import OK, resources
from pparse.display.text import safe
from pparse.editing.editing import WAYS, edit
from pparse.errors import OptionError, refused
from pparse.limits import MIB

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output

EXAMPLES: Final = """examples:
  pparse edit model.gguf --set-metadata general.name=Tiny
  pparse edit model.gguf --set-metadata tokenizer.chat_template=@template.jinja
  pparse edit model.gguf --set-metadata tokenizer.ggml.add_bos_token:bool=true
  pparse edit model.safetensors --rename 'h.*.attn.weight=layers.*.attention.weight' --dry-run
  pparse edit model.safetensors --drop 'lm_head.*' -o small.safetensors
  pparse edit model.safetensors
"""
_NAMED: Final = 20
"""The most changes that are told one by one."""
_MOST: Final = 1024 * MIB  # of a value in a file: no reader takes longer ones


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "a safetensors or GGUF file", dest="file")
    value = (
        "set a value, which of a GGUF file has the type of the old one, else text; KEY:TYPE=VALUE says it (uint32, "
        "float32, bool, text …, with [] a list as JSON writes it); KEY=@PATH takes the text in a file, KEY=@@… one "
        "that begins with @; repeatable"
    )
    parser.add("--set-metadata KEY=VALUE ...", value)
    parser.add("--delete-metadata KEY ...", "delete a key; repeatable")
    parser.add("--rename-metadata OLD=NEW ...", "rename a key; repeatable")
    rename = (
        "names of tensors that begin with OLD begin with NEW; or with one * on both sides, for whole names. The first "
        "that fits a name counts; repeatable"
    )
    parser.add("--rename OLD=NEW ...", rename)
    parser.add("--drop GLOB ...", "drop the tensors that match; unless they are the last, others move; repeatable")
    parser.add("-o --output OUT", "write a copy, and leave FILE alone")
    parser.add("--way", "write in this way only (the first that is possible)", choices=WAYS)
    parser.add("--force", "replace an existing OUT")
    parser.add("-n --dry-run", "only say what would be changed, and how")
    parser.add_json()


def run(options: Any, out: Output) -> int:
    """Run the command."""
    how = {"format": options.format, "options": dict(options.options), "scratch": options.scratch}
    try:
        result = edit(
            options.file,
            set_metadata={key: _value(text) for key, text in _pairs(options.set_metadata)},
            delete_metadata=options.delete_metadata,
            rename_metadata=dict(_pairs(options.rename_metadata)),
            rename=options.rename,
            drop=options.drop,
            output=options.output,
            way=options.way,
            force=options.force,
            dry_run=options.dry_run,
            **how,
            **resources(options, out),
        )
    finally:
        out.progress.clear()
    if options.json:
        out.json({"file": options.file, **{key: value for key, value in result.to_dict().items() if key != "path"}})
        return OK
    if result.recovered is not None:
        out.say(f"{safe(options.file)}: an edit that was cut off is {result.recovered}")
    out.lines(result.changes[:_NAMED])
    if len(result.changes) > _NAMED:
        out.say(f"… and {len(result.changes) - _NAMED:,} more; --json lists all")
    if result.way is not None or not result.recovered:
        out.say(f"{safe(options.output or options.file)}: {result.words}")
    if options.dry_run:
        out.say("nothing was written (--dry-run)")
    out.notes(result.notes)
    return OK


def _pairs(rules: Sequence[str]) -> Iterator[tuple[str, str]]:
    for rule in rules:
        key, mark, value = rule.partition("=")
        if not key or not mark:
            raise OptionError(f"expected KEY=VALUE, not {rule!r}")
        yield key, value


def _value(text: str) -> str:
    """Return a value: what a file holds for ``@PATH``."""
    if not text.startswith("@") or text.startswith("@@"):
        return text[text.startswith("@@") :]
    with refused("cannot read", text[1:]), open(text[1:], "rb") as file:
        raw = file.read(_MOST + 1)
    try:
        return raw[:_MOST].decode()
    except UnicodeDecodeError as error:
        raise OptionError(f"{text[1:]} is no text of UTF-8: {error.reason} at byte {error.start}") from error
