"""A proxy before an object store on this machine: it counts requests, takes its time, and lets them meet faults."""

from refdelta.proxy.faults import KINDS, FaultRule, FaultRules, RandomFaults
from refdelta.proxy.proxy import Proxy
from refdelta.proxy.requests import Origin, Request

__all__ = ["KINDS", "FaultRule", "FaultRules", "Origin", "Proxy", "RandomFaults", "Request"]
