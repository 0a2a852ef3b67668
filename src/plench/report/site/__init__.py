"""The results as a static site, made from records alone: `write_site`."""

from plench.report.site.build import SiteInput, SiteOutput, write_site

__all__ = ["SiteInput", "SiteOutput", "write_site"]
