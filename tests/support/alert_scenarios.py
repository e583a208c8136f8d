"""A day of a healthy service as Prometheus sees it, and what has to go wrong before each alert fires."""

from __future__ import annotations

from typing import Any, NamedTuple

from service.models.evaluation.judgement import CHECKS

DAY = 25 * 60

API = 'job="ftrl-api", instance="api:8000"'
LEARNER = 'job="ftrl-learner", instance="learner:8001"'
OF_MODEL = f'{LEARNER}, model="default"'
PREDICT = f'ftrl_http_request_duration_seconds_bucket{{{API}, route="/predict", method="POST", status="200"'
UPDATE = f'ftrl_http_request_duration_seconds_bucket{{{API}, route="/update", method="POST", status="200"'


def requests(route: str, status: str) -> str:
    labels = f'{API}, route="{route}", method="POST", status="{status}"'
    return f"ftrl_http_request_duration_seconds_count{{{labels}}}"


def online(name: str, window: str, source: str = "progressive") -> str:
    labels = f'{OF_MODEL}, source="{source}", window="{window}", weighting="importance"'
    return f"ftrl_online_{name}{{{labels}}}"


def wrong(check: str) -> str:
    return f'ftrl_online_wrong{{{OF_MODEL}, check="{check}"}}'


def challenger(name: str) -> str:
    return f'ftrl_challenger_{name}{{{LEARNER}, model="second", champion="default"}}'


def of_model(name: str) -> str:
    return f"{name}{{{OF_MODEL}}}"


def learned(label: int) -> str:
    return f'ftrl_examples_learned_total{{{OF_MODEL}, label="{label}"}}'


def of_api(name: str, labels: str = "") -> str:
    return f"{name}{{{API}{labels}}}"


PREDICTIONS = of_api("ftrl_predictions_total", ', model="default"')
LOST = of_api("ftrl_examples_lost_total", ', model="default"')
SNAPSHOT_FAILURES = f'ftrl_snapshot_failures_total{{{OF_MODEL}, reason="full"}}'
UNLOGGED = of_api("ftrl_feedback_unlogged_total", ', model="default", reason="away"')
CONSUMER = 'job="ftrl-consumer", instance="consumer:8002", model="default"'
CONSUMER_WAITING = f"ftrl_consumer_waiting{{{CONSUMER}}}"
MISSING_MESSAGES = f"ftrl_consumer_missing_messages_total{{{CONSUMER}}}"
MIRROR_AGE = of_api("ftrl_mirror_age_seconds", ', model="default"')

UNWATCHED: dict[str, str | None] = {
    of_model("ftrl_feedback_bytes"): None,
    of_model("ftrl_feedback_limit_bytes"): None,
}

HEALTHY: dict[str, str] = {
    f"up{{{API}}}": "1x200",
    f"up{{{LEARNER}}}": "1x200",
    of_api("ftrl_ready", ', purpose="predict"'): "1x200",
    of_api("ftrl_ready", ', purpose="update"'): "1x200",
    requests("/predict", "200"): "0+6000x200",
    requests("/predict", "500"): "0+6x200",
    requests("/readyz", "503"): "0+60x200",
    f'{PREDICT}, le="0.01"}}': "0+6000x200",
    f'{PREDICT}, le="+Inf"}}': "0+6000x200",
    f'{UPDATE}, le="0.1"}}': "0+600x200",
    f'{UPDATE}, le="+Inf"}}': "0+600x200",
    PREDICTIONS: "0+6000x200",
    MIRROR_AGE: "0.2x200",
    learned(0): "0+5900x200",
    learned(1): "0+100x200",
    of_model("ftrl_examples_skipped_total"): "0x200",
    of_model("ftrl_learner_active"): "1x200",
    of_model("ftrl_learner_blocked"): "0x200",
    of_model("ftrl_learner_lag_examples"): "100x200",
    of_model("ftrl_learner_lag_seconds"): "0.1x200",
    of_model("ftrl_checkpoint_behind_seconds"): "0.5x200",
    of_model("ftrl_model_nonfinite_slots"): "0x200",
    **{wrong(check): "0x200" for check in CHECKS},
    online("calibration_ratio", "30m"): "1.04x200",
    online("clicks", "30m"): "3000x200",
    online("log_loss", "30m"): "0.09x200",
    online("auc", "1h"): "0.78x200",
    online("log_loss", "1h"): "0.09x200",
    online("clicks", "1h"): "6000x200",
    of_api("ftrl_redis_up"): "1x200",
    of_api("ftrl_redis_memory_used_bytes"): "600x200",
    of_api("ftrl_redis_memory_limit_bytes"): "1000x200",
    of_api("ftrl_redis_shedding"): "0x200",
    of_api("ftrl_redis_persists"): "1x200",
    of_api("ftrl_redis_persistence_ok"): "1x200",
    of_api("ftrl_redis_policy_ok"): "1x200",
    LOST: "0x200",
    UNLOGGED: "0x200",
    of_model("ftrl_snapshot_success_timestamp_seconds"): "1000000x200",
    SNAPSHOT_FAILURES: "0x200",
    of_model("ftrl_rollbacks_total"): "0x200",
    of_model("ftrl_feedback_bytes"): "500x200",
    of_model("ftrl_feedback_limit_bytes"): "1000x200",
}
"""Samples of each minute, or of each ten minutes where there is a day of them, as promtool writes them:
value, or first+step, x how many more.
"""


