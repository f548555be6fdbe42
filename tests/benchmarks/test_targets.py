"""What is aimed at is read from the figures of a run, and what was not measured is not met."""

import dataclasses

import pytest
import targets
from peers.contest import Entry


def by_what(figures: dict, device: str) -> dict[str, dict]:
    return {row["what"]: row for row in targets.compared(figures, device)}


def peer(program: str, members: int, speed: float, processes: int = 1, **more: object) -> dict:
    return {"program": program, "members": members, "agent_updates_per_s": speed, "processes": processes} | {
        "withheld": None,
        **more,
    }


FIGURES = {
    "epoch": {
        "rows": [
            {"members": 1, "precision": "float32", "epoch_ms": 3.4},
            {"members": 1, "precision": "float32", "epoch_ms": 2.5},
            {"members": 1, "precision": "tf32", "epoch_ms": 0.5},
        ]
    },
    "population": {
        "rows": [
            {"members": 1024, "precision": "float32", "validation": "none", "updates_per_s": 2.1e6},
            {"members": 1024, "precision": "float32", "validation": "none, plain DQN", "updates_per_s": 9e6},
        ]
    },
    "residency": {
        "cases": [
            {"trainers": {"resident": {"fused": {"init": init}, "moved": {"bytes_h2d": sent}}}}
            for init, sent in ((0.01, 0), (0.2, 8))
        ]
    },
    "peers": {
        "is_whole": True,
        "failures": {},
        "rows": [
            peer("tidewalk", 8, 24_000.0),
            peer("sbx", 8, 6_000.0, ratio=4.0),
            peer("sbx", 8, 12_000.0, 2, ratio=2.0),
            peer("sb3", 8, 2_000.0, 2, withheld="it had not learned"),
            peer("sb3", 8, 1_000.0, ratio=24.0),
        ],
    },
}


def test_the_fastest_form_in_the_named_precision_counts() -> None:
    found = by_what(FIGURES, "gpu")
    assert found["starting-point epoch with a month of validation, 1 member, ms"]["value"] == 2.5
    assert found["starting-point epoch with a month of validation, 1 member, ms"]["is_met"]
    assert not found["the same (stretch)"]["is_met"]
    assert found["1,024 members, agent-updates/s"]["value"] == 2.1e6


def test_the_worst_case_of_residency_counts() -> None:
    found = by_what(FIGURES, "gpu")
    assert (found["init of an epoch, ms"]["value"], found["init of an epoch, ms"]["is_met"]) == (0.2, False)
    assert not found["bytes sent in an epoch after the first"]["is_met"]


def test_a_peer_is_taken_at_its_fastest_and_in_one_process() -> None:
    found = by_what(FIGURES, "cpu")
    assert found["8 members, times SBX in one process"]["is_met"]
    assert found["8 members, times SBX at its fastest"]["is_met"] is False
    assert found["8 members, agent-updates/s"]["value"] == 24_000.0


def test_a_peer_whose_fastest_form_has_not_learned_gives_no_ratio() -> None:
    # its slower form that has learned must not stand in for it
    assert targets.over_peer("sb3", 8)(FIGURES) is None


def test_a_peer_of_which_a_form_was_not_measured_gives_no_ratio() -> None:
    stopped = {"peers": FIGURES["peers"] | {"is_whole": False}}
    assert targets.over_peer("sbx", 8)(stopped) is None
    assert targets.over_peer("sbx", 8, processes=1)(stopped) is None
    assert by_what(stopped, "cpu")["8 members, times SBX at its fastest"]["found"] == "no figure"
    sbx, other = (Entry(name, "50/50", "cpu", 2, 1, 1) for name in ("sbx", "sb3"))
    for named in (sbx.label, f"{sbx.label}, 1 member(s)"):  # as it fails while it is timed, and while it is built
        failed = {"peers": FIGURES["peers"] | {"failures": {named: "MemoryError: none is left"}}}
        assert targets.over_peer("sbx", 8)(failed) is None
        assert targets.over_peer("sbx", 8, processes=1)(failed) == 4.0, "in one process it was measured"
    one_process = dataclasses.replace(sbx, processes=1, is_in_turn=True).label
    failed = {"peers": FIGURES["peers"] | {"failures": {one_process: "TimeoutError"}}}
    assert targets.over_peer("sbx", 8, processes=1)(failed) is None
    failed = {"peers": FIGURES["peers"] | {"failures": {other.label: "TimeoutError"}}}
    assert targets.over_peer("sbx", 8)(failed) == 2.0, "another peer failed"


def test_one_agent_beside_one_is_no_population() -> None:
    alone = {"peers": {"is_whole": True, "rows": [peer("tidewalk", 1, 20_000.0), peer("sbx", 1, 1_000.0, ratio=20.0)]}}
    assert targets.over_peer("sbx")(alone) is None
    assert targets.over_peer("sbx", 1)(alone) == 20.0


@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_what_was_not_measured_is_not_met(device: str) -> None:
    for figures in ({}, {"epoch": None, "peers": {"rows": []}, "residency": {"cases": []}}):
        rows = targets.compared(figures, device)
        assert {row["is_met"] for row in rows} == {None}
        assert {row["found"] for row in rows} == {"no figure"}
        assert targets.in_words(rows) == []
