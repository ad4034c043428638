"""Lottery tickets: a study of masks that are found by magnitude pruning in rounds, with controls and transfer.

    python -m mvprune_core.tickets study.toml results/

See docs/lottery-tickets.md.
"""
