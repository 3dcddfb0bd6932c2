"""Write the tensors of any model file to a new safetensors file, a set of them, an .npz, or a GGUF file.

SOURCE is anything that 'pparse ls' lists tensors of: safetensors, ONNX, GGUF, PyTorch, numpy, pickle and joblib, Flax,
TensorFlow, plug-ins; single files, sets and members of archives. The
bits stay as they are, and so does the metadata; memory stays within --budget, however large the tensors are. No file
has its name before everything is written and found to be whole. If it is stopped, the same command continues.
"""

from __future__ import annotations

from pparse.cli import jobs, without_waiting
from pparse.cli.common import DAMAGED, OK, open_file, size
from pparse.cli.model import no_tensors
from pparse.cli.output import to_resume
from pparse.cli.selection import Selection
from pparse.display.text import safe
from pparse.document.opening import resume_lines
from pparse.errors import NotWholeError, OptionError, SourceError, WorkerDiedError
from pparse.findings import Status
from pparse.limits import count_words, format_size

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, Final

    from pparse.cli.common import Arguments
    from pparse.cli.output import Output
    from pparse.conversion.plan import Report
    from pparse.document.extraction import Extraction
    from pparse.tensors.tensor import Tensor
    from pparse.tensors.viewer import Viewer

EXAMPLES: Final = """examples:
  pparse convert saved_model -o model.safetensors
  pparse convert model.safetensors.index.json -o model.safetensors
  pparse convert model.safetensors -o out/model.safetensors --max-shard-size 5GB
  pparse convert model.safetensors -o half.safetensors --dtype bfloat16
  pparse convert float8.safetensors -o model.safetensors --dequantize --dtype bfloat16
  pparse convert model.safetensors -o encoder.npz --include 'encoder.*' --rename encoder.=
  pparse convert model.safetensors -o new.safetensors --rename 'h.*.attn.weight=layers.*.attention.weight'
  pparse convert model.safetensors -o model.gguf --dtype Q8_0
  pparse convert half-a-download.safetensors -o part.safetensors --skip-damaged
"""
# The most tensors that are named one by one.
_NAMED: Final = 20
# Options of the command that those of a conversion are called as.
_SAME: Final = "to max_shard_size dtype dequantize rename skip_damaged skip_unsupported dedupe force"


def add_arguments(parser: Arguments) -> None:
    """Declare the arguments of the command."""
    parser.add("SOURCE", "a file, a folder, an index of shards, - or outer::inner", dest="file")
    parser.add("-o --output TARGET", "the file to write", required=True)
    parser.add("--to", "what to write, if the extension does not say it", choices=("safetensors", "npz", "gguf"))
    shards = "write a set of files NAME-00001-of-00003.safetensors with an index, with at most SIZE of tensors in each"
    parser.add("--max-shard-size SIZE", shards, type=size)
    parser.add(
        "--dtype TYPE",
        "cast floating tensors (to the nearest, ties to even): float64, float32, float16, bfloat16; for "
        "safetensors and npz also float8_e4m3fn, float8_e5m2 and their fnuz; for GGUF also Q8_0, for tensors with rows "
        "that 32 divides",
    )
    parser.add(
        "--dequantize",
        "write what quantised tensors stand for, as float32 or --dtype: codes multiplied by the scales that the "
        "source has for them, which are left out. Without it, codes and scales stay as they are",
    )
    parser.add(
        "--rename OLD=NEW ...",
        "names that begin with OLD begin with NEW; or with one * on both sides, for whole names. The first that "
        "fits a name counts; repeatable",
    )
    parser.add("--include GLOB ...", "only tensors that match; repeatable")
    parser.add("--exclude GLOB ...", "no tensors that match; repeatable")
    damaged = "leave out tensors that are damaged, truncated or missing, instead of writing nothing (exit code 4)"
    parser.add("--skip-damaged", damaged)
    unsupported = "leave out tensors that the target cannot hold, such as texts, instead of writing nothing"
    parser.add("--skip-unsupported", unsupported)
    parser.add("--dedupe", "write tensors with the same bytes once; the metadata names the others")
    parser.add("--force", "replace existing files")
    parser.add("-n --dry-run", "only say what would be written")
    jobs.add_arguments(parser, resume=False)
    parser.add_json()
    parser.add_filters(pattern="", dtype="--only-dtype")


