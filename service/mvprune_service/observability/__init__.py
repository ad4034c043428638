"""Seeing inside: metrics, logs, health."""
