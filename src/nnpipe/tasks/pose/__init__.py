"""Pose: the key points of persons or things in a picture."""
