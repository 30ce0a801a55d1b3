"""Jobs: trainings in processes of their own, here or elsewhere, that can be watched, stopped and gone on with."""
