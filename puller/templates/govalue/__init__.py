"""Values of Go in Python, and how Go prints, quotes, encodes and compares them."""
