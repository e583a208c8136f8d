"""The learner of each model, from its log to its commits."""
