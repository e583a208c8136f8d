"""The paper's experiments, and the search for good hyperparameters on the user's own log."""
