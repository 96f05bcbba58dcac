"""Archives of tenants: making them, keeping them, reading them."""
