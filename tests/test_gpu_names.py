"""A GPU's name, wherever it is typed: a known one and an alias are taken, any other is refused, and no other GPU in its place."""

from __future__ import annotations

from typing import Any

import pytest

from orbit_lsp.cli.doors import kernel_command
from orbit_lsp.cli.terminal_text import UsageError
from orbit_lsp.places.places import Places
from orbit_lsp.queue import request as requests
from orbit_lsp.queue.pool import Slot
from orbit_lsp.queue.request import Request, RequestRefusedError
from orbit_lsp.runners import refusals
from orbit_lsp.runners.modal.rates import Rates
from orbit_lsp.specs import job_builder
from orbit_lsp.state import config, modal_gpus
from orbit_lsp.state.placement import RunSetup
from orbit_lsp.state.session import Session
from orbit_lsp.views import diagnostics, lenses
from orbit_remote.common import architectures, peaks
from orbit_remote.common import messages as c
from orbit_remote.common.requests import Job

KERNEL = "__global__ void k(float* x) { x[0] = 1; }\n"
URI = "file:///k.cu"


def device(name: str, capability: str = "9.0") -> c.Machine:
    devices = (c.Device(name, 0, capability=capability),)
    return c.Machine("p", c.RESULT_VERSION, "python", "3.12", devices=devices)


@pytest.mark.parametrize(
    ("typed", "rented"),
    [
        ("H100", "H100"),
        ("h100", "H100"),
        (" H100 ", "H100"),
        ("H100!", "H100"),
        ("H100:1", "H100"),
        ("H100:2", "H100:2"),
        ("H100!:2", "H100:2"),
        ("NVIDIA H100", "H100"),
        ("A10G", "A10"),
        ("a10g:4", "A10:4"),
        ("A100", "A100-40GB"),
        ("a100:2", "A100-40GB:2"),
        ("A100-80GB", "A100-80GB"),
        ("a100 80gb", "A100-80GB"),
        ("a100_80gb", "A100-80GB"),
        ("rtx-pro-6000", "RTX PRO 6000"),
        ("RTX PRO 6000", "RTX PRO 6000"),
        ("A10:5", ""),
        ("H100:9", ""),
        ("H100:0", ""),
        ("H100:", ""),
        ("H100:x", ""),
        ("H100:2:2", ""),
        ("L40", ""),
        ("A1000", ""),
        ("H1000", ""),
        ("B200+", ""),
        ("B300", ""),
        ("RTX 4090", ""),
        ("RTX 6000", ""),
        ("sm_90", ""),
        ("any", ""),
        ("", ""),
        (":2", ""),
        ("H100\n", "H100"),
    ],
)
def test_what_is_rented_for_a_name(typed: str, rented: str) -> None:
    assert modal_gpus.rented(typed) == rented


@pytest.mark.parametrize("gpu", modal_gpus.NAMES)
def test_all_that_is_known_of_a_gpu_is_known_of_each(gpu: str) -> None:
    assert modal_gpus.rented(gpu) == gpu
    assert architectures.architecture_for(gpu)
    assert Rates().of(gpu)
    assert peaks.peaks(c.Device(gpu.replace(" ", "-"), 0)).dram


