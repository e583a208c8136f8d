"""State, hyperparameters and the rounds of online learning."""
