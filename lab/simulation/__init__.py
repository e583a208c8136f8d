"""A click simulator whose true probabilities are known: it measures what a real log cannot show."""
