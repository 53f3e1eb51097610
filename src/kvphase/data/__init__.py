"""Word lists, published figures, toy models."""
