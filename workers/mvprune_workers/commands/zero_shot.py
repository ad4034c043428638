"""The options of commands that ask a model of natural language inference about labels."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from mvprune.cli.shared.errors import LocalRefusal

if TYPE_CHECKING:
    from mvprune_core.tasks.zero_shot import Hypotheses


def hypotheses_of(args: argparse.Namespace) -> Hypotheses | None:
    """What is asked; None: nothing, so the model answers with its own classes.

    Raises:
        LocalRefusal: an option is missing or wrong.
    """
    if args.candidate_labels is None:
        if args.hypothesis_template is not None:
            raise LocalRefusal("--hypothesis-template must be unset without --candidate-labels; give these")
        return None
    from mvprune_core.tasks.zero_shot import TEMPLATE, Hypotheses  # late: it imports torch

    try:
        return Hypotheses(args.candidate_labels, args.hypothesis_template or TEMPLATE)
    except ValueError as error:
        raise LocalRefusal(str(error)) from error