def run(options: Any, out: Output) -> int:
    """Run the command."""
    from pparse.conversion.converting import convert_view, is_begun
    from pparse.conversion.plan import Options
    from pparse.document.registry import viewer_for

    included = Selection(options.include, options=options)
    matchers = [included, *([Selection(options.exclude)] if options.exclude else ())]

    def chosen(viewer: Viewer, tensor: Tensor) -> bool:
        is_wanted, *is_excluded = [matcher.takes(viewer, tensor) for matcher in matchers]
        return is_wanted and not any(is_excluded)

    def refuse_unmatched(plan: object) -> None:  # all names were asked for when there is a plan
        complaints = [complaint for matcher in matchers for complaint in matcher.complaints()]
        complaints = complaints or included.unfit()
        if complaints:
            raise OptionError(f"{'; '.join(complaints)} (nothing was written)")

    wanted = Options(target=options.output, chosen=chosen, **{name: getattr(options, name) for name in _SAME.split()})
    with jobs.Jobs(options, out) as work, open_file(options, out) as document:
        viewer = viewer_for(document)
        if viewer is None:
            raise no_tensors(document)
        try:
            how: Any = {"dry_run": options.dry_run, "look": refuse_unmatched, "workers": work.workers()}
            report = convert_view(viewer, options.output, wanted, **how)
        except NotWholeError as error:
            _tell_refused(error, document, options, out)
            return DAMAGED
        except KeyboardInterrupt:
            then = "the same command continues from here" if is_begun(options.output) else "nothing was written yet"
            without_waiting(lambda: out.error(f"interrupted; {then}"))
            raise
        except (SourceError, WorkerDiedError) as error:
            from pparse.writers.journal import is_disk_full

            died = isinstance(error, WorkerDiedError)
            if (died or is_disk_full(error)) and is_begun(options.output):
                out.error(f"with {'-j 1' if died else 'more room'} the same command continues from here")
            raise
        _tell(report, document, options, out)
    return OK if report.is_whole else DAMAGED


def _tell_refused(error: NotWholeError, document: Extraction, options: Any, out: Output) -> None:
    """Say why nothing was written, and name the tensors that stand in the way."""
    if options.json:
        lost = [{"name": name, "status": status, "reason": reason} for name, status, reason in error.lost]
        known = {"file": options.file, "output": options.output}
        out.json({**known, "error": error.reason, "code": DAMAGED, "left_out": lost})
        return
    out.error(str(error))
    _tell_tensors(error.lost, out)
    for line in resume_lines(to_resume(document)):
        out.error(line)


def _tell(report: Report, document: Extraction, options: Any, out: Output) -> None:
    """Report what was written."""
    if options.json:
        out.json({"file": options.file, "output": options.output, **report.to_dict()})
        return
    for file in report.files:
        what = f"{count_words(file.tensors, 'tensor')}, " if file.tensors or len(report.files) == 1 else ""
        out.say(f"{safe(file.path)}: {what}{format_size(file.bytes)}")
    if len(report.files) > 1:
        shards = count_words(len(report.files) - 1, "shard")
        out.say(f"{count_words(report.tensors, 'tensor')} in {shards}, {format_size(report.bytes)}")
    if report.dry_run:
        out.say("nothing was written (--dry-run)")
    if report.resumed_bytes:
        there = format_size(report.resumed_bytes)
        out.notes([f"{there} were there already: this continued a run that was stopped"])
    out.notes(report.notes)
    if report.aliases:
        count = count_words(len(report.aliases), "name")
        out.notes([f"{count} of tensors with the same bytes: only in the metadata, with the name that was kept"])
    for rule in report.unused_renames:
        out.error(f"warning: --rename {rule} changed no name: no tensor fits that an earlier rule did not take")
    left_out = sorted(report.left_out, key=lambda entry: entry.status is Status.UNSUPPORTED)  # what is not whole first
    _tell_tensors(left_out, out, "left out: ")
    if report.document_reason is not None:
        out.error(
            f"{report.document_reason}: more tensors or values may be missing than are named here. 'pparse info' tells "
            "what is known of the source, 'pparse tree' shows what is there, and 'pparse get' gives any part of it"
        )
    if not report.is_whole:
        for line in resume_lines(to_resume(document)):
            out.error(line)


def _tell_tensors(lost: Sequence[tuple[str, str, str]], out: Output, before: str = "") -> None:
    """Name the first tensors that were not written, each with its status and the reason."""
    for name, status, reason in lost[:_NAMED]:
        out.error(f"{before}{name}: {status}: {reason}")
    if len(lost) > _NAMED:
        out.error(f"{before or '… and '}{count_words(len(lost) - _NAMED, 'tensor')} more; --json lists all")
