"""The JSON kernel: bodies of /predict and /update, compiled from bytes to batches of hashed examples.

It is a second reader beside pydantic and FeatureEncoder, and costs a package of its own, because reading and
hashing a body is most of the work of a prediction: `python -m bench` measures requests with it, and the tests
compare each of its results with the other reader's, bit for bit.

Its bounds: it never reports an error and never refuses a body. What it does not read, right or wrong, it
leaves to the other reader, so that there is one definition of what is valid. `requests.py` is the entry, with
RequestParser; `fields.py` declares the fields. `shape.py` alone refuses bodies, those that would become so
many objects that no reader should begin. No other module is imported from outside this package.
"""
