"""mvpctl completion"""

from __future__ import annotations

from collections.abc import Sequence

from mvprune.cli.shared.options import plain_parser
from mvprune.cli.shared.types import one_of

_DETAILS = """Completes commands, options, methods, tasks, models and jobs. Models and jobs are requested from the
server, silently and for at most two seconds."""
_EXAMPLE = """mvpctl completion bash > /etc/bash_completion.d/mvpctl
  source <(mvpctl completion bash)    # in ~/.bashrc
  source <(mvpctl completion zsh)     # in ~/.zshrc, after compinit
  mvpctl completion fish > ~/.config/fish/completions/mvpctl.fish"""


def completion_command(argv: Sequence[str]) -> None:
    """Prints a script for a shell."""
    parser = plain_parser("completion", _EXAMPLE, _DETAILS, form=False)
    parser.add_argument("shell", metavar="SHELL", type=one_of("bash", "zsh", "fish"), help="bash, zsh or fish")
    args = parser.parse_args(argv)

    from argcomplete.shell_integration import shellcode

    print(shellcode(["mvpctl"], use_defaults=False, shell=args.shell))
