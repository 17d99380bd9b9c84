"""Studio: a local page on which attention can be seen."""
