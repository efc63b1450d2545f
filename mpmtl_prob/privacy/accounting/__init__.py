"""What several draws give away together, and the least noise that keeps a promise."""
