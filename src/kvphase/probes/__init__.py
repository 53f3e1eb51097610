"""Which questions are asked, and where their targets stand: flows without I/O."""
