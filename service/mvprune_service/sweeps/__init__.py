"""The points of sweeps, as their specs have them."""
