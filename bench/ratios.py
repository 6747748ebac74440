"""The guard against slow drift: ratios of a run beside those that were recorded last.

Absolute times say little from one day to the next, so only ratios to a peer or a limit of the same run are
kept, in bench/ratios.json. All of them are better when they are higher.
"""

import json
from datetime import UTC, datetime
from pathlib import Path

RECORD = Path(__file__).parent / "ratios.json"
TOLERANCE = 0.10  # two runs of the same code differ by as much


def worse(before: dict[str, float], now: dict[str, float]) -> list[str]:
    """A line for each ratio that fell by more than the tolerance, or is no longer measured."""
    lines = []
    for name, old in before.items():
        new = now.get(name)
        if new is None:
            lines.append(f"{name}: {old:.2f} was recorded, nothing was measured")
        elif new < old * (1 - TOLERANCE):
            lines.append(f"{name}: {old:.2f} -> {new:.2f}, {100 * (1 - new / old):.0f} % worse")
    return lines


def settle(bench: str, ratios: dict[str, float], *, record: bool) -> None:
    """Records the ratios of a bench, or says which of them got worse since they were recorded."""
    recorded = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if record:
        rounded = {name: round(ratio, 3) for name, ratio in ratios.items()}
        recorded[bench] = {"date": datetime.now(UTC).date().isoformat(), "ratios": rounded}
        RECORD.write_text(json.dumps(recorded, indent=2, sort_keys=True) + "\n")
        print(f"\nrecorded in {RECORD.name}")
    elif bench not in recorded:
        print("\nnothing is recorded to compare with: --record records this run")
    else:
        last = recorded[bench]
        found = worse(last["ratios"], ratios)
        print(f"\nagainst {last['date']}: " + ("; ".join(found) if found else "nothing got worse"))
