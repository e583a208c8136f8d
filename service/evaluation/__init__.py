"""How good the predictions of a running model are: kept by its learner, stored with its commits."""
