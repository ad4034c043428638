"""report.html: what a run gave and how it went, on one page that needs nothing else."""

from __future__ import annotations

from mvprune.artifact.report.page import REPORT_FILE, report_page

__all__ = ["REPORT_FILE", "report_page"]
