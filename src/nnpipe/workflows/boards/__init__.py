"""Servers on boards: installed over SSH, looked after, and removed."""
