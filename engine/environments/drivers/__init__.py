"""One driver for each kind of resource; each knows its provider and nothing of the journal."""
