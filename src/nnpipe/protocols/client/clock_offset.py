"""Estimation of the offset of the target's clock from the host's, with an error bound.

An exchange gives four timestamps.  On the host's clock, ``t0`` is when the request
was sent and ``t3`` when the answer was received.  On the target's clock, ``t1`` is
when the request was received and ``t2`` when it was answered.  The offset of the
clocks is ``((t1 - t0) + (t2 - t3)) / 2``.  Its error is at most half of the round
trip time, ``((t3 - t0) - (t2 - t1)) / 2``, for any division of that time between
the two directions (RFC 5905, section 8).  Of several exchanges, the one with the
shortest round trip has the smallest error.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """Four timestamps in nanoseconds: asked and answered on the host's clock, received and replied on the target's."""

    asked: int
    received: int
    replied: int
    answered: int

    @property
    def round_trip_ns(self) -> int:
        """The transfer time in both directions."""
        return max((self.answered - self.asked) - (self.replied - self.received), 0)

    @property
    def offset_ns(self) -> float:
        """The target's clock minus the host's."""
        return ((self.received - self.asked) + (self.replied - self.answered)) / 2

    @property
    def error_ns(self) -> float:
        """The bound on the error of the offset: half of the round trip, and a nanosecond for rounding."""
        return self.round_trip_ns / 2 + 1

    @property
    def middle_ns(self) -> float:
        """The time of the exchange on the host's clock."""
        return (self.asked + self.answered) / 2


def best(exchanges: list[Exchange]) -> Exchange:
    """Return the exchange with the shortest round trip."""
    return min(exchanges, key=lambda exchange: exchange.round_trip_ns)


@dataclass(frozen=True)
class ClockRelation:
    """A linear relation of two clocks, from one exchange before a measurement and one after it.

    For times between the two, and for clocks with constant rates, the error of
    :meth:`to_host` is at most :attr:`error_ns`.
    """

    first: Exchange
    last: Exchange

    @property
    def error_ns(self) -> float:
        """The error bound in nanoseconds."""
        return max(self.first.error_ns, self.last.error_ns)

    @property
    def drift(self) -> float:
        """How much faster the target's clock runs, as a fraction; significant if it exceeds :attr:`drift_error`."""
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.offset_ns - self.first.offset_ns) / span if span > 0 else 0.0

    @property
    def drift_error(self) -> float:
        """The bound on the error of the drift."""
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.error_ns + self.first.error_ns) / span if span > 0 else float("inf")

    def to_host(self, target_ns: float) -> float:
        """Return the host's time at which the target's clock showed ``target_ns``."""
        # target = host + offset + drift * (host - middle), solved for host
        start, drift = self.first, self.drift
        host = target_ns - start.offset_ns
        return start.middle_ns + (host - start.middle_ns) / (1 + drift)

    def to_json(self) -> dict[str, float]:
        """Return the relation in the JSON form of result files."""
        found = {
            "offset_ns": self.first.offset_ns,
            "error_ns": self.error_ns,
            "round_trip_ns": float(min(self.first.round_trip_ns, self.last.round_trip_ns)),
            "drift_ppm": self.drift * 1e6,
        }
        if self.drift_error != float("inf"):
            found["drift_error_ppm"] = self.drift_error * 1e6
        return found
