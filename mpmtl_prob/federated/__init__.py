"""The release without a curator: owners keep their vectors, and a secure sum gives the second moment."""
