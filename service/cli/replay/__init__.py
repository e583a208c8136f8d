"""`ftrl replay`: a file of examples, learned offline or over HTTP."""
