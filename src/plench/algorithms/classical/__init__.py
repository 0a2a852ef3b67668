"""Classical methods, fitted in a few rounds instead of trained in many steps. One family, one file."""
