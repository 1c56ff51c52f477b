"""What runs at a person's terminal."""
