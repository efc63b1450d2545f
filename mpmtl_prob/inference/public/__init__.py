"""The public's seat: what anybody can say who has the releases alone."""
