"""The figures, as the papers have them, drawn from the JSON of a run: python figures.py wan.json FOLDER.

Runs in the environment of the benches' peers, which has matplotlib; it imports nothing of this project.
"""

import json
import statistics
import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

SITES = ("octave", "postgresql", "cmake and handbook")
MIDDLE = SITES[1]
WAYS = {
    "ordinary 1 gzip": "ordinary with gzip, 1 connection",
    "ordinary 8 gzip": "ordinary with gzip, 8 connections",
    "ordinary 64 gzip": "ordinary with gzip, 64 connections",
    "scrapy 64 gzip": "Scrapy with gzip, 64 connections",
    "http stored": "migrating, HTTP",
    "root stored": "migrating, document root",
    "http 9": "migrating, HTTP, compressed",
    "root 9": "migrating, document root, compressed",
}
COLOURS = ("#b7b7b7", "#969696", "#636363", "#d9a066", "#9ecae1", "#6baed6", "#3182bd", "#08519c")
ORDINARY, STORED, BEST = "ordinary 64", "root stored", "root 9"


class Data:
    """The outcomes of a run."""

    def __init__(self, path: Path) -> None:
        told = json.loads(path.read_text())
        self.line = told["main_line"]
        self.xz = told["xz_bytes"]
        self.outcomes = told["outcomes"]

    def number(self, what: str, way: str, task: str = "full", site: str = MIDDLE, line: str = "") -> float:
        """The median of a number; nothing drawn where there is none."""
        wanted = (way, task, site, line or self.line)
        found = [
            _number(each, what)
            for each in self.outcomes
            if (each["way"], each["task"], each["site"], each["line"]) == wanted
        ]
        return statistics.median(found) if found else 0.0

    def tasks(self, beginning: str) -> list[str]:
        found = (each["task"] for each in self.outcomes if each["line"] == self.line)
        return list(dict.fromkeys(task for task in found if task.startswith(beginning)))


def _number(outcome: dict, what: str) -> float:
    if what == "seconds":
        return outcome["seconds"]
    if what == "megabytes":
        return (outcome["traffic"]["up"] + outcome["traffic"]["down"]) / 1e6
    side, kind = what.split()
    return outcome[side][kind]


def _by_powers(plot) -> None:
    """A logarithmic axis; a run that was stopped early may have nothing to put on it."""
    heights = [patch.get_height() for patch in plot.patches]
    heights += [height for line in plot.lines for height in line.get_ydata()]
    if any(height > 0 for height in heights):
        plot.set_yscale("log", nonpositive="clip")


def _label(plot, title: str, *, height: str) -> None:
    """Says what a drawing shows of the middle site."""
    plot.set_ylabel(height)
    plot.set_title(f"{title}, {MIDDLE}")
    plot.legend(fontsize=8)


def bars(data: Data, what: str, axis: str, title: str):
    """Groups of bars, a site each."""
    figure, plot = plt.subplots(figsize=(10, 5))
    width = 0.8 / len(WAYS)
    for number, ((way, label), colour) in enumerate(zip(WAYS.items(), COLOURS, strict=True)):
        heights = [data.number(what, way, site=site) for site in SITES]
        places = [index + (number - len(WAYS) / 2 + 0.5) * width for index in range(len(SITES))]
        drawn = plot.bar(places, heights, width, label=label, color=colour)
        plot.bar_label(drawn, [f"{height:.3g}" if height else "" for height in heights], fontsize=6)
    _by_powers(plot)
    plot.set_xticks(range(len(SITES)), SITES)
    plot.set_ylabel(axis)
    plot.set_title(f"{title} ({data.line})")
    plot.legend(fontsize=7, ncols=2)
    return figure


def load(data: Data):
    """CPU at home, at the site and together (Crawlets, figure 6)."""
    figure, plots = plt.subplots(1, 3, figsize=(12, 4.5), sharey=True)
    for plot, (title, sides) in zip(
        plots,
        {"home": ["home"], "web server and host": ["at_site"], "both": ["home", "at_site"]}.items(),
        strict=True,
    ):
        user = [sum(data.number(f"{side} user", way) for side in sides) for way in WAYS]
        kernel = [sum(data.number(f"{side} kernel", way) for side in sides) for way in WAYS]
        plot.barh(list(WAYS.values()), user, color="#3182bd", label="user")
        plot.barh(list(WAYS.values()), kernel, left=user, color="#d9a066", label="kernel")
        plot.set_title(title)
        plot.set_xlabel("CPU seconds")
    plots[0].invert_yaxis()
    plots[0].legend(fontsize=8)
    figure.suptitle(f"CPU load, {MIDDLE} ({data.line})")
    return figure


