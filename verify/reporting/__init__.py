"""Reports: the table of a run (``table``), and a page of one problem with all that is known of it (``page``)."""

from verify.reporting.table import Report

__all__ = ["Report"]
