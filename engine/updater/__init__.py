"""One converge, phase by phase, and many of them at once."""
