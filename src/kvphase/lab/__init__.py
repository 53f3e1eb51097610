"""The laboratory: small compressed transformers, their data and their training.

Everything below this package may import torch; importing the package itself does not.
"""
