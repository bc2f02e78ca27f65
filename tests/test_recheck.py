"""The check of incremental scans against fresh ones: silent while they agree, mending where they do not."""

from __future__ import annotations

import pytest

from orbit_lsp.kernels import Edit, Scan
from orbit_lsp.server.scan_audit import Recheck
from orbit_lsp.state.documents import Change
from orbit_lsp.state.session import Session

URI = "file:///src/k.cu"
TEXT = "__global__ void k() {}\n"


class Stuck:
    """A tracker that never follows."""

    scan = Scan("cuda")

    def update(self, edits: list[Edit], text: str) -> Scan:
        return self.scan


@pytest.mark.parametrize("uri", [URI, "file:///src/k.py"])
async def test_a_scan_that_followed_is_left_alone(uri: str) -> None:
    session = Session()
    file = session.open(uri, 1, TEXT)
    assert file
    session.change(uri, 2, [Change((0, 0), (0, 0), "\n")])
    tracker = file.tracker
    assert await Recheck(session, lambda uris: None).check(uri)
    assert file.tracker is tracker


async def test_a_scan_that_did_not_follow_is_replaced_and_told() -> None:
    session, told = Session(), []
    file = session.open(URI, 1, TEXT)
    assert file
    file.tracker = Stuck()
    assert not await Recheck(session, told.append).check(URI)
    assert [kernel.name for kernel in file.scan.kernels] == ["k"]
    assert told == [{URI}]
