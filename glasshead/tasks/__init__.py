"""Tasks: what a model is trained for, from the files of a user to a run folder."""
