"""What projects, jobs and tokens may be called: here and on the server."""

from __future__ import annotations

import re

ID = r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?"
ID_PATTERN = re.compile(ID)
ID_RULE = "1 to 63 characters: a-z, 0-9 and '-', not at either end"
