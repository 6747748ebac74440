"""Whether a survey may work now: the owner's rules of load hold for his own crawler too."""

from sterna.host.config import HostConfig
from sterna.host.policy.load import Governor, LoadMeter, Probe
from sterna.host.policy.policy import PolicyFile
from sterna.host.site.upstream import Upstream


class Pace:
    """One survey's look at the load; the policy may change meanwhile."""

    def __init__(self, config: HostConfig, policy: PolicyFile, meter: LoadMeter | None = None) -> None:
        self._config = config
        self._policy = policy
        self._meter = meter or LoadMeter()
        self._governor = Governor(policy.policy.load)
        self._probed = ""

    async def why_not(self) -> str:
        """Why it may not work now; "" if it may."""
        self._policy.look()
        rules = self._policy.policy.load
        self._governor.rules = rules
        if rules.latency_ms and rules.probe != self._probed:
            upstream = Upstream.of(self._config.site, self._config.upstream)
            self._meter.probe = Probe(self._config.site, upstream, rules.probe)
            self._probed = rules.probe
        return self._governor.judge(await self._meter.measure(has_probe=bool(rules.latency_ms)))
