"""Scripts that measure, and write the pages of what they measured."""
