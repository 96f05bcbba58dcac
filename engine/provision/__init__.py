"""From a clean image to a provisioned tenant at the head."""
