"""Parts that two or more algorithms share: targets and losses, contrast, views."""
