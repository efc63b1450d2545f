"""A study's schema: one public file from which every site builds the same columns, and all that is promised."""

from mpmtl_prob.schema.rows import StudyRows, read_rows
from mpmtl_prob.schema.schema import Schema

__all__ = ["Schema", "StudyRows", "read_rows"]
