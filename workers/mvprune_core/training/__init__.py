"""One training loop for dense and for masked models, and what it learns from."""
