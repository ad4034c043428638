"""How the threads of math libraries wait for one another."""

from __future__ import annotations

# The variable, and the turns for which a thread of OpenMP spins before it sleeps. On a core that is another process's
# too, a thread that spins holds up the one that it waits for; by default for 300,000. Read when torch is imported.
SPIN = ("GOMP_SPINCOUNT", "3000")
