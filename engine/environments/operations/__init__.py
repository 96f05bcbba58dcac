"""Effects on environments as pyinfra operations, in the engine and in pyinfra's own command line."""
