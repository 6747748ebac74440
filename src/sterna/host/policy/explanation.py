"""A policy in words: which homes may come, when, under what load, for how much; and the next change."""

from collections.abc import Iterator, Mapping
from datetime import datetime, tzinfo

from sterna.errors import UsageError
from sterna.host.policy.hours import zone_of
from sterna.host.policy.load import EASE
from sterna.host.policy.policy import MIB, Caps, DayCaps, HomeRules, LoadRules, Policy, rules_of
from sterna.host.policy.terms import Terms, terms_of, with_some
from sterna.model import Record


class _Home(Record, frozen=True):
    """One home, or all that have no rules of their own, with its terms."""

    name: str
    terms: Terms
    is_here: bool = True  # a key is allowed under this name
    rules: HomeRules = HomeRules()  # of its own


def explain(policy: Policy, allowed: Mapping[str, str], *, at: float, home: str = "") -> list[str]:
    """The policy at this moment, for all or for one home; `allowed` maps keys to names. Raises UsageError."""
    homes = list(_homes(policy, allowed))
    if home:
        homes = [each for each in homes if each.name == home]
        if not homes:
            known = ", ".join(each.name for each in _homes(policy, allowed)) or "none"
            raise UsageError(f"unknown home {home!r}: the policy and the list of keys have {known}")
    zone = zone_of(policy.zone)
    lines = [f"time      {_moment(at, zone)}{f' ({policy.zone})' if policy.zone else ''}"]
    if not home:
        lines += _who(policy, allowed)
    for each in homes:
        lines += ["", *_of_home(each, policy, at)]
    if change := _next_change(homes, at, zone):
        lines += ["", f"next change: {change}"]
    return lines


def _homes(policy: Policy, allowed: Mapping[str, str]) -> Iterator[_Home]:
    for name, home in policy.homes.items():
        rules = rules_of(home)
        is_here = bool(rules.key) or name in allowed.values()
        yield _Home(name, terms_of(policy, name, rules), is_here, rules)
    others = sorted(set(allowed.values()) - policy.homes.keys())
    for name in others:
        yield _Home(name, terms_of(policy, name))
    if policy.open == "everybody" or not others:
        name = "everybody else" if policy.open == "everybody" else "any other that is allowed"
        yield _Home(name, terms_of(policy, name))


def _who(policy: Policy, allowed: Mapping[str, str]) -> list[str]:
    if policy.open == "everybody":
        return ["open      to everybody: any home may send crawlers, jailed and within the budget"]
    if not policy.homes and not allowed:
        return ["open      to nobody yet: sterna keys allow KEY --name NAME"]
    return ["open      to the homes below; everybody else is refused"]


def _of_home(home: _Home, policy: Policy, at: float) -> Iterator[str]:
    terms = home.terms
    yield f"{home.name}: {_now(terms, at)}"
    if not home.is_here:
        yield f"  key       none: sterna keys allow KEY --name {home.name}"
    if terms.never:
        return
    yield f"  hours     {_hours(home, policy)}"
    yield f"  load      {_load(terms.load)}"
    yield f"  visit     {_caps(terms.caps)}"
    for rules in sorted(policy.priority, key=lambda each: each.least):
        more = with_some(terms.caps, rules.budget, home.rules.budget)
        if more != terms.caps:
            yield f"            promising priority {rules.least} or more: {_caps(more)}"
    yield f"  day       {_day(terms.day)}"
    obeyed = f"obeyed, as {terms.robots_name}" if terms.obey_robots else "ignored"
    yield f"  robots    robots.txt is {obeyed}"
    if terms.crawlers:
        yield f"  crawlers  only of these authors and programs: {', '.join(terms.crawlers)}"
    if not terms.may_query:
        yield "  query     it may not ask what its crawler holds"
    closed = ", ".join(terms.closed)
    yield f"  closed    {closed or 'nothing'} (and what web servers show to their own machine only)"


def _now(terms: Terms, at: float) -> str:
    if terms.never:
        return "never"
    if terms.hours.contains(at):
        end = terms.hours.ends(at)
        return "may come now" + (f", until {_moment(end, terms.zone)}" if end else "")
    begin = terms.hours.next_begin(at)
    until = f" until {_moment(begin, terms.zone)}" if begin else ""
    if terms.outside_hours == "keep":
        return f"not now: its crawler is kept{until}, and then run"
    return f"not now: refused{until}"


def _hours(home: _Home, policy: Policy) -> str:
    texts = policy.hours if home.rules.hours is None else home.rules.hours
    if not texts:
        return "at any time"
    keeps = home.terms.outside_hours == "keep"
    outside = "kept and run later, its parcels wait for home" if keeps else "refused until the next ones"
    return f"{', '.join(texts)}; outside of them {outside}"


def _load(load: LoadRules) -> str:
    bounds = []
    if load.machine:
        bounds.append(
            f"while other work takes more than {load.machine:.0%} of the machine, until below"
            f" {load.machine * EASE:.0%}"
        )
    if load.latency_ms:
        bounds.append(
            f"while the web server answers {load.probe} more than {load.latency_ms:g} ms later"
            " than when the load is low"
        )
    return f"a visit is paused {' and '.join(bounds)}" if bounds else "not measured"


def _caps(caps: Caps) -> str:
    said = [f"{caps.pages:,} pages", f"{caps.seconds:,.0f} s"]
    said += [f"{caps.requests:,} requests"] if caps.requests else []
    said += [f"{caps.fetched_bytes / MIB:,.0f} MiB read"] if caps.fetched_bytes else []
    said += [f"{caps.sent_bytes / MIB:,.0f} MiB sent"] if caps.sent_bytes else []
    said.append(f"{caps.cpu_seconds:,.0f} s of CPU" if caps.cpu_seconds else "CPU without limit")
    said.append(f"{caps.memory_bytes / MIB:,.0f} MiB" if caps.memory_bytes else "memory without limit")
    return ", ".join(said)


def _day(day: DayCaps) -> str:
    said = [f"{day.visits:,} visits"] if day.visits else []
    said += [f"{day.pages:,} pages"] if day.pages else []
    said += [f"{day.cpu_seconds:,.0f} s of CPU"] if day.cpu_seconds else []
    said += [f"{day.read_bytes / MIB:,.1f} MiB read"] if day.read_bytes else []
    said += [f"{day.sent_bytes / MIB:,.1f} MiB sent"] if day.sent_bytes else []
    return ", ".join(said) or "no limit"


def _next_change(homes: list[_Home], at: float, zone: tzinfo) -> str:
    changes = list[tuple[float, str]]()
    for home in homes:
        terms = home.terms
        if terms.never:
            continue
        if terms.hours.contains(at):
            end = terms.hours.ends(at)
            stays = "is paused" if terms.outside_hours == "keep" else "ends"
            changes += [(end, f"the hours of {home.name} end: a visit that runs then {stays}")] if end else []
        elif begin := terms.hours.next_begin(at):
            changes.append((begin, f"{home.name} may come"))
    if not changes:
        return ""
    time, words = min(changes)
    return f"{_moment(time, zone)}, {words}"


def _moment(time: float, zone: tzinfo) -> str:
    return f"{datetime.fromtimestamp(time, zone):%a %d %b %Y %H:%M %Z}"
