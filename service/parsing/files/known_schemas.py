"""Schemas of public click logs, in the files that their publishers offer."""

from __future__ import annotations

from typing import Any

KNOWN_SCHEMAS: dict[str, dict[str, Any]] = {
    # Display advertising challenge (Kaggle) and the 1 TB click logs.
    "criteo": {
        "format": "tsv",
        "columns": ["label", "I1-I13", "C1-C26"],
        "types": {"I1-I13": "number"},
    },
    "avazu": {
        "format": "csv",
        "label": "click",
        "event_id": "id",
        "time": {"column": "hour", "format": "%y%m%d%H", "parts": ["hour", "weekday"]},
        "types": dict.fromkeys(
            ("C1", "C14-C21", "banner_pos", "device_type", "device_conn_type"), "category"
        ),
    },
    # AdTracking fraud detection. `attributed_time` is that of the click's outcome.
    "talkingdata": {
        "format": "csv",
        "label": "is_attributed",
        "time": {"column": "click_time", "format": "%Y-%m-%d %H:%M:%S", "parts": ["hour", "weekday"]},
        "drop": ["attributed_time"],
        "types": dict.fromkeys(("ip", "app", "device", "os", "channel"), "category"),
        "optional": ["attributed_time"],
    },
    # Real-time bidding, seasons 2 and 3, as impressions with their clicks (`train.log.txt`).
    "ipinyou": {
        "format": "tsv",
        "label": "click",
        "event_id": "bidid",
        "time": {"column": "timestamp", "format": "%Y%m%d%H%M%S%f", "zone": "Asia/Shanghai"},
        "null": ["null"],
        "drop": ["logtype", "bidprice", "payprice"],
        "types": {
            "slotprice": "number",
            **dict.fromkeys(
                (
                    *("weekday", "hour", "region", "city", "adexchange", "slotwidth", "slotheight"),
                    *("slotvisibility", "slotformat", "advertiser", "usertag"),
                ),
                "category",
            ),
        },
        "lists": {"usertag": ","},
    },
    # ZOZO's bandit feedback: bts and random, all, men and women. `propensity_score` is of the policy.
    "open-bandit": {
        "format": "csv",
        "label": "click",
        "time": {"column": "timestamp", "zone": "Asia/Tokyo", "parts": ["hour", "weekday"]},
        "drop": ["propensity_score"],
        "types": {
            "item_id": "category",
            "position": "category",
            "user-item_affinity_0-user-item_affinity_79": "number",
        },
        "optional": ["user-item_affinity_0-user-item_affinity_79"],
    },
}
