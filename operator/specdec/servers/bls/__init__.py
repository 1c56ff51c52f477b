"""tritonserver with engines, and with the BLS that drafts and verifies."""
