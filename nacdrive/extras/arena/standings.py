"""Who was best: the ranking of one track, and what several tracks say together, in pairs and with intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nacdrive.common.statistics import paired_difference, summary
from nacdrive.rollout.results import Row

ARENA = "arena.json"
"""What an arena writes down: contestants, rankings, totals."""
TIED = 1e-9


def merit(row: Row) -> tuple[float, float, float]:
    """What a drive is ranked by, smaller is better.

    A finished lap stands before any other, fewer interventions (where a car is put back on the road) before more, and
    then the shorter time; of laps that were not finished, the one that got further.
    """
    finished = bool(row["finished_lap"]) and row["failure"] is None
    return (0.0, float(row.get("interventions", 0)), row["simulated_s"]) if finished else (1.0, 0.0, -row["progress"])


def ranking(rows: Mapping[str, Row]) -> list[dict[str, Any]]:
    """The drives of one track by contestant, best first, each with its ``rank``; equally good ones share a rank."""
    order = sorted(rows, key=lambda name: merit(rows[name]))
    ranked: list[dict[str, Any]] = []
    for place, name in enumerate(order):
        row = rows[name]
        same = ranked and all(abs(a - b) < TIED for a, b in zip(merit(row), merit(rows[order[place - 1]]), strict=True))
        ranked.append(
            {
                "rank": ranked[-1]["rank"] if same else place + 1,
                "name": name,
                "ending": row["failure"] or row["ending"],
                "finished": bool(row["finished_lap"]),
                "time_s": row["simulated_s"],
                "progress": row["progress"],
                "episode_return": row["episode_return"],
                "off_road": row["wheels_off"],
                "interventions": row.get("interventions"),
                "late_decisions": row["late_decisions"],
            }
        )
    return ranked


def totals(tracks: Sequence[Mapping[str, Row]]) -> list[dict[str, Any]]:
    """What several tracks say of each contestant, in the order of the first track.

    ``difference``: of the return, to the first contestant, paired by track, with its 95 % interval; None for the first
    itself. ``wins``: tracks on which nobody was better.
    """
    if not tracks:
        return []
    names = list(tracks[0])
    places = [{entry["name"]: entry["rank"] for entry in ranking(rows)} for rows in tracks]
    returns = {name: [float(rows[name]["episode_return"]) for rows in tracks] for name in names}
    return [
        {
            "name": name,
            "tracks": len(tracks),
            "wins": sum(place[name] == 1 for place in places),
            "finished": sum(bool(rows[name]["finished_lap"]) for rows in tracks),
            "return": summary(returns[name]),
            "off_road": sum(rows[name]["wheels_off"] for rows in tracks) / len(tracks),
            "difference": None if name == names[0] else paired_difference(returns[name], returns[names[0]]),
        }
        for name in names
    ]


def track_table(ranked: Sequence[Mapping[str, Any]]) -> str:
    """The ranking of a track as text."""
    wide = max(len(entry["name"]) for entry in ranked)
    lines = [f"     {'':{wide}}     time   of the road    return   off the road"]
    for entry in ranked:
        lines.append(
            f"  {entry['rank']}. {entry['name']:{wide}}  {entry['time_s']:5.1f} s  {entry['progress']:11.1%}  "
            f"{entry['episode_return']:8.1f}  {entry['off_road']:11.1%}   {ending_text(entry)}"
        )
    return "\n".join(lines)


def ending_text(entry: Mapping[str, Any]) -> str:
    """How the drive ended, with the interventions where there were some."""
    count = entry["interventions"] or 0
    return str(entry["ending"]) + (f", {count} intervention{'s' * (count != 1)}" if count else "")


def totals_table(entries: Sequence[Mapping[str, Any]]) -> str:
    """What several tracks say, as text."""
    wide = max(len(entry["name"]) for entry in entries)
    first = entries[0]["name"]
    lines = [f"{entries[0]['tracks']} tracks; difference of the return to {first}, paired by track, 95 % interval:"]
    for entry in entries:
        lines.append(
            f"  {entry['name']:{wide}}  best on {entry['wins']}, laps finished {entry['finished']}, "
            f"return {entry['return']['mean']:7.1f}, {difference_text(entry['difference'])}"
        )
    return "\n".join(lines)


def difference_text(difference: Mapping[str, Any] | None) -> str:
    """A paired difference in words: one whose interval spans zero is not shown."""
    if difference is None:
        return "the others are compared with it"
    value, interval = difference["value"], difference["interval95"]
    if interval is None:
        return f"{value:+.1f} (one track says nothing of others)"
    low, high = interval
    return f"{value:+.1f} ({low:+.1f} to {high:+.1f}){': no difference shown' if low <= 0 <= high else ''}"
