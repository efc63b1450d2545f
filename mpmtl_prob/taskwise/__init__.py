"""Each task alone: closed forms, normal approximations, and the messages that owners make of them."""
