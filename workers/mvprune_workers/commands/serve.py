"""mvpctl serve"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from mvprune.cli.shared.artifacts import add_hypotheses, add_runtime, artifact_parser, fetched
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.output import print_data
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import memory, positive_number, seconds
from mvprune.common.threads import SPIN
from mvprune.common.units import percent
from mvprune.serving.writing import MAX_NEW_TOKENS, MAX_SECONDS
from mvprune.sources.schemes import SERVER, UPLOAD
from mvprune_workers.commands.zero_shot import hypotheses_of

if TYPE_CHECKING:
    from mvprune.runtime import Used
    from mvprune.serving.requests import Limits
    from mvprune_core.prediction import Predictor

_DETAILS = """POST /predict answers, GET /health says whether it can, GET / what it is: docs/serve.md has the requests.
Models that write text also have POST /generate, and OpenAI's endpoints below /v1. Texts are read as in training.
SIGTERM answers what has come in, then ends. Whoever reaches the address is served: beyond this machine, put a proxy
with TLS and authentication before it. The server that is asked for a job is the one that MVPRUNE_ADDRESS or `mvpctl
config` names."""


_NAMES = {"csr": "torch's sparse products", "dense": "dense torch"}


def serve_command(argv: Sequence[str]) -> int:
    """Serves an artifact over HTTP until SIGTERM or Ctrl-C."""
    args = _parser().parse_args(argv)
    if args.activations == "int8" and args.runtime != "sparse":
        raise LocalRefusal("--activations must be fp32 in the dense runtime, got int8; pass --runtime sparse")
    os.environ.setdefault(*SPIN)
    with refusals("serve"):
        import torch

        from mvprune.runtime import Fp32ActivationsWarning, NoKernelWarning, used
        from mvprune.serving.app import application
        from mvprune.serving.requests import Limits
        from mvprune.serving.server import ModelStopped, listen, reserve_descriptors, run
        from mvprune_core.prediction import Predictor

        limits = Limits(
            args.max_bytes,
            args.max_batch,
            args.max_characters,
            args.max_waiting,
            args.max_connections,
            args.read_timeout,
            args.max_new_tokens,
            args.max_generations,
            args.generation_timeout,
        )
        try:
            reserve_descriptors(limits)
        except ValueError as error:
            raise LocalRefusal(str(error)) from error
        if args.threads:
            torch.set_num_threads(args.threads)
        for said_below in (NoKernelWarning, Fp32ActivationsWarning):  # with all other reasons
            warnings.simplefilter("ignore", said_below)
        with fetched(args) as source:
            predictor = Predictor.open(
                source.folder,
                base=args.base,
                runtime=args.runtime,
                activations=args.activations,
                hypotheses=hypotheses_of(args),
            )
        predictor.predict([{field.name: "a" for field in predictor.fields if field.required}])  # the first one is slow
        opened = predictor.opened
        runs = used(opened.loaded.model, args.runtime, opened.activations)
        if runs.reason:
            print(
                f"warning: served by {_NAMES[runs.runtime]}, not by the sparse runtime: {runs.reason}", file=sys.stderr
            )
        if runs.activations_reason:
            print(f"warning: served with fp32 activations, not int8: {runs.activations_reason}", file=sys.stderr)
        elif (own := opened.manifest.activations) != "fp32":
            how = "" if runs.activations == own else f"not {own}, "
            print(f"note: activations are {runs.activations}, {how}as the artifact says", file=sys.stderr)
        description = _description(predictor, runs, torch.get_num_threads(), limits)
        host, port = args.listen
        try:
            listening = listen(host, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise LocalRefusal(
                f"--address must be an address with a free port, got {_shown(host, port)}: {reason}"
            ) from error
    with listening:
        host, port = listening.getsockname()[:2]
        if not ipaddress.ip_address(host).is_loopback:
            print(f"warning: whoever reaches {_shown(host, port)} is served: no TLS, no tokens", file=sys.stderr)
        url = f"http://{_shown(host, port)}"
        if args.form.is_data:
            print_data({"url": url, **description}, args.form.output, one_of_many=True)
        else:
            kept = f"keeps {percent(description['density'])}, {runs.runtime}"
            print(url if args.form.quiet else clean(f"serving {description['task']} ({kept}) on {url}"), flush=True)
        try:
            width = 0 if opened.task.kind.head else int(opened.loaded.config.hidden_size)
            made = application(predictor, description, limits, args.host_name, predictor.writer, width)
            run(made, listening, limits)
        except ModelStopped:
            return ExitCode.ERROR
    return ExitCode.OK


def _parser() -> argparse.ArgumentParser:
    example = (
        "mvpctl serve out/ --address 127.0.0.1:8080\n  mvpctl serve sst2-k3x9\n"
        "  mvpctl serve gpt2-out/ --max-new-tokens 200 --max-generations 2"
    )
    parser = artifact_parser("serve", example, _DETAILS, connects=False)  # its --address is its own
    parser.add_argument(
        "--address",
        dest="listen",
        type=_address,
        default=("127.0.0.1", 8080),
        metavar="HOST:PORT",
        help="where it serves; default: 127.0.0.1:8080",
    )
    parser.add_argument(
        "--host-name",
        action="append",
        default=[],
        metavar="NAME",
        help="a name that clients may call the server by, besides its addresses and localhost; may be repeated",
    )
    add_runtime(parser, "sparse")
    add_hypotheses(parser)
    parser.add_argument("--threads", type=positive_number, metavar="N", help="default: as many as torch takes")
    limits = parser.add_argument_group("limits")
    limits.add_argument(
        "--max-batch",
        type=positive_number,
        default=16,
        metavar="N",
        help="inputs of a request, and inputs that are computed together; default 16",
    )
    limits.add_argument(
        "--max-waiting",
        type=positive_number,
        default=64,
        metavar="N",
        help="inputs that wait for the model; beyond it requests get 503; default 64",
    )
    limits.add_argument("--max-bytes", type=memory, default=1 << 20, metavar="SIZE", help="of a request; default 1MiB")
    limits.add_argument(
        "--max-characters", type=positive_number, default=20_000, metavar="N", help="of a text; default 20000"
    )
    limits.add_argument(
        "--max-connections",
        type=positive_number,
        default=512,
        metavar="N",
        help="open at a time; beyond it those that send nothing are closed, the oldest first; default 512",
    )
    limits.add_argument(
        "--read-timeout",
        type=seconds,
        default=10.0,
        metavar="S",
        help="from a request's first byte to its last; default 10",
    )
    writing = parser.add_argument_group("limits of models that write text")
    writing.add_argument(
        "--max-new-tokens",
        type=positive_number,
        default=MAX_NEW_TOKENS,
        metavar="N",
        help=f"of a text; default {MAX_NEW_TOKENS}",
    )
    writing.add_argument(
        "--max-generations",
        type=positive_number,
        default=4,
        metavar="N",
        help="texts that are written at a time, a token of each in turns; others wait, see --max-waiting; default 4",
    )
    writing.add_argument(
        "--generation-timeout",
        type=seconds,
        default=MAX_SECONDS,
        metavar="S",
        help=f"from a text's first token to its last, then it ends as it is; default {MAX_SECONDS:g}",
    )
    return parser


def _address(text: str) -> tuple[str, int]:
    """127.0.0.1:8080 or [::1]:8080 -> host and port."""
    host, separator, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    try:
        ipaddress.ip_address("127.0.0.1" if host == "localhost" else host)
        number = int(port)
    except ValueError:
        number = -1
    if not separator or not 0 <= number < 1 << 16:
        raise argparse.ArgumentTypeError(f"must be IP:PORT, such as 127.0.0.1:8080 or [::1]:8080, got {text!r}")
    return "127.0.0.1" if host == "localhost" else host, number


def _shown(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _without_path(name: str) -> str:
    """A model's name for anybody: paths, and which upload it was, are nobody's business."""
    return name.rpartition("/")[2] if name.startswith(("/", "~", ".", SERVER, UPLOAD)) else name


def _description(predictor: Predictor, runs: Used, threads: int, limits: Limits) -> dict[str, Any]:
    """The answer of GET /."""
    opened = predictor.opened
    manifest, name = opened.manifest, opened.manifest.model.name
    return {
        "model": _without_path(name),
        "artifact": manifest.digest,
        "task": opened.task.name,
        "kind": opened.task.kind.name,
        "density": manifest.accounting.density,
        "metrics": dict(manifest.metrics),
        "runtime": runs.runtime,
        "runtime_reason": runs.reason,
        "activations": runs.activations,
        "activations_reason": runs.activations_reason,
        "threads": threads,
        "input": {field.name: "required" if field.required else "optional" for field in predictor.fields},
        "max_tokens": opened.max_length,
        **({"chat": not predictor.writer.why_no_chat} if predictor.writer else {}),
        "limits": vars(limits),
    }
