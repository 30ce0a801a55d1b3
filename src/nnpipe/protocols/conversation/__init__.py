"""The conversation between a host and a target: frames, messages, rules and payloads, without
I/O.
"""
