"""The paper's experiments, and the search for good hyperparameters on a log of one's own."""
