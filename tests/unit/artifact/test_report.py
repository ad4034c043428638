"""The report shows what the manifest and the history say, and nothing of it is code."""

from __future__ import annotations

import dataclasses
import random
import re
from html.parser import HTMLParser
from xml.etree import ElementTree

import pytest

from mvprune.artifact import Accounting, DatasetSource, LayerCount, ModelSource, ResultInfo
from mvprune.artifact.history import MAX_POINTS, Evaluated, Histogram, History, Phase, Plane
from mvprune.artifact.report import report_page
from mvprune.artifact.report.figures import Figure, figures
from mvprune.artifact.report.svg import INNER_HEIGHT, INNER_WIDTH, Axis, Plot

MATRICES = ("attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense",
            "intermediate.dense", "output.dense")  # fmt: skip
DENSITIES = [0.01 * (number + 1) for number in range(12)]


@pytest.fixture
def info() -> ResultInfo:
    names = [f"bert.encoder.layer.{block}.{matrix}.weight" for block in range(2) for matrix in MATRICES]
    layers = [LayerCount(n, (100, 100), d, round(1e4 * d)) for n, d in zip(names, DENSITIES, strict=True)]
    return ResultInfo(
        spec={"model": "tiny", "task": "sst2", "soft_movement": {"penalty": 400}, "target_density": 0.1},
        model=ModelSource("models/tiny-bert", "", "a" * 64),
        dataset=DatasetSource("sst2", "b" * 64, 256, 64),
        metrics={"eval/accuracy": 0.75, "dense/accuracy": 0.8125, "delta/accuracy": -0.0625},
        primary_metric="accuracy",
        accounting=Accounting(0.1, 0.0975, 120_000, 11_700, 130_000, 21_700, 200_000, 90_000, 800_000, 40_000),
        layers=tuple(layers),
        versions={"mvprune": "0.1.0"},
        seed=7,
    )


def phase(name: str, steps: int, evaluations: int = 2) -> Phase:
    numbers = tuple(range(1, steps + 1))
    source = random.Random(name)
    return Phase(
        name,
        steps,
        numbers,
        tuple(round(source.random(), 5) for _ in numbers),
        tuple(1 - 0.9 * step / steps for step in numbers),
        tuple(
            Evaluated(step * steps // evaluations, {"accuracy": 0.5 + step / 100}) for step in range(1, evaluations + 1)
        ),
    )


@pytest.fixture
def history() -> History:
    weights = Histogram(-0.5, 0.5, {"original": (1, 8, 1), "kept": (2, 0, 2)})
    scores = Histogram(0.0, 1.0, {"kept": (0, 4), "pruned": (6, 0)})
    plane = Plane("weights", "scores", {"kept": ((0, 0, 0), (2, 0, 2)), "pruned": ((0, 6, 0), (0, 0, 0))})
    phases = (phase("dense", 10), phase("pruning", 10))
    return History(phases, {"weights": weights, "scores": scores}, {"scores": plane})


def picture(info: ResultInfo, history: History, title: str) -> Figure:
    (found,) = [figure for figure in figures(info, history) if figure.title == title]
    return found


def elements(figure: Figure, tag: str) -> list[ElementTree.Element]:
    return list(ElementTree.fromstring(figure.svg).iter(tag))  # noqa: S314 (our own)


def points(path: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r"[ML](-?[\d.]+) (-?[\d.]+)", path)]


