"""The options of the doors: jobs, mcp, api, watch, loop, notebook kernels and skills."""

from __future__ import annotations

import argparse

from orbit_lsp.cli.command_options import FILE, NVCC, PYTHON, TRUST, build_timeout_option, json_option, option


def skills_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("list", "install"), help="list: their names and purposes; install: copy them"
    )
    option(
        parser,
        "--to",
        "with install: the folder of the agent's skills, as in --to .claude/skills",
        metavar="FOLDER",
    )


def pool_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of every command that takes jobs."""
    option(
        parser, "--pool", "GPUs that jobs run on, as in local:0,local:1, modal:H100*4 (four rented H100s) or ray*8 (of a Ray cluster); "
        "default: every GPU of this machine",
        "ORBIT_POOL", metavar="P",
    )  # fmt: skip
    option(parser, "--python", PYTHON, "ORBIT_PYTHON", metavar="PATH")
    option(parser, "--nvcc", NVCC, "ORBIT_NVCC", metavar="PATH")
    build_timeout_option(parser)
    option(
        parser, "--budget", "the most that rented GPUs may cost in this calendar month, in dollars; default: 0, nothing is rented "
        "[env: ORBIT_BUDGET_USD]",
        type=float, metavar="USD",
    )  # fmt: skip
    option(parser, "--trust", TRUST, action="store_true")


def jobs_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("submit", "list", "show", "cancel", "prune"),
        help="submit: run the files on the pool and wait for them; list: print the newest jobs; show or cancel: "
        "print or cancel the jobs with these ids; prune: remove the records of jobs that ended longer ago "
        "than --older",
    )  # fmt: skip
    parser.add_argument(
        "names", nargs="*", default=[], metavar="FILE|ID", help="files to submit, or ids of jobs"
    )
    option(
        parser, "--action", "with submit: run, profile, check (memory), compile or compare; default: run",
        choices=("run", "profile", "check", "compile", "compare"), default="run", metavar="A",
    )  # fmt: skip
    option(parser, "--against", "with --action compare: the other file", metavar="FILE")
    option(
        parser,
        "--full",
        "with --action profile: collect every section of Nsight Compute; slower",
        action="store_const",
        const="full",
        dest="detail",
    )
    option(
        parser, "--section", "with --action profile: collect this section of Nsight Compute; repeat it for several", action="append",
        default=[], metavar="S", dest="sections",
    )  # fmt: skip
    option(
        parser, "--tool", "with --action check: one tool of compute-sanitizer; repeat it for several; default: all", action="append",
        default=[], metavar="T", dest="tools", choices=("memcheck", "racecheck", "initcheck", "synccheck"),
    )  # fmt: skip
    option(
        parser, "--level", "with --action compile: keep what the compiler made of the kernel: sass, ptx, ttir, ttgir or llir; repeat it for several",
        action="append", default=[], metavar="L", dest="levels", choices=("sass", "ptx", "ttir", "ttgir", "llir"),
    )  # fmt: skip
    option(
        parser, "--argument", "with submit: an argument of the file's program; repeat it for several", action="append", default=[],
        metavar="A", dest="arguments",
    )  # fmt: skip
    option(
        parser, "--grade", "with submit: author, or referee, which measures a ModelNew from outside its process; default: author",
        choices=("author", "referee"), default="author", metavar="G",
    )  # fmt: skip
    option(
        parser, "--allow", "with --grade referee: give a score also to a right answer whose work is done by libraries' kernels (libraries), or in less "
        "than the reference's precision (precision); repeat it for both", action="append", default=[], metavar="P",
        choices=("libraries", "precision"),
    )  # fmt: skip
    option(parser, "--kernel", "with submit: run this kernel by its launch spec", metavar="K")
    option(parser, "--gpu", "with submit: only on this GPU of the pool, as in H100 or local:1", metavar="G")
    option(
        parser, "--flag", "with submit: a flag for nvcc; repeat it for several", action="append", default=[], metavar="F",
        dest="flags",
    )  # fmt: skip
    option(
        parser,
        "--timeout",
        "with submit: time limit of a run, in seconds; default: 60",
        type=float,
        metavar="S",
        dest="timeout_s",
    )
    option(
        parser,
        "--through",
        "with submit: run a kernel by a test, script or program of its project that `orbit-lsp drivers` lists; auto: the best one",
        metavar="D",
    )
    option(
        parser, "--priority", "with submit: high, normal or low; default: normal", choices=("high", "normal", "low"), default="normal",
        metavar="P",
    )  # fmt: skip
    option(
        parser,
        "--key",
        "with submit of one file: a name for the job; a second submit with the same key returns the first job",
        metavar="KEY",
    )
    option(
        parser, "--wait-limit", "with submit: how long a job may wait from its submission to its start, in seconds, before it ends as timed out; "
        "default: none, it waits until it is cancelled", type=float,
        metavar="S", dest="wait_limit_s",
    )  # fmt: skip
    option(
        parser, "--most", "with list: how many jobs to list; default: 100", type=int, default=100, metavar="N"
    )
    option(parser, "--under-way", "with list: only jobs that have not ended", action="store_true")
    option(
        parser,
        "--older",
        "with prune: remove jobs that ended longer ago than this, as in 12h; default: 7d",
        default="7d",
        metavar="T",
    )
    pool_options(parser)
    json_option(parser)


def mcp_options(parser: argparse.ArgumentParser) -> None:
    pool_options(parser)


def watch_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "folder", metavar="KERNELS", help="the folder in which .cu, .cuh and .py files appear"
    )
    option(
        parser,
        "--results",
        "the folder that results (NAME_result.json) are written to",
        metavar="RESULTS",
        required=True,
    )
    option(parser, "--once", "handle the files that are there, and end", action="store_true")
    option(
        parser,
        "--keep",
        "remove results that are older than T, as in 12h; default: 24h",
        default="24h",
        metavar="T",
    )
    option(
        parser, "--timeout", "time limit of a run, in seconds; default: 60", type=float, metavar="T", dest="timeout_s"
    )  # fmt: skip
    pool_options(parser)


def api_options(parser: argparse.ArgumentParser) -> None:
    option(
        parser,
        "--host",
        "address to listen on; default: 127.0.0.1; any other needs a token",
        default="127.0.0.1",
        metavar="H",
    )
    option(
        parser,
        "--port",
        "port to listen on; 0: any free one; default: 8421",
        type=int,
        default=8421,
        metavar="N",
    )
    option(
        parser, "--name", "a host name by which clients reach this server: requests for other names are refused; repeat it for several",
        action="append", default=[], metavar="NAME", dest="names",
    )  # fmt: skip
    option(
        parser, "--problems", "folder of GPU MODE's problems: popcorn-cli can submit to each folder with a task.yml",
        metavar="FOLDER",
    )  # fmt: skip
    pool_options(parser)


def kernel_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "what", choices=("install", "list", "remove", "run", "host"),
        help="install: add a kernel to the kernel menus of Jupyter and VS Code; list: list these kernels; remove: remove KERNEL; "
        "run: used by Jupyter; host: used by orbit-lsp api",
    )  # fmt: skip
    parser.add_argument("kernel", nargs="?", metavar="KERNEL", help="the kernel to remove, as list prints it")
    option(
        parser,
        "--on",
        "where the cells run: local (this machine, the default), a machine of your own, as in ssh:gpu1, a GPU rented from "
        "Modal, as in modal:H100, or the machine of an `orbit-lsp api`, as in api:http://gpu7:8421",
        default="local",
        metavar="WHERE",
    )
    option(
        parser,
        "--name",
        "name in the kernel menus, after `Orbit:`; default: `this GPU`, `H100 on Modal` with --on modal:H100, `gpu1` with "
        "--on ssh:gpu1, `gpu7:8421` with --on api:http://gpu7:8421",
        metavar="NAME",
    )
    option(
        parser,
        "--python",
        "Python that runs the cells, with --on ssh:HOST one of that machine; default: the environment of the notebook's folder, if you trust it; "
        "there python3",
        metavar="PATH",
    )
    option(
        parser, "--idle-minutes", "end the kernel after N minutes without a cell, to free its GPU memory; "
        "default: 0 (never); on another machine 15", metavar="N",
    )  # fmt: skip
    parser.add_argument(
        "--lease", choices=("cell", "session", "never"), metavar="WHEN",
        help="when the kernel reserves this machine's GPU, so that runs of an editor and cells do not disturb each other. cell (the default): "
        "while a cell runs; session: until the kernel ends; never. A kernel that has not opened the GPU yet reserves nothing",
    )  # fmt: skip
    option(
        parser, "--budget", "needed with --on modal:GPU: the most that rented GPUs may cost in a calendar month, in dollars "
        "[env: ORBIT_BUDGET_USD]",
        type=float, metavar="USD",
    )  # fmt: skip
    option(parser, "--connection-file", "used by Jupyter, with run", metavar="PATH")
    json_option(parser)


def loop_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", nargs="?", metavar="FILE", help=FILE)
    option(parser, "--kernel-path", "the same as FILE", metavar="FILE")
    option(parser, "--kernel", "the kernel; needed if the file has several", metavar="K")
    parser.add_argument(
        "--mode", "--execution-mode", choices=("manual", "command", "dry-run"), default="manual", metavar="M",
        help="manual: you start the worker and the reviewer; the loop prints the path of the file that each has to write, and waits for it; "
        "command: start --worker and --reviewer; dry-run: simulate answers and times, leave the kernel as it is; default: manual",
    )  # fmt: skip
    option(
        parser, "--worker", "with --mode command: the worker's command line, as in --worker 'agent --task {prompt}', started without a shell. Placeholders: "
        "the paths {prompt} (the task), {result} (the file to write), {kernel} (the kernel file), {folder} (the iteration's folder) and "
        "{state} (the loop's folder), and {iteration} (the iteration's number)", metavar="CMD",
    )  # fmt: skip
    option(parser, "--reviewer", "the same for the reviewer; default: no review", metavar="CMD")
    option(parser, "--no-reviewer", "with --mode manual: no review", action="store_true")
    option(
        parser, "--target-metric-name", "a name of your choice for the measured time; its ending (_ns, _us or _ms) is the unit of --target-metric-threshold; default: time_us",
        default="time_us", metavar="NAME",
    )  # fmt: skip
    option(parser, "--target-metric-threshold", "stop at a time of at most N", type=float, metavar="N")
    for name, text, kind, default in (
        ("--max-iterations", "stop after N iterations", int, 40),
        ("--max-wall-clock-minutes", "stop after N minutes", float, 360.0),
        ("--no-progress-limit", "stop after N iterations in a row without a kept change", int, 6),
        ("--infra-failure-limit", "stop after N infrastructure failures in a row", int, 3),
        ("--wait-minutes", "wait N minutes for a worker or a reviewer", float, 60.0),
    ):
        option(parser, name, f"{text}; default: {default:g}", type=kind, default=default, metavar="N")
    parser.add_argument(
        "--state", "--state-root", metavar="FOLDER",
        help="the loop's folder; default: .orbit-loop/k.cu beside the file k.cu",
    )  # fmt: skip
    option(parser, "--fresh-start", "empty the loop's folder first, and begin anew", action="store_true")
    option(
        parser,
        "--gpu",
        "measure on this GPU of the pool, as in H100 or local:1; default: its first",
        metavar="G",
    )
    option(
        parser, "--flag", "a flag for nvcc; repeat it for several", action="append", default=[], metavar="F", dest="nvcc_flags",
    )  # fmt: skip
    option(
        parser,
        "--timeout",
        "time limit of a run, in seconds; default: 60",
        type=float,
        metavar="S",
        dest="run_timeout_s",
    )
    pool_options(parser)
    json_option(parser)
