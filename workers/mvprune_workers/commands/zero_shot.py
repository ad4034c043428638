"""The options of commands that ask a model of natural language inference about labels."""

from __future__ import annotations

import argparse

from mvprune.cli.shared.errors import LocalRefusal
from mvprune.data.hypotheses import TEMPLATE, Hypotheses


def hypotheses_of(args: argparse.Namespace) -> Hypotheses | None:
    """What is asked; None: nothing, so the model answers with its own classes.

    Raises:
        LocalRefusal: an option is missing or wrong.
    """
    if args.candidate_labels is None:
        if args.hypothesis_template is not None:
            raise LocalRefusal("--hypothesis-template must be unset without --candidate-labels; give these")
        return None
    try:
        return Hypotheses(args.candidate_labels, args.hypothesis_template or TEMPLATE)
    except ValueError as error:
        raise LocalRefusal(str(error)) from error
