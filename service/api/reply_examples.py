"""Examples of replies for the OpenAPI document, by the id of the operation. Tests compare them with its
schemas.
"""

from __future__ import annotations

from typing import Any

_REVISION = "2580b8a9-0-41-3cbdf00d"
_NEXT_REVISION = "2580b8a9-0-42-ff3eaf81"

_LEARNED = {
    "status": "learned",
    "probability": 0.0312,
    "loss": 3.467337,
    "revision": _NEXT_REVISION,
    "event_id": "impression-1",
}
_MODEL = {
    "name": "default",
    "hyper": {
        "family": "ftrl",
        "update": "first_order",
        "rate": {"kind": "adaptive", "alpha": 0.1, "beta": 1.0},
        "schedule": {"kind": "once"},
        "l1": 0.5,
        "l2": 0.0,
        "psi_l2": 0.0,
        "box": None,
    },
    "hashing": {"seed": 0, "bits": 22, "types": {}, "numeric": "bucket", "crosses": [], "bias": True},
    "evaluation": {"slices": ["device"], "most": 20},
    "feedback": {"log": False, "window_seconds": 1800.0, "learn_at": "window_close"},
    "snapshots": {"auto_rollback": None},
    "t": 2000,
    "revision": _NEXT_REVISION,
    "features_seen": 3000,
    "features_dropped": 0,
    "nonzero": 1000,
    "density": 0.3333,
    "mixed_names": [],
    "unmet_names": [],
    "challengers": [],
}
_PLAIN = {
    "window": "1h",
    "examples": 2000,
    "clicks": 512,
    "auc": 0.71,
    "auc_error_bound": 0.0003,
    "log_loss": 0.5,
    "normalized_entropy": 0.88,
    "calibration_ratio": 1.01,
    "calibration_tolerance": 0.116,
    "mean_prediction": 0.259,
    "base_rate": 0.256,
    "auc_interval": [0.684, 0.734],
    "log_loss_interval": [0.484, 0.517],
    "calibration_ratio_interval": [0.938, 1.088],
    "base_rate_interval": [0.237, 0.276],
}
_WEIGHTED, _COUNTED = _PLAIN | {"weighting": "weight"}, _PLAIN | {"weighting": "none"}
_RELIABILITY = [
    {
        "low": 0.2,
        "high": 0.3,
        "examples": 900.0,
        "mean_prediction": 0.25,
        "click_rate": 0.24,
        "click_rate_interval": [0.213, 0.269],
    },
]
_SNAPSHOT = {
    "id": f"20240501T120000000000Z-{_NEXT_REVISION}",
    "model": "default",
    "tags": ["good"],
    "time": "2024-05-01T12:00:00.000Z",
    "reason": "schedule",
    "revision": _NEXT_REVISION,
    "applied": "1714564800000-0",
    "applied_number": 2000,
    "t": 2000,
    "features_seen": 3000,
    "nonzero": 1000,
    "density": 0.3333,
    "bytes": 120_000,
    "fingerprint": "9f86d081884c7d65",
    "config": {"hyper": {"l1": 0.5}},
    "evaluation": None,
}
_PROMOTION = {
    "number": 1,
    "challenger": "default-forgetting",
    "snapshot": "20240501T123000000000Z-91f0c2aa-0-17-5b0de1c4",
    "before": f"20240501T123001000000Z-{_NEXT_REVISION}",
    "t": 2000,
    "reason": "asked for",
    "time": 1714566600.0,
}


def _one(summary: str, value: Any) -> dict[str, Any]:
    return {"one": {"summary": summary, "value": value}}


