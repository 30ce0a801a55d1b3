"""What is carried out on a board by its own Python, sent as text; it needs the standard library
only.
"""
