"""Where the important spans of a prompt stand on the grid of a compressed cache, and what to do."""
