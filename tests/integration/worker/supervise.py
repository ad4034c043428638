"""A supervisor with other trainers and limits: `supervise.py TRAINER LIMITS`, these as JSON."""

import json
import os
import sys

from mvprune_workers.limits import Limits
from mvprune_workers.supervisor import main

code = main([sys.executable, sys.argv[1]], Limits(**json.loads(sys.argv[2])))
assert not {"torch", "transformers"} & set(sys.modules)
os._exit(code)
