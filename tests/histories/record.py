"""``python -m tests.histories.record``: write the histories anew."""

from __future__ import annotations

from tests.crash_simulator import CrashSimulation
from tests.histories.history import Recorder
from tests.histories.online import MODES, record
from tests.histories.scenes import SCENES

if __name__ == "__main__":
    for name, (builds, faults) in SCENES.items():
        recorder = Recorder()
        CrashSimulation(builds(), faults, on_life=recorder).run()
        recorder.write(name)
        print(f"{name}: {len(recorder.lines)} lines")
    for mode in MODES:
        print(f"online-{mode}: {record(mode)} lines")