class Scenario(NamedTuple):
    """`changes` to the healthy series (None: there is none), and the alerts that then fire after `minutes`.

    What compares with yesterday runs in steps of ten minutes.
    """

    name: str
    changes: dict[str, str | None]
    alerts: set[str]
    minutes: int = 40

    @property
    def step_minutes(self) -> int:
        return 10 if self.minutes >= DAY else 1


SCENARIOS = (
    Scenario("healthy", {}, set()),
    Scenario("healthy for a day", {}, set(), DAY),
    Scenario("API down", {f"up{{{API}}}": "0x200"}, {"FtrlDown"}),
    Scenario("API unknown", {f"up{{{API}}}": None}, {"FtrlApiMissing"}),
    Scenario("not ready", {of_api("ftrl_ready", ', purpose="update"'): "1x20 0x200"}, {"FtrlNotReady"}),
    Scenario("errors", {requests("/predict", "500"): "0+120x200"}, {"FtrlErrors"}),
    Scenario("slow predictions", {f'{PREDICT}, le="0.01"}}': "0+3000x200"}, set()),
    Scenario(
        "very slow predictions",
        {f'{PREDICT}, le="0.01"}}': "0+3000x200", f'{PREDICT}, le="0.5"}}': "0+6000x200"},
        {"FtrlPredictSlow"},
    ),
    Scenario(
        "very slow updates",
        {f'{UPDATE}, le="0.1"}}': "0x200", f'{UPDATE}, le="2.0"}}': "0+600x200"},
        {"FtrlUpdateSlow"},
    ),
    Scenario("no learner", {of_model("ftrl_learner_active"): None}, {"FtrlNoLearner"}),
    Scenario(
        "one model without learner",
        {f'ftrl_learner_active{{{LEARNER}, model="other"}}': "0x200"},
        {"FtrlModelNotLearned"},
    ),
    Scenario(
        "a standby",
        {'ftrl_learner_active{job="ftrl-learner", instance="b", model="default"}': "0x200"},
        set(),
    ),
    Scenario("blocked", {of_model("ftrl_learner_blocked"): "1x200"}, {"FtrlLearnerBlocked"}),
    Scenario(
        "stalled",
        {learned(0): "0+5900x20 118000x200", learned(1): "0+100x20 2000x200"},
        {"FtrlLearnerStalled"},
    ),
    Scenario(
        "falling behind",
        {
            of_model("ftrl_learner_lag_examples"): "0+600x200",
            of_model("ftrl_learner_lag_seconds"): "0+10x200",
        },
        {"FtrlLearnerLagGrows"},
    ),
    Scenario(
        "no checkpoint", {of_model("ftrl_checkpoint_behind_seconds"): "0+60x200"}, {"FtrlCheckpointOld"}
    ),
    Scenario(
        "old mirror",
        {MIRROR_AGE: "0+60x200"},
        {"FtrlMirrorStale"},
    ),
    Scenario("miscalibrated", {wrong("total"): "1x200"}, {"FtrlCalibrationOff"}),
    Scenario("miscalibrated for a moment", {wrong("total"): "0x35 1x2 0x160"}, set()),
    Scenario("a slice that is off", {wrong("slice"): "1x200"}, {"FtrlPartCalibrationOff"}),
    Scenario("predictions that are off", {wrong("bucket"): "1x200"}, {"FtrlPartCalibrationOff"}),
    Scenario("following noise", {wrong("constant"): "1x200"}, {"FtrlWorseThanConstant"}),
    Scenario("too few clicks to judge", {wrong(check): None for check in CHECKS}, set()),
    Scenario("lower AUC", {online("auc", "1h"): "0.78x145 0.74x25"}, {"FtrlAucDropped"}, DAY),
    Scenario("slightly lower AUC", {online("auc", "1h"): "0.78x145 0.765x25"}, set(), DAY),
    Scenario(
        "lower AUC by chance",
        {online("auc", "1h"): "0.78x145 0.74x25", online("clicks", "1h"): "500x200"},
        set(),
        DAY,
    ),
    Scenario("higher log loss", {online("log_loss", "1h"): "0.09x145 0.105x25"}, {"FtrlLogLossRose"}, DAY),
    Scenario("no clicks", {learned(1): "0x200"}, {"FtrlNoClicks"}, 60),
    Scenario(
        "neither clicks nor traffic",
        {learned(1): "0x200", PREDICTIONS: "0x200"},
        set(),
        60,
    ),
    Scenario("skipped", {of_model("ftrl_examples_skipped_total"): "0+1x200"}, {"FtrlExamplesSkipped"}),
    Scenario("not finite", {of_model("ftrl_model_nonfinite_slots"): "1x200"}, {"FtrlStateNotFinite"}),
    Scenario("Redis down", {of_api("ftrl_redis_up"): "0x200"}, {"FtrlRedisDown"}),
    Scenario("Redis fills", {of_api("ftrl_redis_memory_used_bytes"): "800x200"}, {"FtrlRedisMemory"}),
    Scenario("Redis without limit", {of_api("ftrl_redis_memory_limit_bytes"): "0x200"}, set()),
    Scenario("no room for predictions", {of_model("ftrl_feedback_bytes"): "950x200"}, {"FtrlFeedbackFull"}),
    Scenario("no figure of the pending predictions", UNWATCHED, {"FtrlFeedbackFull"}),
    Scenario(
        "no figure and no predictions",
        UNWATCHED | {PREDICTIONS: "1000x200"},
        set(),
    ),
    Scenario("predictions are not logged", {UNLOGGED: "0+60x200"}, {"FtrlPredictionsUnlogged"}),
    Scenario("predictions were not logged at a restart of Redis", {UNLOGGED: "0x37 6000x160"}, set()),
    Scenario("Redis full", {of_api("ftrl_redis_shedding"): "1x200"}, {"FtrlRedisSheds"}),
    Scenario("no persistence", {of_api("ftrl_redis_persists"): "0x200"}, {"FtrlRedisPersistenceOff"}),
    Scenario("a full disk", {of_api("ftrl_redis_persistence_ok"): "0x200"}, {"FtrlRedisPersistenceOff"}),
    Scenario("eviction", {of_api("ftrl_redis_policy_ok"): "0x200"}, {"FtrlRedisMayEvict"}),
    Scenario("a failover that lost examples", {LOST: "0x20 75x180"}, {"FtrlExamplesLost"}),
    Scenario("a failover two hours ago", {LOST: "0x20 75x180"}, set(), 140),
    Scenario("a consumer that waits", {CONSUMER_WAITING: "0x20 1x180"}, {"FtrlConsumerWaits"}),
    Scenario("a consumer that waited for a moment", {CONSUMER_WAITING: "0x20 1x2 0x180"}, set()),
    Scenario("messages that are gone", {MISSING_MESSAGES: "0x20 75x180"}, {"FtrlMessagesMissing"}),
    Scenario("a full snapshot store", {SNAPSHOT_FAILURES: "0x20 1+1x180"}, {"FtrlSnapshotsFail"}),
    Scenario(
        "no snapshot",
        {of_model("ftrl_snapshot_success_timestamp_seconds"): "0x200"},
        {"FtrlSnapshotOld"},
        90,
    ),
    Scenario(
        "no snapshot of a model that learns nothing",
        {
            of_model("ftrl_snapshot_success_timestamp_seconds"): "0x200",
            learned(0): None,
            learned(1): None,
            PREDICTIONS: "0x200",
        },
        set(),
        90,
    ),
    Scenario("a better challenger", {challenger("verdict"): "0x20 1x180"}, {"FtrlChallengerBetter"}),
    Scenario(
        "a challenger that was cut off",
        {f'ftrl_challenger_restarts_total{{{OF_MODEL}, reason="cut_off"}}': "0x20 1x180"},
        {"FtrlChallengerStartedAgain"},
    ),
    Scenario("a worse challenger", {challenger("verdict"): "0x20 -1x180"}, set()),
    Scenario("a challenger that was better for a moment", {challenger("verdict"): "0x20 1x5 0x160"}, set()),
    Scenario("rolled back", {of_model("ftrl_rollbacks_total"): "0x20 1x180"}, {"FtrlRolledBack"}),
)


def unit_test(scenario: Scenario) -> dict[str, Any]:
    """For `promtool test rules`: these alerts fire and no others."""
    series = {name: values for name, values in (HEALTHY | scenario.changes).items() if values is not None}
    firing = [{"labels": f'{{alertname="{alert}"}}', "value": 1} for alert in sorted(scenario.alerts)]
    return {
        "name": scenario.name,
        "interval": f"{scenario.step_minutes}m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": [
            {
                "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                "eval_time": f"{scenario.minutes}m",
                "exp_samples": firing,
            }
        ],
    }
