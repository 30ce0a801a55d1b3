"""Keras: configurations and files read and written without Keras, and models built with it."""
