"""Long attacks on plench, which run for as long as they are given: `python -m campaigns.soak`."""
