"""Predict with a model exported for serving, without dependencies: `python serving_reader.py FILE FEATURES`.

Supports all kinds of values, numbers as buckets (the default), and crosses. Anything else that the model's
hash contract requires is listed in the file's `needs`, and the file is refused. The margin equals that of
the service bit for bit; the last digit of the probability, and of the margin of a mixture (version 3 of the
format), may differ, because the service has its own `exp`.
"""

import json
import math
import struct
import sys
from itertools import product

MASK = 0xFFFFFFFF


def load(path):
    with open(path, "rb") as file:  # noqa: PTH123
        model = json.loads(file.readline())
        if model["format"] != "ftrl-serving" or model["version"] not in (2, 3) or model["needs"]:
            raise ValueError(f"{path}: this reader knows no {model['needs'] or 'such format'}")
        if model["version"] == 2:
            model |= {"bias": [model["bias"]], "log_weights": [0.0]}
        records = struct.iter_unpack(f"<I{len(model['bias'])}d", file.read())
        return model | {"weights": {slot: weights for slot, *weights in records}}


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
    return f"{'-+'[number > 0]}{(int(abs(float(number))) + 1).bit_length() - 1}" if number else "0"


def text_of(one):
    return one if isinstance(one, str) else json.dumps(one) if isinstance(one, bool) else bucket(one)


def hashed(model, features):
    """Yield each text that is hashed, with its value."""
    texts: dict[str, list[str]] = {}
    missing = [""] * (model["missing"] == "indicator")
    for name, value in features.items() if isinstance(features, dict) else features:
        for one in value if isinstance(value, list) else missing if value is None else [value]:
            times = one["times"] if isinstance(one, dict) else 1.0
            one = one.get("value") if isinstance(one, dict) else one  # noqa: PLW2901
            texts.setdefault(name, []).append("1" if one is None else text_of(one))
            yield name if one is None else f"{name}={texts[name][-1]}", times
    for names in model["crosses"]:
        for found in product(*(texts.get(name, []) for name in names)):
            escaped = (text.replace("\\", "\\\\").replace("\x1f", "\\\x1f") for text in found)
            yield "^".join(names) + "=" + "\x1f".join(escaped), 1.0


def log_sum(logs):
    largest = max(logs)
    return largest + math.log(sum(math.exp(one - largest) for one in logs))


def log_sigmoid(m):
    return min(m, 0.0) - math.log1p(math.exp(-abs(m)))


def margin(model, features):
    """Return the margin of the one model, or of the mixture of several experts."""
    margins = margins_of_experts(model, features)
    if len(margins) == 1:
        return margins[0]
    experts = list(zip(model["log_weights"], margins, strict=True))
    return log_sum([w + log_sigmoid(m) for w, m in experts]) - log_sum(
        [w + log_sigmoid(-m) for w, m in experts]
    )


def margins_of_experts(model, features):
    values: dict[int, float] = {}
    totals = [model["offset"] + bias for bias in model["bias"]]
    for text, value in hashed(model, features):
        slot = murmur3(text.encode(), model["seed"]) % 2 ** model["bits"]
        if value != 0.0:
            values[slot] = values.get(slot, 0.0) + value
    # In this order and not by sum(), which rounds otherwise.
    for slot, value in values.items():
        for expert, weight in enumerate(model["weights"].get(slot, ())):
            totals[expert] += value * weight
    return totals


def predict(model, features):
    m = margin(model, features)
    e = math.exp(-abs(m))
    return (1.0 if m >= 0 else e) / (1.0 + e)


if __name__ == "__main__":
    print(predict(load(sys.argv[1]), json.loads(sys.argv[2])))
