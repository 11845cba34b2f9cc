"""A run as one file to take along: opens anywhere, with the network off."""

from drlnb.report.build import Report, build

__all__ = ["Report", "build"]
