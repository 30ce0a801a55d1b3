"""Jobs: trainings in separate processes, here or on other machines, that can be monitored,
cancelled and resumed.
"""