@pytest.mark.parametrize("gpu", ["L40", "A10:8", "", "H100 ; rm"])
def test_modal_is_asked_for_nothing_else(gpu: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        modal_gpus.asked(gpu)
    job = Job("r1", "run", "cuda", "/k.cu", KERNEL, gpu=gpu)
    failure = refusals.no_gpu(job)
    assert failure
    assert failure.message == modal_gpus.refusal(gpu)


@pytest.mark.parametrize(
    ("name", "nvml", "means"),
    [
        ("RTX 4090", "NVIDIA GeForce RTX 4090", True),
        ("rtx4090", "NVIDIA GeForce RTX 4090", True),
        ("RTX 4090", "NVIDIA GeForce RTX 4090 Laptop GPU", True),
        ("RTX 4080", "NVIDIA GeForce RTX 4090", False),
        ("A100", "NVIDIA A100-SXM4-80GB", True),
        ("A100-40GB", "NVIDIA A100-SXM4-80GB", False),
        ("A10", "NVIDIA A100-SXM4-80GB", False),
        ("A10", "NVIDIA A10G", True),
        ("L4", "NVIDIA L40S", False),
        ("H100", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("T4", "Tesla T4", True),
        ("NVIDIA", "NVIDIA H100 80GB HBM3", False),
        ("RTX", "NVIDIA GeForce RTX 4090", False),
        ("80GB", "NVIDIA A100-SXM4-80GB", False),
        ("", "NVIDIA H100 80GB HBM3", False),
    ],
)
def test_the_name_of_a_gpu_that_is_here(name: str, nvml: str, means: bool) -> None:
    assert modal_gpus.means(name, nvml) is means


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("A1000", None),
        ("H1000", None),
        ("NVIDIA RTX A1000 Laptop GPU", "sm_86"),
        ("NVIDIA RTX A2000", "sm_86"),
        ("NVIDIA A100-SXM4-80GB", "sm_80"),
        ("A100_80GB", "sm_80"),
        ("NVIDIA GH200 480GB", "sm_90a"),
        ("GB200", "sm_100a"),
        ("GB300", "sm_103a"),
        ("compute_90", "sm_90"),
        ("9.0", "sm_90a"),
    ],
)
def test_a_longer_number_is_another_gpu(name: str, architecture: str | None) -> None:
    assert architectures.architecture_for(name) == architecture


# -- settings ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "rents", "complaint"),
    [
        ({"gpu": "A10G"}, "A10", ""),
        ({"gpu": "rtx-pro-6000"}, "RTX PRO 6000", ""),
        ({"gpu": "RTX 4090"}, "", ""),
        ({"gpu": "sm_89"}, "", ""),
        ({"gpu": "B300"}, "", ""),
        ({"gpu": "A1000X"}, "", "orbit setting `gpu`: 'A1000X' is not one of the GPUs on Modal: T4, "),
        ({"gpu": ""}, "", "orbit setting `gpu`: '' is not one of the GPUs on Modal: T4, "),
        ({"gpu": 100}, "", "orbit setting `gpu`: 100 is not text; until it is corrected, no GPU is rented"),
        ({"gpu": "H\0"}, "", "orbit setting `gpu` holds a NUL character"),
        ({}, "H100", ""),
    ],
)
def test_the_setting_rents_what_it_says_or_nothing(
    values: dict[str, Any], rents: str, complaint: str
) -> None:
    session = Session(
        setup=RunSetup(folders=["/w"], machine=c.Machine("p", c.RESULT_VERSION, "python", "3.12"))
    )
    places = Places(session, print, lambda _: None)
    places.settings.options = values | {"runner": "modal"}
    complaints = places.settings.configure(None)
    assert [each[: len(complaint)] for each in complaints] == ([complaint] if complaint else [])
    assert session.setup.rents() == rents
    session.open(URI, 1, KERNEL)
    frozen = session.freeze(URI)
    assert frozen
    run = job_builder.make(session, frozen, "run", "r1")
    assert (run.gpu or "") == rents or job_builder.refusal(run, job_builder.PROGRAM)
    assert not job_builder.refusal(job_builder.make(session, frozen, "compile", "r1"), job_builder.PROGRAM)


def test_a_list_with_a_mistake_names_no_gpu() -> None:
    settings, complaints = config.parse({"gpus": ["a10g", "H100", "H100!"]})
    assert (settings.gpus, complaints) == (("A10", "H100"), ())
    settings, complaints = config.parse({"gpus": ["L4", "L40"]})
    assert settings.gpus == ()
    assert complaints[0].startswith("orbit setting `gpus`: 'L40' is not one of the GPUs on Modal: ")


@pytest.mark.parametrize(
    ("values", "held", "consequence"),
    [
        ({"runner": "Local"}, ("local", 10, False), "no GPU is rented"),
        ({"modal": {"budget_usd": "20"}}, ("auto", 0, False), "the budget is 0"),
        ({"modal": {"budget_usd": -1}}, ("auto", 0, False), "the budget is 0"),
        ({"modal": {}}, ("auto", 10, False), ""),
        ({"modal": {"restricted": "yes"}}, ("auto", 10, True), "every run is restricted"),
    ],
)
def test_a_mistake_spends_and_permits_nothing(
    values: dict[str, Any], held: tuple[str, float | None, bool], consequence: str
) -> None:
    settings, complaints = config.parse(values)
    assert (settings.runner, settings.modal.budget_usd, settings.modal.restricted) == held
    assert [each.rpartition("; until it is corrected, ")[2] for each in complaints] == [consequence] * bool(
        consequence
    )
    assert all("; " not in config.reason(each) for each in complaints)


