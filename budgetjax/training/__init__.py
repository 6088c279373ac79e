"""Training: a recipe, and the model that it makes of rows or of a file."""
