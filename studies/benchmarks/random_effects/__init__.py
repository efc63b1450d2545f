"""A panel for mixed models with privacy: simulated cells, real tables, and the arms that are compared on them.

``python studies/benchmarks/panel.py`` runs it.
"""
