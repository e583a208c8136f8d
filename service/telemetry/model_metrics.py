"""What a model is like: figures of its predictions and of its state, told by the learner that leads."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from model_core.evaluation.figures import Figures, Window
from model_core.learning.census import Census
from service.telemetry.exposition import WrittenGauge
from service.telemetry.instruments import Instruments

DETAIL_WINDOWS: tuple[Window, ...] = ("1h", "24h")
"""Those of which there are reliability and slices."""
WEIGHTINGS = {"weight": "importance", "none": "none"}


class QualityMetrics(Instruments):
    def measured(self, model: str, measures: Census) -> None:
        for gauge, value in (
            (self.nonzero_features, measures.nonzero),
            (self.density, measures.density),
            (self.slot_load, measures.slot_load),
            (self.expected_collisions, measures.expected_collision_rate),
            (self.weight_norm, measures.weight_norm),
            (self.gradient_norm, measures.gradient_norm),
            (self.nonfinite_slots, measures.nonfinite),
        ):
            self._show(gauge, value, model)

    def evaluated(self, model: str, source: str, figures: Figures) -> None:
        """What is unknown, as before the first clicks, is not shown."""
        labels = (model, source, str(figures.window), WEIGHTINGS[figures.weighting])
        for gauge, value in (
            (self.online_auc, figures.auc),
            (self.online_auc_error_bound, figures.auc_error_bound),
            (self.online_log_loss, figures.log_loss),
            (self.online_normalized_entropy, figures.normalized_entropy),
            (self.online_calibration_ratio, figures.calibration_ratio),
            (self.online_mean_prediction, figures.mean_prediction),
            (self.online_base_rate, figures.base_rate),
            (self.online_examples, figures.examples),
            (self.online_clicks, figures.clicks),
        ):
            self._show(gauge, value, *labels)
        if figures.window in DETAIL_WINDOWS and figures.weighting == "weight":
            self._show_reliability(model, source, figures)

    def sliced(self, model: str, feature: str, value: str, figures: Mapping[Window, Figures]) -> None:
        """By weight."""
        for window in DETAIL_WINDOWS:
            told = figures[window]
            for gauge, number in (
                (self.slice_auc, told.auc),
                (self.slice_log_loss, told.log_loss),
                (self.slice_calibration_ratio, told.calibration_ratio),
                (self.slice_examples, told.examples),
                (self.slice_clicks, told.clicks),
            ):
                self._show(gauge, number, model, feature, value, window)

    def slices_are(self, model: str, slices: Collection[tuple[str, str]]) -> None:
        """By feature and value; others that there were go."""
        wanted = {(model, *of, window) for of in slices for window in DETAIL_WINDOWS}
        for gauge in (
            *(self.slice_auc, self.slice_log_loss, self.slice_calibration_ratio),
            *(self.slice_examples, self.slice_clicks),
        ):
            gauge.keep(wanted, model)

    def _show_reliability(self, model: str, source: str, figures: Figures) -> None:
        common = (model, source, str(figures.window))
        gauges = (self.reliability_predicted, self.reliability_observed, self.reliability_examples)
        rows = {(*common, f"{row.low:g}-{row.high:g}"): row for row in figures.reliability}
        for gauge in gauges:
            gauge.keep(rows, *common)
        for labels, row in rows.items():
            for gauge, value in zip(gauges, (row.mean_prediction, row.click_rate, row.examples), strict=True):
                self._show(gauge, value, *labels)

    def _show(self, gauge: WrittenGauge, value: float | None, *labels: str) -> None:
        """Of a model that this process leads; None is not shown."""
        if value is None:
            gauge.remove(*labels)
        else:
            gauge.set(value, *labels)

    def _hide(self, model: str) -> None:
        """All that another process may know better; that this one does not lead stays."""
        for gauge in self.written:
            if gauge is not self.learner_active and gauge is not self.learner_blocked:
                gauge.keep((), model)
