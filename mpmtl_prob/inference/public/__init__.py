"""The public's seat: what anybody can say who has the releases alone."""

#: Modules.
__all__ = ["across", "first", "information", "odds", "omega", "shapes", "shared", "starts", "structures", "trees"]
