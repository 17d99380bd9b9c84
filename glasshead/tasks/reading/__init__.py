"""Reading: the user's files, as texts, lines or rows of examples."""

from glasshead.tasks.reading.rows import read_rows
from glasshead.tasks.reading.texts import read_lines, read_texts
