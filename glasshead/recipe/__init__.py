"""The recipe: the settings that define an attention, and the problem they apply to."""
