"""Data: text files, tables and generated texts, and batches of examples."""
