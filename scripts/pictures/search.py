"""Pictures of the search: on recorded spaces, and on a GPU."""

from __future__ import annotations

from typing import Any

from matplotlib.figure import Figure

from pictures.picture import Picture, result
from pictures.style import BLUE, INK, MUTED, ORANGE, RED, SKY, canvas, panels

SPACES = (
    ("xgemm", "", "Xgemm on an RTX 3090"),
    ("4096x4096x4096-f32-nn", "-blind", "fp32, 4096 x 4096 x 4096"),
    ("64x4096x4096-f32-nn", "-blind", "fp32, 64 x 4096 x 4096"),
    ("1023x1025x1027-f32-nn", "-blind", "fp32, 1023 x 1025 x 1027"),
    ("4096x4096x4096-bf16-nn", "-blind", "bf16, 4096 x 4096 x 4096"),
    ("16x4096x4096-bf16-nn", "-blind", "bf16, 16 x 4096 x 4096"),
)
METHODS = {
    "guided": ("autotune, with the cost model", BLUE, "-"),
    "gp": ("autotune, blind", SKY, "-"),
    "kernel-tuner:adaptive_tabu_greywolf": ("Kernel Tuner, adaptive_tabu_greywolf", RED, "-"),
    "kernel-tuner:hybrid_vndx": ("Kernel Tuner, hybrid_vndx", ORANGE, "--"),
}


def replay_values() -> Any:
    spaces = []
    for name, suffix, label in SPACES:
        rows = result(f"h100/search/replay-{name}{suffix}.json")["rows"]
        curves = {row["method"]: row["curve"] for row in rows}
        if suffix:
            guided = result(f"h100/search/replay-{name}.json")["rows"][0]
            curves["guided"] = guided["curve"]
        spaces.append({"label": label, "curves": curves})
    return spaces


def draw_replay(spaces: Any) -> Figure:
    figure, drawings = panels(8.4, 5.2, 2, 3)
    for axes, space in zip(drawings, spaces, strict=True):
        for method, (label, colour, line) in METHODS.items():
            if method in space["curves"]:
                shares = [100 * share for share in space["curves"][method]]
                axes.plot(
                    range(1, len(shares) + 1),
                    shares,
                    line,
                    color=colour,
                    label=label,
                    linewidth=1.8,
                )
        axes.set_ylim(60, 101)
        axes.set_xlim(0, 100)
        axes.set_title(space["label"], size=9.5)
    for axes in drawings[3:]:
        axes.set_xlabel("configurations tried")
    for axes in drawings[::3]:
        axes.set_ylabel("% of the optimum")
    handles = {
        label: handle
        for axes in drawings
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True)
    }
    figure.legend([*handles.values()], [*handles], loc="outside lower center", ncols=2, fontsize=9)
    return figure


def live_values() -> Any:
    rows = []
    for row in result("h100/search/live.json")["rows"]:
        seconds = {run: row[run]["good_s"] for run in ("cold", "warm")}
        rows.append({"problem": row["problem"].removesuffix(":nn"), **seconds})
    return rows


def draw_live(rows: Any) -> Figure:
    figure, axes = canvas(8.4, 5.4)
    for place, row in enumerate(reversed(rows)):
        if row["warm"] is not None:
            axes.plot([row["warm"], row["cold"]], [place] * 2, color=MUTED, linewidth=1)
            axes.scatter(row["warm"], place, color=SKY, s=34, zorder=3)
        axes.scatter(row["cold"], place, color=BLUE, s=34, zorder=3)
    axes.scatter([], [], color=BLUE, s=34, label="from an empty cache")
    axes.scatter([], [], color=SKY, s=34, label="with the programs of the first run (5 s)")
    axes.set_yticks(range(len(rows)), [row["problem"] for row in reversed(rows)], size=8.5)
    axes.set_xlim(0, 9)
    axes.margins(y=0.02)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("seconds from the command to a kernel within 2 % of the best known", color=INK)
    figure.legend(loc="outside lower center", ncols=2, fontsize=9)
    return figure


SEARCH = (
    Picture(
        "replay",
        "Share of the fastest recorded time against configurations tried, beside Kernel Tuner",
        replay_values,
        draw_replay,
    ),
    Picture(
        "live",
        "Seconds until tuning holds a kernel within 2 % of the best known, 24 problems on an H100",
        live_values,
        draw_live,
    ),
)
