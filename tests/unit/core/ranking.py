"""The methods that rank weights."""

from mvprune_core.methods import METHODS

RANKING = tuple(name for name, method in METHODS.items() if method.ranks_weights)
