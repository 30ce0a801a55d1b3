"""Models as machine code for Arm Cortex-M: the cores, and files that their firmware loads."""
