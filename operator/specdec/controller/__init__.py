"""It takes events, reconciles one resource at a time and writes its status."""
