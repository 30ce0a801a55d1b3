"""Workers of searches and sweeps: jobs on this machine, on others and on clusters, which are
watched and replaced.
"""