# -- the places where it is typed -------------------------------------------------------------------


def rented_session(text: str = KERNEL, **values: object) -> Session:
    setup = RunSetup(machine=c.Machine("p", c.RESULT_VERSION, "python", "3.12"), modal_account=True)
    setup.settings = config.parse({"runner": "modal"} | values)[0]
    session = Session(setup=setup)
    session.open(URI, 1, text)
    return session


def test_a_launch_spec_says_at_its_line_that_its_gpu_is_not_rented() -> None:
    spec = "// orbit: x = empty(4); launch k<<<1, 1>>>(x)\n// orbit: gpu {}\n"
    for gpu, messages in {
        "A10G": [],
        "L40": ["A run is refused: 'L40' is not one of the GPUs on Modal: T4, L4"],
        "A10:8": ["A run is refused: 'A10:8' is not rented: a container has 1 to 4"],
    }.items():
        session = rented_session(f"\n{spec.format(gpu)}{KERNEL}")
        wrong = [each for each in diagnostics.diagnostics(session, URI) if each.code == "launch-spec"]
        assert [each.range.start.line for each in wrong] == [2] * len(messages)
        assert [each.message.startswith(message) for each, message in zip(wrong, messages, strict=True)] == [
            True for _ in messages
        ]
        titles = [lens.command.title for lens in lenses.lenses(session, URI) if lens.command]
        assert ("▶ Run on A10" if gpu == "A10G" else "▶ Run (no such GPU to rent)") in titles


def test_a_lens_names_no_gpu_where_the_setting_rents_none() -> None:
    titles = [
        lens.command.title
        for lens in lenses.lenses(rented_session(KERNEL + "int main() { k<<<1, 1>>>(0); }\n", gpu="L40"), URI)
        if lens.command
    ]
    assert "▶ Run (no such GPU to rent)" in titles
    assert not any("L40" in title or "H100" in title for title in titles)


@pytest.mark.parametrize(
    ("gpu", "here", "sentence"),
    [
        ("a10g", "", "orbit: runs on Modal get A10 from now on"),
        ("A100", "", "orbit: runs on Modal get A100-40GB from now on"),
        ("L40", "", "orbit: 'L40' is not one of the GPUs on Modal: T4"),
        ("RTX 4090", "", "orbit: 'RTX 4090' is not one of the GPUs on Modal: T4"),
        ("rtx-4090", "NVIDIA GeForce RTX 4090", "orbit: runs go to NVIDIA GeForce RTX 4090 of this machine"),
        ("RTX 3090", "NVIDIA GeForce RTX 4090", "orbit: 'RTX 3090' is not one of the GPUs on Modal: T4"),
        ("local", "", "orbit: this machine has no NVIDIA GPU that can be used"),
    ],
)
def test_a_gpu_that_is_chosen(gpu: str, here: str, sentence: str) -> None:
    session = rented_session()
    if here:
        session.setup.machine = device(here, "8.9")
    places = Places(session, print, lambda _: None)
    before = session.setup.settings
    mistake = places.choose_gpu(gpu)
    assert (mistake or places.gpu_text()).startswith(sentence)
    assert not mistake or session.setup.settings == before


async def test_a_gpu_that_is_kept_warm_or_released_is_one_of_modals() -> None:
    places = Places(rented_session(), print, lambda _: None)
    assert (await places.rental.keep_warm("L40", keep=True)).startswith("orbit: 'L40' is not one of the GPUs")
    assert await places.rental.release("L40") == "orbit: no GPU is rented now"
    await places.close()


