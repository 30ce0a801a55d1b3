"""The agent that runs beside a job's script; it needs only the standard library, and is sent as
one file.
"""
