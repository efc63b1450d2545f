"""The curator's seat: all rows, and the papers' rounds as a sampler."""
