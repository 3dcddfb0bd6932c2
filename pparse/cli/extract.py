"""Write the members of an archive to a folder, safely; truncated and damaged ones too, as far as they can be read.

No name leads out of the folder, no file there is replaced, no link or device is created, and limits stop small files
that expand without bounds. A tar.gz counts as one archive; --recursive also enters archives inside. Without MEMBER, all
members are written. If it is stopped, the same command continues.
"""

from __future__ import annotations

from pparse.cli import jobs, recover
from pparse.cli.common import USAGE, open_file
from pparse.display.text import safe

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output

EXAMPLES: Final = """examples:
  pparse extract archive.tar.gz -o folder
  pparse extract archive.zip docs/readme.txt -o folder
  pparse extract archive.zip '*.txt' -o folder
  pparse extract backup.tar.gz::inner.zip -o folder
  pparse extract backup.tar.gz --recursive -o folder
"""


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("FILE", "an archive, a compressed file, - or outer::inner")
    parser.add("MEMBER", "only these members: names as 'pparse ls' prints them, or globs", dest="members", nargs="*")
    parser.add("-o --output DIR", "the folder to write to, new or empty", required=True)
    parser.add("-R -r --recursive", "enter archives inside the archive")
    recover.add_target_arguments(parser, "show every file, not only incomplete ones")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.recovery.recover import extract

    with open_file(options, out) as document:
        told = recover.tell_names(document, options, out)
        listing = recover.FileTable(out, options)
        with recover.telling_how_to_go_on(options, out, listing):
            outcome = extract(
                document,
                options.output,
                options.members,
                recursive=options.recursive,
                max_output=options.max_output,
                exist_ok=options.force,
                tell=listing.add,
                begin_again=listing.begin_again,
                threads=jobs.number(options),
            )
        listing.note_confirmed(outcome.confirmed)
        listing.close()
        for_people = recover.tell_outcome(options, out, outcome, document.findings, told, listing)
        if for_people and not outcome.is_whole and not outcome.limits:
            out.say(f"'pparse recover {safe(options.file)} -o DIR' saves more, and reports where bytes are missing")
        for name in outcome.unmatched:
            out.error(f"no member matches {name!r}")
    if outcome.unmatched:
        return USAGE
    return recover.exit_code(options, outcome)
