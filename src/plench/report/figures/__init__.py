"""Figures, each a function that draws on a matplotlib Figure (extra `report`). No pyplot, no global state."""
