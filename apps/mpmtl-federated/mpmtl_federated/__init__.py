"""One private release over sites that keep their rows, as a Flower app."""
