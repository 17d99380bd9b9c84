"""Routes: what the page asks for, one file a view."""
