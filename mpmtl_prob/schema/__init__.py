"""Schema of a study: one public file that fixes the columns of the model at every site, and the privacy budget."""

from mpmtl_prob.schema.rows import StudyRows, read_rows
from mpmtl_prob.schema.schema import Schema

__all__ = ["Schema", "StudyRows", "read_rows"]
