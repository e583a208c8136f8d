"""Predicts with an exported model, without any package: `python serving_reader.py FILE '{"ad": "a17"}'`."""

import array
import itertools
import json
import math
import pathlib
import re
import sys

MASK = 0xFFFFFFFF


def load(path):
    with pathlib.Path(path).open("rb") as file:
        model = json.loads(file.readline())
        slots, weights = array.array("I"), array.array("d")  # little-endian, as on nearly every machine
        slots.fromfile(file, model["count"])
        weights.fromfile(file, model["count"])
    return model | {"weights": dict(zip(slots, weights, strict=True))}


def murmur3(text, seed):
    data, h = text.encode(), seed
    for i in range(0, len(data), 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0xCC9E2D51 & MASK
        h ^= (k << 15 | k >> 17) * 0x1B873593 & MASK
        if len(data) - i >= 4:
            h = (h << 13 | h >> 19) * 5 + 0xE6546B64 & MASK
    h ^= len(data)
    h = (h ^ h >> 16) * 0x85EBCA6B & MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & MASK
    return h ^ h >> 16


def terms(model, name, value):
    """(texts of the categories, or of a cross; value of the feature itself, or None)"""
    if isinstance(value, (str, list, bool)):
        text = str(value).lower() if isinstance(value, bool) else value
        return ([text] if isinstance(text, str) else text), None
    if value is None:
        return [""] * (model["missing"] == "indicator"), None
    transform = model["transforms"].get(name, model["numeric"])
    whole = isinstance(value, int) or (value.is_integer() and abs(value) < 2**53)
    text = str(int(value)) if whole else repr(value)
    if model["types"].get(name) == "category":
        return [text], None
    if transform == "bucket":
        return [
            f"{'+' if value > 0 else '-'}{(int(abs(value)) + 1).bit_length() - 1}" if value else "0"
        ], None
    if transform == "log":  # the service has a log1p of its own: the last digit may differ
        return [text], math.copysign(math.log1p(abs(value)), value)
    return [text], float(value * (1 if transform == "raw" else transform["scale"]))


def margin(model, features):
    values: dict[int, float] = {}
    texts, mask = {}, (1 << model["bits"]) - 1

    def add(text, value=1.0):
        slot = murmur3(text, model["seed"]) & mask
        values[slot] = values.get(slot, 0.0) + value

    for name, value in features.items():
        found, number = terms(model, name, value)
        texts[name] = [re.sub(r"([\\\x1f])", r"\\\1", text) for text in found]
        for text in found if number is None else ():
            add(f"{name}={text}")
        if number:
            add(name, number)
    for names in model["crosses"]:
        for combination in itertools.product(*(texts.get(name, ()) for name in names)):
            add("^".join(names) + "=" + "\x1f".join(combination))
    total = model["offset"] + model["bias"]
    for slot, value in values.items():
        total += value * model["weights"].get(slot, 0.0)
    return total


def exp(x):
    """FreeBSD's, for x <= 0, as in the service: the same bits on every machine."""
    if x < float.fromhex("-0x1.74910d52d3051p+9"):
        return 0.0
    k = int(x * 1.4426950408889634 - 0.5)
    high, low = x - k * float.fromhex("0x1.62e42feep-1"), k * float.fromhex("0x1.a39ef35793c76p-33")
    r = high - low
    t = r * r
    c = -1.65339022054652515390e-06 + t * 4.13813679705723846039e-08
    c = -2.77777777770155933842e-03 + t * (6.61375632143793436117e-05 + t * c)
    c = r - t * (1.66666666666666019037e-01 + t * c)
    return math.ldexp(1.0 - ((low - r * c / (2.0 - c)) - high), k)


def predict(model, features):
    m = margin(model, features)
    e = exp(-abs(m))
    return (1.0 if m >= 0 else e) / (1.0 + e)


if __name__ == "__main__":
    print(predict(load(sys.argv[1]), json.loads(sys.argv[2])))
