"""Channels: what carries the bytes of a conversation."""
