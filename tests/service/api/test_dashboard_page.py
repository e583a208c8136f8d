"""The built-in page in a real browser, before a real service with two workers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from service.api.security.tokens import digest_of, new_token
from tests.support.browser import Visit, chromium, visit
from tests.support.clicks import Clicks
from tests.support.commands import ServingProcess
from tests.support.servers import ServerProcess, free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.slow

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 360, "height": 740}
CONNECTION, HEADLINE = "#connection", "#headline"


class Service:
    """`ftrl serve --workers 2` that can be killed and started again on the same port."""

    def __init__(self, server: ServerProcess, directory: Path) -> None:
        self._port = str(free_port())
        self._server = server
        self._directory = directory
        self.clicks = Clicks()
        self.start()

    def start(self) -> None:
        words = ("serve", "--workers", "2", "--port", self._port)
        self.process = ServingProcess(*words, directory=self._directory, FTRL_REDIS_URL=self._server.url)
        self.url = self.process.wait_until_ready()

    def learn(self, count: int, model: str = "default") -> None:
        examples = self.clicks.examples(count)
        self.process.post(f"/models/{model}/update", {"examples": examples})
        self.process.post(f"/models/{model}/predict", {"instances": [{"features": examples[0]["features"]}]})

    @contextmanager
    def without_redis(self) -> Iterator[None]:
        self._server.pause()
        try:
            yield
        finally:
            self._server.resume()

    def learned(self) -> str:
        return f"{self.process.get('/models/default')['t']:,}"

    def stop(self) -> None:
        self.process.stop()
        self.process.remove()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="module")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    server = ServerProcess().start()
    running = Service(server, tmp_path_factory.mktemp("service"))
    running.process.put("/models/default", {})
    running.process.put("/models/empty", {"hashing": {"bits": 12}})
    running.process.put("/models/sliced", {"evaluation": {"slices": ["device", "hour"]}})
    running.learn(3000)
    running.learn(3000, "sliced")
    yield running
    running.stop()
    server.remove()


@pytest.fixture
def tab(browser: Browser, service: Service) -> Iterator[Visit]:
    """The page, connected; at its end it must have asked nothing of elsewhere and complained of nothing."""
    with visit(browser, viewport=DESKTOP) as found:
        found.page.goto(f"{service.url}/?model=default")
        found.wait_for_text(CONNECTION, "Live")
        yield found
        assert [url for url in found.requests if not url.startswith(f"{service.url}/")] == []
        assert found.complaints == []


def written(figure: float | None, digits: int) -> str:
    return "not told yet" if figure is None else f"{figure:.{digits}f}"


def test_it_shows_the_figures_that_the_api_reports(tab: Visit, service: Service) -> None:
    def figures() -> dict[str, str]:
        windows = service.process.get("/models/default/evaluation")["sources"]["progressive"]["windows"]
        hour = windows["1h"]
        return {
            "#auc": written(hour["auc"], 4),
            "#log_loss": written(hour["log_loss"], 4),
            "#calibration_ratio": written(hour["calibration_ratio"], 3),
            "#tile-base_rate .note": f"{hour['clicks']:,} clicks of {hour['examples']:,}",
        }

    wait_until(lambda: all(text in tab.text(place) for place, text in figures().items()))
    state = service.process.get("/models/default")
    tab.wait_for_text("#facts", f"{state['features_seen']:,}")
    tab.wait_for_text("#state-note", state["revision"])
    wait_until(lambda: tab.text("#density") == f"{state['density'] * 100:.1f}")
    rows = service.process.get("/models/default/evaluation")["sources"]["progressive"]["windows"]["1h"]
    assert tab.page.locator("#curve circle").count() == len(rows["reliability"])
    tab.page.locator("#reliability summary").click()
    assert tab.page.locator("#reliability-table tbody tr").count() == len(rows["reliability"])


def test_it_moves_when_updates_arrive(tab: Visit, service: Service) -> None:
    for _ in range(2):
        service.learn(40)
        tab.wait_for_text("#facts", service.learned())
        tab.wait_for_text("#tile-updates .note", service.learned())
    wait_until(lambda: tab.text("#updates") not in ("0", "–"))
    assert tab.page.locator("#tile-updates canvas").count() == 1
    tab.wait_for_text("#latency", ".")
    wait_until(lambda: tab.text("#lag") == "0")


def test_it_shows_the_figures_of_each_slice(tab: Visit, service: Service) -> None:
    tab.page.select_option("#model", "sliced")
    tab.page.select_option("#feature", "device")
    tab.page.get_by_role("cell", name="×").first.wait_for()
    rows = tab.page.locator("#slices-table tbody tr")
    wait_until(lambda: rows.count() == 3)

    def told() -> list[str]:
        slices = service.process.get("/models/sliced/evaluation")["slices"]["device"]
        commonest = max(slices, key=lambda value: slices[value]["1h"]["examples"])
        figures = slices[commonest]["1h"]
        return [
            commonest,
            f"{figures['examples']:,}",
            f"{figures['clicks']:,}",
            f"{written(figures['base_rate'] and figures['base_rate'] * 100, 1)} %",
            rows.first.locator("td").nth(3).inner_text(),
            written(figures["auc"], 4),
            written(figures["log_loss"], 4),
        ]

    wait_until(lambda: rows.first.inner_text().split("\t") == told())


def test_what_was_served_is_judged_where_it_is_known(tab: Visit, service: Service) -> None:
    feedback = {"log": True, "exposure": "on_predict", "learn_at": "arrival"}
    service.process.put("/models/served", {"hashing": {"bits": 12}, "feedback": feedback})
    examples = [example | {"id": f"shown-{i}"} for i, example in enumerate(service.clicks.examples(900))]
    instances = [{"features": example["features"], "id": example["id"]} for example in examples]
    service.process.post("/models/served/predict", {"instances": instances})
    labels = [{"id": example["id"], "label": example["label"]} for example in examples]
    service.process.post("/models/served/update", {"examples": labels})
    tab.page.goto(f"{service.url}/?model=served")
    tab.wait_for_text("#quality-note", "the probabilities that were served")

    def ratio() -> str:
        windows = service.process.get("/models/served/evaluation")["sources"]["served"]["windows"]
        return written(windows["1h"]["calibration_ratio"], 3)

    wait_until(lambda: ratio() in tab.text("#calibration_ratio"))
    tab.page.get_by_role("radio", name="Progressive").check()
    tab.wait_for_text("#quality-note", "each prediction just before its click was learned")


def test_pending_impressions_are_shown(tab: Visit, service: Service) -> None:
    feedback = {"log": True, "exposure": "explicit", "window_seconds": 3600, "unshown_seconds": 3600}
    service.process.put("/models/waiting", {"hashing": {"bits": 12}, "feedback": feedback})
    tab.page.goto(f"{service.url}/?model=waiting")
    tab.wait_for_text("#checks", "o example waits to be learned.")
    instances = [{"features": {}, "id": f"wait-{number}"} for number in range(5)]
    service.process.post("/models/waiting/predict", {"instances": instances})
    service.process.post("/models/waiting/impressions", {"ids": ["wait-0", "wait-1", "wait-2"]})
    waits = "3 impressions wait for the end of their windows, 2 logged predictions wait to be shown."
    tab.wait_for_text("#checks", f"o example waits to be learned. {waits}")
    tab.wait_for_text("#tile-lag .note", f"0 examples wait to be learned. {waits}")


def test_the_past_outlives_a_reload(tab: Visit) -> None:
    tab.page.locator("#tile-lag canvas").wait_for()
    wait_until(lambda: len(past(tab)) >= 2)
    before = past(tab)
    tab.page.reload()
    tab.wait_for_text(CONNECTION, "Live")
    assert past(tab)[: len(before)] == before


def past(tab: Visit) -> list[float]:
    """The times of which the page keeps figures; as it is about to leave."""
    kept = tab.page.evaluate(
        """() => {
            dispatchEvent(new Event("pagehide"));
            return JSON.parse(sessionStorage.getItem("ftrl.history.default")).time;
        }"""
    )
    assert isinstance(kept, list)
    return kept


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_it_is_accessible_and_fits(browser: Browser, service: Service, scheme: str, viewport) -> None:
    with visit(browser, viewport=viewport, color_scheme=scheme) as tab:
        tab.page.goto(f"{service.url}/?model=sliced")
        tab.page.locator("#curve circle").first.wait_for()
        tab.page.locator("#slices-table tbody tr").first.wait_for()
        tab.page.locator("#reliability summary").click()
        assert_accessible_and_fits(tab)
        ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert (ground == "rgb(18, 19, 21)") == (scheme == "dark")


@pytest.mark.parametrize("viewport", [DESKTOP, PHONE], ids=["desktop", "phone"])
def test_all_models_have_a_line_each(browser: Browser, service: Service, viewport) -> None:
    with visit(browser, viewport=viewport) as tab:
        tab.page.goto(service.url)  # two have learned
        tab.page.locator("#overview-table th", has_text="sliced").wait_for()
        windows = service.process.get("/models/sliced/evaluation")["sources"]["progressive"]["windows"]
        line = tab.page.locator("#overview-table tr", has_text="sliced")
        assert f"{windows['30m']['auc']:.4f}" in line.inner_text()
        assert_accessible_and_fits(tab)
        tab.page.get_by_role("link", name="sliced").click()
        tab.page.locator("#curve circle").first.wait_for()
        tab.page.get_by_role("link", name="All models").click()
        tab.page.get_by_role("heading", name="All models").wait_for()
        assert tab.complaints == []


def test_the_history_shows_the_figures_and_what_happened(tab: Visit) -> None:
    tab.page.locator("#past-auc canvas").wait_for()
    tab.wait_for_text(".marks", "A learner took over")
    tab.page.locator("#past").get_by_role("radio", name="30 d").check()
    tab.page.locator("#past-lag_seconds canvas").wait_for()


def test_the_form_shows_what_each_feature_adds(tab: Visit, service: Service) -> None:
    features = service.clicks.examples(1)[0]["features"]
    tab.page.fill("#features", json.dumps(features))
    tab.page.get_by_role("button", name="Predict").click()
    tab.wait_for_text("#said", "Probability")
    bars = tab.page.locator("#bars .name").all_inner_texts()
    assert set(bars) >= {"bias", *(f"{name}={value}" for name, value in features.items())}
    tab.page.fill("#features", "{")
    tab.page.get_by_role("button", name="Predict").click()
    tab.wait_for_text("#said", "This is not JSON")
    tab.page.fill("#features", '{"user": 12345678901234567}')
    with tab.page.expect_request("**/explain") as sent:
        tab.page.get_by_role("button", name="Predict").click()
    assert sent.value.post_data_json == {"features": {"user": 12345678901234567}}, "not rounded"


def test_the_largest_weights_have_names(tab: Visit, service: Service) -> None:
    service.learn(10)  # the first came before names were looked at
    tab.page.locator("#named-features summary").click()
    tab.wait_for_text("#features-note", "largest weights")
    names = tab.page.locator("#named-features tbody th").all_inner_texts()
    assert all("=" in name for name in names)
    assert_accessible_and_fits(tab)


def test_challengers_are_drawn_beside_their_champion(tab: Visit, service: Service) -> None:
    service.process.put("/models/rival", {"follows": "default", "hashing": {"bits": 12}})
    try:
        service.learn(50)
        wait_until(lambda: service.process.get("/models/rival")["follows"]["behind_examples"] == 0)
        service.learn(400)
        tab.wait_for_text("#challengers tbody", "hashing.bits: 12")
        tab.page.wait_for_selector("#challengers svg polygon.band", state="attached")
        (line,) = service.process.get("/models/default/challengers")["challengers"]
        assert tab.page.locator("#challengers tbody th").all_inner_texts() == [line["name"]] == ["rival"]
        drawing = tab.page.locator("#challengers svg").first.get_attribute("aria-label") or ""
        assert drawing.startswith(f"Gain of rival over {line['comparison']['pairs']:,} pairs")
        assert tab.page.locator("#challengers svg .champion, #challengers svg polyline.line").count() == 2
        assert_accessible_and_fits(tab)
    finally:
        service.process.delete("/models/rival")
    tab.page.wait_for_selector("#challengers", state="hidden")


def test_the_configuration_names_the_half_lives_of_experts(tab: Visit) -> None:
    tab.wait_for_text("#configuration", "half-life of each expert")


def test_models_beyond_those_with_a_line_are_linked(tab: Visit, service: Service) -> None:
    with_one_left_out = service.process.get("/overview") | {"left_out": ["m201"]}
    tab.page.route("**/overview", lambda route: route.fulfill(json=with_one_left_out))
    tab.page.goto(f"{service.url}/?view=all")
    tab.page.locator("#left-out").get_by_role("link", name="m201").wait_for()


def test_a_history_that_could_not_be_read_is_read_again(tab: Visit, service: Service) -> None:
    refusal = {"status": 503, "json": {"detail": "Redis does not answer."}}
    tab.page.route("**/models/sliced/history?*", lambda route: route.fulfill(**refusal), times=1)
    tab.page.goto(f"{service.url}/?model=sliced")
    tab.wait_for_text("#past .note", "Not known: Redis does not answer.")
    assert "503" in tab.complaints.pop()
    tab.page.locator("#past-auc canvas").wait_for()


def test_a_snapshot_is_taken_and_restored(tab: Visit, service: Service) -> None:
    tab.page.on("dialog", lambda dialog: dialog.accept())
    tab.page.goto(f"{service.url}/?model=sliced")
    tab.page.locator("#snapshots summary").click()
    tab.page.get_by_role("button", name="Take one now").click()
    tab.wait_for_text("#snapshots-note", "Taking a snapshot: done.")
    before = service.process.get("/models/sliced")["revision"]
    tab.page.get_by_role("button", name="Restore").first.click()
    tab.wait_for_text("#snapshots-note", "Restoring: done.")
    tab.page.locator("#snapshots-table tr", has_text="Now").wait_for()
    generation = int(before.split("-")[1])
    assert int(service.process.get("/models/sliced")["revision"].split("-")[1]) == generation + 1


def test_a_token_for_one_model_leads_to_that_model(browser: Browser, tmp_path: Path) -> None:
    token, file = new_token(), tmp_path / "tokens.jsonl"
    digest = digest_of(token.encode()).hex()
    rule = {"name": "reader", "sha256": digest, "scopes": ["predict"], "models": ["ads"]}
    file.write_text(json.dumps(rule) + "\n")
    service = ServingProcess("serve", directory=tmp_path, FTRL_TOKENS_FILE=str(file))
    try:
        url = service.url
        with visit(browser, viewport=PHONE, http_credentials={"username": "any", "password": token}) as tab:
            tab.page.goto(url)
            tab.wait_for_text("#choose-why", "Your token is for some models only")
            assert_accessible_and_fits(tab)
            tab.page.fill("#choose-name", "ads")
            tab.page.get_by_role("button", name="Show").click()
            tab.wait_for_text(HEADLINE, "There is no model ads")
    finally:
        service.stop()
        service.remove()


def assert_accessible_and_fits(tab: Visit) -> None:
    found = Axe().run(tab.page)
    assert found.violations_count == 0, found.generate_report()
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_theme_is_chosen_against_the_system_and_stays(browser: Browser, service: Service) -> None:
    with visit(browser, viewport=DESKTOP, color_scheme="light") as tab:
        tab.page.goto(service.url)
        for chosen in ("light", "dark"):
            tab.page.get_by_role("button", name="Theme").click()
            tab.wait_for_text("#theme", chosen)
        tab.page.reload()
        tab.wait_for_text("#theme", "dark")
        ground = tab.page.evaluate("getComputedStyle(document.body).backgroundColor")
        assert ground == "rgb(18, 19, 21)"


def test_models_and_windows_are_switched_with_the_keyboard(tab: Visit) -> None:
    tab.page.focus("#model")
    tab.page.keyboard.press("ArrowDown")  # models are in the order of their names
    tab.wait_for_text(HEADLINE, "Ready: nothing learned yet")
    wait_until(lambda: tab.text("#auc") == "–")
    tab.wait_for_text("#tile-auc .note", "Needs 50 clicks: 0 so far.")
    tab.page.keyboard.press("Tab")
    tab.page.keyboard.press("ArrowRight")
    tab.wait_for_text("#quality-note", "Last 24 hours")
    assert tab.page.url.endswith("/?model=empty&window=24h")
    tab.page.go_back()
    tab.wait_for_text("#quality-note", "Last hour")
    tab.page.go_back()
    tab.page.locator("#curve circle").first.wait_for()


def test_a_model_deleted_while_watched_is_reported_as_gone(browser: Browser, service: Service) -> None:
    service.process.put("/models/passing", {"hashing": {"bits": 10}})
    with visit(browser, viewport=DESKTOP) as tab:
        tab.page.goto(f"{service.url}/?model=passing")
        tab.wait_for_text(HEADLINE, "Ready: nothing learned yet")
        service.process.delete("/models/passing")
        tab.wait_for_text(HEADLINE, "There is no model passing")
        assert_accessible_and_fits(tab)
        tab.page.select_option("#model", "default")
        tab.wait_for_text("#checks", "× the clicks")
        tab.page.select_option("#model", "empty")
        service.process.put("/models/passing", {"hashing": {"bits": 10}})
        tab.page.goto(f"{service.url}/?model=passing")
        tab.wait_for_text(HEADLINE, "Ready: nothing learned yet")


def test_what_a_new_page_cannot_know_is_not_shown_as_0(browser: Browser, service: Service) -> None:
    with visit(browser, viewport=DESKTOP) as tab, service.without_redis():
        tab.page.goto(f"{service.url}/?model=default")
        tab.wait_for_text("#tile-auc .note", "Redis does not answer: not known.")
        tab.wait_for_text("#checks", "Redis has not answered: the figures are not known.")


def test_it_says_so_when_the_service_dies_and_goes_on_when_it_is_back(
    browser: Browser, service: Service
) -> None:
    with visit(browser, viewport=DESKTOP) as tab:
        tab.page.goto(f"{service.url}/?model=default")
        tab.wait_for_text(CONNECTION, "Live")
        service.stop()
        tab.wait_for_text(HEADLINE, "Not known: the connection to the service is lost")
        tab.wait_for_text(CONNECTION, "Connection lost, last figures")
        service.start()
        tab.wait_for_text(CONNECTION, "Live")
        service.learn(20)
        tab.wait_for_text("#facts", service.learned())
