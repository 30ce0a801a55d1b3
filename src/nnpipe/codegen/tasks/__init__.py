"""The task classes of scripts."""
