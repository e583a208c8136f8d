"""The quality of predictions: exact for a whole stream, online in histograms."""
