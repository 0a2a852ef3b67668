"""The results as a static site, made from records alone: `write_site`."""

from plench.report.site.build import SiteInput, SiteOutput, write_site
from plench.report.site.datasets import measure_candidates
from plench.report.site.made import read_sweep_texts

__all__ = ["SiteInput", "SiteOutput", "measure_candidates", "read_sweep_texts", "write_site"]
