"""The epochs of an engine, one after another, the next begun before the metrics of this one are read.

So an accelerator never waits for what the host does between epochs. What is computed does not depend on it, only when:
an epoch reads nothing that the host makes of the one before.
"""

import dataclasses

import jax

from tidewalk.run.engine import Begun, Ended, Engine, State

MOST_MS = 1000.0
"""Longest epoch that is begun early: a stop has to wait for what was begun, and a longer one gains next to nothing."""


@dataclasses.dataclass
class Runner:
    """A training on its way."""

    engine: Engine
    state: State
    """After the last epoch that was begun."""
    begun: Begun | Exception | None = None
    """An epoch that was begun early, or why it could not be: raised when its turn comes, the one before it told."""
    ended: Ended | None = None
    """The last epoch whose metrics were read."""

    def run(self, *, may_go_on: bool) -> Ended:
        """One more epoch.

        Args:
            may_go_on: nothing needs the state between this epoch and the next, which may thus begin.
        """
        begun = self.begun or self._begin()
        if isinstance(begun, Exception):
            raise begun
        self.begun = self._begin_early() if may_go_on and self._is_worth_it() else None
        self.ended = self.engine.finish(begun, self.ended)
        return self.ended

    def _begin(self) -> Begun:
        self.state, begun = self.engine.begin(self.state)
        return begun

    def _begin_early(self) -> Begun | Exception:
        try:
            return self._begin()
        except Exception as error:  # no memory, say; the state may be lost, so it is not tried again
            return error

    def _is_worth_it(self) -> bool:
        return self.ended is not None and self.ended.times.total <= MOST_MS and device_runs_ahead()


def device_runs_ahead() -> bool:
    """Whether the device works while the host does; a CPU is the host, and would hold the scratch of two epochs."""
    return jax.default_backend() != "cpu"
