"""The gold tables as one HTML file, for people."""

from toril.spark.report.model import ReportData, collect
from toril.spark.report.page import render, write_report

__all__ = ["ReportData", "collect", "render", "write_report"]
