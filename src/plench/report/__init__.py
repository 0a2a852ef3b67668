"""Reports made from records alone: tables, statistics, figures. Nothing here imports torch."""
