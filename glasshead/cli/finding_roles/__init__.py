"""What `glasshead roles` does: the roles of a model's heads, told, drawn and written."""