class _Tags(HTMLParser):
    """Checks that tags close; keeps what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def parsed(page: str) -> _Tags:
    parser = _Tags()
    parser.feed(page)
    assert parser.open == []
    return parser


def test_the_page_says_what_the_manifest_says(info: ResultInfo, history: History) -> None:
    page = report_page(info, "BertForSequenceClassification", history, total_bytes=80_000)
    parsed(page)
    for text in (
        "<title>tiny-bert for sst2, 9.8 % of its weights</title>",
        "BertForSequenceClassification, pruned by soft_movement while it was fine-tuned: 11,700 of 120,000 prunable",
        '<td>accuracy</td><td class="n">0.8125</td><td class="n">0.7500</td><td class="n">-0.0625</td>',
        "<b>10.0×</b><span>smaller: 80.0 kB in all files instead of 800.0 kB dense in fp32",
        "<td>80.0 kB in all files (dense in fp32: 800.0 kB, 10.0 times smaller)</td>",
        "sst2: 256 rows to train on, 64 to evaluate on",
        "requested 10.0 %, reached 9.8 %",
        info.spec_sha256,
        "&quot;penalty&quot;: 400",
    ):
        assert text in page
    assert page == report_page(info, "BertForSequenceClassification", history, total_bytes=80_000)
    assert "smaller:" not in report_page(info, "BertForSequenceClassification", history)


def test_the_page_says_how_fast_the_model_is_and_with_which_code(info: ResultInfo, history: History) -> None:
    rivals = {"dense_latency_ms": 10.16, "dense_int8_latency_ms": 6.0, "int8_latency_ratio": 1.5}
    metrics = {**info.metrics, "latency_ms": 4.0, "latency_ratio": 2.54, **rivals}
    page = report_page(dataclasses.replace(info, metrics=metrics), "BertModel", history)
    parsed(page)
    code = "mvprune.load(FOLDER, runtime=&quot;sparse&quot;)"
    assert f"<b>2.5×</b><span>as fast on a CPU as the same weights dense in torch: {code}" in page
    assert "<b>1.5×</b><span>as fast on a CPU as the unpruned model in torch&#x27;s dynamic int8" in page
    for words in (
        "2.54 times as fast as the same weights dense in torch fp32 (10.2 ms)",
        "1.50 times as fast as the unpruned model in torch&#x27;s dynamic int8 (6 ms)",
        f"{code} and mvpctl serve FOLDER run the sparse model, mvpctl benchmark FOLDER measures both on your machine",
    ):
        assert f"<td>{words}</td>" in page
    assert f"{code} and mvpctl serve FOLDER run the sparse model" in report_page(info, "BertModel", history)


def test_the_notes_of_the_run_are_on_the_page(info: ResultInfo, history: History) -> None:
    assert "<h2>Notes</h2>" not in report_page(info, "BertModel", history)
    page = report_page(dataclasses.replace(info, notes=("first", "x" * 500)), "BertModel", history)
    parsed(page)
    assert f"<h2>Notes</h2><ul><li>first</li><li>{'x' * 500}</li></ul>" in page


def test_nothing_comes_from_elsewhere(info: ResultInfo, history: History) -> None:
    page = report_page(info, "BertForSequenceClassification", history)
    found = parsed(page)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.tags)
    assert not {"src", "href", "onload", "style"} & {name for name, _ in found.attributes}
    assert "http:" not in page
    assert "https:" not in page
    assert "url(" not in page
    assert "Content-Security-Policy\" content=\"default-src 'none'" in page
    assert "prefers-color-scheme:dark" in page
    assert "@media print" in page


def test_names_from_outside_are_no_markup(info: ResultInfo, history: History) -> None:
    evil = "\"'><script>alert(1)</script>&"
    hostile = dataclasses.replace(
        info,
        spec={evil: {evil: [evil]}},
        model=ModelSource(f"{evil}/{evil}", evil, "a" * 64),
        dataset=DatasetSource(evil, evil, 1, 1),
        metrics={f"{part}/{evil}": 0.5 for part in ("eval", "dense", "delta")},
        primary_metric=evil,
        layers=(LayerCount(f"layer.0.{evil}.weight", (4, 4), 0.5, 8), LayerCount(evil, (4, 4), 0.5, 8)),
        versions={evil: evil},
        notes=(evil,),
    )
    renamed = [dataclasses.replace(one, name=evil, evaluations=(Evaluated(1, {evil: 1.0}), Evaluated(2, {evil: 0.5})))
               for one in history.phases]  # fmt: skip
    page = report_page(hostile, evil, dataclasses.replace(history, phases=tuple(renamed)))
    assert "script" not in parsed(page).tags
    assert "<script" not in page
    assert "&lt;script&gt;alert(1)" in page


def test_the_size_is_bounded(info: ResultInfo) -> None:
    """The longest run, the largest model, the longest names."""
    source, long = random.Random(0), "<&'>" * 1000
    layers = [
        LayerCount(f"model.layers.{block}.{'deep' * 100}.{name}.weight", (4096, 4096), source.random(), 3)
        for block in range(200)
        for name in (*MATRICES, "gate")
    ]
    metrics = {f"{part}/{long}{number}": source.random() for part in ("eval", "dense") for number in range(1000)}
    large = dataclasses.replace(
        info,
        spec={"include": [long] * 100},
        model=ModelSource(long, long, "a" * 64),
        dataset=DatasetSource(long, long, 1, 1),
        metrics=metrics,
        layers=tuple(layers),
        versions={f"{long}{number}": long for number in range(1000)},
        notes=(long,) * 1000,
    )
    noise = tuple(tuple(source.randrange(1_000_000) for _ in range(64)) for _ in range(48))
    bins = tuple(source.randrange(1_000_000) for _ in range(64))
    phases = tuple(phase(name, MAX_POINTS, MAX_POINTS) for name in ("dense", "pruning"))
    histograms = {
        "weights": Histogram(-1.0, 1.0, {"original": bins, "kept": bins}),
        "scores": Histogram(-1.0, 1.0, {"kept": bins[:48], "pruned": bins[:48]}),
    }
    plane = Plane("weights", "scores", {"kept": noise, "pruned": noise})
    page = report_page(large, long, History(phases, histograms, {"scores": plane}))
    parsed(page)
    assert len(page.encode()) <= 300_000
    assert "The first 300 of 1400 matrices." in page


def test_the_density_is_drawn_where_it_was(info: ResultInfo, history: History) -> None:
    figure = picture(info, history, "Density")
    (curve,) = [path for path in elements(figure, "path") if path.get("class") == "curve pruned"]
    drawn, pruning = points(curve.get("d", "")), history.phases[1]
    expected = [(0, 1.0), *zip(pruning.steps, pruning.density, strict=True)]
    assert len(drawn) == len(expected)
    for (x, y), (step, density) in zip(drawn, expected, strict=True):
        assert x == pytest.approx(INNER_WIDTH * step / (1.01 * pruning.total_steps), abs=0.06)
        assert y == pytest.approx(INNER_HEIGHT * (1 - density), abs=0.06)


def test_each_phase_has_its_losses_on_axes_of_its_own(info: ResultInfo, history: History) -> None:
    titles = {"dense": "Training of the dense baseline", "pruned": "Training"}
    for one, name in zip(history.phases, ("dense", "pruned"), strict=True):
        figure = picture(info, history, titles[name])
        drawn = [path for path in elements(figure, "path") if len(points(path.get("d", ""))) > 1]
        paths = {path.get("class"): path for path in drawn}
        assert {key for key in paths if key and key.startswith(("raw", "curve"))} == {f"raw {name}", f"curve {name}"}
        assert len(points(paths[f"raw {name}"].get("d", ""))) == len(one.steps)


def test_a_loss_with_a_teacher_is_said_not_to_compare(info: ResultInfo, history: History) -> None:
    taught = dataclasses.replace(info, spec={**info.spec, "teacher": {"model": ""}})
    alone = dataclasses.replace(info, spec={name: value for name, value in info.spec.items() if name != "teacher"})
    assert "including the distillation loss" in picture(taught, history, "Training").caption
    assert "distillation" not in picture(alone, history, "Training").caption


def test_evaluations_are_dots(info: ResultInfo, history: History) -> None:
    told = [dot.findtext("title") for dot in elements(picture(info, history, "Evaluations"), "circle")]
    assert told == ["5: 0.5100", "10: 0.5200"] * 2
    once = dataclasses.replace(history, phases=(phase("dense", 10, 1), phase("pruning", 10, 1)))
    assert picture(info, once, "Evaluations").svg == ""
    assert "only at the end" in picture(info, once, "Evaluations").caption


def test_the_map_has_a_cell_for_every_matrix(info: ResultInfo, history: History) -> None:
    figure = picture(info, history, "Density by layer and matrix")
    texts = ["".join(text.itertext()) for text in elements(figure, "text")]
    assert texts[:9] == ["query", "key", "value", "attention", "output", "intermediate", "output", "layer 0", "layer 1"]
    assert texts[9:] == [f"{100 * density:.3g}" for density in DENSITIES]
    shades = [float(cell.get("opacity", "")) for cell in elements(figure, "rect")]
    assert shades == sorted(shades)
    assert "from 1.0 %, the lightest, to 12.0 %" in figure.caption


def test_weights_and_scores(info: ResultInfo, history: History) -> None:
    kept = next(
        p for p in elements(picture(info, history, "Weights that are kept"), "path") if p.get("class") == "in-pruned"
    )
    heights = [INNER_HEIGHT - float(height) for height in re.findall(r"V([\d.]+)", kept.get("d", ""))]
    assert heights[0] == heights[2] == pytest.approx(INNER_HEIGHT * 0.5 / (1.05 * 0.8), abs=0.06)
    assert heights[1] == 0
    cells = [p for p in elements(picture(info, history, "Scores over weights"), "path") if p.get("opacity") == "1.00"]
    assert [(p.get("class"), p.get("d")) for p in cells] == [("in-faint", "M1 1h1v1H1z")]


def test_a_method_without_scores_says_so(info: ResultInfo, history: History) -> None:
    without = dataclasses.replace(history, histograms={"weights": history.histograms["weights"]}, planes={})
    magnitude = dataclasses.replace(info, spec={"magnitude": {}})
    for title in ("Scores", "Scores over weights"):
        figure = picture(magnitude, without, title)
        assert figure.svg == ""
        assert "magnitude learns no scores" in figure.caption


def test_an_artifact_without_a_history_has_a_report_all_the_same(info: ResultInfo) -> None:
    page = report_page(dataclasses.replace(info, metrics={}, layers=()), "BertModel", History())
    parsed(page)
    assert "No training was recorded." in page


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis("x", 0, 1), [0, 0.2, 0.4, 0.6, 0.8, 1]),
        (Axis("x", -0.5, 0.5), [-0.4, -0.2, 0, 0.2, 0.4]),
        (Axis("x", 0, 25_000), [0, 5_000, 10_000, 15_000, 20_000, 25_000]),
        (Axis("x", 0, 11), [0, 2, 4, 6, 8, 10]),
        (Axis("x", -0.012, 0.004, factor=100), [-0.01, -0.005, 0]),
        (Axis("x", 0.5, 2_000, logarithmic=True), [1, 10, 100, 1000]),
        (Axis("x", 0.018, 0.6, logarithmic=True), [0.02, 0.05, 0.1, 0.2, 0.5]),
        (Axis("x", 1.5, 900, logarithmic=True), [3, 10, 30, 100, 300]),
        (Axis("x", 3.1e6, 8.4e6, logarithmic=True), [4e6, 5e6, 6e6, 7e6, 8e6]),
    ],
)
def test_ticks_are_round(axis: Axis, ticks: list[float]) -> None:
    assert axis.ticks() == pytest.approx(ticks)


def test_ticks_of_a_logarithmic_axis_are_powers_and_multiples_of_them() -> None:
    axis = Axis("x", 1, 1000, logarithmic=True)
    assert [axis.tick_text(value) for value in (100, 0.001, 20)] == ["10²", "10⁻³", "2·10¹"]


def test_marks_and_bars_are_where_the_values_are() -> None:
    plot = Plot("title", Axis("x", 0, 10), Axis("y", 0, 1), "what is seen")
    plot.mark(5, 0.5, "circle", "m", "a <note>")
    plot.error_bar(5, 0.25, 0.75, "e")
    plot.level(1, "g")
    plot.upright(10, "g")
    root = ElementTree.fromstring(plot.svg())  # noqa: S314 (our own)
    paths = {path.get("class"): path.get("d", "") for path in root.iter("path")}
    middle = f"{INNER_WIDTH / 2:g} {INNER_HEIGHT / 2:g}"
    assert paths["m"].startswith(f"M{middle}m")
    assert paths["e"].startswith(f"M{INNER_WIDTH / 2:g} {INNER_HEIGHT / 4:g}V{INNER_HEIGHT * 0.75:g}M")
    assert [path.get("d") for path in root.iter("path") if path.get("class") == "g"] == [
        f"M0 0H{INNER_WIDTH}",
        f"M{INNER_WIDTH} 0V{INNER_HEIGHT}",
    ]
    assert root.findtext("desc") == "what is seen"
    assert [title.text for title in root.iter("title")] == ["a <note>"]
