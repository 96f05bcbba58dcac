"""A release through the fleet: waves, soak, verdicts, and what a crash must not lose."""
