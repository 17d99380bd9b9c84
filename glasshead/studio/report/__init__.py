"""Report: the studio's views in one file that opens offline."""

from glasshead.studio.report.report import Report

__all__ = ["Report"]
