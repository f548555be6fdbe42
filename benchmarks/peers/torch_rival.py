"""A rival of our own in torch, as fast as we can make it: not a product, and labelled so.

The style of LeanRL, with a population: everything on the device, the weights of all members stacked so that a layer is
one `baddbmm`, online and target network one stack so that both forward passes are one, gradients written out, fused
Adam, replay entries of one number from which observations and reward are looked up again, one random draw per epoch.

Modes: `eager`; `compiled` (torch.compile); `graph` (the epoch of fifty steps as one CUDA graph); `compiled graph`.
"""

import itertools
from collections.abc import Callable

import numpy as np
import torch
from peers import torch_env
from peers.program import Setting, checked
from peers.torch_tools import choose_threads, peak_bytes, set_up
from peers.workload import FLAT, POSITIONS, Workload

ONLINE, TARGET = 0, 1
_FEW_LANES = 8


def _forward(weights: list[torch.Tensor], x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Both hidden layers and the values, of weights `[N, in, out]` and biases `[N, 1, out]` in turn."""
    w1, b1, w2, b2, w3, b3 = weights
    h1 = torch.baddbmm(b1, x, w1).relu()
    h2 = torch.baddbmm(b2, h1, w2).relu()
    return h1, h2, torch.baddbmm(b3, h2, w3)


class TorchRival:
    def __init__(self, workload: Workload, setting: Setting) -> None:
        set_up(setting)
        torch.manual_seed(setting.seed)
        self._device = "cuda" if setting.device == "gpu" else "cpu"
        self._workload, self._members = workload, setting.members
        self.tables = torch_env.arrays(workload, self._device)
        self._start_weights()
        self._start_lanes()
        # Rounded up, so that the words of every step are aligned: torch.compile copies those that are not.
        self._words = -(-(3 * workload.lanes + workload.batch_size) // 4) * 4
        self._gradients = torch.compile(self.step, dynamic=False) if "compiled" in setting.mode else self.step
        for words in self.draw(workload.prefill_steps):
            self._move(words, torch.zeros_like(self.state), epsilon=1.0)
        self._epochs, self._run = 0, self._graph() if "graph" in setting.mode else self._epoch
        if setting.threads is None and setting.device == "cpu":
            choose_threads(lambda: self.advance(workload.updates_per_epoch))

    def _start_weights(self) -> None:
        """Stacks `[2, N, in, out]` and `[2, N, 1, out]`: the online and the target network of every member."""
        workload, device = self._workload, self._device
        sizes = (workload.observation_size, *workload.hidden, POSITIONS)
        self.stacks = []
        for fan_in, fan_out in itertools.pairwise(sizes):
            for rows in (fan_in, 1):
                drawn = (2 * torch.rand(self._members, rows, fan_out, device=device) - 1) / fan_in**0.5
                self.stacks.append(torch.stack([drawn, drawn]))
        self._online = [stack[ONLINE] for stack in self.stacks]
        self._optimizer = torch.optim.Adam(
            self._online, lr=workload.learning_rate, fused=True, capturable=device == "cuda"
        )

    def _start_lanes(self) -> None:
        workload, device = self._workload, self._device
        first, stop = self.tables.first_bar, self.tables.stop_bar
        shape = (self._members, workload.lanes)
        self.state = (torch.randint(first, stop, shape, device=device) * POSITIONS + FLAT).int()
        self._age = torch.zeros(shape, dtype=torch.int32, device=device)
        self.replay = torch.zeros(self._members, workload.capacity, dtype=torch.int32, device=device)
        self.clock = torch.zeros((), dtype=torch.int64, device=device)
        self._lane = torch.arange(workload.lanes, device=device)
        self._actions = torch.arange(POSITIONS, device=device)

    def draw(self, steps: int) -> torch.Tensor:
        """All random numbers of some vector steps: explore, action and restart of every lane, and the batch."""
        return torch.rand(steps, self._members, self._words, device=self._device)

    def _move(self, words: torch.Tensor, greedy: torch.Tensor, epsilon: float) -> None:
        """Every lane of every member moves one bar, by its greedy action or a random one; the replay keeps it."""
        lanes, tables = self._workload.lanes, self.tables
        explore, random, restart = words[:, : 3 * lanes].split(lanes, dim=1)
        action = torch.where(explore < epsilon, (random * POSITIONS).int(), greedy.int())
        fresh_bar = tables.first_bar + (restart * (tables.stop_bar - tables.first_bar)).int()
        decision, state, age, _ = torch_env.step(tables, self.state, self._age, action, fresh_bar)
        slots = (self.clock * lanes + self._lane) % self._workload.capacity
        self.replay.index_copy_(1, slots, decision)
        self.state.copy_(state)
        self._age.copy_(age)
        self.clock.add_(1)

    def step(self, words: torch.Tensor) -> list[torch.Tensor]:
        """One vector step, and the gradients of the update that follows it.

        The network that acts is the one that learns, so both read their values from one forward pass. The update draws
        from what was stored before this step.
        """
        workload, tables, batch = self._workload, self.tables, self._workload.batch_size
        filled = (self.clock * workload.lanes).clamp(max=workload.capacity)
        drawn = (words[:, 3 * workload.lanes :][:, :batch] * filled).long()
        decision = self.replay.gather(1, drawn)
        before = torch_env.observations_of(tables, decision // POSITIONS)
        after = torch_env.observation_after(tables, decision)
        h1, h2, q, q_after = self._values(before, after, torch_env.observations_of(tables, self.state))
        self._move(words, q[:, batch:].argmax(dim=2), workload.epsilon)
        target = torch_env.reward_of(tables, decision) + workload.gamma * q_after.amax(dim=2)
        is_taken = (decision % POSITIONS)[..., None] == self._actions
        error = (q[:, :batch] * is_taken).sum(dim=2) - target
        # Huber loss: its slope is the error, at most one.
        d3 = is_taken * (error.clamp(-1.0, 1.0) / batch)[..., None]
        _, _, w2, _, w3, _ = self._online
        d2 = torch.bmm(d3, w3.mT) * (h2 > 0)
        d1 = torch.bmm(d2, w2.mT) * (h1 > 0)
        weights = [torch.bmm(before.mT, d1), torch.bmm(h1.mT, d2), torch.bmm(h2.mT, d3)]
        biases = [d.sum(dim=1, keepdim=True) for d in (d1, d2, d3)]
        return [gradient for pair in zip(weights, biases, strict=True) for gradient in pair]

    def _values(
        self, before: torch.Tensor, after: torch.Tensor, now: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
        """Hidden layers of `before`, values of `before` and `now` by the online, and of `after` by the target network.

        With few lanes both networks take one pass, the target's rows for `now` being in vain; with many, one each.
        """
        members, batch = self._members, before.shape[1]
        if self._workload.lanes <= _FEW_LANES:
            rows = torch.cat([torch.cat([before, now], dim=1), torch.cat([after, now], dim=1)])
            h1, h2, q = _forward([stack.flatten(0, 1) for stack in self.stacks], rows)
            return h1[:members, :batch], h2[:members, :batch], q[:members], q[members:, :batch]
        h1, h2, q = _forward(self._online, torch.cat([before, now], dim=1))
        _, _, q_after = _forward([stack[TARGET] for stack in self.stacks], after)
        return h1[:, :batch], h2[:, :batch], q, q_after

    @torch.no_grad()
    def _epoch(self) -> None:
        for words in self.draw(self._workload.updates_per_epoch):
            for parameter, gradient in zip(self._online, self._gradients(words), strict=True):
                # Fused Adam wants the strides of the parameter, those of axes of length one too.
                parameter.grad = gradient.contiguous().view(-1).view(parameter.shape)
            self._optimizer.step()

    def _graph(self) -> Callable[[], None]:
        """The epoch as one CUDA graph. The epoch before the capture, which torch asks for, is undone."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            carried = [*self.stacks, self.state, self._age, self.replay, self.clock]
            before = [tensor.clone() for tensor in carried]
            self._epoch()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._epoch()
        for tensor, old in zip(carried, before, strict=True):
            tensor.copy_(old)
        for state in self._optimizer.state.values():
            for tensor in state.values():
                tensor.zero_()
        return graph.replay

    def advance(self, updates: int) -> None:
        workload = self._workload
        for _ in range(updates // workload.updates_per_epoch):
            self._run()
            self._epochs += 1
            # The period is a whole number of epochs, so the hard copy stays outside of the graph.
            if self._epochs % (workload.target_period // workload.updates_per_epoch) == 0:
                for stack in self.stacks:
                    stack[TARGET].copy_(stack[ONLINE])
        if self._device == "cuda":
            torch.cuda.synchronize()

    def counts(self) -> tuple[int, int]:
        updates = {int(state["step"]) for state in self._optimizer.state.values()}
        (updates,) = updates or {0}
        return int(self.clock) - self._workload.prefill_steps, updates

    @torch.no_grad()
    def q_values(self, observations: np.ndarray) -> np.ndarray:
        chosen = torch.from_numpy(checked(self._members)).to(self._device)
        x = torch.from_numpy(observations).to(self._device).expand(len(chosen), -1, -1)
        return _forward([weight[chosen] for weight in self._online], x)[2].cpu().numpy()

    def peak_device_bytes(self) -> int | None:
        return peak_bytes()
