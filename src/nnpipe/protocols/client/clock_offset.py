"""How the target's clock relates to the host's, and with what certainty.

An exchange gives four stamps: ``t0`` when the host asked and ``t3`` when the
answer had come, on its clock; ``t1`` when the target had the question and
``t2`` when it answered, on its own.  The offset of the clocks is then
``((t1 - t0) + (t2 - t3)) / 2``, and wrong by half the round trip's time,
``((t3 - t0) - (t2 - t1)) / 2``, at most, however the time on the line is split
between there and back (RFC 5905, section 8).  Of several exchanges the one
with the shortest round trip binds tightest.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Exchange:
    """Four stamps in nanoseconds: asked and answered on the host's clock, received and replied on the target's."""

    asked: int
    received: int
    replied: int
    answered: int

    @property
    def round_trip_ns(self) -> int:
        """Time on the line, there and back."""
        return max((self.answered - self.asked) - (self.replied - self.received), 0)

    @property
    def offset_ns(self) -> float:
        """What must be added to the host's clock to get the target's."""
        return ((self.received - self.asked) + (self.replied - self.answered)) / 2

    @property
    def error_ns(self) -> float:
        """By how much the offset can be wrong: half the round trip, and a nanosecond for rounding."""
        return self.round_trip_ns / 2 + 1

    @property
    def middle_ns(self) -> float:
        """When, on the host's clock."""
        return (self.asked + self.answered) / 2


def best(exchanges: list[Exchange]) -> Exchange:
    """Return the exchange with the shortest round trip."""
    return min(exchanges, key=lambda exchange: exchange.round_trip_ns)


@dataclass(frozen=True)
class ClockRelation:
    """A line through two exchanges, one at the beginning and one at the end of what was measured.

    Between the two, and for clocks that run evenly, a time that
    :meth:`to_host` gives is wrong by :attr:`error_ns` at most.
    """

    first: Exchange
    last: Exchange

    @property
    def error_ns(self) -> float:
        """The bound, in nanoseconds."""
        return max(self.first.error_ns, self.last.error_ns)

    @property
    def drift(self) -> float:
        """How much faster the target's clock runs, as a fraction; meaningful where it exceeds :attr:`drift_error`."""
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.offset_ns - self.first.offset_ns) / span if span > 0 else 0.0

    @property
    def drift_error(self) -> float:
        """By how much the drift can be wrong."""
        span = self.last.middle_ns - self.first.middle_ns
        return (self.last.error_ns + self.first.error_ns) / span if span > 0 else float("inf")

    def to_host(self, target_ns: float) -> float:
        """Return the host's time at which the target's clock showed ``target_ns``."""
        # target = host + offset + drift * (host - middle), solved for host
        start, drift = self.first, self.drift
        host = target_ns - start.offset_ns
        return start.middle_ns + (host - start.middle_ns) / (1 + drift)

    def to_json(self) -> dict[str, float]:
        """Return what a result file records."""
        found = {
            "offset_ns": self.first.offset_ns,
            "error_ns": self.error_ns,
            "round_trip_ns": float(min(self.first.round_trip_ns, self.last.round_trip_ns)),
            "drift_ppm": self.drift * 1e6,
        }
        if self.drift_error != float("inf"):
            found["drift_error_ppm"] = self.drift_error * 1e6
        return found
