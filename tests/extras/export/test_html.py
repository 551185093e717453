"""The page with a lap and a network in it, in a real Chromium: it decides as torch does, and answers what-if."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nacdrive.cli.main import dispatch
from nacdrive.cli.playground import page_of
from nacdrive.common.errors import UserError
from nacdrive.common.paths import shipped
from nacdrive.datasets.images import decode_image, encode_jpeg
from nacdrive.datasets.recording import Recording
from nacdrive.envs.registry import CARRACING
from nacdrive.extras.export.html import PARTS, export_html, in_script, lap_record, load_lap, network_json, page, script
from nacdrive.extras.export.network_description import describe
from nacdrive.models import Policy, load_policy
from nacdrive.models.effects import Effects, Part, frame_part, region_part, time_part
from nacdrive.web import LiveServer
from tests.helpers.episodes import make_episode
from tests.helpers.nightly import daily
from tests.helpers.small_policies import DAILY, KINDS, episode_of, saved, small_policy, smooth_frames
from tests.helpers.ticks import make_tick
from tests.web.test_page import until

SAMPLE = shipped("recordings") / "carracing-sample"
DRIVING = sorted(path for task in ("carracing", "udacity") for path in (shipped("agents") / task).glob("nac_*.pt"))
CLOSE = 1e-4
PAINTED = """(() => {
  const c = document.getElementById('overlay');
  return c.getContext('2d').getImageData(0, 0, c.width, c.height).data.some((v) => v > 0);
})()"""
TOO_SMALL = """[...document.querySelectorAll('button, select')]
  .filter((e) => e.offsetParent && e.getBoundingClientRect().height < 24).map((e) => e.id || e.textContent)"""
UNNAMED = """[...document.querySelectorAll('button, input, select')]
  .filter((e) => !(e.textContent.trim() || e.getAttribute('aria-label') || e.labels?.length)).map((e) => e.id)"""
TAMPERED = (
    "nonsense", "mute:h99", "mute:h0", "mute:constructor", "mute:inter.999", "mute:unit.1", "hide:12", "dim:3",
    "paint:<b>,0,1,1,128",
)  # fmt: skip
DECIDE_ALL = """([description, weights, frames, t_s, changes]) => {
  const network = new Network(description, floatsOf(weights));
  const size = description.preprocessing.height * description.preprocessing.width * 3;
  const text = atob(frames);
  const frame = (i) => Uint8Array.from({length: size}, (_, k) => text.charCodeAt(i * size + k));
  const tokens = t_s.map((_, i) => network.token(frame(i)));
  const edits = {...NO_EDITS, ...changes};
  for (const name of ["heads", "units", "hidden"]) edits[name] = new Set(edits[name]);
  return t_s.map((t, i) => {
    const first = Math.max(0, i - network.window + 1);
    const step = network.decide(tokens.slice(first, i + 1), t_s.slice(first, i + 1), i > 0 ? t_s[i - 1] : null, edits);
    return [...step.outputs, step.steering, step.throttle, step.brake, step.choice];
  });
}"""


MEASURE = """async ([description, weights, frames, t_s, names]) => {
  const network = new Network(description, floatsOf(weights));
  const size = description.preprocessing.height * description.preprocessing.width * 3;
  const text = atob(frames);
  const first = Math.max(0, t_s.length - network.window);
  const frame = (i) => Uint8Array.from({length: size}, (_, k) => text.charCodeAt(i * size + k));
  const times = t_s.slice(first);
  const tokens = times.map((_, i) => network.token(frame(first + i)));
  const moment = {tokens, times, before_s: t_s.at(-2), pixels: frame(t_s.length - 1)};
  const effects = await measure(network, moment, NO_EDITS);
  return [{...effects, muted: effects.muted.map((m) => [...m])}, explain(effects, names)];
}"""


# What is drawn through these points, of which one is not known, by the shared page's map and by the line of all charts.
DRAWN = """() => {
  const points = [[0, 1], [1, 2], [null, null], [3, 4], [4, 6]];
  const calls = [];
  const note = (name, given) => /To|Path$/.test(name) && calls.push([name, ...given].join(" "));
  const c = new Proxy({}, { set: () => true, get: (_, name) => (...given) => note(name, given) });
  const drawn = (draw) => { calls.length = 0; draw(); return calls.join(", "); };
  const chart = (shape) => drawn(() => {
    const line = new Polyline(c, shape);
    for (const [x, y] of points) x === null ? line.lift() : line.to(x, y);
    line.lift();
  });
  const map = player.chart.map;
  return {
    path: drawn(() => map.path(c, points, (x, y) => [x, y], { colour: "", width: 1 })),
    road: drawn(() => map.road(c, [points], (x, y) => [x, y], "")),
    step: chart({ step: true }),
    filled: chart({ base: 0 }),
  };
}"""
SPLIT = {
    "path": "beginPath, moveTo 0 1, lineTo 1 2, moveTo 3 4, lineTo 4 6",
    "road": "beginPath, moveTo 0 1, lineTo 1 2, moveTo 3 4, lineTo 4 6, closePath",
    "step": "beginPath, moveTo 0 1, lineTo 1 1, lineTo 1 2, moveTo 3 4, lineTo 4 4, lineTo 4 6",
    "filled": (
        "beginPath, moveTo 0 0, lineTo 0 1, lineTo 1 2, lineTo 1 0, lineTo 0 0, "
        "moveTo 3 0, lineTo 3 4, lineTo 4 6, lineTo 4 0, lineTo 3 0"
    ),
}
HAS_COLOUR = """([id, name]) => {
  const c = document.getElementById(id);
  const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d");
  probe.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  probe.fillRect(0, 0, 1, 1);
  const [r, g, b] = probe.getImageData(0, 0, 1, 1).data;
  const data = c.getContext("2d").getImageData(0, 0, c.width, c.height).data;
  return data.some((v, i) => i % 4 === 0 && [v, ...data.slice(i + 1, i + 4)].join() === [r, g, b, 255].join());
}"""


@pytest.fixture(scope="module")
def javascript(browser: Any) -> Any:
    """Runs ``DECIDE_ALL`` with the network's file and nothing else of the page."""
    tab = browser.new_page()
    seen: set[Path] = set()
    tab.add_script_tag(content=script(PARTS / "network.js", seen) + script(shipped("www") / "js" / "effects.js", seen))

    def decide(policy: Policy, frames: Any, t_s: Any, **changes: Any) -> np.ndarray:
        description, weights = network_json(describe(policy))
        packed = base64.b64encode(np.ascontiguousarray(frames).tobytes()).decode()
        given = [description, weights, packed, [float(t) for t in t_s], changes]
        return np.array(tab.evaluate(DECIDE_ALL, given))

    decide.tab = tab  # type: ignore[attr-defined]
    yield decide
    tab.close()


