"""Generation of text: answers to prompts, and the time of each token."""
