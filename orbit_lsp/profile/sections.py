"""The sections of Nsight Compute that a request may name. They become words of ncu's command line."""

from __future__ import annotations

SECTIONS = (
    "ComputeWorkloadAnalysis", "InstructionStats", "LaunchStats", "MemoryWorkloadAnalysis", "MemoryWorkloadAnalysis_Chart",
    "MemoryWorkloadAnalysis_Tables", "NumaAffinity", "Nvlink_Tables", "Nvlink_Topology", "Occupancy", "PmSampling",
    "PmSampling_WarpStates", "SchedulerStats", "SourceCounters", "SpeedOfLight", "SpeedOfLight_HierarchicalDoubleRooflineChart",
    "SpeedOfLight_HierarchicalHalfRooflineChart", "SpeedOfLight_HierarchicalSingleRooflineChart",
    "SpeedOfLight_HierarchicalTensorRooflineChart", "SpeedOfLight_RooflineChart", "WarpStateStats", "WorkloadDistribution",
)  # fmt: skip
"""Those of the set `full` of 2025.3, and `PmSampling_WarpStates`, which newer versions have in it."""
