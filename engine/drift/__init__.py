"""What a tenant should look like at its version, and where it does not: computed from the fleet, asked in one probe."""