@pytest.mark.parametrize(
    ("named", "place", "machine", "refusal"),
    [
        ("H100", "modal", None, ""),
        ("RTX 4090", "modal", None, "'RTX 4090' is not one of the GPUs on Modal: T4"),
        ("RTX 4090", "local", None, ""),  # there is no GPU at all, which the run says
        ("RTX 4090", "local", device("NVIDIA GeForce RTX 4090", "8.9"), ""),
        ("rtx4090:2", "local", device("NVIDIA GeForce RTX 4090", "8.9"), ""),
        ("sm_89", "local", device("NVIDIA GeForce RTX 4090", "8.9"), ""),
        ("sm_90", "local", device("NVIDIA H100 80GB HBM3"), ""),
        ("sm_89", "local", device("NVIDIA H100 80GB HBM3"), "this machine has no sm_89, but NVIDIA H100 80GB HBM3, and"),
        ("RTX 4090", "local", device("NVIDIA H100 80GB HBM3"), "this machine has no RTX 4090, but NVIDIA H100 80GB HBM3, and"),
        ("RTX 4090", "modal", device("NVIDIA GeForce RTX 4090", "8.9"), "'RTX 4090' is not one of the GPUs on Modal: T4"),
    ],
)  # fmt: skip
def test_the_gpu_of_a_command(named: str, place: str, machine: c.Machine | None, refusal: str) -> None:
    setup = RunSetup(settings=config.parse({"runner": place})[0], machine=machine)
    why = setup.gpu_refusal(named)
    assert why.startswith(refusal)
    assert bool(why) is bool(refusal)


@pytest.mark.parametrize(
    ("wanted", "slot", "takes"),
    [
        ("A10G", Slot("modal:A10#1", gpu="A10"), True),
        ("a100", Slot("modal:A100-40GB#1", gpu="A100-40GB"), True),
        ("A100 80GB", Slot("modal:A100-80GB#1", gpu="A100-80GB"), True),
        ("A100", Slot("modal:A100-80GB#1", gpu="A100-80GB"), False),
        ("H100:2", Slot("modal:H100:2#1", gpu="H100:2"), True),
        ("H100", Slot("modal:H100:2#1", gpu="H100:2"), False),
        ("H100:2", Slot("modal:H100#1", gpu="H100"), False),
        ("modal:H100", Slot("modal:H100#2", gpu="H100"), True),
        ("H100", Slot("local:0", gpu="NVIDIA H100 80GB HBM3"), True),
        ("H100:2", Slot("local:0", gpu="NVIDIA H100 80GB HBM3"), False),
        ("A100", Slot("local:0", gpu="NVIDIA A100-SXM4-80GB"), True),
        ("rtx-4090", Slot("local:0", gpu="NVIDIA GeForce RTX 4090"), True),
        ("NVIDIA", Slot("local:0", gpu="NVIDIA H100 80GB HBM3"), False),
        ("RTX", Slot("local:0", gpu="NVIDIA GeForce RTX 4090"), False),
        ("LOCAL:0", Slot("local:0", gpu="NVIDIA H100 80GB HBM3"), True),
        ("H100", Slot("local:0"), False),
        ("", Slot("local:0"), True),
    ],
)
def test_the_place_that_takes_a_job(wanted: str, slot: Slot, takes: bool) -> None:
    assert slot.takes(Request(name="k.cu", text=KERNEL, gpu=wanted)) is takes


@pytest.mark.parametrize(("gpu", "known"), [("A10G", True), ("sm_90", True), ("", True), ("A1000X", False)])
def test_a_job_that_compiles_is_for_a_known_gpu(gpu: str, known: bool) -> None:
    request = Request(name="k.cu", text=KERNEL, action="compile", gpu=gpu)
    if known:
        requests.check(request, trusted=False)
        return
    with pytest.raises(RequestRefusedError, match="'A1000X' is not a GPU that code can be compiled for"):
        requests.check(request, trusted=False)


@pytest.mark.parametrize(("on", "gpu"), [("local", ""), ("modal:a10g", "A10"), ("modal:H100!:2", "H100:2")])
def test_the_gpu_of_a_notebook_kernel(on: str, gpu: str) -> None:
    assert kernel_command._gpu(on) == gpu


@pytest.mark.parametrize(
    "on", ["modal:", "modal:L40", "modal:RTX 4090", "modal:sm_90", "modall:H100", "H100"]
)
def test_a_notebook_kernel_is_not_of_another_gpu(on: str) -> None:
    with pytest.raises(
        UsageError, match=r"is no place: write local, ssh:HOST, api: .* or modal: and one of T4, "
    ):
        kernel_command._gpu(on)