REPLY_EXAMPLES: dict[str, dict[str, Any]] = {
    "predict": {
        "one": {
            "summary": "Of one impression",
            "value": {"probability": 0.0312, "id": "request-1", "model": "default", "revision": _REVISION},
        },
        "candidates": {
            "summary": "Of several candidate ads",
            "value": {
                "predictions": [{"probability": 0.0312, "id": "a17"}, {"probability": 0.0275, "id": "b4"}],
                "model": "default",
                "revision": _REVISION,
            },
        },
    },
    "update": {
        "one": {"summary": "Of one example", "value": _LEARNED},
        "many": {
            "summary": "Of several, the second a retry",
            "value": {"results": [_LEARNED, _LEARNED | {"status": "duplicate"}]},
        },
        "label": {
            "summary": "Of a label",
            "value": {
                "status": "waiting",
                "probability": None,
                "loss": None,
                "revision": None,
                "id": "request-1",
            },
        },
    },
    "explain": _one(
        "One impression",
        {
            "probability": 0.0312,
            "margin": -3.4355,
            "offset": 0.0,
            "uncertainty": 0.4,
            "features": [
                {
                    "name": "bias",
                    "hash": None,
                    "slot": None,
                    "value": 1.0,
                    "weight": -3.2,
                    "contribution": -3.2,
                    "learning_rate": 0.01,
                    "z": 320.0,
                    "n": 81.0,
                    "also_in_slot": [],
                },
                {
                    "name": "ad=a17",
                    "hash": 2_580_812_345,
                    "slot": 1_234_567,
                    "value": 1.0,
                    "weight": -0.2355,
                    "contribution": -0.2355,
                    "learning_rate": 0.05,
                    "z": 5.21,
                    "n": 1.2,
                    "also_in_slot": ["site=old.example"],
                },
            ],
            "shared_slots": [],
            "model": "default",
            "revision": _REVISION,
        },
    ),
    "report_impressions": _one("One impression", {"results": [{"id": "a17", "status": "shown"}]}),
    "list_models": _one("Two models", {"models": ["ads", "default"]}),
    "describe_model": _one("A model", _MODEL),
    "create_model": _one("A model", _MODEL),
    "change_model": _one("A model", _MODEL),
    "clone_model": _one(
        "A challenger",
        _MODEL
        | {"name": "challenger", "warnings": ["The clone does not know the event ids of 'default': (...)"]},
    ),
    "list_features": _one(
        "Two slots",
        {
            "features": [
                {"names": ["ad=a17"], "slot": 1_234_567, "weight": -0.2355, "learning_rate": 0.05},
                {
                    "names": ["site=news.example", "user=u81"],
                    "slot": 81_723,
                    "weight": 0.1201,
                    "learning_rate": 0.02,
                },
            ],
            "known": 2,
            "model": "default",
            "revision": _REVISION,
        },
    ),
    "get_challengers": _one(
        "A better challenger",
        {
            "model": "default",
            "confidence": 0.95,
            "challengers": [
                {
                    "name": "second",
                    "behind_examples": 12,
                    "differs": {"hashing.bits": {"champion": 22, "challenger": 20}},
                    "comparison": {
                        "pairs": 200_000,
                        "unpaired": 0,
                        "clicks": 5112,
                        "champion": {
                            "log_loss": 0.1167,
                            "calibration_ratio": 1.036,
                            "calibration_interval": [0.99, 1.087],
                        },
                        "challenger": {
                            "log_loss": 0.1152,
                            "calibration_ratio": 1.003,
                            "calibration_interval": [0.958, 1.052],
                        },
                        "difference": 0.0015,
                        "interval": [0.0011, 0.0019],
                        "relative_difference": 0.0129,
                        "clipped": 3,
                        "verdict": "better",
                        "verdict_pairs": 65_280,
                        "verdict_time": "2026-05-01T12:00:00.000Z",
                        "calibration_difference": -0.033,
                        "calibration_difference_interval": [-0.035, -0.031],
                        "calibration": "undecided",
                        "course": [
                            {
                                "pairs": 200_000,
                                "champion_log_loss": 0.1167,
                                "difference": 0.0015,
                                "interval": [0.0011, 0.0019],
                            }
                        ],
                    },
                }
            ],
        },
    ),
    "get_history": _one(
        "Ten seconds",
        {
            "span": "1h",
            "step_seconds": 5.0,
            "time": [1714564800.0, 1714564805.0],
            "learned": [None, 20.0],
            "backlog": [0.0, 12.0],
            "lag_seconds": [0.0, 0.03],
            "density": [0.334, 0.333],
            "windows": {
                window: {
                    "auc": [0.709, 0.71],
                    "log_loss": [0.501, 0.5],
                    "calibration_ratio": [1.012, 1.01],
                    "base_rate": [0.255, 0.256],
                }
                for window in ("15m", "1h", "24h")
            },
            "experts": [],
            "marks": [{"time": 1714564801.5, "kind": "start", "detail": ""}],
        },
    ),
    "get_log": _one(
        "An entry that cannot be read",
        {
            "model": "default",
            "entries": 3,
            "learned_through": "1714564800000-0",
            "waiting": 3,
            "lines": [
                {
                    "entry": "1714564801000-0",
                    "status": "unreadable",
                    "first": None,
                    "last": None,
                    "clicks": None,
                    "features": None,
                    "problem": "record 0 has version 7, this code reads version 1",
                },
                {
                    "entry": "1714564802000-0",
                    "status": "examples",
                    "first": 2,
                    "last": 3,
                    "clicks": 1,
                    "features": 8,
                    "problem": None,
                },
            ],
        },
    ),
    "get_evaluation": _one(
        "One window",
        {
            "model": "default",
            "revision": _NEXT_REVISION,
            "t": 2000,
            "as_of": "2024-05-01T12:00:00.000Z",
            "slices_t": 1800,
            "sources": {
                "progressive": {
                    "windows": {
                        "1h": _WEIGHTED
                        | {
                            "reliability": _RELIABILITY,
                            "unweighted": _COUNTED | {"reliability": _RELIABILITY},
                        }
                    }
                },
                "served": None,
            },
            "judgement": {
                "window": "1h",
                "source": "progressive",
                "findings": [
                    {"check": "total", "wrong": False, "ratio": 1.01, "tolerance": 0.116, "where": ""},
                    {"check": "constant", "wrong": False, "ratio": 0.88, "tolerance": 0.05, "where": ""},
                    {
                        "check": "slice",
                        "wrong": True,
                        "ratio": 1.6,
                        "tolerance": None,
                        "where": "device = phone",
                    },
                    {
                        "check": "bucket",
                        "wrong": False,
                        "ratio": 1.04,
                        "tolerance": None,
                        "where": "0.2 to 0.3",
                    },
                ],
            },
            "slices": {"device": {"phone": {"1h": _WEIGHTED | {"unweighted": _COUNTED}}}},
            "measures": {
                "features_seen": 3000,
                "nonzero": 1000,
                "density": 0.3333,
                "nonfinite": 0,
                "slot_load": 0.0007,
                "expected_collision_rate": 0.0004,
                "weight_norm": 9.0,
                "gradient_norm": 60.0,
                "largest_weight": 1.2,
            },
        },
    ),
    "list_aliases": _one("One alias", {"aliases": {"live": "default"}}),
    "describe_alias": _one("An alias", {"alias": "live", "model": "default"}),
    "set_alias": _one("An alias", {"alias": "live", "model": "default"}),
    "list_snapshots": _one("One snapshot", {"snapshots": [_SNAPSHOT], "damaged": []}),
    "describe_snapshot": _one("A snapshot", _SNAPSHOT),
    "take_snapshot": _one("A snapshot", _SNAPSHOT | {"reason": "request"}),
    "restore_snapshot": _one(
        "A model that was restored",
        {
            "model": "default",
            "snapshot": _SNAPSHOT["id"],
            "before": "20240501T123000000000Z-2580b8a9-0-43-8c1eee25",
            "t": 2100,
            "replayed": 100,
            "seconds": 0.8,
            "revision": "2580b8a9-1-44-c1eee25d",
        },
    ),
    "promote_challenger": _one(
        "A challenger that was promoted",
        {
            "model": "default",
            "promotion": _PROMOTION,
            "replayed": 100,
            "seconds": 0.8,
            "revision": "2580b8a9-1-44-c1eee25d",
        },
    ),
    "list_promotions": _one("One promotion", {"promotions": [_PROMOTION]}),
    "livez": _one("Alive", {"status": "alive"}),
    "readyz": _one(
        "Ready", {"predict": "fresh", "mirror_age_seconds": 0.05, "update": "available", "reasons": []}
    ),
}
