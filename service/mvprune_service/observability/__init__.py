"""Metrics, logs, health."""