def selection(data: Data):
    """Remote page selection (Fiedler-Hammer, figure 23)."""
    crawlers = ["full", *data.tasks("M")]
    if not crawlers[1:]:
        return None
    figure, plot = plt.subplots(figsize=(8, 4.5))
    plot.bar([0], [data.number("megabytes", ORDINARY)], 0.4, color="#636363", label="ordinary")
    for shift, way, colour, label in (
        (-0.2, STORED, "#9ecae1", "not compressed"),
        (0.2, BEST, "#08519c", "compressed"),
    ):
        places = [index + shift for index in range(1, len(crawlers))]
        drawn = plot.bar(
            places,
            [data.number("megabytes", way, task) for task in crawlers[1:]],
            0.4,
            color=colour,
            label=label,
        )
        plot.bar_label(drawn, fmt="%.2f", fontsize=7)
    plot.set_xticks(range(len(crawlers)), ["S1", *crawlers[1:]])
    _label(plot, "Remote page selection", height="MB on the line, both ways")
    return figure


def filtering(data: Data):
    """Remote page filtering (Fiedler-Hammer, figure 24)."""
    tasks = data.tasks("filtered")
    degrees = [int(task.split()[1]) for task in tasks]
    whole = data.number("megabytes", ORDINARY) or 1.0
    if not tasks:
        return None
    figure, plot = plt.subplots(figsize=(8, 4.5))
    plot.axhline(100, color="#636363", label="ordinary")
    for shift, way, colour, label in (
        (-1.8, STORED, "#9ecae1", "not compressed"),
        (1.8, BEST, "#08519c", "compressed"),
    ):
        heights = [100 * data.number("megabytes", way, task) / whole for task in tasks]
        plot.bar([degree + shift for degree in degrees], heights, 3.6, color=colour, label=label)
    plot.set_xticks(degrees)
    plot.set_xlabel("filter degree, % of each page left at the site")
    _label(plot, "Remote page filtering", height="network load, % of ordinary crawling")
    return figure


def compression(data: Data):
    """Network load by the number of pages (Fiedler-Hammer, figure 25)."""
    tasks = data.tasks("first")
    if not tasks:
        return None
    figure, plot = plt.subplots(figsize=(8, 4.5))
    for way, colour, label in (
        (ORDINARY, "#636363", "ordinary"),
        (STORED, "#9ecae1", "migrating, not compressed"),
        (BEST, "#08519c", "migrating, compressed"),
    ):
        loads = [data.number("megabytes", way, task) for task in tasks]
        plot.plot([int(task.split()[1]) for task in tasks], loads, marker="o", color=colour, label=label)
    plot.set_xscale("log", base=2)
    _by_powers(plot)
    counts = [int(task.split()[1]) for task in tasks]
    plot.set_xticks(counts, list(map(str, counts)))
    plot.set_xlabel("pages")
    _label(plot, "Remote page compression", height="MB on the line, both ways")
    return figure


def again(data: Data):
    """The second visit."""
    tasks = data.tasks("again")
    if not tasks:
        return None
    figure, plot = plt.subplots(figsize=(7, 4.5))
    for shift, way, colour, label in (
        (-0.2, "ordinary 64 gzip", "#636363", "conditional requests"),
        (0.2, BEST, "#08519c", "migrating"),
    ):
        heights = [1000 * data.number("megabytes", way, task) for task in tasks]
        drawn = plot.bar(
            [index + shift for index in range(len(tasks))], heights, 0.4, color=colour, label=label
        )
        plot.bar_label(drawn, fmt="%.0f", fontsize=8)
    _by_powers(plot)
    plot.set_xticks(range(len(tasks)), [task.removeprefix("again ") + " changed" for task in tasks])
    _label(plot, "Second visit", height="kB on the line, both ways")
    return figure


def lines(data: Data):
    """Time on other lines."""
    names = list(dict.fromkeys(each["line"] for each in data.outcomes))
    figure, plot = plt.subplots(figsize=(9, 4.5))
    ways = {way: WAYS[way] for way in ("ordinary 8 gzip", "ordinary 64 gzip", "http 9", "root 9")}
    for number, (way, label) in enumerate(ways.items()):
        places = [index + (number - 1.5) * 0.2 for index in range(len(names))]
        heights = [data.number("seconds", way, line=name) for name in names]
        drawn = plot.bar(
            places, heights, 0.2, label=label, color=("#969696", "#636363", "#3182bd", "#08519c")[number]
        )
        plot.bar_label(drawn, [f"{height:.1f}" for height in heights], fontsize=6)
    _by_powers(plot)
    plot.set_xticks(range(len(names)), [name.replace(", ", "\n") for name in names], fontsize=8)
    _label(plot, "Time on other lines", height="seconds")
    return figure


def main() -> None:
    data, folder = Data(Path(sys.argv[1])), Path(sys.argv[2])
    drawn = {
        "crawlets-4-time": bars(data, "seconds", "seconds", "Time to crawl a site"),
        "crawlets-5-bytes": bars(data, "megabytes", "MB on the line, both ways", "Bytes to crawl a site"),
        "crawlets-6-cpu": load(data),
        "fiedler-hammer-23-selection": selection(data),
        "fiedler-hammer-24-filtering": filtering(data),
        "fiedler-hammer-25-compression": compression(data),
        "second-visit": again(data),
        "lines": lines(data),
    }
    for name, figure in drawn.items():
        if figure is None:
            continue  # that experiment was not made
        figure.tight_layout()
        figure.savefig(folder / f"{name}.png", dpi=130)
        print(folder / f"{name}.png")


if __name__ == "__main__":
    main()