def decided(policy: Policy, frames: Any, t_s: Any) -> np.ndarray:
    """The same by torch."""
    policy.reset()
    rows = []
    for frame, t in zip(frames, t_s, strict=True):
        action = policy.step(frame, float(t))
        choice = -1 if action.choice is None else action.choice
        rows.append([*policy.last_decision().scores, action.steering, action.throttle, action.brake, choice])
    return np.array(rows)


@pytest.mark.parametrize("kind", daily(KINDS, DAILY))
def test_javascript_decides_as_torch(javascript: Any, kind: str) -> None:
    policy = small_policy(kind)
    frames, t_s = smooth_frames(policy, 14)
    result, true = javascript(policy, frames, t_s), decided(policy, frames, t_s)
    np.testing.assert_allclose(result, true, atol=CLOSE * max(1.0, np.abs(true).max()))


@pytest.mark.parametrize("path", daily(DRIVING, ["carracing-nac_steady"], lambda p: f"{p.parent.name}-{p.stem}"))
def test_javascript_decides_as_torch_for_the_shipped_policies(javascript: Any, path: Path) -> None:
    policy = load_policy(path)
    if policy.task == "carracing":
        lap = Recording.open(SAMPLE).load(0)
        frames, t_s = lap.decoded()[60:90], lap.t_s[60:90]
    else:
        frames, t_s = smooth_frames(policy, 6)
    true = decided(policy, frames, t_s)
    np.testing.assert_allclose(javascript(policy, frames, t_s), true, atol=CLOSE * max(1.0, np.abs(true).max() / 10))


@pytest.mark.parametrize("model", ["nac-steady-choices", "silu-tanh", "nac-key-driving"])
@pytest.mark.parametrize(
    ("group", "index"), [("inter", None), ("inter", 3), ("command", 2), ("sensory", 1), ("motor", 1)]
)
def test_a_muted_neuron_is_one_that_torch_has_cut_off(
    javascript: Any, model: str, group: str, index: int | None
) -> None:
    policy = small_policy(model)
    frames, t_s = smooth_frames(policy, 8)
    before = decided(policy, frames, t_s)
    result = javascript(policy, frames, t_s, neurons=[{"group": group, "index": index, "head": None}])
    policy.network.sequence.nac.mask_group(group, None if index is None else [index])
    np.testing.assert_allclose(result, decided(policy, frames, t_s), atol=CLOSE)
    assert np.abs(result - before).max() > 0


