"""Noise laws: drawn exactly, their densities, and what one draw gives away."""
