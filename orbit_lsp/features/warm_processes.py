"""Starts the processes that a click on an opened file will need, and names a Python that is not used."""

from __future__ import annotations

from orbit_lsp.features import Feature, FeatureContext, Tasks
from orbit_lsp.specs import launch_plan, spec_cache


class WarmProcesses(Feature):
    def __init__(self, context: FeatureContext) -> None:
        self._context = context
        self._tasks = Tasks("warm")

    def opened(self, uri: str) -> None:
        file = self._context.session.files.get(uri)
        if file and file.scan.kernels and file.builds:  # a cell is run by its notebook
            self._tasks.spawn(self._warm(uri, file.scan.language))

    def shutdown(self) -> None:
        self._tasks.cancel()

    async def _warm(self, uri: str, language: str) -> None:
        places, session = self._context.places, self._context.session
        if language == "triton":
            await places.python.look()
            if sentence := places.python.ignored():
                self._context.warn_once(sentence)
        await places.warm(language)
        if language != "cuda":
            return
        await spec_cache.settle(session, uri)  # it may have been edited meanwhile
        plans = (launch_plan.of(session, uri, kernel, target) for target, kernel, _ in session.kernels(uri))
        if any(plan.through == "spec" for plan in plans):
            await places.warm("triton")  # launch specs run in a Python child, of either language


def feature(context: FeatureContext) -> Feature:
    return WarmProcesses(context)
