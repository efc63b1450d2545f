"""An owner's seat: its own rows and every release."""
