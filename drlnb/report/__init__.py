"""A run as one file to take along: opens anywhere, with the network off."""

from drlnb.report.build import Report, build
from drlnb.report.verify import Verdict, verify

__all__ = ["Report", "Verdict", "build", "verify"]
