"""What runs inside our own Jobs, from the operator's image."""
