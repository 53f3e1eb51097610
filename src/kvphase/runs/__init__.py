"""From flows to stored answers: the only floor that waits for models."""