def test_a_muted_head_adds_nothing(javascript: Any) -> None:
    policy = small_policy("nac-exact-choices")
    frames, t_s = smooth_frames(policy, 8)
    result = javascript(policy, frames, t_s, heads=[1, 3])
    depth = policy.network.sequence.nac.head_dim
    with torch.no_grad():
        for head in (1, 3):
            policy.network.sequence.nac.out_proj.weight[:, head * depth : (head + 1) * depth] = 0
    np.testing.assert_allclose(result, decided(policy, frames, t_s), atol=CLOSE)


def test_a_hidden_frame_is_one_that_no_query_may_see(javascript: Any) -> None:
    policy = small_policy("nac-exact-choices")
    frames, t_s = smooth_frames(policy, 8)
    t_s = np.arange(8) * 0.08  # so that the gap before the present frame is the same without those that are hidden
    result = javascript(policy, frames, t_s, hidden=[2, 3])
    nac = policy.network.sequence.nac
    with torch.inference_mode():
        x = policy.network.features(torch.from_numpy(frames))
        for i in range(4, 8):
            hidden = torch.tensor([[True, True, False, False]])
            seen = nac(
                x[None, i - 3 : i + 1],
                t=torch.tensor(t_s[None, i - 3 : i + 1]).float(),
                key_padding_mask=hidden,
                last_only=True,
            )
            np.testing.assert_allclose(result[i, :5], policy.network.head(seen)[0, 0], atol=CLOSE)


def test_a_frame_that_comes_later_is_one_with_a_later_time(javascript: Any) -> None:
    for kind in ("nac-exact-choices", "cfc-choices", "absolute-time", "elapsed-time"):
        policy = small_policy(kind)
        frames, t_s = smooth_frames(policy, 5)
        result = javascript(policy, frames, t_s, delay_s=0.3)[-1]
        late = decided(policy, frames, [*t_s[:-1], t_s[-1] + 0.3])[-1]
        np.testing.assert_allclose(result, late, atol=CLOSE)


# ----------------------------------------------------------------------------------------------------- why, measured


def in_browser(javascript: Any, policy: Policy, frames: Any, t_s: Any, names: list[str]) -> Any:
    """What the page's own module measures and says of the last of these frames."""
    description, weights = network_json(describe(policy))
    packed = base64.b64encode(np.ascontiguousarray(frames).tobytes()).decode()
    return javascript.tab.evaluate(MEASURE, [description, weights, packed, [float(t) for t in t_s], names])


@pytest.mark.parametrize(
    "kind", ["nac-exact-choices", "nac-steady-steers", "topk", "cfc-choices", "long-lstm", "upright", "nac-key-driving"]
)
def test_both_modules_measure_the_same_and_say_the_same(javascript: Any, kind: str) -> None:
    policy = small_policy(kind)
    frames, t_s = smooth_frames(policy, 12)
    names = ["nothing", "right", "left", "gas", "brake"]
    decided(policy, frames, t_s)
    effects = policy.meter().measure(policy.last_decision())
    result, why = in_browser(javascript, policy, frames, t_s, names)
    own = effects.explain(names)
    assert [part["name"] for part in result["parts"]] == [part.name for part in effects.parts]
    np.testing.assert_allclose(result["muted"], effects.muted, atol=CLOSE * max(1.0, np.abs(effects.muted).max()))
    assert why["sentence"] == own["sentence"] and why["missing"] == own["missing"]
    assert [bar["change"] for bar in why["bars"]] == pytest.approx([bar["change"] for bar in own["bars"]], abs=1e-3)


def test_both_modules_say_the_same_of_a_hundred_numbers(javascript: Any) -> None:
    rng = np.random.default_rng(0)
    parts = tuple(
        [Part("head", i, f"head {i + 1}") for i in range(8)]
        + [frame_part(i, 0.08 * i) for i in range(1, 4)]
        + [time_part(0.08)]
    )
    parts += tuple(region_part(i) for i in range(12))
    given, own = [], []
    for i in range(100):
        actions = small_policy("dense-choices").config.actions if i % 2 else ()
        base = rng.normal(0, 3, 5 if i % 2 else 2).astype(np.float32) / (1 if i % 2 else 8)
        muted = base + rng.normal(0, 10.0 ** rng.integers(-4, 1), (len(parts), len(base))).astype(np.float32)
        effects = Effects(parts, base, muted, actions)
        own.append(effects.explain(["a", "b"]))
        plain = [asdict(part) | {"without": part.without} for part in parts]
        given.append({"parts": plain, "base": base.tolist(), "muted": muted.tolist(), "actions": actions})
    sentences = javascript.tab.evaluate("(all) => all.map((one) => explain(one, ['a', 'b']))", given)
    assert sentences == own
    assert len({"Nothing" in one["sentence"] for one in own}) == 2


# ------------------------------------------------------------------------------------------------------------ the page


