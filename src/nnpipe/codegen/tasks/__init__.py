"""What a script can do: one class a task."""
