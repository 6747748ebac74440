"""The list of expected failures is one that can be read; needs no suite."""

import re
from pathlib import Path

from tests.conformance import suites

TESTS = Path(__file__).with_name("test_conformance.py").read_text()


def test_each_expected_failure_is_named_once_and_explained() -> None:
    lines = suites.lines()
    assert len({line[:2] for line in lines}) == len(lines)
    assert all(why and len(why) < 200 for _, _, why in lines)


def test_expected_failures_are_of_suites_that_are_run() -> None:
    run = set(re.findall(r'^    "([\w-]+)": \w+_cases\.', TESTS, re.MULTILINE))
    assert run >= {suite for suite, _, _ in suites.lines()}
