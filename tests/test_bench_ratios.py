"""The guard against slow drift says what got worse, and only that."""

from pathlib import Path

import pytest
from bench import ratios


def test_only_what_fell_beyond_the_tolerance_is_worse() -> None:
    before = {"a": 10.0, "b": 2.0, "c": 1.0}
    assert ratios.worse(before, {"a": 9.2, "b": 1.5, "c": 4.0}) == ["b: 2.00 -> 1.50, 25 % worse"]
    assert ratios.worse(before, {"a": 10.0, "b": 2.0}) == ["c: 1.00 was recorded, nothing was measured"]


def test_what_is_recorded_is_compared_with_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ratios, "RECORD", tmp_path / "ratios.json")
    ratios.settle("crawl", {"us / them": 2.0}, record=False)
    ratios.settle("crawl", {"us / them": 2.0}, record=True)
    ratios.settle("crawl", {"us / them": 1.9}, record=False)
    ratios.settle("crawl", {"us / them": 1.0}, record=False)
    told = capsys.readouterr().out.split("\n")
    assert "nothing is recorded" in told[1]
    assert "nothing got worse" in told[5]
    assert "us / them: 2.00 -> 1.00, 50 % worse" in told[7]
