"""A click simulator whose true probabilities are known: it measures what no real log can."""
