"""What the documentation site adds to Sphinx."""
