"""The results as a static site, made from records alone: `write_site`."""

from plench.report.site.build import SiteInput, SiteOutput, write_site
from plench.report.site.pages import measure_candidates
from plench.report.site.provenance import list_sweep_files

__all__ = ["SiteInput", "SiteOutput", "list_sweep_files", "measure_candidates", "write_site"]
