"""Predict with a model exported for serving, without dependencies: `python serving_reader.py FILE FEATURES`.

Supports texts, booleans, lists, nulls, numbers as buckets (the default), and crosses. Anything else that
the model's hash contract requires is listed in the file's `needs`, and the file is refused. The margin
equals that of the service bit for bit; the last digit of the probability may differ, because the service
has its own `exp`.
"""

import json
import math
import struct
import sys
from collections import Counter
from itertools import product

MASK = 0xFFFFFFFF


def load(path):
    with open(path, "rb") as file:  # noqa: PTH123
        model = json.loads(file.readline())
        if model["format"] != "ftrl-serving" or model["version"] != 2 or model["needs"]:
            raise ValueError(f"{path}: this reader knows no {model['needs'] or 'such format'}")
        return model | {"weights": dict(struct.iter_unpack("<Id", file.read()))}


def murmur3(data, h):
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & MASK
        h ^= (k << 15 | k >> 17) * 0x1B873593 & MASK
        if len(data) - i >= 4:
            h = (h << 13 | h >> 19) * 5 + 0xE6546B64 & MASK
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def bucket(number):
    return f"{'-+'[number > 0]}{(int(abs(number)) + 1).bit_length() - 1}" if number else "0"


def text_of(one):
    return one if isinstance(one, str) else json.dumps(one) if isinstance(one, bool) else bucket(one)


def categories(model, features):
    texts, missing = {}, [""] * (model["missing"] == "indicator")
    for name, value in features.items():
        values = value if isinstance(value, list) else missing if value is None else [value]
        texts[name] = [text_of(one) for one in values]
        yield from (f"{name}={text}" for text in texts[name])
    for names in model["crosses"]:
        for found in product(*(texts.get(name, []) for name in names)):
            escaped = (text.replace("\\", "\\\\").replace("\x1f", "\\\x1f") for text in found)
            yield "^".join(names) + "=" + "\x1f".join(escaped)


def margin(model, features):
    hashes = (murmur3(text.encode(), model["seed"]) for text in categories(model, features))
    total = model["offset"] + model["bias"]
    # In this order and not by sum(), which rounds otherwise.
    for slot, count in Counter(one % 2 ** model["bits"] for one in hashes).items():
        total += count * model["weights"].get(slot, 0.0)
    return total


def predict(model, features):
    m = margin(model, features)
    e = math.exp(-abs(m))
    return (1.0 if m >= 0 else e) / (1.0 + e)


if __name__ == "__main__":
    print(predict(load(sys.argv[1]), json.loads(sys.argv[2])))
