"""The example log: append, ids, results, decoding, lag, inspection."""
