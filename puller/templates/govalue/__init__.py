"""How values of Go look in Python, and how Go prints, quotes, encodes and compares them."""
