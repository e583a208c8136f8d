"""Files of examples, in every format."""