@pytest.fixture(scope="module")
def lap_page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four seconds, and a ghost that the live page put in."""
    model, out = shipped("agents") / "carracing" / "nac_steady.pt", tmp_path_factory.mktemp("page") / "lap.html"
    export_html(model, SAMPLE, out, seconds=4.0, playground=partial(page_of, weights=False))
    picture = base64.b64encode(encode_jpeg(np.full((96, 96, 3), 200, np.uint8))).decode()
    line = [{"t_s": 1 + 0.08 * i, "x_m": 100.0 + i, "y_m": 50.0, "picture": picture} for i in range(10)]
    ghost = {"text": "With <b>head 1</b> muted it stays.", "edited": line, "unedited": line}
    out.write_text(out.read_text().replace('id="ghost">null<', f'id="ghost">{in_script(ghost)}<'))
    return out


@pytest.fixture
def opened(open_page: Callable[..., Any], lap_page: Path) -> Callable[..., Any]:
    def go(**options: Any) -> Any:
        tab = open_page(lap_page.as_uri(), **options)
        until(tab, "player.lap.plain.every((d) => d !== null)")
        return tab

    return go


# Of the time between two frames nothing passes by itself.
HELD_TIMERS = """() => {
  window.waiting = [];
  const own = setTimeout;
  window.setTimeout = (due, ms) => (ms > 0 ? waiting.push(due) : own(due, ms));
  player.lap.t_s = player.lap.t_s.map((t) => 100 * t);
}"""


def moment(tab: Any, i: int) -> None:
    tab.evaluate(f"player.show({i})")
    until(tab, f"player.now.at === {i}")


@pytest.mark.nightly
def test_a_button_lets_its_network_drive_on_the_road_of_the_lap_with_the_same_edits(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.click("#heads button:nth-child(3)")
    with tab.expect_popup() as popup:
        tab.click("#live")
    live = popup.value
    until(live, "typeof playground === 'object' && playground.session.car.world.frame > 3")
    seed = Recording.open(SAMPLE).load(0).seed
    assert live.evaluate("playground.address") == f"#v=1&seed={seed}&if=mute:h3" == live.evaluate("location.hash")
    live.click("#link")
    assert live.input_value("#link-text") == live.evaluate("playground.address")
    weights = "document.getElementById('weights').textContent.trim()"
    assert live.evaluate(weights) == tab.evaluate(weights)


def test_the_page_opens_from_a_disk_decides_as_torch_and_fetches_nothing(opened: Callable[..., Any]) -> None:
    asked: list[str] = []
    tab = opened()
    tab.on("request", lambda request: asked.append(request.url))
    lap = Recording.open(SAMPLE).load(0)
    policy = load_policy(shipped("agents") / "carracing" / "nac_steady.pt")
    count = tab.evaluate("player.lap.length")
    assert count == 50
    true = decided(policy, lap.decoded()[:count], lap.t_s[:count])
    result = np.array(tab.evaluate("player.lap.plain.map((d) => [...d.outputs])"))
    np.testing.assert_allclose(result, true[:, :5], atol=CLOSE * np.abs(true).max())
    agreed = np.mean(true[:, -1] == lap.choice[:count])
    assert f"decides as driven in {100 * agreed:.0f} %" in tab.text_content("#lap-note")
    assert tab.evaluate("player.lap.road.length") == 2 and tab.is_visible("#map")
    assert tab.text_content("#ghost-text") == "The ghost, from 1.0 s on. With <b>head 1</b> muted it stays."
    for step, is_there in ((11, False), (14, True), (40, False)):
        moment(tab, step)
        assert tab.is_visible("#ghost-sees") == is_there
    assert tab.evaluate("document.querySelector('.ghost img').naturalWidth") == 96
    tab.keyboard.press("Home")
    tab.keyboard.press("Space")
    until(tab, "player.now.at > 3")
    tab.keyboard.press("Space")
    until(tab, "!player.playing")
    for text in TAMPERED:
        tab.evaluate("(text) => player.edits.restore(text, player.network)", text)
        assert tab.evaluate("player.edits.list.length") == 0, "an address that was tampered with brings nothing in"
    assert [url for url in asked if not url.startswith("data:")] == []
    assert tab.faults == []


def test_the_lap_is_drawn_by_the_modules_of_the_live_page_in_the_colours_of_the_theme(
    opened: Callable[..., Any],
) -> None:
    tab = opened(color_scheme="light")
    assert tab.evaluate(DRAWN) == SPLIT
    moment(tab, 20)
    for theme in ("light", "dark"):
        assert tab.evaluate("document.documentElement.dataset.theme") == theme
        until(tab, HAS_COLOUR, ["map", "--policy"])
        until(tab, HAS_COLOUR, ["strip", "--policy"])
        tab.keyboard.press("t")
    # The frame that is clicked at is the one that the axis names there.
    left, right = tab.evaluate("[player.chart.left, player.chart.right]")
    for step in (0, 31, 49):
        share = tab.evaluate("(i) => (player.lap.t_s[i] - player.lap.t_s[0]) / player.chart.span", step)
        tab.locator("#strip").click(position={"x": left + share * (right - left) - 1, "y": 30})
        until(tab, f"player.now.at === {step}")
    assert tab.faults == []


OCCLUDED = """([rows, action]) => {
  const occlusion = readOcclusion(rows, action);
  const cells = [];
  const fillRect = (...box) => cells.push([c.fillStyle, c.globalAlpha.toFixed(2), ...box].join(" "));
  const c = { save() {}, restore() {}, fillRect };
  drawOcclusion(c, occlusion, [0, 0, 30, 30]);
  return [Object.values(occlusion.key).join(", "), occlusion.sentence, cells];
}"""
ORANGE, BLUE = "#e66101", "#0064c8"
OCCLUSIONS = (
    (
        [[0, 0, 0.2], [0, -0.4, 0], [0, 0.01, 0]],
        "gas",
        "speaks for it, against it, strongest 40 points",
        "The decision hangs most on the upper right of the picture: grey over one of 9 parts there takes 20 points "
        "from “gas”.",
        [f"{ORANGE} 0.46 20 0 10 10", f"{BLUE} 0.80 10 10 10 10"],
    ),
    (
        [[0, 0, 0.2], [0, -0.4, 0], [0, 0.01, 0]],
        None,
        "steers right, left, strongest 0.40 of the wheel",
        "The decision hangs most on the middle of the picture: grey over one of 9 parts there turns the wheel by 0.40.",
        [f"{ORANGE} 0.46 20 0 10 10", f"{BLUE} 0.80 10 10 10 10"],
    ),
    (
        [[0.004, 0], [0, -0.3]],
        "gas",
        "speaks for it, against it, strongest 30 points",
        "No single part of the picture matters here: grey over any of the 4 takes less than one point from “gas”.",
        [f"{BLUE} 0.80 15 15 15 15"],
    ),
    (
        [[0.001, 0], [0, 0]],
        None,
        "steers right, left, strongest 0.00 of the wheel",
        "No single part of the picture matters here: grey over any of the 4 turns the wheel by less than 0.01.",
        [f"{ORANGE} 0.19 0 0 15 15"],
    ),
)
"""Changes of each part, the chosen action; then the key, the sentence, and what is drawn over a picture of 30 x 30."""


def test_what_a_decision_hangs_on_has_a_key_to_its_colours_and_goes_with_the_frame(opened: Callable[..., Any]) -> None:
    tab = opened()
    for rows, action, *read in OCCLUSIONS:
        assert tab.evaluate(OCCLUDED, [rows, action]) == read
    moment(tab, 40)
    assert not tab.is_visible("#map-key")
    tab.keyboard.press("o")
    until(tab, "document.getElementById('try-status').textContent.startsWith('The decision hangs most on the ')")
    assert tab.evaluate(PAINTED) and tab.is_visible("#map-key")
    assert tab.inner_text("#map-key").startswith("speaks for it")
    tab.keyboard.press("ArrowRight")
    until(tab, "player.now.at === 41")
    assert not tab.is_visible("#map-key") and not tab.evaluate(PAINTED), "another frame has another map"
    assert tab.faults == []


@pytest.mark.nightly
def test_frames_of_a_jpeg_lap_are_the_bytes_that_pillow_reads(open_page: Callable[..., Any], tmp_path: Path) -> None:
    policy = small_policy("nac-steady-steers")
    frames, t_s = smooth_frames(policy, 3)
    episode = episode_of(policy, [encode_jpeg(frame) for frame in frames], t_s)
    (tmp_path / "lap.html").write_text(page(describe(policy), lap_record(describe(policy), episode, 60.0)))
    tab = open_page((tmp_path / "lap.html").as_uri())
    until(tab, "player.lap.plain.every((d) => d !== null)")
    result = np.array(tab.evaluate("player.lap.pixels(1).then((p) => [...p])"), np.uint8)
    apart = np.abs(result.reshape(frames[1].shape).astype(int) - decode_image(episode.frames[1]))
    assert apart.max() <= 1
    assert any(word in tab.text_content("#bars") for word in ("straight", "left", "right"))
    assert tab.faults == []


def test_the_lap_is_tried_before_all_of_it_is_decided_and_what_is_asked_meanwhile_is_another_question(
    opened: Callable[..., Any],
) -> None:
    tab = opened()
    tab.select_option("#region", "0,0,0.5,1")
    tab.evaluate("player.lap.plain.fill(null)")
    tab.click("#try-all")
    until(tab, "document.getElementById('try-status').textContent.startsWith('It decides otherwise in')")
    tab.evaluate("document.getElementById('try-all').click(); document.getElementById('every-frame').click()")
    until(tab, "!document.getElementById('try-all').disabled")
    assert tab.text_content("#try-status") == "" and tab.evaluate("player.tried") is None
    assert tab.faults == []


def test_a_lap_that_is_held_and_played_again_at_once_is_played_once(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.evaluate(HELD_TIMERS)
    for presses in (1, 2, 2):
        tab.evaluate("(n) => { for (let press = 0; press < n; press++) player.play(); }", presses)
        until(tab, "waiting.length > 0")
    until(tab, "waiting.length === 3")
    at = tab.evaluate("player.at")
    tab.evaluate("for (const due of waiting.splice(0)) due()")
    until(tab, "waiting.length > 0")
    tab.wait_for_timeout(200)
    assert tab.evaluate("[player.playing, player.at, waiting.length]") == [True, at + 1, 1]


def test_a_link_that_is_put_into_the_address_of_the_open_page_is_followed(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.evaluate("location.hash = '#ep=1&t=3.00&if=mute:h2'")
    until(tab, "document.getElementById('clock').textContent === '3.0 s'")
    assert tab.text_content("#edits li span") == "head 2 muted"


def test_a_link_of_the_live_page_paints_in_the_colour_that_it_names(opened: Callable[..., Any]) -> None:
    tab = opened()
    corner = "document.getElementById('frame').getContext('2d').getImageData(1, 1, 1, 1).data.slice(0, 3).join()"
    rgb = np.reshape(tab.evaluate("player.lap.pixels(30)"), (-1, 3)).mean(axis=0)
    for level, words, pixel in ((0, "black", np.zeros(3)), ("mean", "its mean colour", rgb), (77, "grey 77", [77] * 3)):
        tab.evaluate(f"location.hash = '#ep=1&t={tab.evaluate('player.lap.t_s[30]')}&if=paint:0,0,.5,.5,{level}'")
        until(tab, f"{corner} === '{','.join(str(int(one)) for one in pixel)}'")
        assert tab.text_content("#edits li span") == f"25 % of the picture painted {words}"
    tab.evaluate("location.hash = '#ep=1&t=3&if=paint:0,0,.5,.5,999'")
    until(tab, "document.querySelector('#edits li') === null")


@pytest.mark.nightly
def test_painting_with_the_mouse_is_answered_at_once_and_can_be_undone(opened: Callable[..., Any]) -> None:
    tab = opened()
    moment(tab, 40)
    before = tab.evaluate("[...player.now.now.outputs]")
    tab.click("#paint")
    box = tab.locator("#overlay").bounding_box()
    tab.mouse.move(box["x"] + 5, box["y"] + 5)
    tab.mouse.down()
    tab.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.9, steps=4)
    tab.mouse.up()
    until(tab, "player.now.edits !== null")
    assert tab.evaluate("[...player.now.now.outputs]") != before
    assert tab.evaluate("[...player.now.plain.outputs]") == before
    paint = tab.evaluate("player.edits.list[0]")
    share = (paint["right"] - paint["left"]) * (paint["bottom"] - paint["top"])
    said = tab.text_content("#effect")
    assert said.startswith(f"With {100 * share:.0f} % of the picture painted grey it") and "→" in said
    # What the sentence says is what torch measures with the same grey in all frames of the window.
    lap, policy = Recording.open(SAMPLE).load(0), load_policy(shipped("agents") / "carracing" / "nac_steady.pt")
    first = 41 - policy.config.window
    frames = lap.decoded()[first:41].copy()
    x0, y0 = int(np.floor(paint["left"] * 96)), int(np.floor(paint["top"] * 96))
    x1, y1 = int(np.ceil(paint["right"] * 96)), int(np.ceil(paint["bottom"] * 96))
    frames[:, y0:y1, x0:x1] = 128
    x = policy.network.features(torch.from_numpy(frames))
    true = policy.network.head(policy.network.sequence(x[None], torch.tensor(lap.t_s[None, first:41]).float()))[0, -1]
    np.testing.assert_allclose(tab.evaluate("[...player.now.now.outputs]"), true.detach(), atol=2e-3)
    assert len(tab.query_selector_all("#edits li")) == 1
    tab.keyboard.press("u")
    until(tab, "player.now.edits === null")
    assert tab.evaluate("[...player.now.now.outputs]") == before
    assert tab.text_content("#effect") == ""
    assert tab.faults == []


@pytest.mark.nightly
def test_heads_frames_neurons_light_and_time_are_edited_listed_and_taken_back_one_by_one(
    opened: Callable[..., Any],
) -> None:
    tab = opened()
    moment(tab, 40)
    tab.click("#heads button:nth-child(4)", delay=200)
    assert tab.get_attribute("#heads button:nth-child(4)", "aria-pressed") == "true"
    tab.click("#film button:nth-child(3)", delay=200)
    tab.select_option("#group", "inter")
    tab.select_option("#neuron", index=12)
    tab.click("#mute")
    tab.locator("#dim").fill("0.4")
    tab.locator("#blur").fill("2")
    tab.locator("#shift").fill("0.2")
    rows = [row.text_content().rstrip("✕") for row in tab.query_selector_all("#edits li")]
    assert rows == [
        "head 4 muted", "the frame of 2 decisions ago hidden", "inter neuron 12 of all heads muted",
        "the picture dimmed to 40 %", "the picture blurred by 2 px", "this frame 0.2 s later",
    ]  # fmt: skip
    until(tab, "document.getElementById('effect').textContent.startsWith('With these 6 edits it ')")
    address = tab.evaluate("location.hash")
    tab.click("#edits li:nth-child(2) button")
    assert len(tab.query_selector_all("#edits li")) == 5
    until(tab, "document.querySelector('#film button:nth-child(3)').getAttribute('aria-pressed') === 'false'")
    tab.click("#clear")
    until(tab, "player.now.edits === null")
    # The address held it all.
    tab.evaluate("(hash) => { location.hash = hash; }", address)
    tab.reload()
    until(tab, "player.now && player.now.at === 40 && player.edits.list.length === 6")
    assert tab.faults == []


@pytest.mark.nightly
def test_the_whole_lap_is_tried_and_the_occlusion_map_is_laid_over_the_picture(opened: Callable[..., Any]) -> None:
    tab = opened()
    tab.select_option("#region", "0,0,0.5,1")
    tab.click("#try-all")
    until(tab, "document.getElementById('try-status').textContent.startsWith('It decides otherwise in')")
    other = tab.evaluate("player.tried.filter((d, i) => d.choice !== player.lap.plain[i].choice).length")
    assert f"in {other} of 50 frames" in tab.text_content("#try-status")
    tab.click("#clear")
    moment(tab, 40)
    tab.keyboard.press("o")
    until(tab, "document.getElementById('try-status').textContent.startsWith('The decision hangs most on the ')")
    assert tab.evaluate(PAINTED)
    assert tab.faults == []


@pytest.mark.nightly
@pytest.mark.parametrize(
    "options",
    [{"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}, {"color_scheme": "dark"}],
    ids=["phone", "dark"],
)
def test_it_fits_a_phone_and_a_dark_screen(opened: Callable[..., Any], options: dict[str, Any]) -> None:
    tab = opened(**options)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate("document.documentElement.dataset.theme") == ("dark" if "color_scheme" in options else "light")
    assert tab.evaluate(TOO_SMALL) == []
    assert tab.evaluate(UNNAMED) == []
    assert tab.faults == []


@pytest.mark.nightly
def test_a_gru_has_units_to_mute_and_no_heads(open_page: Callable[..., Any], tmp_path: Path) -> None:
    policy = small_policy("gru-steers")
    frames, t_s = smooth_frames(policy, 6)
    episode = episode_of(policy, [encode_jpeg(frame) for frame in frames], t_s)
    (tmp_path / "lap.html").write_text(page(describe(policy), lap_record(describe(policy), episode, 60.0)))
    tab = open_page((tmp_path / "lap.html").as_uri())
    until(tab, "player.lap.plain.every((d) => d !== null)")
    moment(tab, 4)
    assert not tab.is_visible("#heads") and not tab.is_visible("#time-edits")
    tab.select_option("#neuron", index=3)
    tab.click("#mute")
    until(tab, "player.now.edits !== null")
    assert tab.text_content("#effect").startswith("With unit 4 muted it")
    assert tab.faults == []


@pytest.mark.nightly
def test_a_lap_with_places_is_drawn_from_above(open_page: Callable[..., Any], tmp_path: Path) -> None:
    policy = small_policy("dense-choices")
    frames, t_s = smooth_frames(policy, 6)
    episode = episode_of(policy, [encode_jpeg(frame) for frame in frames], t_s)
    episode = replace(episode, x_m=np.linspace(0, 30, 6), y_m=np.array([0.0, 2, 5, np.nan, 9, 9]))
    (tmp_path / "lap.html").write_text(page(describe(policy), lap_record(describe(policy), episode, 60.0)))
    tab = open_page((tmp_path / "lap.html").as_uri())
    until(tab, "player.lap.plain.every((d) => d !== null)")
    assert tab.is_visible("#map")
    assert tab.evaluate(PAINTED.replace("overlay", "map"))
    assert tab.faults == []


# ---------------------------------------------------------------------------------------------------------- bad input


def test_seconds_of_a_lap_are_counted_from_its_start() -> None:
    policy = small_policy("nac-steady-choices")
    frames, _ = smooth_frames(policy, 9)
    encoded = [encode_jpeg(frame) for frame in frames]
    episode = replace(make_episode(steps=9), frames=encoded, t_s=5.0 + 0.08 * np.arange(9))
    assert lap_record(describe(policy), episode, 0.3)["t_s"] == [float(t) for t in episode.t_s[:4]]


def test_what_cannot_be_shared_gets_one_sentence(tmp_path: Path) -> None:
    carracing = shipped("agents") / "carracing" / "nac_steady.pt"
    with pytest.raises(UserError, match=r"trained for 'udacity'.*this lap is of 'carracing'"):
        dispatch(["share", str(SAMPLE), "--model", "udacity/nac_steady", "-o", str(tmp_path / "lap.html")])
    with pytest.raises(UserError, match="there is no episode 9"):
        load_lap(SAMPLE, 9)
    one = next(SAMPLE.glob("*.parquet"))
    with pytest.raises(UserError, match="parquet is one episode: leave out --episode 7"):
        load_lap(one, 7)
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    with pytest.raises(UserError, match="truncated or damaged"):
        export_html(carracing, tmp_path / "broken.parquet", tmp_path)
    (tmp_path / "evaluation.json").write_text("{}")
    with pytest.raises(UserError, match="kept no drives"):
        export_html(carracing, tmp_path, tmp_path / "lap.html")
    assert not list(tmp_path.glob("*.html"))


@pytest.mark.nightly
def test_the_shared_page_and_the_live_page_say_the_same_of_the_same_decision(
    opened: Callable[..., Any], open_page: Callable[..., Any]
) -> None:
    reason, tab = "document.querySelector('#why .reason').textContent", opened()
    lap, policy = Recording.open(SAMPLE).load(0), load_policy(shipped("agents") / "carracing" / "nac_steady.pt")
    with LiveServer(port=0, choices=CARRACING.actions) as server:
        live = open_page(server.url)
        for step in (12, 27, 44):
            moment(tab, step)
            decided(policy, lap.decoded()[: step + 1], lap.t_s[: step + 1])
            why = policy.meter().measure(policy.last_decision()).explain(CARRACING.actions)
            server.publish(make_tick(step, why=why, circuit=False, saliency=False))
            until(live, f"{reason} === {json.dumps(why['sentence'])}")
            until(tab, f"{reason} === {json.dumps(why['sentence'])}")


@pytest.mark.nightly
def test_a_link_of_the_live_page_and_of_a_shared_one_say_the_same_in_the_same_way(opened: Callable[..., Any]) -> None:
    tab = opened()
    moment(tab, 40)
    tab.click("#heads button:nth-child(4)", delay=200)
    until(tab, "location.hash.includes('if=')")
    assert tab.evaluate("decodeURIComponent(location.hash)") == "#ep=1&t=3.20&if=mute:h4"


def test_names_in_a_recording_stay_words(open_page: Callable[..., Any], tmp_path: Path) -> None:
    policy = small_policy("dense-choices")
    frames, t_s = smooth_frames(policy, 3)
    bad = "</script><img src=x onerror=alert(1)>"
    episode = episode_of(policy, [encode_jpeg(frame) for frame in frames], t_s)
    record = {**lap_record(describe(policy), episode, 60.0), "driver": bad, "where": bad}
    (tmp_path / "lap.html").write_text(page(describe(policy), record))
    tab = open_page((tmp_path / "lap.html").as_uri())
    until(tab, "player.lap.plain.every((d) => d !== null)")
    assert bad in tab.text_content("#about")
    assert tab.query_selector("img[src=x]") is None
    assert tab.faults == []


def test_the_verb_writes_the_page_of_an_evaluation_with_its_own_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:

    out = tmp_path / "lap.html"
    assert dispatch(["share", str(SAMPLE), "-o", str(out), "--seconds", "2"]) == 0
    assert "the first 2 s of 14.9 s driven by ppo, with nac_steady.pt" in capsys.readouterr().out
    with pytest.raises(UserError, match="give --overwrite"):
        dispatch(["share", str(SAMPLE), "-o", str(out)])
    with pytest.raises(UserError, match=r"ends in \.html"):
        dispatch(["share", str(SAMPLE), "-o", str(tmp_path / "lap.txt")])
    _, model = saved("nac-exact-choices", tmp_path)
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "evaluation.json").write_text(f'{{"file": "{model}", "sha256": "another"}}')
    (tmp_path / "run" / "drives").symlink_to(SAMPLE.resolve())
    with pytest.raises(UserError, match="give it with --model"):
        dispatch(["share", str(tmp_path / "run"), "-o", str(tmp_path / "other.html")])
