"""Allowed names of projects, jobs, tokens and keys of labels: here and on the server."""

from __future__ import annotations

import re

ID = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
ID_PATTERN = re.compile(ID)
ID_RULE = "1 to 63 characters: a-z, 0-9 and '-', not at either end"

LABEL_KEY = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,62}")
LABEL_KEY_RULE = "1 to 63 letters, digits and . _ / -, with a letter or digit at the beginning"
