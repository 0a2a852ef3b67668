"""The results as a static site, made from records alone: `write_site`."""

from plench.report.site.build import SiteInput, SiteOutput, list_sweep_files, write_site
from plench.report.site.pages import measure_candidates

__all__ = ["SiteInput", "SiteOutput", "list_sweep_files", "measure_candidates", "write_site"]
