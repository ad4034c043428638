"""mvpctl serve"""

from __future__ import annotations

import argparse
import ipaddress
import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from mvprune.cli.shared.artifacts import add_hypotheses, add_runtime, artifact_parser, fetched
from mvprune.cli.shared.errors import LocalRefusal
from mvprune.cli.shared.exit import ExitCode
from mvprune.cli.shared.local import refusals
from mvprune.cli.shared.output import print_data
from mvprune.cli.shared.text import clean
from mvprune.cli.shared.types import memory, one_of, positive_number, seconds
from mvprune.common.threads import SPIN, cores
from mvprune.common.units import percent
from mvprune.infer import Unsupported
from mvprune.serving.engine import Engine, native_engine
from mvprune.serving.workers import WorkersEnded, run_workers, shared_metrics
from mvprune.serving.writing import MAX_NEW_TOKENS, MAX_SECONDS
from mvprune_workers.commands.zero_shot import hypotheses_of

_DETAILS = """POST /predict answers, GET /health says whether it can, GET / what it is: docs/serve.md has the requests.
Models that write text also have POST /generate, and OpenAI's endpoints below /v1. Texts are read as in training.
SIGTERM answers what has come in, then ends. Whoever reaches the address is served: beyond this machine, put a proxy
with TLS and authentication before it. The server that is asked for a job is the one that MVPRUNE_ADDRESS or `mvpctl
config` names."""


def serve_command(argv: Sequence[str]) -> int:
    """Serves an artifact over HTTP until SIGTERM or Ctrl-C."""
    args = _parser().parse_args(argv)
    if args.activations == "int8" and args.runtime != "sparse":
        raise LocalRefusal("--activations must be fp32 in the dense runtime, got int8; pass --runtime sparse")
    os.environ.setdefault(*SPIN)
    with shared_metrics() if args.workers > 1 else nullcontext():
        return _serve(args)


def _serve(args: argparse.Namespace) -> int:
    with refusals("serve"):
        from mvprune.serving.app import application
        from mvprune.serving.requests import Limits
        from mvprune.serving.server import ModelStopped, listen, reserve_descriptors, run

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
        with fetched(args) as source:
            engine = _engine(args, source.folder)
        for note in engine.warnings:
            print(note, file=sys.stderr)
        fields = engine.predictor.fields
        facts = replace(
            engine.facts,
            workers=args.workers,
            input={field.name: "required" if field.required else "optional" for field in fields},
            limits=vars(limits),
        )
        host, port = args.listen
        try:
            listening = listen(host, port)
        except OSError as error:
            reason = os.strerror(error.errno) if error.errno else error
            raise LocalRefusal(
                f"--address must be an address with a free port, got {_shown(host, port)}: {reason}"
            ) from error

    def serve() -> None:
        made = application(engine.predictor, facts.content, limits, args.host_name, engine.writer, engine.width)
        run(made, listening, limits)

    with listening:
        host, port = listening.getsockname()[:2]
        if not ipaddress.ip_address(host).is_loopback:
            print(f"warning: whoever reaches {_shown(host, port)} is served: no TLS, no tokens", file=sys.stderr)
        url = f"http://{_shown(host, port)}"
        if args.form.is_data:
            print_data({"url": url, **facts.content}, args.form.output, one_of_many=True)
        else:
            kept = f"keeps {percent(facts.density)}, {facts.runtime}"
            text = f"serving {facts.task} ({kept}) on {url}"
            print(url if args.form.quiet else clean(text), flush=True)
        try:
            if args.workers > 1:
                run_workers(serve, args.workers)
            else:
                serve()
        except (ModelStopped, WorkersEnded):
            return ExitCode.ERROR
    return ExitCode.OK


def _engine(args: argparse.Namespace, folder: Path) -> Engine:
    """What answers with an artifact: the library without torch, where it can and torch is not asked for.

    Raises:
        LocalRefusal: nothing that is installed does, or not the engine that is asked for.
    """
    given = hypotheses_of(args)
    reason = "it has a base model" if args.base else "--runtime dense" if args.runtime == "dense" else ""
    reason = reason or ("--engine torch" if args.engine == "torch" else "")
    is_tried = not reason
    if is_tried:
        threads = args.threads or max(1, cores() // args.workers)
        try:
            engine = native_engine(folder, threads=threads, activations=args.activations, hypotheses=given)
        except Unsupported as error:
            reason = error.reason
        else:
            engine.answer_once()
            return engine
    if args.engine == "native":
        raise LocalRefusal(f"--engine must be torch here, got native: {reason}")
    if args.workers > 1:
        raise LocalRefusal(
            f"--workers must be 1 for a model that torch computes, got {args.workers}: {reason}; start several servers"
        )
    if is_tried:
        print(f"note: torch answers, not the native engine: {clean(reason)}", file=sys.stderr)
    with refusals("runtime"):
        from mvprune_workers.commands.torch_engine import torch_engine

        engine = torch_engine(
            folder,
            base=args.base,
            runtime=args.runtime,
            threads=args.threads,
            activations=args.activations,
            hypotheses=given,
            reason=reason,
        )
    engine.answer_once()
    return engine


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
    parser.add_argument(
        "--engine",
        type=one_of("native", "torch"),
        metavar="E",
        help="native: the library without torch; torch: all models, and beams; default: native where it can",
    )
    add_hypotheses(parser)
    parser.add_argument(
        "--threads", type=positive_number, metavar="N", help="of a call; default: the cores, shared by the workers"
    )
    parser.add_argument(
        "--workers",
        type=positive_number,
        default=1,
        metavar="N",
        help="processes that answer; they share the memory of the weights; default 1",
    )
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
