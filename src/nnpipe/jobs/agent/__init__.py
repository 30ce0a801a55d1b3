"""What runs beside a job's script, wherever that is: the standard library alone, so that it can be sent as one file."""
