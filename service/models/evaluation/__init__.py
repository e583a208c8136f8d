"""The evaluation of a model as it is stored and reported."""
