"""The recipe: the few choices that make an attention, and the problem they are made for."""
